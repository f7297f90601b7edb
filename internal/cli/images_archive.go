package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"agentbox/internal/image"
)

func (a *App) imagesLoad() *cobra.Command {
	var opts image.LoadOptions
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "load [FILE|DIRECTORY|-]",
		Short: "Load images from an archive that another tool made",
		Long: `Load the images of FILE, or of standard input: what "docker save" and "podman save"
write, or an OCI image layout as a tar or a directory, compressed or not.`,
		Example: `  docker save myimage | agentbox images load
  agentbox images load --name mine layout.tar`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			store, err := a.store(cmd)
			if err != nil {
				return err
			}
			ctx, stop := untilSignal(cmd.Context())
			defer stop()
			from := "-"
			if len(args) == 1 {
				from = args[0]
			}
			images, err := a.load(ctx, store, from, opts)
			if e := a.printImages(images, asJSON); e != nil {
				err = errors.Join(err, e)
			}
			return a.orInterrupted(ctx, err)
		},
	}
	cmd.Flags().StringVar(&opts.Name, "name", "", "name for the image, when there is one (default: the names in the archive)")
	cmd.Flags().StringVar(&opts.Platform, "platform", "", "which image to take where there are several, such as linux/amd64 (default: this machine's)")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// load takes the images of a file, a directory or standard input, and shows how
// far it is.
func (a *App) load(ctx context.Context, store *image.Store, from string, opts image.LoadOptions) ([]image.Image, error) {
	p := a.progress("loading " + from)
	defer p.done()
	opts.Progress = func(e image.Event) { p.set(e.String()) }
	if from == "-" {
		if term.IsTerminal(int(a.Stdin.Fd())) {
			return nil, errors.New("nothing to load: name a FILE, or pipe an archive in")
		}
		return store.Load(ctx, a.Stdin, opts)
	}
	f, err := os.Open(from)
	if err != nil {
		return nil, fmt.Errorf("open image archive: %w", err)
	}
	defer f.Close()
	if st, err := f.Stat(); err == nil && st.IsDir() {
		return store.LoadDir(ctx, from, opts)
	}
	return store.Load(ctx, f, opts)
}

// printImages says which images came of something.
func (a *App) printImages(images []image.Image, asJSON bool) error {
	rows := []imageRow{}
	for _, i := range images {
		rows = append(rows, newImageRow(i))
	}
	if asJSON {
		return a.printJSON(rows)
	}
	for _, r := range rows {
		if _, err := fmt.Fprintf(a.Stdout, "%s\t%s\n", r.Name, r.Digest); err != nil {
			return err
		}
	}
	return nil
}

func (a *App) imagesSave() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "save NAME...",
		Short: "Write images as an archive that other tools load",
		Long: `Write the images to standard output, or to the file -o, as one tar that is an OCI
image layout and what "docker load" takes.`,
		Example: `  agentbox images save default | docker load
  agentbox images save -o images.tar default small`,
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: a.completeImages,
		RunE: func(cmd *cobra.Command, args []string) error {
			store, err := a.store(cmd)
			if err != nil {
				return err
			}
			ctx, stop := untilSignal(cmd.Context())
			defer stop()
			return a.orInterrupted(ctx, a.save(ctx, store, output, args))
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "", "file to write (default: standard output)")
	return cmd
}

func (a *App) save(ctx context.Context, store *image.Store, output string, names []string) (err error) {
	var w io.Writer = a.Stdout
	if output == "" {
		if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
			return errors.New("an archive does not belong on a terminal: use -o FILE, or a pipe")
		}
	} else {
		f, e := os.Create(output)
		if e != nil {
			return fmt.Errorf("write image archive: %w", e)
		}
		defer func() {
			if err = errors.Join(err, f.Close()); err != nil {
				err = errors.Join(err, os.Remove(output)) // half an archive is none
			}
		}()
		w = f
	}
	p := a.progress("saving")
	defer p.done()
	return store.Save(ctx, w, names...)
}

// imageDetails is what images inspect prints.
type imageDetails struct {
	imageRow
	ConfigDigest string        `json:"config_digest,omitempty"`
	Platform     string        `json:"platform,omitempty"`
	Config       image.Config  `json:"config"`
	Layers       []image.Layer `json:"layers"`
}

func (a *App) imagesInspect() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:               "inspect NAME...",
		Short:             "Show what is known of images, as JSON",
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: a.completeImages,
		RunE: func(cmd *cobra.Command, args []string) error {
			store, err := a.store(cmd)
			if err != nil {
				return err
			}
			all := []imageDetails{}
			for _, name := range args {
				i, err := store.Inspect(name)
				if err != nil {
					return err
				}
				all = append(all, imageDetails{newImageRow(i), i.ConfigDigest, i.Platform, i.Config, append([]image.Layer{}, i.Layers...)})
			}
			return a.printJSON(all)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", true, "print JSON")
	return cmd
}

func (a *App) imagesPrune() *cobra.Command {
	var all, asJSON bool
	cmd := &cobra.Command{
		Use:   "prune",
		Short: "Remove files that no image needs",
		Long: `Remove what is left of removed images, files for other versions of agentbox and
downloads that were cut; with --all also every image that no sandbox uses.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			store, err := a.store(cmd)
			if err != nil {
				return err
			}
			done, err := store.Prune(cmd.Context(), all)
			if err != nil {
				return err
			}
			if asJSON {
				return a.printJSON(struct {
					Images []string `json:"images"`
					Freed  int64    `json:"freed"`
				}{append([]string{}, done.Images...), done.Freed})
			}
			for _, name := range done.Images {
				fmt.Fprintln(a.Stdout, name)
			}
			_, err = fmt.Fprintf(a.Stdout, "freed %.1f MB\n", float64(done.Freed)/1e6)
			return err
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "remove all images that no sandbox uses")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
