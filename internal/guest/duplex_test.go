package guest_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"syscall"
	"testing"

	"github.com/containerd/errdefs"

	"agentbox/internal/guest"
)

func duplexes(t *testing.T) (a, b *guest.Duplex) {
	x, y := net.Pipe()
	t.Cleanup(func() { x.Close(); y.Close() })
	return guest.NewDuplex(x, x), guest.NewDuplex(y, y)
}

func TestDuplex(t *testing.T) {
	a, b := duplexes(t)
	data := bytes.Repeat([]byte("x"), 3*guest.MaxFrame+1)
	go func() {
		_, _ = a.Write(data)
		_ = a.CloseWrite()
	}()
	got, err := io.ReadAll(b)
	if err != nil || !bytes.Equal(got, data) || b.Ended() {
		t.Errorf("got %d bytes, %v", len(got), err)
	}
	go func() { _ = b.CloseWrite() }()
	if n, err := a.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) || !a.Ended() {
		t.Errorf("got %d, %v", n, err)
	}
	if _, err := a.Write(data); !errors.Is(err, syscall.EPIPE) {
		t.Errorf("after the end: %v", err)
	}
}

// The end of the stream is not the end of the bytes.
func TestDuplexReset(t *testing.T) {
	a, b := duplexes(t)
	a.Close()
	if _, err := b.Read(make([]byte, 1)); !errors.Is(err, guest.ErrReset) || !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("got %v", err)
	}
	a, b = duplexes(t)
	go func() { _ = a.Fail(guest.Errorf(errdefs.ErrAborted, "why")) }()
	if _, err := io.ReadAll(b); !errors.Is(err, guest.ErrReset) || !errdefs.IsAborted(err) {
		t.Errorf("got %v", err)
	}
}

func FuzzDuplex(f *testing.F) {
	f.Add([]byte{32, 0, 0, 0, 1, 'x', 33, 0, 0, 0, 0})
	f.Add([]byte{21, 0, 0, 0, 2, 10, 0})
	f.Add([]byte{99, 255, 0, 0, 0})
	f.Fuzz(func(t *testing.T, in []byte) {
		d := guest.NewDuplex(nil, bytes.NewReader(in))
		if got, _ := io.ReadAll(d); len(got) > len(in) {
			t.Errorf("%d bytes came out of %d", len(got), len(in))
		}
	})
}
