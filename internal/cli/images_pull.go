package cli

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"agentbox/internal/image"
	"agentbox/internal/image/oci"
	"agentbox/internal/sandbox"
)

// registryFlags are the operator's settings for registries.
type registryFlags struct {
	mirrors, insecure []string
	caFile            string
}

// Variables of the environment that the flags default to. The lists hold their
// entries apart by blanks.
const (
	mirrorVariable   = "AGENTBOX_REGISTRY_MIRROR"
	insecureVariable = "AGENTBOX_INSECURE_REGISTRY"
	caVariable       = "AGENTBOX_CA_FILE"
)

// environmentRegistry is what the environment says.
func environmentRegistry() registryFlags {
	return registryFlags{
		mirrors: strings.Fields(os.Getenv(mirrorVariable)), insecure: strings.Fields(os.Getenv(insecureVariable)), caFile: os.Getenv(caVariable),
	}
}

func (f *registryFlags) add(cmd *cobra.Command) {
	fl, defaults := cmd.Flags(), environmentRegistry()
	fl.StringArrayVar(&f.mirrors, "registry-mirror", defaults.mirrors,
		"ask this mirror first, REGISTRY=URL (repeatable; "+mirrorVariable+")")
	fl.StringArrayVar(&f.insecure, "insecure-registry", defaults.insecure,
		"HOST[:PORT] that plain HTTP, or a certificate that can't be checked, is accepted from (repeatable; "+insecureVariable+")")
	fl.StringVar(&f.caFile, "ca-file", defaults.caFile,
		"file with certificates to trust besides the system's ("+caVariable+"; SSL_CERT_FILE replaces the system's)")
}

func (f *registryFlags) options() (oci.RegistryOptions, error) {
	opts := oci.RegistryOptions{Mirrors: map[string][]string{}, CAFile: f.caFile, Insecure: f.insecure}
	for _, m := range f.mirrors {
		host, url, ok := strings.Cut(m, "=")
		if !ok {
			return opts, &sandbox.InvalidError{Field: "registry-mirror", Value: m, Allowed: "REGISTRY=URL, such as registry.example=https://mirror.example"}
		}
		opts.Mirrors[host] = append(opts.Mirrors[host], url)
	}
	return opts, nil
}

func (a *App) imagesPull() *cobra.Command {
	var f registryFlags
	var platform string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "pull REFERENCE",
		Short: "Fetch an image from a registry",
		Long: `Fetch the image REFERENCE, [REGISTRY/]REPOSITORY[:TAG][@DIGEST]. Credentials are those
of "docker login", credential helpers included. Layers that are there are not fetched
again; a download that was cut goes on where it stopped.`,
		Example: `  agentbox images pull python:3.13-slim
  agentbox images pull --platform linux/arm64 --json registry.example/team/tool:v1`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			store, err := a.store(cmd)
			if err != nil {
				return err
			}
			ctx, stop := untilSignal(cmd.Context())
			defer stop()
			opts := image.PullOptions{Platform: platform}
			if opts.Registry, err = f.options(); err != nil {
				return err
			}
			img, err := a.pull(ctx, store, args[0], opts, asJSON)
			if err != nil {
				return a.orInterrupted(ctx, err)
			}
			if asJSON {
				return a.printOne(map[string]imageRow{"image": newImageRow(img)})
			}
			return a.printImages([]image.Image{img}, false)
		},
	}
	f.add(cmd)
	cmd.Flags().StringVar(&platform, "platform", "", "OS/ARCHITECTURE to take where there are several (default: this machine's)")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object per line: events with bytes per layer, then the image")
	return cmd
}

// pull fetches an image and shows how far it is.
func (a *App) pull(ctx context.Context, store *image.Store, ref string, opts image.PullOptions, asJSON bool) (image.Image, error) {
	if asJSON {
		opts.Progress = func(e image.Event) { _ = a.printOne(map[string]image.Event{"event": e}) } // a reader that left wants none
		return store.Pull(ctx, ref, opts)
	}
	p := a.progress("pulling " + ref)
	defer p.done()
	opts.Progress = func(e image.Event) { p.set(e.String()) }
	return store.Pull(ctx, ref, opts)
}

// pullForRun fetches the image of a run; the environment says how.
func (a *App) pullForRun(ctx context.Context, store *image.Store, name string) (image.Image, error) {
	f := environmentRegistry()
	opts, err := f.options()
	if err != nil {
		return image.Image{}, err
	}
	if _, err := oci.ParseRef(name); err != nil {
		return image.Image{}, err
	}
	fmt.Fprintf(a.Stderr, "agentbox: pulling image %q\n", name)
	img, err := a.pull(ctx, store, name, image.PullOptions{Registry: opts}, false)
	if err != nil && ctx.Err() == nil {
		err = fmt.Errorf("%w\n(images that are here: agentbox images ls; that can be built: %s; a COMMAND stands behind a --: agentbox run -- %s)", err, strings.Join(image.Recipes(), ", "), name)
	}
	return img, err
}
