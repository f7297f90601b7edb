package agentbox_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	agentbox "agentbox/sdk/go"
)

func TestTerminal(t *testing.T) {
	b, ctx := box(t, agentbox.CreateOptions{}), within(t)
	term, err := b.Terminal(ctx, agentbox.TerminalOptions{Command: "stty size; read x; echo got $x; exit 7", Cols: 100, Rows: 30})
	if err != nil {
		t.Fatal(err)
	}
	defer term.Close()
	p, seen := make([]byte, 100), ""
	for !strings.Contains(seen, "30 100") {
		n, err := term.Read(p)
		if err != nil {
			t.Fatal(err, seen)
		}
		seen += string(p[:n])
	}
	if _, err := term.Result(); err == nil {
		t.Error("it has a result while it runs")
	}
	// Somebody else joins it where this one is.
	again, err := b.AttachTerminal(ctx, term.ExecID(), term.Offset())
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if _, err := again.Write([]byte("word\n")); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(again)
	if err != nil || !strings.Contains(string(rest), "got word") || strings.Contains(string(rest), "30 100") {
		t.Errorf("%q %v", rest, err)
	}
	if r, err := again.Result(); err != nil || r.ExitCode != 7 {
		t.Errorf("%+v %v", r, err)
	}
	if _, err := b.AttachTerminal(ctx, term.ExecID(), 1<<20); !errors.Is(err, agentbox.ErrOutOfRange) {
		t.Errorf("an offset that is not there is %v", err)
	}
}

func TestTerminalResizeAndSignal(t *testing.T) {
	b, ctx := box(t, agentbox.CreateOptions{}), within(t)
	term, err := b.Terminal(ctx, agentbox.TerminalOptions{Command: `trap 'stty size' WINCH; trap 'exit 9' USR1; echo ready; while :; do sleep 0.05; done`})
	if err != nil {
		t.Fatal(err)
	}
	defer term.Close()
	p, seen := make([]byte, 100), ""
	for {
		n, err := term.Read(p)
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err, seen)
		}
		before := seen
		seen += string(p[:n])
		if strings.Contains(seen, "ready") && !strings.Contains(before, "ready") {
			err = term.Resize(120, 40)
		}
		if strings.Contains(seen, "40 120") && !strings.Contains(before, "40 120") {
			err = errors.Join(err, term.Signal("USR1"))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if r, err := term.Result(); err != nil || r.ExitCode != 9 {
		t.Errorf("%+v %v: %q", r, err, seen)
	}
}

// site is a web server in a sandbox.
func site(ctx context.Context, t *testing.T) *agentbox.Box {
	t.Helper()
	b := box(t, agentbox.CreateOptions{})
	if err := b.Files.Write(ctx, "page", []byte("hello"), agentbox.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Connect(ctx, 8000); !errors.Is(err, agentbox.ErrConflict) {
		t.Errorf("a port on which nothing listens is %v", err)
	}
	if _, err := b.Background(ctx, agentbox.Sh("exec python3 -m http.server --bind 127.0.0.1 8000")); err != nil {
		t.Fatal(err)
	}
	for {
		ports, more, err := b.Ports(ctx)
		if err != nil || more {
			t.Fatal(more, err)
		}
		if len(ports) == 1 && ports[0].Port == 8000 {
			return b
		}
	}
}

func get(ctx context.Context, c *http.Client, url string) string {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err.Error()
	}
	resp, err := c.Do(req)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

func TestPorts(t *testing.T) {
	ctx := within(t)
	b := site(ctx, t)
	transport := b.Transport(8000)
	defer transport.CloseIdleConnections()
	if got := get(ctx, &http.Client{Transport: transport}, "http://site/page"); got != "hello" {
		t.Errorf("it says %q", got)
	}
	conn, err := b.Connect(ctx, 8000)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, "GET /page HTTP/1.0\r\n\r\n")
	if err := conn.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(conn); err != nil || !strings.HasSuffix(string(got), "\r\n\r\nhello") {
		t.Errorf("%q %v", got, err)
	}
}

func TestForward(t *testing.T) {
	ctx := within(t)
	b := site(ctx, t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error)
	go func() { ended <- b.Forward(ctx, l, 8000) }()
	client := &http.Client{Transport: &http.Transport{}}
	for range 2 {
		if got := get(ctx, client, "http://"+l.Addr().String()+"/page"); got != "hello" {
			t.Errorf("it says %q", got)
		}
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("it is %v", err)
	}
}

func TestNetwork(t *testing.T) {
	b, ctx := box(t, agentbox.CreateOptions{Network: &agentbox.Network{Allow: []string{"api.example.com"}}}), within(t)
	n, err := b.Network.Change(ctx, agentbox.NetworkChange{Add: []string{"*.example.org"}, Remove: []string{"api.example.com"}})
	if err != nil || len(n.Allow) != 1 || n.Allow[0] != "*.example.org" || n.Mode != "allowlist" {
		t.Errorf("%+v %v", n, err)
	}
	if n, err = b.Network.Set(ctx, agentbox.Network{Mode: "none"}, true); err != nil || n.Mode != "none" {
		t.Errorf("%+v %v", n, err)
	}
	if n, err = b.Network.Get(ctx); err != nil || n.Mode != "none" || n.Resolver == nil {
		t.Errorf("%+v %v", n, err)
	}
	c := connect(t)
	if _, err := agentbox.Collect(c.NetworkRequests(ctx)); err != nil {
		t.Error(err)
	}
	if _, err := c.Decide(ctx, b.ID(), "none", true); !errors.Is(err, agentbox.ErrNotFound) {
		t.Errorf("a request that is not there is %v", err)
	}
	if _, err := agentbox.Collect(b.Network.Log(ctx, b.Info().CreatedAt)); err != nil {
		t.Error(err)
	}
}

func TestPackages(t *testing.T) {
	b, ctx := box(t, agentbox.CreateOptions{Network: &agentbox.Network{Allow: []string{"python"}}}), within(t)
	if _, err := b.Packages.Pip(ctx, "--index-url=x"); !errors.Is(err, agentbox.ErrInvalidArgument) {
		t.Errorf("an option is %v", err)
	}
}
