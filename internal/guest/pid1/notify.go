//go:build linux

package pid1

import (
	"bytes"
	"encoding/binary"
	"io"
	"os"

	"golang.org/x/sys/unix"

	guestv1 "agentbox/internal/gen/guest/v1"
	"agentbox/internal/guest/agent"
)

// notifier is inotify(7).
type notifier struct {
	f   *os.File // its poller lets Close wake who reads
	fd  int
	buf [64 << 10]byte
}

// Notify implements agent.Files.
func (s *files) Notify() (agent.Notifier, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, os.NewSyscallError("inotify_init", err)
	}
	return &notifier{f: os.NewFile(uintptr(fd), "inotify"), fd: fd}, nil
}

const watchMask = unix.IN_CREATE | unix.IN_DELETE | unix.IN_MODIFY | unix.IN_ATTRIB | unix.IN_MOVED_FROM | unix.IN_MOVED_TO |
	unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_ONLYDIR | unix.IN_EXCL_UNLINK

func (s *fileSystem) Watch(n agent.Notifier, p string) (id int, err error) {
	dir, err := s.open(p, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return 0, s.pathError("watch", p, err)
	}
	defer unix.Close(dir)
	err = retry(func() error {
		id, err = unix.InotifyAddWatch(n.(*notifier).fd, byDescriptor(dir), watchMask)
		return err
	})
	return id, s.pathError("watch", p, err)
}

func (n *notifier) Remove(id int) { _, _ = unix.InotifyRmWatch(n.fd, uint32(id)) }

func (n *notifier) Close() error { return n.f.Close() }

func (n *notifier) Next() ([]agent.Change, error) {
	for {
		m, err := n.f.Read(n.buf[:])
		if err != nil {
			return nil, err
		}
		if m == 0 {
			return nil, io.EOF
		}
		if changes := parseChanges(n.buf[:m]); len(changes) > 0 {
			return changes, nil
		}
	}
}

// kinds of inotify's events, in the order in which they are told when one event
// has several.
var kinds = []struct {
	mask uint32
	kind guestv1.WatchKind
}{
	{unix.IN_Q_OVERFLOW, guestv1.WatchKind_WATCH_KIND_OVERFLOW},
	{unix.IN_CREATE | unix.IN_MOVED_TO, guestv1.WatchKind_WATCH_KIND_CREATE},
	{unix.IN_MOVED_FROM, guestv1.WatchKind_WATCH_KIND_RENAME},
	{unix.IN_ATTRIB, guestv1.WatchKind_WATCH_KIND_CHMOD},
	{unix.IN_MODIFY, guestv1.WatchKind_WATCH_KIND_WRITE},
	{unix.IN_DELETE, guestv1.WatchKind_WATCH_KIND_REMOVE},
}

// parseChanges reads a buffer of struct inotify_event: watch, mask, cookie and
// length of the name as 32 bits each, then the name with NULs behind it.
func parseChanges(b []byte) (changes []agent.Change) {
	for len(b) >= unix.SizeofInotifyEvent {
		id, mask := int(int32(binary.NativeEndian.Uint32(b))), binary.NativeEndian.Uint32(b[4:])
		size := int(binary.NativeEndian.Uint32(b[12:]))
		b = b[unix.SizeofInotifyEvent:]
		if size > len(b) {
			return changes
		}
		name, _, _ := bytes.Cut(b[:size], []byte{0})
		b = b[size:]
		if len(name) == 0 && mask&unix.IN_Q_OVERFLOW == 0 {
			switch { // the directory itself; of a removed one IN_IGNORED is the last event
			case mask&unix.IN_MOVE_SELF != 0:
				changes = append(changes, agent.Change{ID: id, Kind: guestv1.WatchKind_WATCH_KIND_RENAME})
			case mask&unix.IN_IGNORED != 0:
				changes = append(changes, agent.Change{ID: id, Kind: guestv1.WatchKind_WATCH_KIND_REMOVE})
			}
			continue
		}
		for _, k := range kinds {
			if mask&k.mask != 0 {
				changes = append(changes, agent.Change{ID: id, Kind: k.kind, Name: string(name), Dir: mask&unix.IN_ISDIR != 0})
			}
		}
	}
	return changes
}
