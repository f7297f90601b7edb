package cli

import (
	"context"
	"errors"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/containerd/errdefs"
	"github.com/spf13/cobra"

	"agentbox/internal/image"
)

func (a *App) imagesCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "images",
		Aliases: []string{"image"},
		Short:   "Build, list and remove the root file systems of sandboxes",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.imagesBuild(), a.imagesList(), a.imagesAliases(), a.imagesRemove())
	return cmd
}

func (a *App) store(cmd *cobra.Command) (*image.Store, error) {
	l, dir, err := a.local(cmd)
	if err != nil {
		return nil, err
	}
	return l.Images(dir)
}

func (a *App) imagesBuild() *cobra.Command {
	var opts image.BuildOptions
	cmd := &cobra.Command{
		Use:   "build NAME",
		Short: "Make an image from its recipe with mmdebstrap",
		Long: `Make the image NAME from the built-in recipe of that name, or from --recipe FILE.
Packages come from --mirror, else from this machine's own apt sources.`,
		Example: `  agentbox images build default
  agentbox images build --recipe my.recipe mine`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeRecipes,
		RunE: func(cmd *cobra.Command, args []string) error {
			store, err := a.store(cmd)
			if err != nil {
				return err
			}
			img, err := a.build(cmd.Context(), store, args[0], opts)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(a.Stdout, "%s\t%s\n", img.Name, img.Digest)
			return err
		},
	}
	cmd.Flags().StringVar(&opts.Recipe, "recipe", "", "file with the recipe (default: the built-in one of that name)")
	cmd.Flags().StringVar(&opts.Mirror, "mirror", "", "URL of a Debian mirror (MIRROR; default: this machine's apt sources)")
	return cmd
}

// build makes an image and shows how far it is.
func (a *App) build(ctx context.Context, store *image.Store, name string, opts image.BuildOptions) (image.Image, error) {
	p := a.progress("building image " + name)
	defer p.done()
	opts.Progress = func(e image.Event) { p.set(e.String()) }
	return store.Build(ctx, name, opts)
}

// ensureImage builds a built-in image that is not there yet.
func (a *App) ensureImage(ctx context.Context, store *image.Store, name string) error {
	_, err := store.Resolve(ctx, name)
	if !errdefs.IsNotFound(err) || !image.HasRecipe(name) {
		return err
	}
	fmt.Fprintf(a.Stderr, "agentbox: building image %q, once (some minutes)\n", name)
	_, err = a.build(ctx, store, name, image.BuildOptions{})
	return err
}

// imageRow is what images ls prints.
type imageRow struct {
	Name    string    `json:"name"`
	Digest  string    `json:"digest"`
	Size    int64     `json:"size"`
	Created time.Time `json:"created"`
	User    string    `json:"user"`
	Workdir string    `json:"workdir"`
}

func (a *App) imagesList() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List images",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			store, err := a.store(cmd)
			if err != nil {
				return err
			}
			all, err := store.List()
			if err != nil {
				return err
			}
			rows := []imageRow{}
			for _, i := range all {
				rows = append(rows, imageRow{i.Name, i.Digest, i.Size, i.Created, i.Config.User, i.Config.Workdir})
			}
			if asJSON {
				return a.printJSON(rows)
			}
			w := tabwriter.NewWriter(a.Stdout, 0, 0, 3, ' ', 0)
			fmt.Fprintln(w, "NAME\tDIGEST\tSIZE\tCREATED\tUSER")
			for _, r := range rows {
				fmt.Fprintf(w, "%s\t%.19s\t%d MB\t%s\t%s\n", r.Name, r.Digest, r.Size/1_000_000, r.Created.Format("2006-01-02 15:04"), r.User)
			}
			return w.Flush()
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func (a *App) imagesAliases() *cobra.Command {
	return &cobra.Command{
		Use:   "aliases",
		Short: "List further names of images, with the user that each runs as",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			w := tabwriter.NewWriter(a.Stdout, 0, 0, 3, ' ', 0)
			fmt.Fprintln(w, "NAME\tIMAGE\tUSER\tWORKDIR")
			for _, i := range image.Aliases() {
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", i.Name, i.Image, i.User, i.Workdir)
			}
			return w.Flush()
		},
	}
}

func (a *App) imagesRemove() *cobra.Command {
	return &cobra.Command{
		Use:               "rm NAME...",
		Short:             "Remove images that no sandbox uses",
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: a.completeImages,
		RunE: func(cmd *cobra.Command, args []string) error {
			store, err := a.store(cmd)
			if err != nil {
				return err
			}
			for _, name := range args {
				if e := store.Remove(name); e != nil {
					err = errors.Join(err, e)
					continue
				}
				fmt.Fprintln(a.Stdout, name)
			}
			return err
		},
	}
}

// completeImages offers the images that are there and those that can be made.
func (a *App) completeImages(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	names := image.Recipes()
	for _, i := range image.Aliases() {
		names = append(names, i.Name)
	}
	if store, err := a.store(cmd); err == nil {
		if all, err := store.List(); err == nil {
			for _, i := range all {
				names = append(names, i.Name)
			}
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

func (a *App) completeRecipes(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return image.Recipes(), cobra.ShellCompDirectiveNoFileComp
}
