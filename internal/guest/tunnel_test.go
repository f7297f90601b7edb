package guest_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	"agentbox/internal/guest"
)

// tunnels are the two ends of one.
func tunnels(t *testing.T) (host, inside *guest.Tunnel) {
	t.Helper()
	x, y := net.Pipe()
	made := make(chan *guest.Tunnel)
	go func() {
		e, err := guest.NewTunnel(y, y, false, false)
		if err != nil {
			t.Error(err)
		}
		made <- e
	}()
	host, err := guest.NewTunnel(x, x, true, false)
	if err != nil {
		t.Fatal(err)
	}
	inside = <-made
	t.Cleanup(func() { host.Close(); inside.Close() })
	return host, inside
}

// connected is a connection with both its ends.
func connected(t *testing.T, host, inside *guest.Tunnel) (atHost, atGuest *guest.TunnelConn) {
	t.Helper()
	atGuest, err := inside.Open(guest.TunnelHead{Kind: guest.TunnelProxy})
	if err != nil {
		t.Fatal(err)
	}
	atHost, err = host.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if h, err := atHost.ReadHead(time.Minute); err != nil || h.Kind != guest.TunnelProxy {
		t.Fatalf("got %+v, %v", h, err)
	}
	for _, c := range []*guest.TunnelConn{atHost, atGuest} { // nothing here may wait for ever
		if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
	}
	return atHost, atGuest
}

// full writes to a connection until nothing more fits, and goes on.
func full(t *testing.T, c *guest.TunnelConn) <-chan error {
	t.Helper()
	ended, wrote := make(chan error, 1), make(chan struct{})
	go func() {
		const window = 256 << 10
		_, err := c.Write(make([]byte, window-1<<10))
		close(wrote)
		for err == nil {
			_, err = c.Write(make([]byte, guest.MaxFrame))
		}
		ended <- err
	}()
	<-wrote
	return ended
}

// A reset is heard at once, at either end, by who waits for room to write and by
// who has not read what came before.
func TestTunnelReset(t *testing.T) {
	host, inside := tunnels(t)
	for _, fromHost := range []bool{true, false} {
		a, b := connected(t, host, inside)
		if fromHost {
			a, b = b, a
		}
		stuckA, stuckB := full(t, a), full(t, b)
		b.Reset()
		if err := <-stuckA; !errors.Is(err, guest.ErrReset) {
			t.Errorf("host %v: the writer at the other end got %v", fromHost, err)
		}
		if err := <-stuckB; !errors.Is(err, net.ErrClosed) {
			t.Errorf("host %v: the writer at this end got %v", fromHost, err)
		}
		<-a.Done()
		if n, err := a.Read(make([]byte, 1)); n != 0 || !errors.Is(err, guest.ErrReset) {
			t.Errorf("host %v: read %d, %v", fromHost, n, err)
		}
		if err := a.SetDeadline(time.Time{}); err == nil {
			t.Errorf("host %v: what is over has a deadline", fromHost)
		}
	}
	for host.Held() > 0 || inside.Held() > 0 { // the test's own time limit ends this
		time.Sleep(time.Millisecond)
	}
}

// What was written before an end arrives, though the end's holder is gone.
func TestTunnelClose(t *testing.T) {
	host, inside := tunnels(t)
	a, b := connected(t, host, inside)
	data := bytes.Repeat([]byte("x"), 200<<10)
	if _, err := a.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(a.CloseWrite(), a.Close()); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(b)
	if err != nil || !bytes.Equal(got, data) {
		t.Errorf("got %d bytes of %d, %v", len(got), len(data), err)
	}
	// Without an end it is a reset.
	a, b = connected(t, host, inside)
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Read(make([]byte, 1)); !errors.Is(err, guest.ErrReset) {
		t.Errorf("got %v", err)
	}
}

// A guest that opens streams without end loses the tunnel, and the host holds no
// more of them than it bears.
func TestTunnelBound(t *testing.T) {
	host, inside := tunnels(t)
	go func() {
		for {
			if _, err := inside.Open(guest.TunnelHead{Kind: guest.TunnelProxy}); err != nil {
				return
			}
		}
	}()
	n := 0
	for ; ; n++ {
		c, err := host.Accept()
		if err != nil {
			if !errdefs.IsResourceExhausted(err) {
				t.Errorf("got %v", err)
			}
			break
		}
		defer c.Close()
	}
	if n > guest.MaxGuestStreams {
		t.Errorf("the host took %d streams", n)
	}
	<-host.Done()
	<-inside.Done()
}
