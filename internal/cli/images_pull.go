package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/containerd/errdefs"
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
				return json.NewEncoder(a.Stdout).Encode(map[string]imageRow{"image": newImageRow(img)})
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
		out := json.NewEncoder(a.Stdout)
		opts.Progress = func(e image.Event) { _ = out.Encode(map[string]image.Event{"event": e}) } // a reader that left wants none
		return store.Pull(ctx, ref, opts)
	}
	p := a.progress("pulling " + ref)
	defer p.done()
	opts.Progress = func(e image.Event) { p.set(e.String()) }
	return store.Pull(ctx, ref, opts)
}

// pullMissing fetches the image of a run that is not there and can't be built.
func (a *App) pullMissing(ctx context.Context, store *image.Store, name string) error {
	if _, err := oci.ParseRef(name); err != nil {
		return err
	}
	f := environmentRegistry()
	opts, err := f.options()
	if err != nil {
		return err
	}
	fmt.Fprintf(a.Stderr, "agentbox: no image %q here, pulling it\n", name)
	_, err = a.pull(ctx, store, name, image.PullOptions{Registry: opts}, false)
	if errdefs.IsInvalidArgument(err) || errdefs.IsNotFound(err) || errdefs.IsUnauthorized(err) {
		err = errors.Join(err, fmt.Errorf("there are \"agentbox images ls\", the recipes %s, and what a registry has", strings.Join(image.Recipes(), ", ")))
	}
	return err
}
