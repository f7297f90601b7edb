package e2e

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// memoryHolds counts how often texts are in all that a sandbox's processes on the
// host have: the guest's memory and writable files, which are files without a name,
// and the memory of the kernel that runs it.
func memoryHolds(t *testing.T, id string, texts ...string) []int {
	t.Helper()
	s := &memorySearch{t: t, counts: make([]int, len(texts)), seen: map[string]bool{}}
	for _, text := range texts {
		s.texts = append(s.texts, []byte(text))
	}
	pids := withChildren(t, SandboxPids(t, id))
	if len(pids) == 0 {
		t.Fatal("the sandbox has no processes")
	}
	for _, pid := range pids {
		s.files(pid)
		s.memory(pid)
	}
	t.Logf("%d processes with %d files without a name, %d MiB searched", len(pids), len(s.seen), s.bytes>>20)
	if len(s.seen) == 0 {
		t.Error("the guest's memory was not found")
	}
	return s.counts
}

// withChildren adds the processes below others.
func withChildren(t *testing.T, all []int) []int {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for grown := true; grown; {
		grown = false
		for _, path := range stats {
			b, err := os.ReadFile(path)
			if err != nil {
				continue // it is gone
			}
			var parent int
			_, rest, _ := strings.Cut(string(b), ") ")
			if _, err := fmt.Sscanf(rest, "%1s %d", new(string), &parent); err != nil {
				continue
			}
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			if slices.Contains(all, parent) && !slices.Contains(all, pid) {
				all, grown = append(all, pid), true
			}
		}
	}
	return all
}

type memorySearch struct {
	t      *testing.T
	texts  [][]byte
	counts []int
	seen   map[string]bool // files, by their inodes
	bytes  int64
}

// part searches the bytes from one place to another; what can't be read is left
// out.
func (s *memorySearch) part(r io.ReaderAt, from, to int64) {
	const most = 4 << 20
	overlap := int64(0)
	for _, text := range s.texts {
		overlap = max(overlap, int64(len(text))-1)
	}
	buf := make([]byte, most)
	for at := from; at < to; at += most - overlap {
		n, _ := r.ReadAt(buf[:min(most, to-at)], at)
		s.bytes += int64(n)
		for i, text := range s.texts {
			s.counts[i] += bytes.Count(buf[:n], text)
		}
		if at+most >= to {
			return
		}
	}
}

// files searches the files without a name that a process has open.
func (s *memorySearch) files(pid int) {
	fds, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	for _, path := range fds {
		to, err := os.Readlink(path)
		if err != nil || !strings.HasSuffix(to, " (deleted)") {
			continue
		}
		var st unix.Stat_t
		if unix.Stat(path, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG || s.seen[fmt.Sprint(st.Dev, st.Ino)] {
			continue
		}
		f, err := os.Open(path)
		if err != nil {
			s.t.Errorf("open %s (%s): %v", path, to, err)
			continue
		}
		s.seen[fmt.Sprint(st.Dev, st.Ino)] = true
		for at := int64(0); ; {
			data, err := f.Seek(at, unix.SEEK_DATA)
			if errors.Is(err, unix.ENXIO) {
				break
			}
			hole, err2 := f.Seek(data, unix.SEEK_HOLE)
			if err != nil || err2 != nil {
				s.t.Errorf("look for data in %s: %v, %v", to, err, err2)
				break
			}
			s.part(f, data, hole)
			at = hole
		}
		f.Close()
	}
}

// memory searches what a process has in its own memory.
func (s *memorySearch) memory(pid int) {
	maps, err := os.Open(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return // it is gone
	}
	defer maps.Close()
	mem, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	if err != nil {
		s.t.Errorf("open the memory of %d: %v", pid, err)
		return
	}
	defer mem.Close()
	for lines := bufio.NewScanner(maps); lines.Scan(); {
		f := strings.Fields(lines.Text())
		var from, to int64
		if _, err := fmt.Sscanf(f[0], "%x-%x", &from, &to); err != nil || !strings.HasPrefix(f[1], "rw") || f[4] != "0" {
			continue // not written to, or a file, which is searched as such
		}
		s.part(mem, from, to)
	}
}
