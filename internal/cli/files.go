package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/spf13/cobra"
)

// fileRow is a file of a sandbox.
type fileRow struct {
	Path   string    `json:"path"`
	Name   string    `json:"name"`
	Type   string    `json:"type"`
	Target string    `json:"target"`
	Mode   string    `json:"mode"`
	Size   int64     `json:"size"`
	UID    uint32    `json:"uid"`
	GID    uint32    `json:"gid"`
	User   string    `json:"user"`
	Group  string    `json:"group"`
	Mtime  time.Time `json:"mtime"`
}

var fileHeaders = []string{"MODE", "OWNER", "SIZE", "MODIFIED", "NAME"}

func (f *fileRow) cells(name string) []string {
	owner := func(name string, id uint32) string {
		if name == "" {
			return strconv.FormatUint(uint64(id), 10)
		}
		return name
	}
	if f.Target != "" {
		name += " -> " + f.Target
	}
	return []string{f.mode(), owner(f.User, f.UID) + ":" + owner(f.Group, f.GID), size(f.Size), ago(f.Mtime), name}
}

// mode is the kind and the permissions, as ls has them.
func (f *fileRow) mode() string {
	kind := map[string]string{"file": "-", "dir": "d", "symlink": "l", "fifo": "p", "socket": "s", "device": "c"}[f.Type]
	bits, err := strconv.ParseUint(f.Mode, 8, 32)
	if err != nil {
		return f.Mode
	}
	letters := []byte(fs.FileMode(bits & 0o777).String()[1:])
	for i, special := range []string{"tT", "sS", "sS"} { // from the right: sticky, setgid, setuid
		at := len(letters) - 1 - 3*i
		if bits&(0o1000<<i) == 0 {
			continue
		}
		if letters[at] == 'x' {
			letters[at] = special[0]
		} else {
			letters[at] = special[1]
		}
	}
	return kind + string(letters)
}

// filesFlags are the options that commands about files have in common.
type filesFlags struct{ user string }

func (f *filesFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&f.user, "user", "u", "", "whose rights hold (default: the sandbox's user)")
}

// query is that of a route about one path; "" is the sandbox's directory.
func (f *filesFlags) query(path string) url.Values {
	q := url.Values{}
	if path != "" {
		q.Set("path", path)
	}
	if f.user != "" {
		q.Set("user", f.user)
	}
	return q
}

func (a *App) filesCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "files",
		Short: "Look at and change files in a sandbox of the server",
		Long: `Look at and change files in a sandbox of the server, with the rights of its user. A
relative path begins at the sandbox's working directory. Whole trees, and files of this
machine, are for agentbox cp.`,
		Example: `  agentbox files ls dev src
  agentbox files cat dev src/main.py
  echo hi | agentbox files write dev notes/today.txt
  agentbox files grep dev 'def main' src --include '*.py'
  agentbox files watch --recursive dev`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(
		a.filesLs(), a.filesCat(), a.filesWrite(), a.filesRm(), a.filesMkdir(), a.filesMv(), a.filesStat(), a.filesFind(), a.filesGrep(), a.filesWatch(),
	)
	for _, c := range cmd.Commands() {
		c.ValidArgsFunction = a.completeFiles
	}
	return cmd
}

// second is the path behind the sandbox; none: its directory.
func second(args []string) string {
	if len(args) < 2 {
		return ""
	}
	return args[1]
}

func (a *App) filesLs() *cobra.Command {
	var f filesFlags
	var l listFlags
	depth := 1
	cmd := &cobra.Command{
		Use: "ls SANDBOX [DIR]", Aliases: []string{"list"}, Short: "List a directory",
		Example: "  agentbox files ls dev src\n  agentbox files ls --depth 3 -q dev",
		Args:    cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			q := f.query(second(args))
			q.Set("depth", strconv.Itoa(depth))
			return listed(a, cmd, &l, inSandbox(args[0], "files", "list"), q, (*fileRow).path, fileHeaders, func(e *fileRow) []string {
				if depth > 1 {
					return e.cells(e.Path)
				}
				return e.cells(e.Name)
			})
		},
	}
	f.add(cmd)
	cmd.Flags().IntVar(&depth, "depth", 1, "levels of directories, up to 64")
	l.addPaths(cmd)
	return cmd
}

func (f *fileRow) path() string { return f.Path }

// addPaths is add for lists of files.
func (f *listFlags) addPaths(cmd *cobra.Command) {
	f.add(cmd)
	cmd.Flags().Lookup("quiet").Usage = "print paths only"
}

func (a *App) filesCat() *cobra.Command {
	var f filesFlags
	cmd := &cobra.Command{
		Use: "cat SANDBOX FILE...", Short: "Write files to standard output, as they are",
		Example: "  agentbox files cat dev src/main.py | less",
		Args:    cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := a.remote(cmd)
			if err != nil {
				return err
			}
			for _, path := range args[1:] {
				resp, err := r.send(cmd.Context(), http.MethodGet, inSandbox(args[0], "files")+"?"+f.query(path).Encode(), nil)
				if err != nil {
					return fmt.Errorf("read %s: %w", path, err)
				}
				_, err = io.Copy(a.Stdout, resp.Body)
				resp.Body.Close()
				if err != nil {
					return fmt.Errorf("read %s: %w", path, err)
				}
			}
			return nil
		},
	}
	f.add(cmd)
	return cmd
}

