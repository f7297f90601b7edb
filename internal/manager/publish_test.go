package manager_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"testing"

	"github.com/containerd/errdefs"

	"agentbox/internal/sandbox"
)

// echo sends text to a port of the host and returns what comes back.
func echo(port uint16) (string, error) {
	c, err := net.Dial("tcp4", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return "", err
	}
	defer c.Close()
	if _, err := io.WriteString(c, "hello"); err != nil {
		return "", err
	}
	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		return "", err
	}
	b, err := io.ReadAll(c)
	return string(b), err
}

func (d *daemon) serveEcho(id string) {
	d.t.Helper()
	if _, err := d.StartExec(d.t.Context(), acme, id, sandbox.Command{Argv: []string{"echod", "8080"}, Background: true}, nothing, ""); err != nil {
		d.t.Fatal(err)
	}
	until(d.t, "the server listens", func() bool {
		list, _, err := d.Ports(d.t.Context(), acme, id)
		return err == nil && len(list) == 1
	})
}

func TestPublishedPorts(t *testing.T) {
	r := newRig(t)
	d := r.open()
	sb := d.create(sandbox.CreateRequest{Ports: []sandbox.Port{{Guest: 8080}}})
	port := sb.Ports[0].Host
	d.serveEcho(sb.UID)
	if got, err := echo(port); err != nil || got != "hello" {
		t.Errorf("got %q, %v", got, err)
	}
	_, err := d.Create(t.Context(), acme, sandbox.CreateRequest{Ports: []sandbox.Port{{Guest: 1}, {Guest: 2, Host: port}}}, "")
	if !errdefs.IsAlreadyExists(err) || len(r.inHost()) != 1 {
		t.Errorf("a port that is in use: %v", err)
	}
	d.kill()
	d = r.open() // the port is the same, and leads to the same server
	if got, err := echo(port); err != nil || got != "hello" {
		t.Errorf("after a restart: %q, %v", got, err)
	}
	d.must(d.Stop(t.Context(), acme, sb.UID))
	l, err := net.Listen("tcp4", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		t.Fatalf("the port of a stopped sandbox is not free: %v", err)
	}
	d.must(d.Start(t.Context(), acme, sb.UID))
	other := d.get(sb.UID).Ports[0].Host
	d.serveEcho(sb.UID)
	if got, err := echo(other); err != nil || got != "hello" || other == port {
		t.Errorf("after the port was taken: %q, %v", got, err)
	}
	if err := errors.Join(l.Close(), d.Destroy(t.Context(), acme, sb.UID)); err != nil {
		t.Fatal(err)
	}
	if _, err := echo(other); err == nil {
		t.Error("somebody listens for a sandbox that is gone")
	}
}

func TestPortsOfPolicy(t *testing.T) {
	d := newRig(t).open()
	for _, p := range [][]sandbox.Port{{{Guest: 0}}, {{Guest: 80, Host: 80}}, make([]sandbox.Port, sandbox.MaxPorts+1)} {
		_, err := d.Create(t.Context(), acme, sandbox.CreateRequest{Ports: p}, "")
		var inv *sandbox.InvalidError
		if !errors.As(err, &inv) || inv.Field != "ports" {
			t.Errorf("%v: %v", p, err)
		}
	}
}
