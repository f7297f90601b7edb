// Package packages has the commands that install packages in a sandbox: which
// package managers there are, how packages may be named, and which hosts must be
// allowed first. A name is never an option, a URL or a path, so it installs from the
// package index and does nothing else.
package packages

import (
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/containerd/errdefs"

	"agentbox/internal/egress/policy"
	"agentbox/internal/sandbox"
)

// Tool is a package manager. The zero value is none.
type Tool struct {
	// Name is what users call it, and Of says what it installs.
	Name, Of string
	// Allowed says in words how a package may be named.
	Allowed string
	// Preset names the hosts that must stand in an allow-list, by their names or by this
	// one: what they serve is fetched in two steps, and a list that lacks one fails in
	// the middle. Empty: none must.
	Preset string

	named   *regexp.Regexp
	command sandbox.Command // to which the packages are added
}

// Bounds of one installation.
const (
	// MaxPackages and MaxName bound what is named: more than any project needs, and
	// less than the arguments of a program may have.
	MaxPackages = 500
	MaxName     = 200
	// Timeout is how long Python and Node packages may take, and slowTimeout those of
	// the system, which fetch lists of all there is first.
	Timeout     = 120 * time.Second
	slowTimeout = 5 * time.Minute
)

var tools = []Tool{
	{
		Name: "pip", Of: "Python packages", Allowed: "a name with extras and versions, such as requests, uvicorn[standard]>=0.2 or numpy>=1.2,<2",
		named:   regexp.MustCompile(`\A[A-Za-z0-9][A-Za-z0-9._-]*(\[[A-Za-z0-9,._-]+\])?([<>=!~]+[A-Za-z0-9.*,<>=!~]+)?\z`),
		Preset:  "python",
		command: sandbox.Command{Argv: []string{"pip", "install", "--user"}, Timeout: Timeout},
	},
	{
		// A slash is a scope's only: the rest would be a repository or a file.
		Name: "npm", Of: "Node packages", Allowed: "a name with a version, such as express, @types/node or left-pad@^1.3",
		named:   regexp.MustCompile(`\A(@[A-Za-z0-9][A-Za-z0-9._~-]*/)?[A-Za-z0-9][A-Za-z0-9._~-]*(@[A-Za-z0-9^~<>=*][A-Za-z0-9^~<>=*.+_-]*)?\z`),
		Preset:  "npm",
		command: sandbox.Command{Argv: []string{"npm", "install", "--no-audit", "--no-fund"}, Timeout: Timeout},
	},
	{
		// A minus at the end, of the version too, would remove the package. A name that is
		// none is no pattern of names. Which hosts are needed says the image's list of
		// sources.
		Name: "apt", Of: "Debian packages, as root", Allowed: "a name with a version, such as jq, g++ or git=1:2.47.3-0+deb13u1",
		named: regexp.MustCompile(`\A[a-z0-9][a-z0-9+.-]*[a-z0-9+](:[a-z0-9]+)?(=[A-Za-z0-9]([A-Za-z0-9.+:~-]*[A-Za-z0-9.+~])?)?\z`),
		command: sandbox.Command{
			Argv: []string{"sh", "-c", `apt-get -q update && exec apt-get -q install -y --no-install-recommends -o APT::Cmd::Pattern-Only=true "$@"`, "apt"},
			User: "root", Env: []string{"DEBIAN_FRONTEND=noninteractive"}, Timeout: slowTimeout,
		},
	},
}

// archive has the endings, before extras and versions too, by which pip and npm
// take a text for a file in the directory where they run; npm takes any character for the
// one between tar and gz.
var archive = regexp.MustCompile(`(?i)\.(whl|zip|tar|tgz|tbz|txz|tlz|tar.(gz|bz2|xz|lz|lzma))([@\[].*)?\z`)

func (t *Tool) hosts() []string {
	hosts, _ := policy.Preset(t.Preset) // none without one
	return hosts
}

// Tools are all package managers, in the order of the documentation.
func Tools() []Tool { return slices.Clone(tools) }

// Find is the one of that name.
func Find(name string) (t Tool, ok bool) {
	i := slices.IndexFunc(tools, func(t Tool) bool { return t.Name == name })
	if i < 0 {
		return t, false
	}
	return tools[i], true
}

// Command installs packages in a sandbox with that network. Without packages it
// does, or complains, as the package manager itself. An error is a *RefusedError.
func (t *Tool) Command(n sandbox.Network, packages []string) (sandbox.Command, error) {
	if !t.reaches(n) {
		text := t.Name + " install requires " + strings.Join(t.hosts(), " and ") + " in allowed_hosts"
		return sandbox.Command{}, &RefusedError{text, sandbox.Refuse(errdefs.ErrPermissionDenied, "%s", text)}
	}
	if len(packages) > MaxPackages {
		return sandbox.Command{}, &RefusedError{"Too many packages", &sandbox.InvalidError{Field: "packages", Allowed: "at most 500 packages"}}
	}
	for _, p := range packages {
		if len(p) > MaxName || !t.named.MatchString(p) || archive.MatchString(p) {
			if len(p) > MaxName {
				p = strings.ToValidUTF8(p[:MaxName], "") + "…"
			}
			return sandbox.Command{}, &RefusedError{"Invalid package specifier: " + p, &sandbox.InvalidError{Field: "packages", Value: p, Allowed: t.Allowed}}
		}
	}
	c := t.command
	c.Argv = slices.Concat(c.Argv, packages)
	c.Env = slices.Clone(c.Env)
	return c, nil
}

// reaches reports whether the hosts stand in the list: as they are, or in a preset.
// A pattern that covers one does not count, nor does a list of requests. With the
// whole network there is no list to stand in.
func (t *Tool) reaches(n sandbox.Network) bool {
	if n.Mode == sandbox.NetworkFull {
		return true
	}
	if !n.On() {
		return t.Preset == ""
	}
	listed := slices.Clone(n.Allow)
	for _, e := range n.Allow {
		hosts, _ := policy.Preset(e)
		listed = append(listed, hosts...)
	}
	for _, h := range t.hosts() {
		if !slices.Contains(listed, h) {
			return false
		}
	}
	return true
}

// RefusedError tells why nothing was started. Its text is for the caller.
type RefusedError struct {
	text  string
	cause error // with the class: a *sandbox.Refusal or *sandbox.InvalidError
}

func (e *RefusedError) Error() string { return e.text }

func (e *RefusedError) Unwrap() error { return e.cause }
