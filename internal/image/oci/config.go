package oci

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"path"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Settings are how an image wants to be run. Strings are free of NUL and bounded.
type Settings struct {
	User         string   // name or uid, optionally ":group"; empty: root
	Workdir      string   // absolute; empty: "/"
	Env          []string // "NAME=value"
	Entrypoint   []string
	Cmd          []string
	ExposedPorts []string // "80/tcp", sorted
	StopSignal   string   // such as "SIGTERM" or "15"; empty: SIGTERM
}

const (
	// maxWords and maxText bound each list of strings of a configuration. Linux
	// takes 2 MiB of arguments and environment by default.
	maxWords = 4096
	maxText  = 1 << 20
	maxUser  = 255
	// maxPath is PATH_MAX - 1 of Linux.
	maxPath = 4095
)

var (
	portName   = regexp.MustCompile(`^[0-9]{1,5}(-[0-9]{1,5})?(/(tcp|udp|sctp))?$`)
	signalName = regexp.MustCompile(`^([0-9]{1,2}|(SIG)?[A-Z][A-Z0-9+-]{1,15})$`)
)

// parseConfig reads the configuration of an image: what it says of itself, and
// the digests of its uncompressed layers.
func parseConfig(text []byte) (Image, error) {
	if err := checkSize("configuration", len(text), MaxConfig); err != nil {
		return Image{}, err
	}
	c, err := v1.ParseConfigFile(bytes.NewReader(text))
	if err != nil {
		return Image{}, fmt.Errorf("read image configuration: %w: %w", err, errdefs.ErrInvalidArgument)
	}
	if t := c.RootFS.Type; t != "" && t != "layers" {
		return Image{}, fmt.Errorf("image has a root file system of the type %.100q: %w", t, errdefs.ErrInvalidArgument)
	}
	if len(c.RootFS.DiffIDs) > MaxLayers {
		return Image{}, fmt.Errorf("image has more than %d layers: %w", MaxLayers, errdefs.ErrResourceExhausted)
	}
	img := Image{Config: text, ConfigDigest: digestOf(text), Created: c.Created.UTC()}
	for _, id := range c.RootFS.DiffIDs {
		if id.Algorithm != "sha256" {
			return Image{}, fmt.Errorf("image layer has the digest %.100q, only sha256 is known: %w", id.String(), errdefs.ErrInvalidArgument)
		}
		img.Layers = append(img.Layers, Layer{DiffID: id.String()})
	}
	img.Platform = platformOf(v1.Platform{OS: c.OS, Architecture: c.Architecture, Variant: c.Variant})
	img.Settings, err = settings(c.Config)
	return img, err
}

// settings takes over what a sandbox honours.
func settings(c v1.Config) (Settings, error) {
	s := Settings{
		User: c.User, Entrypoint: c.Entrypoint, Cmd: c.Cmd, StopSignal: c.StopSignal, Workdir: c.WorkingDir,
	}
	if s.Workdir != "" {
		s.Workdir = path.Clean("/" + s.Workdir) // a relative one is below the root
	}
	for _, e := range c.Env {
		if i := strings.IndexByte(e, '='); i > 0 { // others are no variables
			s.Env = append(s.Env, e)
		}
	}
	for p := range c.ExposedPorts {
		if !portName.MatchString(p) {
			return Settings{}, badSetting("ExposedPorts", p)
		}
		s.ExposedPorts = append(s.ExposedPorts, p)
	}
	slices.Sort(s.ExposedPorts)
	return s, s.check()
}

func (s Settings) check() error {
	for _, f := range []struct {
		name string
		list []string
		max  int
	}{
		{"User", []string{s.User}, maxUser}, {"WorkingDir", []string{s.Workdir}, maxPath},
		{"Env", s.Env, maxText}, {"Entrypoint", s.Entrypoint, maxText}, {"Cmd", s.Cmd, maxText}, {"ExposedPorts", s.ExposedPorts, maxText},
	} {
		total := 0
		for _, v := range f.list {
			if strings.IndexByte(v, 0) >= 0 {
				return badSetting(f.name, v)
			}
			total += len(v)
		}
		if total > f.max || len(f.list) > maxWords {
			return fmt.Errorf("image configuration has too much of %s: %w", f.name, errdefs.ErrResourceExhausted)
		}
	}
	if strings.ContainsAny(s.User, "\n\r\t /") {
		return badSetting("User", s.User)
	}
	if s.StopSignal != "" && !signalName.MatchString(s.StopSignal) {
		return badSetting("StopSignal", s.StopSignal)
	}
	return nil
}

func badSetting(name, value string) error {
	return fmt.Errorf("image configuration has a bad %s %.100q: %w", name, value, errdefs.ErrInvalidArgument)
}

// FromTar makes an image for this machine of one uncompressed layer, whose digest
// and size in bytes are given.
func FromTar(s Settings, digest string, size int64) (Image, error) {
	c := v1.ConfigFile{OS: "linux", Architecture: runtime.GOARCH}
	c.Config = v1.Config{User: s.User, WorkingDir: s.Workdir, Env: s.Env, Entrypoint: s.Entrypoint, Cmd: s.Cmd, StopSignal: s.StopSignal}
	layer := Layer{Digest: digest, DiffID: digest, Size: size, MediaType: string(types.OCIUncompressedLayer)}
	c.RootFS = v1.RootFS{Type: "layers", DiffIDs: []v1.Hash{descriptor(types.OCIUncompressedLayer, digest, size).Digest}}
	text, err := json.Marshal(c)
	if err != nil {
		return Image{}, fmt.Errorf("write image configuration: %w", err)
	}
	return synthesize(text, []Layer{layer})
}

func digestOf(b []byte) string {
	sum := sha256.Sum256(b)
	return "sha256:" + hex.EncodeToString(sum[:])
}
