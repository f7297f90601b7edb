package guest_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	guestv1 "agentbox/internal/gen/guest/v1"
	"agentbox/internal/guest"
)

func TestHello(t *testing.T) {
	var b bytes.Buffer
	want := &guestv1.Hello{Versions: []uint32{1}, Epoch: 7, Hostname: "box", Seed: make([]byte, 32)}
	if err := guest.WriteHello(&b, want); err != nil {
		t.Fatal(err)
	}
	got, err := guest.ReadHello(&b)
	if err != nil || got.GetEpoch() != 7 || got.GetHostname() != "box" {
		t.Errorf("ReadHello = %v, %v", got, err)
	}
	if _, err := guest.ReadHello(&b); !errors.Is(err, io.EOF) {
		t.Errorf("the end of the stream gives %v", err)
	}
	if err := guest.WriteHello(io.Discard, &guestv1.Hello{Seed: make([]byte, guest.MaxHello)}); err == nil {
		t.Error("a Hello over the limit is sent")
	}
	if _, err := guest.ReadReply(bytes.NewReader([]byte{0xff, 0xff, 0xff, 0xff})); err == nil {
		t.Error("a reply over the limit is read")
	}
}

func TestChooseVersion(t *testing.T) {
	for _, c := range []struct {
		offered []uint32
		want    uint32
	}{
		{[]uint32{guest.Version}, guest.Version},
		{[]uint32{guest.Version + 1, guest.Version}, guest.Version},
		{[]uint32{guest.Version + 1}, 0},
		{nil, 0},
	} {
		if got := guest.ChooseVersion(c.offered); got != c.want {
			t.Errorf("ChooseVersion(%v) = %d, want %d", c.offered, got, c.want)
		}
	}
}

// TestVersion1: what both ends rely on in version 1. To change it is to make a new version,
// see the package's documentation.
func TestVersion1(t *testing.T) {
	if guest.Version != 1 {
		t.Skip("this is of version 1, which is not spoken best any more")
	}
	for what, c := range map[string][2]int{
		"a hello": {guest.MaxHello, 1 << 20}, "a frame": {guest.MaxFrame, 64 << 10}, "a frame of data": {guest.MaxData, 1 << 20},
		"a request": {guest.MaxRequest, 4 << 20}, "streams of the guest": {guest.MaxGuestStreams, 256},
		"types of frames": {int(guest.FrameExec)<<16 | int(guest.FrameStarted)<<8 | int(guest.FrameData), 1<<16 | 16<<8 | 32},
	} {
		if c[0] != c[1] {
			t.Errorf("%s: %d, and version 1 has %d", what, c[0], c[1])
		}
	}
}

func TestFrames(t *testing.T) {
	var b bytes.Buffer
	payloads := [][]byte{nil, []byte("a"), make([]byte, guest.MaxFrame)}
	for i, p := range payloads {
		if err := guest.WriteFrame(&b, guest.FrameType(i), p); err != nil {
			t.Fatal(err)
		}
	}
	if err := guest.WriteFrame(&b, 1, make([]byte, guest.MaxFrame+1)); err == nil {
		t.Error("a frame over the limit is sent")
	}
	r := guest.NewFrameReader(&b)
	for i, want := range payloads {
		typ, got, err := r.Next()
		if err != nil || typ != guest.FrameType(i) || !bytes.Equal(got, want) {
			t.Errorf("frame %d: type %d, %d bytes, %v", i, typ, len(got), err)
		}
	}
	if _, _, err := r.Next(); err != io.EOF {
		t.Errorf("after the last frame: %v", err)
	}
	if _, _, err := guest.NewFrameReader(bytes.NewReader([]byte{1, 0, 0, 0, 9, 1})).Next(); err != io.ErrUnexpectedEOF {
		t.Errorf("a cut frame: %v", err)
	}
}

func FuzzFrames(f *testing.F) {
	f.Add([]byte{16, 0, 0, 0, 1, 'x', 17, 0, 1, 0, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		r := guest.NewFrameReader(bytes.NewReader(b))
		n := 0
		for {
			_, p, err := r.Next()
			if err != nil {
				return
			}
			if n += 5 + len(p); n > len(b) {
				t.Fatalf("%d bytes of frames in %d", n, len(b))
			}
		}
	})
}

func FuzzHello(f *testing.F) {
	f.Add([]byte{0, 0, 0, 2, 8, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		_, _ = guest.ReadHello(bytes.NewReader(b))
		_, _ = guest.ReadReply(bytes.NewReader(b))
	})
}

