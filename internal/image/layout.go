package image

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"agentbox/internal/image/erofs"

	"github.com/containerd/errdefs"
)

// layoutVersion changes when furnish or the EROFS writer does: old files are
// not used any more then.
const layoutVersion = "2"

// layoutTime is the time of what furnish adds. It is the same on each day, and
// after 1980, because ZIP files can't hold older ones.
var layoutTime = time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)

// erofsPath is the EROFS file of an image with the current agent.
func (s *Store) erofsPath(r record) string {
	return filepath.Join(s.dir, erofsDir, r.key()+s.layoutSuffix())
}

// layoutSuffix ends the names of all EROFS files with the current agent.
func (s *Store) layoutSuffix() string {
	sum := sha256.Sum256([]byte(layoutVersion + "\x00" + s.agent.Build))
	return "-" + hex.EncodeToString(sum[:8]) + erofsExt
}

// ready returns the EROFS file of an image, locked shared. It is made if it is
// not there or damaged.
func (s *Store) ready(ctx context.Context, r record, report func(Event)) (*os.File, error) {
	if f, err := s.openErofs(ctx, r); !isUnusable(err) {
		return f, err
	}
	l, err := openLock(ctx, filepath.Join(s.dir, "layout.lock"), func(*os.File) {
		report(Event{Phase: "wait", Percent: -1, Line: "another process prepares an image"})
	})
	if err != nil {
		return nil, err
	}
	defer l.Close()
	if f, err := s.openErofs(ctx, r); !isUnusable(err) { // the other process made it
		return f, err
	}
	report(Event{Phase: "pack", Percent: 95, Line: "writing the root file system"})
	if err := s.makeErofs(ctx, r); err != nil {
		return nil, err
	}
	return s.openErofs(ctx, r)
}

func isUnusable(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errdefs.IsDataLoss(err)
}

// openErofs opens and locks the EROFS file if it is whole.
func (s *Store) openErofs(ctx context.Context, r record) (*os.File, error) {
	f, err := openShared(ctx, s.erofsPath(r))
	if err != nil {
		return nil, err
	}
	if err := checkErofs(f); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func checkErofs(f *os.File) error {
	st, err := f.Stat()
	if err != nil {
		return err
	}
	return erofs.Check(f, st.Size())
}

// makeErofs writes the EROFS file of an image.
func (s *Store) makeErofs(ctx context.Context, r record) error {
	if err := s.room(s.rootSize(r)); err != nil {
		return err
	}
	f, err := s.tempFile(ctx)
	if err != nil {
		return err
	}
	err = s.writeErofs(ctx, f, r)
	if err == nil {
		err = errors.Join(f.Sync(), checkErofs(f))
	}
	if err == nil {
		err = publish(f.Name(), s.erofsPath(r))
	}
	return errors.Join(err, discard(f))
}

// writeErofs makes one file of an image's layers and of what every image needs.
func (s *Store) writeErofs(ctx context.Context, f *os.File, r record) error {
	w, err := erofs.New(f, s.limits)
	if err != nil {
		return err
	}
	if err := s.readRoot(ctx, r, w.AddLayer); err != nil {
		return err
	}
	w.NextLayer()
	if err := s.furnish(w, r); err != nil {
		return fmt.Errorf("furnish image: %w", err)
	}
	_, err = w.Close(layoutTime)
	return err
}

// furnish adds what agentbox needs in every image, over whatever is there.
func (s *Store) furnish(w *erofs.Writer, r record) error {
	add := func(e erofs.Entry) error {
		e.Mtime = layoutTime
		return w.Add(e)
	}
	for _, d := range r.furniture() {
		if d.keep && w.Has(d.path) {
			continue
		}
		if err := add(erofs.Entry{Path: d.path, Mode: erofs.TypeDir | d.mode, UID: d.owner, GID: d.owner}); err != nil {
			return err
		}
		if d.empty {
			if err := w.Opaque(d.path); err != nil {
				return err
			}
		}
	}
	for _, f := range settings {
		e := erofs.Entry{Path: f.path, Mode: erofs.TypeRegular | 0o644, Size: int64(len(f.content)), Data: strings.NewReader(f.content)}
		if err := add(e); err != nil {
			return err
		}
	}
	agent, err := os.Open(s.agent.Path)
	if err != nil {
		return fmt.Errorf("open guest agent: %w", err)
	}
	defer agent.Close()
	st, err := agent.Stat()
	if err != nil {
		return fmt.Errorf("open guest agent: %w", err)
	}
	return add(erofs.Entry{Path: AgentPath, Mode: erofs.TypeRegular | 0o555, Size: st.Size(), Data: agent})
}

// piece is a directory that every image has. An empty one is mounted over, or
// must hold nothing that came with the image; one to keep stays as it came.
type piece struct {
	path  string
	mode  uint32
	owner uint32
	empty bool
	keep  bool
}

// furniture are the directories that the image needs. An image from elsewhere
// has users of its own, so everybody may write to what is there to be written
// to, and has a working directory that its layers may lack.
func (r record) furniture() []piece {
	all := slices.Clone(furniture)
	if !r.isLayered() {
		return all
	}
	for i, p := range all {
		if p.owner == UserID {
			all[i].mode, all[i].owner, all[i].keep = 0o1777, 0, true
		}
	}
	if r.Config.Workdir != "" {
		all = append(all, piece{path: r.Config.Workdir, mode: 0o755, keep: true})
	}
	return all
}

var furniture = []piece{
	{path: "/.agentbox", mode: 0o755, empty: true},
	{path: "/proc", mode: 0o555, empty: true},
	{path: "/sys", mode: 0o555, empty: true},
	{path: "/sys/fs/cgroup", mode: 0o755},
	{path: "/dev", mode: 0o755, empty: true},
	{path: "/dev/shm", mode: 0o1777},
	{path: "/dev/pts", mode: 0o755},
	{path: "/run", mode: 0o755, empty: true},
	{path: "/tmp", mode: 0o1777},
	{path: "/var/tmp", mode: 0o1777},
	{path: "/workspace", mode: 0o755, owner: UserID},
	{path: "/mnt/user-data", mode: 0o755},
	{path: "/mnt/user-data/outputs", mode: 0o755, owner: UserID},
}

// settings are files that came from the machine that made the image, if at all.
var settings = []struct{ path, content string }{
	{"/etc/hosts", "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n"},
	{"/etc/hostname", "sandbox\n"},
	{"/etc/resolv.conf", ""},
}
