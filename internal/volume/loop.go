//go:build linux

package volume

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// loopMark is what our loop devices are called besides their file: at most 63
// bytes.
const loopMark = "agentbox-volume"

// attachTries bounds how often another process may take the loop device that the
// kernel offered us.
const attachTries = 100

// attach returns a loop device, open, whose contents are the file at path. The
// device clears itself when nobody has it open or mounted.
//
// A device that has the file already is used again: two file systems at once on
// one file would destroy it. There is one when the file is still mounted in some
// other mount namespace.
func attach(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	ctl, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("find a loop device: %w", err)
	}
	defer ctl.Close()
	for range attachTries {
		if dev, err := attached(path); dev != nil || err != nil {
			return dev, err
		}
		n, err := unix.IoctlRetInt(int(ctl.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return nil, fmt.Errorf("find a loop device: %w", err)
		}
		dev, err := os.OpenFile(fmt.Sprintf("/dev/loop%d", n), os.O_RDWR|unix.O_NOFOLLOW, 0)
		if err != nil {
			return nil, fmt.Errorf("open a loop device: %w", err)
		}
		conf := unix.LoopConfig{Fd: uint32(f.Fd()), Info: unix.LoopInfo64{Flags: unix.LO_FLAGS_AUTOCLEAR}}
		copy(conf.Info.File_name[:], loopMark)
		err = unix.IoctlLoopConfigure(int(dev.Fd()), &conf)
		if err == nil {
			return dev, nil
		}
		dev.Close()
		if !errors.Is(err, unix.EBUSY) {
			return nil, fmt.Errorf("attach %s to a loop device: %w", path, err)
		}
	}
	return nil, fmt.Errorf("attach %s to a loop device: others took %d of them first", path, attachTries)
}

// attached returns the loop device of the file at path, open, or nil.
func attached(path string) (*os.File, error) {
	all, err := loops()
	if err != nil {
		return nil, err
	}
	for _, l := range all {
		if l.file != path {
			continue
		}
		dev, err := os.OpenFile(l.dev, os.O_RDWR|unix.O_NOFOLLOW, 0)
		if err != nil {
			return nil, fmt.Errorf("open a loop device: %w", err)
		}
		// It may have been cleared until now, but is ours from here on.
		if file, err := backingFile(l.dev); err == nil && file == path {
			return dev, nil
		}
		dev.Close()
	}
	return nil, nil
}

// loop is a loop device that has a file.
type loop struct{ dev, file string }

// loops lists those of the host.
func loops() ([]loop, error) {
	dirs, err := filepath.Glob("/sys/block/loop*")
	if err != nil {
		return nil, err
	}
	var all []loop
	for _, dir := range dirs {
		dev := filepath.Join("/dev", filepath.Base(dir))
		file, err := backingFile(dev)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ENXIO) {
			continue // has none
		}
		if err != nil {
			return nil, fmt.Errorf("look at a loop device: %w", err)
		}
		all = append(all, loop{dev: dev, file: file})
	}
	return all, nil
}

func backingFile(dev string) (string, error) {
	b, err := os.ReadFile(filepath.Join("/sys/block", filepath.Base(dev), "loop/backing_file"))
	return strings.TrimSuffix(string(b), "\n"), err
}

// detach clears a loop device if it has our mark. One that is in use is cleared
// when it no longer is.
func detach(l loop) error {
	dev, err := os.OpenFile(l.dev, os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return fmt.Errorf("open a loop device: %w", err)
	}
	defer dev.Close()
	info, err := unix.IoctlLoopGetStatus64(int(dev.Fd()))
	if errors.Is(err, unix.ENXIO) {
		return nil // cleared meanwhile
	}
	if err != nil {
		return fmt.Errorf("look at a loop device: %w", err)
	}
	if unix.ByteSliceToString(info.File_name[:]) != loopMark {
		return nil
	}
	if file, err := backingFile(l.dev); err != nil || file != l.file {
		return nil // cleared and used again meanwhile
	}
	if err := unix.IoctlSetInt(int(dev.Fd()), unix.LOOP_CLR_FD, 0); err != nil && !errors.Is(err, unix.ENXIO) {
		return fmt.Errorf("clear %s: %w", l.dev, err)
	}
	return nil
}
