package agentbox

import (
	"context"
	"net/http"
)

// MkdirOptions are for Mkdir.
type MkdirOptions struct {
	Mode  string `json:"mode,omitempty"`  // octal; empty: 755
	Owner string `json:"owner,omitempty"` // user, user:group or :group
}

// Mkdir makes a directory and those above it. One that is there is no error.
func (f *Files) Mkdir(ctx context.Context, path string, o MkdirOptions) error {
	return f.change(ctx, "mkdir", struct {
		Path string `json:"path"`
		User string `json:"user,omitempty"`
		MkdirOptions
	}{path, f.user, o})
}

// change sends a change whose answer says nothing.
func (f *Files) change(ctx context.Context, what string, in any) error {
	return f.b.c.tell(ctx, call{method: http.MethodPost, path: f.b.in("files", what), in: in})
}

// fromTo are two names.
type fromTo struct {
	From      string `json:"from"`
	To        string `json:"to"`
	Overwrite bool   `json:"overwrite,omitempty"`
	Recursive bool   `json:"recursive,omitempty"`
	User      string `json:"user,omitempty"`
}

// Move gives a file or directory another name: to is that name, not the directory that it
// goes to. With overwrite it replaces what is there.
func (f *Files) Move(ctx context.Context, from, to string, overwrite bool) error {
	return f.change(ctx, "move", fromTo{From: from, To: to, Overwrite: overwrite, User: f.user})
}

// Copied is what a copy did.
type Copied struct {
	Entries int `json:"entries"` // how many files, directories and links were copied
	Skipped struct {
		Total int `json:"total"`
		First []struct {
			Path   string `json:"path"`
			Reason string `json:"reason"`
		} `json:"first"` // the first hundred
	} `json:"skipped"`
}

// Copy copies a file, or a directory with all that is in it; to is the copy's own name. With
// overwrite it replaces files and adds to directories.
func (f *Files) Copy(ctx context.Context, from, to string, overwrite bool) (Copied, error) {
	in := fromTo{From: from, To: to, Overwrite: overwrite, Recursive: true, User: f.user}
	return ask[Copied](ctx, f.b.c, call{method: http.MethodPost, path: f.b.in("files", "copy"), in: in})
}

// attribute is a change of attributes.
type attribute struct {
	Path      string `json:"path"`
	Mode      string `json:"mode,omitempty"`
	Owner     string `json:"owner,omitempty"`
	Recursive bool   `json:"recursive,omitempty"`
	User      string `json:"user,omitempty"`
}

// Chmod changes permissions, which are octal, and returns of how many files.
func (f *Files) Chmod(ctx context.Context, path, mode string, recursive bool) (int, error) {
	return f.attribute(ctx, "chmod", attribute{Path: path, Mode: mode, Recursive: recursive, User: f.user})
}

// Chown changes the owner: user, user:group or :group. It returns of how many files.
func (f *Files) Chown(ctx context.Context, path, owner string, recursive bool) (int, error) {
	return f.attribute(ctx, "chown", attribute{Path: path, Owner: owner, Recursive: recursive, User: f.user})
}

func (f *Files) attribute(ctx context.Context, what string, in attribute) (int, error) {
	answer, err := ask[struct {
		Changed int `json:"changed"`
	}](ctx, f.b.c, call{method: http.MethodPost, path: f.b.in("files", what), in: in, repeatable: true})
	return answer.Changed, err
}

// Symlink makes a symbolic link at path. With overwrite it replaces a file that is there.
func (f *Files) Symlink(ctx context.Context, target, path string, overwrite bool) error {
	return f.change(ctx, "symlink", struct {
		Path      string `json:"path"`
		Target    string `json:"target"`
		Overwrite bool   `json:"overwrite,omitempty"`
		User      string `json:"user,omitempty"`
	}{path, target, overwrite, f.user})
}
