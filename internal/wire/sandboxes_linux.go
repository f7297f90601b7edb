package wire

import (
	"agentbox/internal/auth"
	"agentbox/internal/config"
	"agentbox/internal/image"
	"agentbox/internal/server/sandboxes"
)

// projectImage is what clients of autocoder expect their sandboxes to be made of.
const projectImage = "autocoder-sandbox:latest"

// addSandboxes adds the door /api/sandboxes.
func (d *daemon) addSandboxes() {
	l := d.cfg.Limits
	sandboxes.Add(d.server.Router(), sandboxes.Parts{
		Sandboxes: d.boxes, Volumes: d.vols, Settings: d.store, Audit: d.audit, Network: d.boxes.DefaultNetwork,
		Image: d.projectImage, MaxIdle: l.IdleTimeout, MaxLifetime: l.Lifetime, Exec: l.ExecTimeout,
	})
}

// projectImage is the image of that name where the server has what it stands for, and
// else the server's default image.
func (d *daemon) projectImage() string {
	alias, ok := image.FindAlias(projectImage)
	if ok {
		if _, err := d.images.Inspect(alias.Image); err == nil {
			return projectImage
		}
	}
	return d.cfg.Sandbox.Image
}

// login is how clients of autocoder may come in, if the operator wants it.
func login(c *config.Autocoder) auth.Login {
	if !c.AuthEnabled {
		return auth.Login{}
	}
	return auth.Login{Kind: auth.LoginKind(c.AuthType), User: c.AuthUser, Pass: c.AuthPass, RootUser: c.RootUser, RootPass: c.RootPass, Token: c.APIKey}
}
