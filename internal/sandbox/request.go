package sandbox

import (
	"cmp"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// CreateRequest is what a caller wants. A zero field is "not said".
type CreateRequest struct {
	Image string // "": the server's default image
	Name  string
	// Aliases are ids that the door gives the sandbox beside its own.
	Aliases []Alias
	Labels  map[string]string
	// Env is added to the image's environment, "NAME=value".
	Env           []string
	User, Workdir string // instead of the image's
	// Network is what the sandbox may reach.
	Network Network
	// Ports of the sandbox that are to be had on the host's loopback interface.
	Ports []Port
	// Volumes of the owner that the sandbox sees.
	Volumes []VolumeMount
	// Secrets of the owner, by name, that requests of the sandbox may have put in.
	// It sees a placeholder for each, in a variable of that name.
	Secrets []string `json:",omitempty"` // requests of before there were any are compared
	// Tenant names the storage within the owner's that the sandbox has on
	// WorkspacePath and OutputsPath, where the server keeps such storage; else it
	// is a word that is given back. Empty: none.
	Tenant string
	// Limits that the caller chose. One above the operator's maximum, or that
	// this host can't enforce, is refused.
	Limits Limits
	// Defaults are the door's own, for limits that the caller did not choose.
	// They are lowered to the operator's maximum, and need not be enforced.
	Defaults Limits
	// IdleTimeout and Lifetime; 0: the server's default, Never: no end, if the
	// operator allows it.
	IdleTimeout, Lifetime time.Duration
	OnIdle                OnIdle
	// ProcessAPI: programs in the sandbox find the process API on its loopback
	// interface.
	ProcessAPI bool `json:",omitempty"` // as with Secrets
	// KeepStopped is how long the sandbox stays when it is stopped, or failed and is
	// kept; 0: until somebody destroys it.
	KeepStopped time.Duration
	// KeepFailed: a sandbox that agentbox could not make, or that ended by itself,
	// stays in the state error, for KeepStopped.
	KeepFailed bool
}

// Update changes a sandbox. A nil field leaves things as they are.
type Update struct {
	// Labels to set; a nil value removes the label.
	Labels      map[string]*string
	IdleTimeout *time.Duration // or Never
	// Lifetime from now on, longer or shorter than before, or Never.
	Lifetime *time.Duration
	// Limits to change; those that are 0 stay.
	Limits Limits
}

// Filter selects sandboxes of one owner. Zero fields select all.
type Filter struct {
	Labels map[string]string // all of them
	Status []State           // one of them
	Name   string
	// Cursor is Page.Next of the page before.
	Cursor string
	Limit  int // 0: DefaultPage; at most MaxPage
}

// Sizes of pages.
const (
	DefaultPage = 100
	MaxPage     = 1000
)

// Page is a part of a list, oldest sandbox first.
type Page struct {
	Items []Sandbox
	Next  string // cursor; "": that was all
}

// Bounds of what a caller may attach to a sandbox.
const (
	MaxPorts      = 32
	MaxLabels     = 64
	MaxLabelKey   = 128
	MaxLabelValue = 1024
	MaxEnv        = 1024
	MaxEnvBytes   = 128 * KiB
	maxPath       = 4095 // PATH_MAX of Linux without its NUL
	maxUser       = 128
	maxImage      = 512
)

var idForm = form(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$`)

// CheckID reports an id that a caller chose and that can't be one as an
// [*InvalidError].
func CheckID(field, id string) error {
	if idForm().MatchString(id) {
		return nil
	}
	return &InvalidError{Field: field, Value: Clip(id, maxShown), Allowed: "1 to 128 of A-Z, a-z, 0-9, ., _ and -, not beginning with . or -"}
}

// Check reports the first field, other than limits and timeouts, whose value is
// not allowed, as an [*InvalidError].
func (r *CreateRequest) Check() error {
	if r.Name != "" {
		if err := CheckID("name", r.Name); err != nil {
			return err
		}
	}
	for _, a := range r.Aliases {
		if err := CheckID("id", a.Value); err != nil {
			return err
		}
	}
	if r.OnIdle != "" && r.OnIdle != IdleDestroy && r.OnIdle != IdleStop {
		return &InvalidError{Field: "on_idle", Value: Clip(string(r.OnIdle), maxShown), Allowed: string(IdleDestroy) + " or " + string(IdleStop)}
	}
	if r.Workdir != "" && !strings.HasPrefix(r.Workdir, "/") {
		return &InvalidError{Field: "workdir", Value: Clip(r.Workdir, maxShown), Allowed: "an absolute path"}
	}
	return cmp.Or(
		checkText("image", r.Image, maxImage), checkText("user", r.User, maxUser), checkText("workdir", r.Workdir, maxPath),
		CheckLabels(r.Labels), checkEnv(r.Env), r.checkVolumes(), r.checkSecrets(),
	)
}

// checkVolumes takes the paths of a tenant's storage for taken, whether there is
// any or not.
func (r *CreateRequest) checkVolumes() error {
	var paths []string
	if r.Tenant != "" {
		if err := CheckTenantID(r.Tenant); err != nil {
			return err
		}
		paths = append(paths, WorkspacePath, OutputsPath)
	}
	names := map[string]bool{}
	for _, v := range r.Volumes {
		if err := checkStorageName("volumes", v.Name); err != nil {
			return err
		}
		if names[v.Name] {
			return &InvalidError{Field: "volumes", Value: v.Name, Allowed: "each volume once"}
		}
		names[v.Name] = true
		paths = append(paths, v.Path)
	}
	return CheckMountPaths("volumes", paths)
}

// CheckLabels reports labels that are too many, too long or not named.
func CheckLabels(labels map[string]string) error {
	if len(labels) > MaxLabels {
		return &InvalidError{Field: "labels", Value: fmt.Sprint(len(labels)), Allowed: fmt.Sprintf("at most %d labels", MaxLabels)}
	}
	for k, v := range labels {
		if k == "" {
			return &InvalidError{Field: "labels", Value: k, Allowed: "names that are not empty"}
		}
		if err := cmp.Or(checkText("labels", k, MaxLabelKey), checkText("labels", v, MaxLabelValue)); err != nil {
			return err
		}
	}
	return nil
}

func checkEnv(env []string) error {
	if len(env) > MaxEnv {
		return &InvalidError{Field: "env", Value: fmt.Sprint(len(env)), Allowed: fmt.Sprintf("at most %d variables", MaxEnv)}
	}
	total := 0
	for _, e := range env {
		name, _, ok := strings.Cut(e, "=")
		if !ok || name == "" || !isText(e) {
			return &InvalidError{Field: "env", Value: Clip(name, maxShown), Allowed: "NAME=value in UTF-8 without NUL"}
		}
		total += len(e) + 1
	}
	if total > int(MaxEnvBytes) {
		return &InvalidError{Field: "env", Value: fmt.Sprintf("%d bytes", total), Allowed: "at most " + FormatSize(MaxEnvBytes) + " in all"}
	}
	return nil
}

func envName(e string) string {
	name, _, _ := strings.Cut(e, "=")
	return name
}

func checkText(field, s string, most int) error {
	if len(s) <= most && isText(s) {
		return nil
	}
	return &InvalidError{Field: field, Value: Clip(s, maxShown), Allowed: fmt.Sprintf("at most %d bytes of UTF-8 without NUL", most)}
}

func isText(s string) bool { return utf8.ValidString(s) && !strings.ContainsRune(s, 0) }

// maxShown is how much of a value that is not allowed is told, in bytes.
const maxShown = 64

// Clip is what is shown of a text that somebody else chose: at most so many bytes.
func Clip(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
