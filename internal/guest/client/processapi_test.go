package client_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	guestv1 "agentbox/internal/gen/guest/v1"
	"agentbox/internal/guest/agent"
	"agentbox/internal/guest/client"
)

const apiAt = "127.0.0.1:2024"

// noFiles is a file system on which nothing works.
type noFiles struct{}

func (noFiles) As(string, func(agent.FS) error) error { return errors.New("no files") }
func (noFiles) Notify() (agent.Notifier, error)       { return nil, errors.New("no files") }

// ownPorts are ports behind which one server of the user waits.
type ownPorts struct{ at string }

func (ownPorts) Listening(context.Context, int) ([]*guestv1.ListeningPort, bool, error) {
	return nil, false, nil
}

func (p ownPorts) Dial(context.Context, uint16) (agent.PortConn, error) {
	c, err := net.Dial("tcp", p.at)
	if err != nil {
		return nil, err
	}
	return c.(*net.TCPConn), nil
}

// newAPI is an agent that was told to have the process API.
func newAPI(t *testing.T, conf *guestv1.GuestConfig, p agent.Ports) (*hostLoopback, *guestBox, *client.Session) {
	t.Helper()
	l := newHostLoopback()
	a := agent.New(agent.Options{Launcher: launcher{}, Loopback: l, Ports: p, Files: noFiles{}})
	t.Cleanup(a.Close)
	g := &guestBox{t: t, agent: a}
	s := g.connect(conf, nil)
	if e := s.Reply().GetError(); e != "" {
		t.Fatal(e)
	}
	return l, g, s
}

var apiOn = &guestv1.GuestConfig{ProcessApi: &guestv1.ProcessAPI{MaxOutput: 1 << 20}, MaxExecs: 4}

// run asks the API to run a command and returns its answer.
func (l *hostLoopback) run(t *testing.T, route, line string) string {
	t.Helper()
	c := l.dial(t, "tcp", apiAt)
	body := fmt.Sprintf("{\"command\":%q}", line)
	fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", route, len(body), body)
	a, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Body.Close()
	b, err := io.ReadAll(a.Body)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%d %s", a.StatusCode, strings.TrimSpace(string(b)))
}

// TestProcessAPI: it is there when the host says so, outlives sessions, and ends when
// the host says so.
func TestProcessAPI(t *testing.T) {
	l, g, s := newAPI(t, &guestv1.GuestConfig{}, ownPorts{})
	if _, err := l.try("tcp", apiAt); err == nil {
		t.Error("it is there unasked")
	}
	if err := s.Configure(ctx(t), apiOn); err != nil {
		t.Fatal(err)
	}
	if got := l.run(t, "/exec", "fail 3"); got != `200 {"exit_code":3,"stdout":"","stderr":"failed\n","timed_out":false}` {
		t.Errorf("a command: %s", got)
	}
	if got := l.run(t, "/exec", "none"); got != `200 {"exit_code":127,"stdout":"","stderr":"none: command not found\n","timed_out":false}` {
		t.Errorf("one that is not there: %s", got)
	}
	if got := l.run(t, "/exec/stream", "fail 3"); got != "200 data: {\"type\":\"stderr\",\"data\":\"failed\\n\"}\n\ndata: {\"type\":\"exit\",\"exit_code\":3}" {
		t.Errorf("a stream: %s", got)
	}
	if got := l.run(t, "/exec/stream", "spam 3000000"); strings.Count(got, `"type":"stdout"`) < 10 || !strings.HasSuffix(got, `{"type":"exit","exit_code":3}`) || strings.Count(got, "0") < 5_000_000 {
		t.Errorf("a long stream: %d bytes, … %s", len(got), got[max(0, len(got)-100):])
	}
	if got := l.run(t, "/exec", "spam 3000000"); strings.Count(got, `[output truncated]`) != 2 || len(got) < 2<<20 || len(got) > 2<<20+1<<18 {
		t.Errorf("more than an answer may have: %d bytes, … %s", len(got), got[max(0, len(got)-100):])
	}
	h, err := s.Ping(ctx(t))
	if list, err2 := s.Execs(ctx(t)); err != nil || err2 != nil || len(list) != 0 || h.Buffered != 0 {
		t.Errorf("%v and %d bytes are kept of its commands, %v %v", list, h.Buffered, err, err2)
	}
	_ = s.Close()
	if got := l.run(t, "/exec", "echo a"); !strings.HasPrefix(got, `200 {"exit_code":0,"stdout":"a\n"`) {
		t.Errorf("without a session: %s", got)
	}
	g.connect(&guestv1.GuestConfig{}, nil)
	if _, err := l.try("tcp", apiAt); err == nil {
		t.Error("it is there although the host took it away")
	}
}

