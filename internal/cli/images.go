package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/spf13/cobra"

	"agentbox/internal/image"
	"agentbox/internal/sandbox"
)

func (a *App) imagesCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "images",
		Aliases: []string{"image"},
		Short:   "Build, pull, load, save, list and remove the root file systems of sandboxes",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.imagesBuild(), a.imagesPull(), a.imagesLoad(), a.imagesSave(), a.imagesList(), a.imagesAliases(), a.imagesInspect(), a.imagesRemove(), a.imagesPrune())
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
	var dockerfile, tag string
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
			if err := refuseDockerfile(args[0], dockerfile, tag, opts.Recipe); err != nil {
				return err
			}
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
	// What "docker build" takes gets an answer that helps.
	cmd.Flags().StringVarP(&dockerfile, "file", "f", "", "")
	cmd.Flags().StringVarP(&tag, "tag", "t", "", "")
	_ = cmd.Flags().MarkHidden("file") // they are there
	_ = cmd.Flags().MarkHidden("tag")
	cmd.Flags().StringVar(&opts.Mirror, "mirror", "", "URL of a Debian mirror (MIRROR; default: this machine's apt sources)")
	return cmd
}

// refuseDockerfile tells a request to build from a Dockerfile how to get there.
func refuseDockerfile(name, file, tag, recipe string) error {
	dir := name
	st, err := os.Stat(name)
	isDir := err == nil && st.IsDir() && !image.HasRecipe(name) && recipe == ""
	switch {
	case file != "" || tag != "" || isDir:
	case isDockerfile(name):
		file, dir = name, filepath.Dir(name)
	case isDockerfile(recipe):
		file, dir = recipe, filepath.Dir(recipe)
	default:
		return nil
	}
	if tag == "" {
		tag = "NAME"
	}
	if file != "" {
		dir = "-f " + file + " " + dir
	}
	return fmt.Errorf("agentbox does not build from a Dockerfile: build elsewhere and load what came of it:\n"+
		"  docker build -t %[1]s %[2]s && docker save %[1]s | agentbox images load", tag, dir)
}

func isDockerfile(path string) bool {
	base := filepath.Base(path)
	return strings.Contains(base, "Dockerfile") || strings.Contains(base, "Containerfile")
}

// build makes an image and shows how far it is.
func (a *App) build(ctx context.Context, store *image.Store, name string, opts image.BuildOptions) (image.Image, error) {
	p := a.progress("building image " + name)
	defer p.done()
	opts.Progress = func(e image.Event) { p.set(e.String()) }
	return store.Build(ctx, name, opts)
}

// What run does about an image: pulling is for those that no recipe makes.
const (
	pullMissing = "missing"
	pullAlways  = "always"
	pullNever   = "never"
)

// ensureImage builds a built-in image that is not there yet, and pulls another.
func (a *App) ensureImage(ctx context.Context, store *image.Store, name, pull string) (image.Image, error) {
	switch pull {
	case pullMissing, pullNever:
	case pullAlways:
		return a.pullForRun(ctx, store, name)
	default:
		return image.Image{}, &sandbox.InvalidError{Field: "pull", Value: pull, Allowed: pullMissing + ", " + pullAlways + " or " + pullNever}
	}
	img, err := store.Resolve(ctx, name)
	switch {
	case !errdefs.IsNotFound(err):
		return img, err
	case image.HasRecipe(name):
		fmt.Fprintf(a.Stderr, "agentbox: building image %q, once (some minutes)\n", name)
		return a.build(ctx, store, name, image.BuildOptions{})
	case pull == pullNever:
		return img, err
	}
	return a.pullForRun(ctx, store, name)
}

// imageRow is what images ls prints.
type imageRow struct {
	Name    string    `json:"name"`
	Digest  string    `json:"digest"`
	Size    int64     `json:"size"`
	Created time.Time `json:"created"`
	Source  string    `json:"source"`
	User    string    `json:"user"`
	Workdir string    `json:"workdir"`
}

func newImageRow(i image.Image) imageRow {
	return imageRow{i.Name, i.Digest, i.Size, i.Created, i.Source, i.Config.User, i.Config.Workdir}
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
				rows = append(rows, newImageRow(i))
			}
			if asJSON {
				return a.printJSON(rows)
			}
			t := a.table("NAME", "DIGEST", "SIZE", "CREATED", "SOURCE")
			for _, r := range rows {
				t.row(r.Name, fmt.Sprintf("%.19s", r.Digest), fmt.Sprintf("%d MB", r.Size/1_000_000), r.Created.Format("2006-01-02 15:04"), r.Source)
			}
			return t.flush()
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
			t := a.table("NAME", "IMAGE", "USER", "WORKDIR")
			for _, i := range image.Aliases() {
				t.row(i.Name, i.Image, i.User, i.Workdir)
			}
			return t.flush()
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
	slices.Sort(names)
	return slices.Compact(names), cobra.ShellCompDirectiveNoFileComp // a recipe that was built has one name
}

func (a *App) completeRecipes(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return image.Recipes(), cobra.ShellCompDirectiveNoFileComp
}
