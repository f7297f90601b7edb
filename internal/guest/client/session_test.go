package client_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/hashicorp/yamux"

	guestv1 "agentbox/internal/gen/guest/v1"
	"agentbox/internal/guest"
	"agentbox/internal/guest/client"
	"agentbox/internal/sandbox"
)

func TestProbeStream(t *testing.T) {
	s := newGuest(t).connect(nil, nil)
	want := bytes.Repeat([]byte{0xff}, guest.MaxProbe)
	got, err := s.ProbeStream(ctx(t), want)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("got %d bytes, %v", len(got), err)
	}
}

func TestGuestOpensStreams(t *testing.T) {
	g := newGuest(t)
	g.connect(nil, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "served "+r.URL.Path)
	}))
	c, err := g.agent.OpenStream()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, _ = io.WriteString(c, "GET /tunnel HTTP/1.0\r\n\r\n")
	b, err := io.ReadAll(c)
	if err != nil || !strings.HasSuffix(string(b), "served /tunnel") {
		t.Errorf("got %q, %v", b, err)
	}
}

// A new session takes over; commands outlive the old one, whatever they are to
// do when a client leaves.
func TestSessions(t *testing.T) {
	g := newGuest(t)
	one := g.connect(nil, nil)
	if _, err := one.Start(ctx(t), "h", sandbox.Command{Argv: []string{"hang"}, OnDisconnect: sandbox.Kill}, client.Output{}); err != nil {
		t.Fatal(err)
	}
	if _, err := g.dial(client.Options{Epoch: g.epoch}, false); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("the same epoch again gives %v", err)
	}
	if err := one.Err(); err != nil {
		t.Errorf("a refused session disturbs the one that lives: %v", err)
	}
	two := g.connect(nil, nil)
	select {
	case <-one.Done():
	case <-ctx(t).Done():
		t.Fatal("the old session lives on")
	}
	if !errdefs.IsUnavailable(one.Err()) {
		t.Errorf("the old session ended with %v", one.Err())
	}
	if n := len(two.Reply().GetExecs()); n != 1 {
		t.Errorf("the new session is told of %d commands", n)
	}
	p, err := two.Attach(ctx(t), "h", 0, 0, client.Output{})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Kill(ctx(t)); err != nil {
		t.Fatal(err)
	}
	if r, err := p.Wait(ctx(t)); err != nil || string(r.Stdout) != "begun\n" {
		t.Errorf("got %+v, %v", r, err)
	}
}

func TestQuiesce(t *testing.T) {
	for _, adopted := range []bool{false, true} {
		g := newGuest(t)
		s, err := g.dial(client.Options{Epoch: 1}, adopted)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Quiesce(ctx(t)); err != nil {
			t.Errorf("adopted %v: %v", adopted, err)
		}
		if err := s.Err(); err != nil {
			t.Errorf("adopted %v: the session ended with %v", adopted, err)
		}
	}
}

// fakeGuest answers Hello, then speaks as the test wants.
func fakeGuest(t *testing.T, speak func(net.Conn)) *client.Session {
	t.Helper()
	host, end := net.Pipe()
	go func() {
		defer end.Close()
		if _, err := guest.ReadHello(end); err == nil && guest.WriteReply(end, &guestv1.HelloReply{Version: guest.Version}) == nil {
			speak(end)
		}
	}()
	s, err := client.New(ctx(t), host, client.Options{Epoch: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// TestNoVersionInCommon: who speaks to an agent of another time is told what both speak, from
// each end.
func TestNoVersionInCommon(t *testing.T) {
	host, end := net.Pipe()
	defer host.Close()
	go func() {
		defer end.Close()
		if _, err := guest.ReadHello(end); err == nil {
			_ = guest.WriteReply(end, &guestv1.HelloReply{Error: "the agent speaks versions [7], the host [1]"})
		}
	}()
	if s, err := client.New(ctx(t), host, client.Options{Epoch: 1}); !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), "the agent speaks versions [7], the host [1]") {
		t.Errorf("the host: %v, %v", s, err)
	}
	g := newGuest(t)
	host, end = net.Pipe()
	defer host.Close()
	served := make(chan error, 1)
	go func() { served <- g.agent.Serve(end, false) }()
	if err := guest.WriteHello(host, &guestv1.Hello{Versions: []uint32{7, 6}, Epoch: 1}); err != nil {
		t.Fatal(err)
	}
	if r, err := guest.ReadReply(host); err != nil || r.GetVersion() != 0 || r.GetError() != "the agent speaks versions [1], the host [7 6]" {
		t.Errorf("the agent: %v, %v", r, err)
	}
	if err := <-served; err == nil {
		t.Error("the agent goes on")
	}
}

// answers serves each stream of the host with fixed bytes, then with silence.
func answers(b string) func(net.Conn) {
	return func(c net.Conn) {
		m, err := guest.NewMux(c, false)
		if err != nil {
			return
		}
		for {
			s, err := m.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.WriteString(s, b)
				_, _ = io.Copy(io.Discard, s)
			}()
		}
	}
}

