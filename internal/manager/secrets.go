package manager

import "agentbox/internal/sandbox"

// Secrets are what owners keep and sandboxes use without seeing it.
type Secrets interface {
	// Give draws placeholders for a new sandbox. A secret that the owner does not
	// have is an *sandbox.InvalidError.
	Give(owner string, names []string) ([]sandbox.SecretUse, error)
}

// giveSecrets plans the secrets of a new sandbox, whose environment has the
// placeholders.
func (m *Manager) giveSecrets(owner string, names []string, p *plan) (err error) {
	if len(names) == 0 {
		return nil
	}
	if m.opts.Secrets == nil {
		return unsupported("a secret")
	}
	if p.secrets, err = m.opts.Secrets.Give(owner, names); err != nil {
		return err
	}
	for _, u := range p.secrets {
		p.Env = append(p.Env, u.Name+"="+u.Placeholder)
	}
	return nil
}
