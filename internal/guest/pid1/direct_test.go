//go:build linux

package pid1

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"
)

// ends gives both ends of a TCP connection, the first one direct.
func ends(t *testing.T) (directTCP, *net.TCPConn) {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	far, err := net.Dial("tcp4", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	near, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { near.Close(); far.Close() })
	s, err := newDirectSocket(near.(*net.TCPConn))
	if err != nil {
		t.Fatal(err)
	}
	return directTCP{near.(*net.TCPConn), s}, far.(*net.TCPConn)
}

func TestDirectMovesAll(t *testing.T) {
	t.Parallel()
	near, far := ends(t)
	sent := bytes.Repeat([]byte("0123456789abcdef"), 1<<18) // more than the buffers hold
	back := make(chan []byte, 1)
	go func() {
		b, _ := io.ReadAll(far)
		back <- b
		_, _ = far.Write(b)
		_ = far.CloseWrite()
	}()
	if n, err := near.Write(sent); n != len(sent) || err != nil {
		t.Fatalf("wrote %d bytes of %d: %v", n, len(sent), err)
	}
	if err := near.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(<-back, sent) {
		t.Error("other bytes arrived than were written")
	}
	got, err := io.ReadAll(near)
	if err != nil || !bytes.Equal(got, sent) {
		t.Errorf("%d bytes came back, %v; want %d", len(got), err, len(sent))
	}
	if n, err := near.Read(nil); n != 0 || err != nil {
		t.Errorf("a read of nothing: %d, %v", n, err)
	}
}

func TestDirectEnds(t *testing.T) {
	t.Parallel()
	t.Run("deadline", func(t *testing.T) {
		t.Parallel()
		near, _ := ends(t)
		_ = near.SetDeadline(time.Now().Add(10 * time.Millisecond))
		if _, err := near.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("read: %v", err)
		}
		n, err := near.Write(make([]byte, 64<<20)) // nobody reads
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("write: %d, %v", n, err)
		}
		_ = near.SetDeadline(time.Time{})
		time.AfterFunc(10*time.Millisecond, func() { near.Close() })
		if _, err := near.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
			t.Errorf("read of a connection that is closed meanwhile: %v", err)
		}
	})
	t.Run("reset", func(t *testing.T) {
		t.Parallel()
		near, far := ends(t)
		_ = far.SetLinger(0)
		_ = far.Close()
		if _, err := near.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("read: %v", err)
		}
		if _, err := near.Write([]byte("x")); !errors.Is(err, syscall.EPIPE) {
			t.Errorf("write: %v", err)
		}
	})
}
