package server

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"agentbox/internal/datadir"
)

// lockName is the file in a data directory that its daemon holds locked. The
// kernel lets go of it when the daemon ends, however it ends.
const lockName = "daemon.lock"

// Lock makes this process the data directory's daemon until the file is closed.
func Lock(dataDir string) (*os.File, error) {
	if err := datadir.Make(dataDir); err != nil {
		return nil, fmt.Errorf("make the data directory: %w", err)
	}
	path := filepath.Join(dataDir, lockName)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the data directory: %w", err)
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	switch {
	case errors.Is(err, unix.EWOULDBLOCK):
		pid := make([]byte, 20)
		n, _ := f.ReadAt(pid, 0)
		err = fmt.Errorf("another daemon (pid %s) uses the data directory %s: stop it, or name another directory with --data-dir", pid[:n], dataDir)
	case err != nil:
		err = fmt.Errorf("lock the data directory: %w", err)
	default:
		if err = f.Truncate(0); err == nil {
			_, err = f.WriteAt([]byte(fmt.Sprint(os.Getpid())), 0)
		}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// maxSocketPath is what fits into sockaddr_un, see unix(7).
const maxSocketPath = 107

// ListenLocal makes the local socket, for this user and root only. A socket
// that a killed daemon left is replaced, one that somebody answers on is not.
func ListenLocal(path string) (net.Listener, error) {
	if len(path) > maxSocketPath {
		return nil, fmt.Errorf("the path of the local socket %s is longer than %d bytes: name a shorter one with --socket", path, maxSocketPath)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("make the directory of the local socket: %w", err)
	}
	if err := removeStale(path); err != nil {
		return nil, err
	}
	// The socket is bound under another name and made private before it gets
	// its own: at no moment can others connect.
	temp := path + ".new"
	if len(temp) > maxSocketPath {
		temp = filepath.Join(filepath.Dir(path), ".new")
	}
	if err := os.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("make the local socket: %w", err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: temp, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("make the local socket: %w", err)
	}
	l.SetUnlinkOnClose(false)
	if err = os.Chmod(temp, 0o600); err == nil {
		err = os.Rename(temp, path)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make the local socket: %w", err), l.Close(), os.Remove(temp))
	}
	return &localListener{UnixListener: l, path: path}, nil
}

// removeStale removes a socket on which nobody listens.
func removeStale(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("make the local socket: %w", err)
	}
	if info.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("%s is in the place of the local socket and is none: move it away, or name another place with --socket", path)
	}
	conn, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		conn.Close()
		return fmt.Errorf("another daemon listens on %s: stop it, or name another place with --socket", path)
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("try whether somebody listens on %s: %w", path, err)
	}
	if err := os.Remove(path); err != nil {
		return fmt.Errorf("remove the socket of a daemon that is gone: %w", err)
	}
	return nil
}

// localListener removes its socket when it is closed.
type localListener struct {
	*net.UnixListener
	path string
}

// Addr has the name under which clients find the socket.
func (l *localListener) Addr() net.Addr { return &net.UnixAddr{Name: l.path, Net: "unix"} }

func (l *localListener) Close() error {
	err := l.UnixListener.Close()
	if errors.Is(err, net.ErrClosed) {
		return err // closed before: the name may be another's by now
	}
	if e := os.Remove(l.path); e != nil && !errors.Is(e, fs.ErrNotExist) {
		err = errors.Join(err, e)
	}
	return err
}
