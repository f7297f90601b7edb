package wire

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"agentbox/internal/runtime/gvisor"
)

// placeFile is in the daemon's directory and has the number of that directory's
// inode: it tells a copy, which gets another one, from a directory that was moved.
const placeFile = "place"

// checkPlace refuses a copy as long as sandboxes of the original run: their records
// are in the copy, too, and who opens it would take them away from the original's
// daemon.
func checkPlace(dir string) error {
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return nil // nothing tells directories apart here
	}
	path, here := filepath.Join(dir, placeFile), strconv.FormatUint(st.Ino, 10)
	was, err := os.ReadFile(path)
	switch {
	case err == nil && strings.TrimSpace(string(was)) == here:
		return nil
	case err == nil:
		pids, err := gvisor.Running(dir)
		if err != nil {
			return err
		}
		if len(pids) > 0 {
			return fmt.Errorf("%s is a copy, and sandboxes of the original run (processes %v): stop them there first", filepath.Dir(dir), pids)
		}
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	return writeWhole(path, here)
}
