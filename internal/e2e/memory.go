package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// InMemory reports whether the memory of a sandbox, its kernel's included, or its
// writable files have some bytes in them. It does not make the memory grow: holes
// are left out.
func InMemory(t testing.TB, id string, part []byte) bool {
	t.Helper()
	s := memorySearch{part: part}
	for _, pid := range SandboxPids(t, id) {
		dir := filepath.Join("/proc", strconv.Itoa(pid))
		s.files(dir)
		s.private(dir)
	}
	if s.looked < 1<<20 && !s.found {
		t.Fatalf("only %d bytes of the sandbox's memory could be read", s.looked)
	}
	return s.found
}

type memorySearch struct {
	part   []byte
	looked int64
	found  bool
}

// files searches the memory that programs in the sandbox have, and their files:
// both are files without a name of the sandbox's process.
func (s *memorySearch) files(dir string) {
	fds, _ := os.ReadDir(filepath.Join(dir, "fd")) // a process may have ended
	for _, fd := range fds {
		path := filepath.Join(dir, "fd", fd.Name())
		if to, err := os.Readlink(path); err != nil || !strings.HasSuffix(to, " (deleted)") {
			continue
		}
		f, err := os.Open(path)
		if err != nil {
			continue
		}
		for at := int64(0); ; {
			const seekData, seekHole = 3, 4
			from, err := f.Seek(at, seekData)
			if errors.Is(err, syscall.ENXIO) || err != nil {
				break
			}
			to, err := f.Seek(from, seekHole)
			if err != nil {
				break
			}
			s.search(f, from, to)
			at = to
		}
		_ = f.Close()
	}
}

// private searches the memory of the process itself. What it shares are the files.
func (s *memorySearch) private(dir string) {
	maps, _ := os.ReadFile(filepath.Join(dir, "maps")) // a process may have ended
	mem, err := os.Open(filepath.Join(dir, "mem"))
	if err != nil {
		return
	}
	defer mem.Close()
	for line := range strings.Lines(string(maps)) {
		var from, to int64
		var rights string
		if n, _ := fmt.Sscanf(line, "%x-%x %s", &from, &to, &rights); n == 3 && strings.HasPrefix(rights, "rw") && strings.HasSuffix(rights, "p") {
			s.search(mem, from, to)
		}
	}
}

// search looks at a range, in pieces.
func (s *memorySearch) search(r io.ReaderAt, from, to int64) {
	const piece = 1 << 20
	buf := make([]byte, piece+len(s.part))
	for at := from; at < to && !s.found; at += piece {
		n, _ := r.ReadAt(buf[:min(int64(len(buf)), to-at)], at) // what can't be read is not there
		s.looked += int64(n)
		s.found = bytes.Contains(buf[:n], s.part)
	}
}