// TestProcessAPILeavesPlaces: commands that programs inside begin leave half of the
// places to the host, and wait for theirs no longer than they may take.
func TestProcessAPILeavesPlaces(t *testing.T) {
	l, _, s := newAPI(t, apiOn, ownPorts{})
	for range 10 {
		fmt.Fprintf(l.dial(t, "tcp", apiAt), "POST /exec/stream HTTP/1.1\r\nHost: x\r\nContent-Length: 18\r\n\r\n{\"command\":\"hang\"}")
	}
	running := func() (n int) {
		h, err := s.Ping(ctx(t))
		if err != nil {
			t.Fatal(err)
		}
		return h.Running + h.Queued
	}
	for end := time.Now().Add(time.Minute); running() < 2; {
		if time.Now().After(end) {
			t.Fatal("the commands don't run")
		}
		time.Sleep(time.Millisecond)
	}
	body := `{"command":"echo a","timeout":0.05}`
	c := l.dial(t, "tcp", apiAt)
	fmt.Fprintf(c, "POST /exec HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	a, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	b, _ := io.ReadAll(a.Body)
	_ = a.Body.Close()
	if string(b) != `{"exit_code":-1,"stdout":"","stderr":"Command timed out","timed_out":true}` {
		t.Errorf("a command that waits for too long: %s", b)
	}
	for range 3 { // no queue builds up before the host
		if r, err := s.Run(ctx(t), argv("echo", "b"), nil); err != nil || string(r.Stdout) != "b\n" {
			t.Errorf("the host's command: %v, %v", r, err)
		}
	}
	for end := time.Now().Add(10 * time.Second); running() != 2; { // the host's last one leaves its place after its result
		if time.Now().After(end) {
			t.Fatalf("%d commands of the API run or wait in the host's queue", running())
		}
	}
}

// TestProcessAPIClientLeaves: its command ends with it, and its place is free again.
func TestProcessAPIClientLeaves(t *testing.T) {
	l, _, s := newAPI(t, apiOn, ownPorts{})
	for range 5 { // more than there are places
		c := l.dial(t, "tcp", apiAt)
		fmt.Fprintf(c, "POST /exec/stream HTTP/1.1\r\nHost: x\r\nContent-Length: 18\r\n\r\n{\"command\":\"hang\"}")
		r := bufio.NewReader(c)
		for {
			line, err := r.ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(line, "begun") {
				break
			}
		}
		_ = c.Close()
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		h, err := s.Ping(ctx(t))
		if err != nil || time.Now().After(end) {
			t.Fatalf("commands go on: %+v, %v", h, err)
		}
		if h.Running == 0 {
			break
		}
	}
}

// TestProcessAPIGivesWay: the port is a program's that waits on it, also connections
// that the API took first; without one the host can't use it.
func TestProcessAPIGivesWay(t *testing.T) {
	theirs, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	go func() {
		for {
			c, err := theirs.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, "mine")
			_ = c.Close()
		}
	}()
	l, _, s := newAPI(t, apiOn, ownPorts{theirs.Addr().String()})
	if c, err := s.DialPort(ctx(t), 2024); err == nil {
		_ = c.Close()
		t.Error("the host reaches the API")
	}
	if got := l.run(t, "/exec", "echo a"); !strings.HasPrefix(got, "200") {
		t.Fatal(got)
	}
	l.mu.Lock()
	l.taken = true
	l.mu.Unlock()
	if b, err := io.ReadAll(l.dial(t, "tcp", apiAt)); err != nil || string(b) != "mine" {
		t.Errorf("a connection leads to %q, %v", b, err)
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		if _, err := l.try("tcp", apiAt); err != nil {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the agent still waits on the port")
		}
	}
	c, err := s.DialPort(ctx(t), 2024)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if b, err := io.ReadAll(c); err != nil || string(b) != "mine" {
		t.Errorf("the host's connection leads to %q, %v", b, err)
	}
	l.mu.Lock()
	l.taken = false
	l.mu.Unlock()
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if c, err := l.try("tcp", apiAt); err == nil {
			_ = c.Close()
			break
		}
		if time.Now().After(end) {
			t.Fatal("the API does not come back")
		}
	}
}

// TestProcessAPIBoundsConnections: those that say nothing are as many as it bears, and
// keep nobody out for longer than they may be silent; the host does not notice them.
func TestProcessAPIBoundsConnections(t *testing.T) {
	t.Parallel() // it waits most of the time
	l, _, s := newAPI(t, apiOn, ownPorts{})
	for range 300 {
		c := l.dial(t, "tcp", apiAt)
		_, _ = io.WriteString(c, "POST /exec HTTP/1.1\r\nHost: ")
	}
	if r, err := s.Run(ctx(t), argv("echo", "b"), nil); err != nil || string(r.Stdout) != "b\n" {
		t.Errorf("the host's command: %v, %v", r, err)
	}
	began := time.Now()
	if got := l.run(t, "/exec", "echo a"); !strings.HasPrefix(got, "200") {
		t.Error(got)
	}
	if took := time.Since(began); took > 50*time.Second {
		t.Errorf("a client waited for %v", took)
	}
}
