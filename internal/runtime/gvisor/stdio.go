package gvisor

import (
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// emptyFile is what a sandbox gets for standard input, output and error: reads
// find the end, writes fail. It is no /dev/null because gVisor's library gives
// these files to the sandbox's user, and there is only one /dev/null.
func emptyFile() (*os.File, error) {
	fd, err := unix.MemfdCreate("agentbox-empty", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("make an empty file: %w", err)
	}
	f := os.NewFile(uintptr(fd), "agentbox-empty")
	const seals = unix.F_SEAL_SEAL | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE
	if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, seals); err != nil {
		f.Close()
		return nil, fmt.Errorf("seal an empty file: %w", err)
	}
	return f, nil
}

// streams guards the swap of os.Stdin, os.Stdout and os.Stderr.
var streams struct {
	mu           sync.Mutex
	users        int
	null         *os.File
	in, out, err *os.File
}

// withHiddenStreams runs f while os.Stdin, os.Stdout and os.Stderr name an empty
// file: gVisor's library would hand our own to the sandbox and give the files
// behind them to its user.
func withHiddenStreams(f func() error) error {
	if err := hideStreams(); err != nil {
		return err
	}
	defer showStreams()
	return f()
}

func hideStreams() error {
	s := &streams
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.users == 0 {
		null, err := emptyFile()
		if err != nil {
			return err
		}
		s.null, s.in, s.out, s.err = null, os.Stdin, os.Stdout, os.Stderr
		os.Stdin, os.Stdout, os.Stderr = null, null, null
	}
	s.users++
	return nil
}

func showStreams() {
	s := &streams
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.users--; s.users == 0 {
		os.Stdin, os.Stdout, os.Stderr = s.in, s.out, s.err
		s.null.Close()
	}
}