func (a *App) filesWrite() *cobra.Command {
	var f filesFlags
	var mode string
	var more bool
	cmd := &cobra.Command{
		Use: "write SANDBOX FILE", Short: "Write standard input to a file",
		Long:    "Write standard input to a file. Missing directories are made. The file changes when all\nhas come, or not at all, but with --append.",
		Example: "  echo hi | agentbox files write --mode 600 dev notes/today.txt",
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := a.remote(cmd)
			if err != nil {
				return err
			}
			q := f.query(args[1])
			if mode != "" {
				q.Set("mode", mode)
			}
			if more {
				q.Set("append", "1")
			}
			p := a.progress("writing " + args[1])
			defer p.done()
			return r.callWith(cmd.Context(), request{
				method: http.MethodPut, path: inSandbox(args[0], "files") + "?" + q.Encode(), body: p.reader(a.Stdin),
				header: http.Header{"Content-Type": {"application/octet-stream"}},
			}, nil)
		},
	}
	f.add(cmd)
	cmd.Flags().StringVar(&mode, "mode", "", "permissions, octal (default: those of the file, 644 for a new one)")
	cmd.Flags().BoolVar(&more, "append", false, "write at the end of what is there")
	return cmd
}

func (a *App) filesRm() *cobra.Command {
	var f filesFlags
	var recursive bool
	cmd := &cobra.Command{
		Use: "rm SANDBOX PATH...", Short: "Remove files and directories",
		Example: "  agentbox files rm -r dev build",
		Args:    cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.each(cmd, args[1:], func(r *remote, path string) error {
				q := f.query(path)
				if recursive {
					q.Set("recursive", "1")
				}
				return r.call(cmd.Context(), http.MethodDelete, inSandbox(args[0], "files")+"?"+q.Encode(), nil, nil)
			})
		},
	}
	f.add(cmd)
	cmd.Flags().BoolVarP(&recursive, "recursive", "r", false, "directories with what is in them")
	return cmd
}

func (a *App) filesMkdir() *cobra.Command {
	var body struct {
		Path string `json:"path"`
		Mode string `json:"mode,omitempty"`
		User string `json:"user,omitempty"`
	}
	cmd := &cobra.Command{
		Use: "mkdir SANDBOX DIR...", Short: "Make directories, and those above",
		Example: "  agentbox files mkdir dev src/app src/test",
		Args:    cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.each(cmd, args[1:], func(r *remote, path string) error {
				body.Path = path
				return r.call(cmd.Context(), http.MethodPost, inSandbox(args[0], "files", "mkdir"), body, nil)
			})
		},
	}
	cmd.Flags().StringVarP(&body.User, "user", "u", "", "whose rights hold (default: the sandbox's user)")
	cmd.Flags().StringVar(&body.Mode, "mode", "", "permissions, octal (default: 755)")
	return cmd
}

func (a *App) filesMv() *cobra.Command {
	var body struct {
		From      string `json:"from"`
		To        string `json:"to"`
		Overwrite bool   `json:"overwrite,omitempty"`
		User      string `json:"user,omitempty"`
	}
	cmd := &cobra.Command{
		Use: "mv SANDBOX FROM TO", Short: "Move a file or directory to its new name",
		Example: "  agentbox files mv dev notes.txt notes/today.txt",
		Args:    cobra.ExactArgs(3),
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := a.remote(cmd)
			if err != nil {
				return err
			}
			body.From, body.To = args[1], args[2]
			return r.call(cmd.Context(), http.MethodPost, inSandbox(args[0], "files", "move"), body, nil)
		},
	}
	cmd.Flags().StringVarP(&body.User, "user", "u", "", "whose rights hold (default: the sandbox's user)")
	cmd.Flags().BoolVarP(&body.Overwrite, "force", "f", false, "replace what is there")
	return cmd
}

func (a *App) filesStat() *cobra.Command {
	var f filesFlags
	var l listFlags
	var follow bool
	cmd := &cobra.Command{
		Use: "stat SANDBOX PATH...", Short: "Describe files",
		Example: "  agentbox files stat --json dev src/main.py",
		Args:    cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := a.remote(cmd)
			if err != nil {
				return err
			}
			var all []json.RawMessage
			for _, path := range args[1:] {
				q := f.query(path)
				if follow {
					q.Set("follow", "1")
				}
				var one json.RawMessage
				if err := r.call(cmd.Context(), http.MethodGet, inSandbox(args[0], "files", "stat")+"?"+q.Encode(), nil, &one); err != nil {
					return fmt.Errorf("%s: %w", path, err)
				}
				all = append(all, one)
			}
			if l.json && len(all) == 1 {
				return a.printJSON(all[0])
			}
			return printList(a, &l, all, nil, fileHeaders, func(e *fileRow) []string { return e.cells(e.Path) })
		},
	}
	f.add(cmd)
	cmd.Flags().BoolVar(&follow, "follow", false, "describe what a symlink leads to")
	l.addJSON(cmd)
	return cmd
}
