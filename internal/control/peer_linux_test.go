package control_test

import (
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"agentbox/internal/control"
	"agentbox/internal/owner"
)

// dialAs connects with the rights of another user: those of one thread, which
// ends with its goroutine.
func dialAs(uid int, path string) (net.Conn, error) {
	type result struct {
		c   net.Conn
		err error
	}
	done := make(chan result)
	go func() {
		runtime.LockOSThread()
		if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, ^uintptr(0), uintptr(uid), ^uintptr(0)); e != 0 {
			done <- result{nil, e}
			return
		}
		c, err := net.Dial("unix", path)
		done <- result{c, err}
	}()
	r := <-done
	return r.c, r.err
}

// Another user is kept out by the modes of the directory and of the socket, and,
// where those were changed, by who it is.
func TestOtherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can connect as somebody else")
	}
	const other = 65534
	o, err := owner.New(openDir(t))
	if err != nil {
		t.Fatal(err)
	}
	s, err := control.Serve(o.Dir, &box{info: control.Info{ID: "aab1"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		_ = o.Release()
	})
	socket := filepath.Join(o.Dir, "control")
	ask := func(uid int) (string, error) {
		c, err := dialAs(uid, socket)
		if err != nil {
			return "", err
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		_, _ = io.WriteString(c, "GET /info HTTP/1.1\r\nHost: agentbox\r\nConnection: close\r\n\r\n") // it may be closed already
		b, _ := io.ReadAll(c)
		return string(b), nil
	}
	for _, open := range []struct {
		path string
		mode os.FileMode
	}{{filepath.Dir(o.Dir), 0o700}, {o.Dir, 0o700}, {socket, 0o600}} {
		if i, err := os.Stat(open.path); err != nil || i.Mode().Perm() != open.mode {
			t.Errorf("%s: %v, %v; want %v", open.path, i.Mode(), err, open.mode)
		}
		if got, err := ask(other); !errors.Is(err, fs.ErrPermission) {
			t.Errorf("another user, %s closed: %q, %v", open.path, got, err)
		}
		if err := os.Chmod(open.path, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := ask(other); err != nil || got != "" {
		t.Errorf("another user was answered: %q, %v", got, err)
	}
	if got, err := ask(0); err != nil || !strings.Contains(got, "aab1") {
		t.Errorf("the same user: %q, %v", got, err)
	}
}

// openDir is a directory below which everybody may go.
func openDir(t *testing.T) string {
	dir := t.TempDir()
	for p := dir; p != os.TempDir() && p != "/"; p = filepath.Dir(p) {
		if err := os.Chmod(p, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