func TestErrors(t *testing.T) {
	for _, c := range []struct {
		err    error
		class  error
		status int
	}{
		{&fs.PathError{Op: "open", Path: "/x", Err: syscall.ENOENT}, errdefs.ErrNotFound, 404},
		{&fs.PathError{Op: "open", Path: "/x", Err: syscall.EACCES}, errdefs.ErrPermissionDenied, 403},
		{&fs.PathError{Op: "mkdir", Path: "/x", Err: syscall.EEXIST}, errdefs.ErrAlreadyExists, 409},
		{&fs.PathError{Op: "write", Path: "/x", Err: syscall.ENOSPC}, errdefs.ErrResourceExhausted, 429},
		{fmt.Errorf("wrap: %w", guest.Errorf(errdefs.ErrFailedPrecondition, "not now")), errdefs.ErrFailedPrecondition, 412},
		{errors.New("odd"), errdefs.ErrInternal, 500},
	} {
		m, status := guest.EncodeError(c.err)
		got := guest.DecodeError(m)
		if !errors.Is(got, c.class) || status != c.status {
			t.Errorf("%v arrives as %v with status %d, want %v and %d", c.err, got, status, c.class, c.status)
		}
	}
	m, _ := guest.EncodeError(&fs.PathError{Op: "open", Path: "/\xff", Err: syscall.ENOENT})
	err := guest.DecodeError(m)
	var e *guest.Error
	if !errors.As(err, &e) || e.Path != "/\xff" || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("errno and path get lost: %#v", err)
	}
}

// newMuxes returns a session and the raw stream at its other end.
func newMux(t *testing.T) (accept func() (net.Conn, error), raw net.Conn) {
	a, b := net.Pipe()
	s, err := guest.NewMux(a, true)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close(); b.Close() })
	return s.Accept, b
}

// A yamux ping would cost its reader a goroutine each.
func TestMuxRefusesPings(t *testing.T) {
	accept, raw := newMux(t)
	_ = raw.SetDeadline(time.Now().Add(10 * time.Second))
	go func() { _, _ = raw.Write([]byte{0, 2, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1}) }()
	if _, err := accept(); err == nil {
		t.Error("a ping does not end the session")
	}
}

func TestMuxCarriesBytes(t *testing.T) {
	a, b := net.Pipe()
	host, err := guest.NewMux(a, true)
	if err != nil {
		t.Fatal(err)
	}
	agent, err := guest.NewMux(b, false)
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	defer agent.Close()
	go func() {
		c, err := agent.Accept()
		if err == nil {
			_, _ = io.Copy(c, c)
			c.Close()
		}
	}()
	c, err := host.Open()
	if err != nil {
		t.Fatal(err)
	}
	want := make([]byte, 3<<20)
	for i := range want {
		want[i] = byte(rand.Uint32())
	}
	go func() {
		for rest := want; len(rest) > 0; {
			n, err := c.Write(rest[:min(len(rest), 1+rand.IntN(200_000))])
			if err != nil {
				return
			}
			rest = rest[n:]
		}
	}()
	got := make([]byte, len(want))
	if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, want) {
		t.Errorf("bytes got lost: %v", err)
	}
}

// writes tells of each write to a connection.
type writes struct {
	net.Conn
	seen chan []byte
}

func (w writes) Write(p []byte) (int, error) {
	w.seen <- bytes.Clone(p)
	return len(p), nil
}

// The other end is woken once for a new stream and its first bytes, and hears of
// a stream that is closed without any.
func TestMuxOpensWithTheFirstBytes(t *testing.T) {
	a, b := net.Pipe()
	defer b.Close()
	w := writes{a, make(chan []byte, 16)}
	host, err := guest.NewMux(w, true)
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	kinds := func() (kinds []byte) {
		p := <-w.seen
		for len(p) >= 12 {
			kinds = append(kinds, p[1])
			body := 0
			if p[1] == 0 {
				body = int(binary.BigEndian.Uint32(p[8:]))
			}
			p = p[12+body:]
		}
		return kinds
	}
	c, err := host.Open()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write([]byte("request")); err != nil {
		t.Fatal(err)
	}
	const window, data = 1, 0
	if got := kinds(); !bytes.Equal(got, []byte{window, data}) {
		t.Errorf("a stream with a request came as %v", got)
	}
	if c, err = host.Open(); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if got := kinds(); !bytes.Equal(got, []byte{window, window}) {
		t.Errorf("a stream without a request came as %v", got)
	}
}
