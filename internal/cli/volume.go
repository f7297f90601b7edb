package cli

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"agentbox/internal/ids"
)

// volumeRow is a volume as the server shows it.
type volumeRow struct {
	Name      string    `json:"name"`
	Size      int64     `json:"size"`
	Kind      string    `json:"kind"`
	UsedBy    []string  `json:"used_by"`
	CreatedAt time.Time `json:"created_at"`
}

// volumeWish is a volume that a new sandbox is to have.
type volumeWish struct {
	Name     string `json:"name"`
	Path     string `json:"path"`
	ReadOnly bool   `json:"read_only,omitempty"`
}

// volumeWishes read NAME:PATH[:ro].
func volumeWishes(texts []string) ([]volumeWish, error) {
	var all []volumeWish
	for _, t := range texts {
		name, path, ok := strings.Cut(t, ":")
		path, readOnly := strings.CutSuffix(path, ":ro")
		if !ok || name == "" || !strings.HasPrefix(path, "/") || strings.Contains(path, ":") {
			return nil, fmt.Errorf("%q is no volume of a sandbox, such as data:/data or data:/data:ro", t)
		}
		all = append(all, volumeWish{name, path, readOnly})
	}
	return all, nil
}

func (a *App) volumeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "volume",
		Short: "Keep files on the server beyond a sandbox's life",
		Long: `Make, list and remove volumes of the server, and copy them out and in. One sandbox has a
volume to write, or any number have it to read: agentbox create --volume NAME:PATH[:ro].
A volume stays until it is removed.`,
		Example: `  agentbox volume create data --size 10g
  agentbox create --volume data:/data
  agentbox volume backup data -o data.tar.gz`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.volumeCreate(), a.volumeList(), a.volumeInspect(), a.volumeRemove(), a.volumeBackup(), a.volumeRestore())
	return cmd
}

func volumePath(name string) string { return "/volumes/" + url.PathEscape(name) }

func (a *App) volumeCreate() *cobra.Command {
	var wish struct {
		Name string `json:"name"`
		Size string `json:"size,omitempty"`
	}
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "create NAME",
		Short: "Make an empty volume",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := a.remote(cmd)
			if err != nil {
				return err
			}
			wish.Name = args[0]
			var made map[string]any
			q := request{method: http.MethodPost, path: "/volumes", in: wish, header: http.Header{idempotencyKey: {ids.Hex(idempotencyBytes)}}, look: "agentbox volume ls"}
			if err := r.callWith(cmd.Context(), q, &made); err != nil {
				return err
			}
			if asJSON {
				return a.printJSON(made)
			}
			_, err = fmt.Fprintln(a.Stdout, wish.Name)
			return err
		},
	}
	cmd.Flags().StringVar(&wish.Size, "size", "", "how much fits into it, such as 10g (default: the server's)")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func (a *App) volumeList() *cobra.Command {
	var f listFlags
	cmd := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List your volumes",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return listed(a, cmd, &f, "/volumes", url.Values{}, func(v *volumeRow) string { return v.Name },
				[]string{"NAME", "SIZE", "KIND", "USED BY", "CREATED"}, func(v *volumeRow) []string {
					var by []string
					for _, id := range v.UsedBy {
						by = append(by, ids.Short(id))
					}
					return []string{v.Name, size(v.Size), v.Kind, strings.Join(by, ","), ago(v.CreatedAt)}
				})
		},
	}
	f.add(cmd)
	return cmd
}

func (a *App) volumeInspect() *cobra.Command {
	return &cobra.Command{
		Use:   "inspect NAME",
		Short: "Print all about a volume, as JSON",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := a.remote(cmd)
			if err != nil {
				return err
			}
			return a.shown(cmd, r, volumePath(args[0]), true, nil)
		},
	}
}

func (a *App) volumeRemove() *cobra.Command {
	return &cobra.Command{
		Use:   "rm NAME...",
		Short: "Remove volumes with all that is in them",
		Long:  "Remove volumes with all that is in them. One that a sandbox has, running or stopped, is\nnot removed.",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, names []string) error {
			return a.each(cmd, names, func(r *remote, name string) error {
				return r.call(cmd.Context(), http.MethodDelete, volumePath(name), nil, nil)
			})
		},
	}
}

// packed reports whether a file's name says that it is a tar.gz.
func packed(name string) bool {
	return strings.HasSuffix(name, ".gz") || strings.HasSuffix(name, ".tgz")
}

func (a *App) volumeBackup() *cobra.Command {
	var to string
	cmd := &cobra.Command{
		Use:   "backup NAME",
		Short: "Write what is in a volume as a tar",
		Long: `Write what is in a volume as a tar to standard output or a file; to one whose name ends
in .gz as a tar.gz. Sandboxes may use the volume meanwhile.`,
		Example: "  agentbox volume backup data -o data.tar.gz",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := a.remote(cmd)
			if err != nil {
				return err
			}
			q := request{method: http.MethodGet, path: volumePath(args[0]) + "/archive", header: http.Header{"Accept-Encoding": {"identity"}}}
			if packed(to) {
				q.header.Set("Accept", "application/gzip")
			}
			resp, err := r.do(cmd.Context(), q)
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			if err := a.saved(to, resp.Body); err != nil {
				return fmt.Errorf("back up volume %s: %w", args[0], err)
			}
			if n := resp.Trailer.Get("X-Skipped"); n != "" && n != "0" {
				fmt.Fprintf(a.Stderr, "%s entries were left out: special files, what lies too deep, or is larger than the volume\n", visible(n))
			}
			return nil
		},
	}
	cmd.Flags().StringVarP(&to, "output", "o", "-", "`FILE` to write; -: standard output")
	return cmd
}

// saved writes a stream to standard output, or to a file that is whole or not
// there.
func (a *App) saved(to string, from io.Reader) (err error) {
	if to == "-" {
		_, err := io.Copy(a.Stdout, from)
		return err
	}
	part := to + ".part"
	f, err := os.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(part))
		}
	}()
	_, err = io.Copy(f, from)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(part, to)
}

func (a *App) volumeRestore() *cobra.Command {
	return &cobra.Command{
		Use:   "restore NAME FILE",
		Short: "Unpack a tar into a volume",
		Long: `Unpack a tar, or a tar.gz whose name ends in .gz, into a volume; FILE - is a tar on
standard input. No sandbox may have the volume. What is there stays unless the archive has
the same name.`,
		Example: "  agentbox volume create copy && agentbox volume restore copy data.tar.gz",
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := a.remote(cmd)
			if err != nil {
				return err
			}
			from := a.Stdin
			if args[1] != "-" {
				if from, err = os.Open(args[1]); err != nil {
					return err
				}
				defer from.Close()
			}
			kind := "application/x-tar"
			if packed(args[1]) {
				kind = "application/gzip"
			}
			q := request{method: http.MethodPut, path: volumePath(args[0]) + "/archive", header: http.Header{"Content-Type": {kind}}, body: from}
			resp, err := r.do(cmd.Context(), q)
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			if n := resp.Header.Get("X-Skipped"); n != "" && n != "0" {
				fmt.Fprintf(a.Stderr, "%s entries were left out: special files, and what would lead out of the volume\n", visible(n))
			}
			return nil
		},
	}
}
