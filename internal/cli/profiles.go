package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"agentbox/internal/nearest"
)

// profiles are the servers that a user has given names. Their keys are in a file
// that only the user may read.
type profiles struct {
	// Current is the one in use; empty: this machine's server.
	Current string            `json:"current,omitempty"`
	Servers map[string]server `json:"profiles"`
	path    string
}

// maxProfiles bounds the file, in bytes.
const maxProfiles = 1 << 20

func profilesFile() (string, error) {
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", fmt.Errorf("find the file of profiles: %w", err)
	}
	return filepath.Join(dir, "agentbox", "profiles.json"), nil
}

// readProfiles reads the file; without one there are no profiles.
func readProfiles() (*profiles, error) {
	p := &profiles{Servers: map[string]server{}}
	var err error
	if p.path, err = profilesFile(); err != nil {
		return p, nil //nolint:nilerr // a user without a home has no profiles
	}
	f, err := os.Open(p.path)
	if errors.Is(err, fs.ErrNotExist) {
		return p, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the profiles: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("read the profiles: %w", err)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("%s has keys in it and others may read it: chmod 600 %s", p.path, p.path)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxProfiles))
	if err == nil {
		err = json.Unmarshal(text, p)
	}
	if err != nil {
		return nil, fmt.Errorf("read the profiles in %s: %w", p.path, err)
	}
	if p.Servers == nil {
		p.Servers = map[string]server{}
	}
	return p, nil
}

// write replaces the file, as a whole.
func (p *profiles) write() error {
	if p.path == "" {
		_, err := profilesFile()
		return err
	}
	text, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return fmt.Errorf("write the profiles: %w", err)
	}
	dir := filepath.Dir(p.path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("write the profiles: %w", err)
	}
	f, err := os.CreateTemp(dir, ".profiles-*") // with mode 0600
	if err != nil {
		return fmt.Errorf("write the profiles: %w", err)
	}
	_, err = f.Write(append(text, '\n'))
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), p.path)
	}
	if err != nil {
		return fmt.Errorf("write the profiles: %w", errors.Join(err, os.Remove(f.Name())))
	}
	return nil
}

func (p *profiles) names() []string { return slices.Sorted(maps.Keys(p.Servers)) }

// get is the server of a profile.
func (p *profiles) get(name string) (server, error) {
	s, ok := p.Servers[name]
	if ok {
		return s, nil
	}
	text := fmt.Sprintf("no profile %q", name)
	switch like := nearest.Name(name, append(p.names(), localProfile)); {
	case like != "":
		text += "; did you mean " + like + "?"
	case len(p.Servers) == 0:
		text += ": there are none; agentbox profile add makes one"
	default:
		text += ": there are " + strings.Join(p.names(), ", ")
	}
	return server{}, errors.New(text)
}
