package oracle

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// mounts finds what is mounted from or below the data directory.
func mounts(p Place, add func(kind, key, text string)) error {
	return lines("/proc/self/mountinfo", func(line string) {
		if strings.Contains(line, p.DataDir) || strings.Contains(line, p.TempDir) {
			id, _, _ := strings.Cut(line, " ")
			add("mount", id, line)
		}
	})
}

// sockets finds Unix sockets bound below the data directory.
func sockets(p Place, add func(kind, key, text string)) error {
	return lines("/proc/net/unix", func(line string) {
		if f := strings.Fields(line); len(f) == 8 && strings.Contains(f[7], p.DataDir) {
			add("socket", f[6], f[7])
		}
	})
}

// lines calls f for each line of a file that only Linux has.
func lines(path string, f func(string)) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(text)) {
		f(strings.TrimSuffix(line, "\n"))
	}
	return nil
}

// files finds what lies in the two directories, but for the images, which
// are shared, and the laid out programs, which are kept.
func files(p Place, add func(kind, key, text string)) error {
	for _, root := range []string{p.DataDir, p.TempDir} {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			switch {
			case err != nil && vanished(err):
				return nil
			case err != nil:
				return err
			case path == filepath.Join(p.DataDir, "images"), path == filepath.Join(p.DataDir, "engine"):
				if d.IsDir() {
					return fs.SkipDir
				}
				return nil
			}
			info, err := d.Info()
			if err != nil {
				return nil // it is gone
			}
			ino := info.Sys().(*syscall.Stat_t).Ino
			add("file", fmt.Sprint(path, " ", ino), fmt.Sprintf("%s %s, %d bytes", info.Mode(), path, info.Size()))
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// fds finds the open files of this process.
func fds(_ Place, add func(kind, key, text string)) error {
	const dir = "/proc/self/fd"
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		// The directory's own descriptor is closed by now.
		if to, err := os.Readlink(filepath.Join(dir, e.Name())); err == nil {
			add("fd", e.Name()+" "+to, e.Name()+" -> "+to)
		}
	}
	return nil
}