const switched = "HTTP/1.1 101 Switching Protocols\r\n\r\n"

func TestHostileGuest(t *testing.T) {
	started := switched + "\x10\x00\x00\x00\x00"
	for name, b := range map[string]string{
		"endless head":    "HTTP/1.1 200 OK\r\n" + strings.Repeat("X-A: b\r\n", 100_000),
		"no HTTP":         strings.Repeat("\x00", 100_000),
		"frame too large": started + "\x11\xff\xff\xff\xff",
		"bad result":      started + "\x14\x00\x00\x00\x02\xff\xff",
		"error":           switched + "\x15\x00\x00\x00\x00",
		"server error":    "HTTP/1.1 500 Oops\r\nContent-Length: 3\r\n\r\nbad",
	} {
		t.Run(name, func(t *testing.T) {
			s := fakeGuest(t, answers(b))
			if r, err := s.Run(ctx(t), argv("echo"), nil); err == nil {
				t.Errorf("got a result: %+v", r)
			}
			if _, err := s.Ping(ctx(t)); err == nil {
				t.Error("got an answer")
			}
		})
	}
}

// A guest that opens streams where it has no reason to, and never lets go of its
// end, costs the host no more than a session's streams.
func TestHostilePorts(t *testing.T) {
	t.Parallel()
	s := fakeGuest(t, func(c net.Conn) {
		m, err := guest.NewMux(c, false)
		if err != nil {
			return
		}
		for {
			stream, err := m.Accept()
			if err != nil {
				return
			}
			if _, err := http.ReadRequest(bufio.NewReader(stream)); err != nil {
				return
			}
			opened := "\x00\x01\x00\x01\x00\x00\x00\x02\x00\x00\x00\x00" // of yamux: stream 2
			_, _ = io.WriteString(stream, switched+opened)
		}
	})
	for range 2 * guest.MaxGuestStreams {
		if _, err := s.DialPort(ctx(t), 80); err == nil {
			t.Fatal("a connection came about")
		}
	}
	select {
	case <-s.Done():
	case <-ctx(t).Done(): // who learns of the end takes a moment
		t.Error("the session goes on")
	}
}

// The host's limits hold when the guest enforces none.
func TestHostKeepsLimits(t *testing.T) {
	t.Parallel()
	chunk := "\x11\x00\x01\x00\x00" + strings.Repeat("x", 64<<10)
	s := fakeGuest(t, answers(switched+"\x10\x00\x00\x00\x00"+strings.Repeat(chunk, 20)))
	start := time.Now()
	r, err := s.Run(ctx(t), sandbox.Command{Argv: []string{"x"}, Timeout: 10 * time.Millisecond, MaxOutput: 100_000}, nil)
	if err != nil || r.Outcome != sandbox.TimedOut || len(r.Stdout) != 100_000 || !r.StdoutTruncated {
		t.Errorf("got %v, %d bytes, %v", r, len(r.Stdout), err)
	}
	if d := time.Since(start); d > 30*time.Second {
		t.Errorf("it took %v", d)
	}
}

// A command that could not be started has no deadline that ends anything later.
func TestDeadlineOfNothing(t *testing.T) {
	t.Parallel()
	s := newGuest(t).connect(nil, nil)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	c := argv("echo")
	c.Timeout = time.Millisecond
	if _, err := s.Start(ctx(t), "late", c, client.Output{}); err == nil {
		t.Fatal("a command started in a session that has ended")
	}
	time.Sleep(4500 * time.Millisecond) // the host's grace, twice: a panic would be the process's end
}

func TestSilentGuest(t *testing.T) {
	s := fakeGuest(t, answers(""))
	c, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if _, err := s.Ping(c); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	c, cancel = context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if _, err := s.Start(c, "x", argv("echo"), client.Output{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}

func TestNoHello(t *testing.T) {
	host, end := net.Pipe()
	defer end.Close()
	go func() { _, _ = io.Copy(io.Discard, end) }()
	c, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if _, err := client.New(c, host, client.Options{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}

// A guest that opens streams and never closes them loses its session.
func TestGuestOpensTooManyStreams(t *testing.T) {
	s := fakeGuest(t, func(c net.Conn) {
		conf := yamux.DefaultConfig()
		conf.LogOutput = io.Discard
		conf.EnableKeepAlive = false
		m, err := yamux.Server(c, conf)
		if err != nil {
			return
		}
		defer m.Close()
		for {
			s, err := m.OpenStream()
			if err != nil {
				return
			}
			_, _ = io.WriteString(s, "bad\r\n\r\n")
		}
	})
	select {
	case <-s.Done():
	case <-ctx(t).Done():
		t.Error("the session lives on")
	}
}
