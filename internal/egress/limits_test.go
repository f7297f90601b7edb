package egress_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"agentbox/internal/egress"
	"agentbox/internal/egress/policy"
)

// TestRequests: what is denied can be asked for, and allowed while the sandbox
// runs.
func TestRequests(t *testing.T) {
	l := newLab(t)
	l.web(evilAddr, 80, ok("evil"))
	s := l.session("allowed.test")
	d := l.open(s)
	ask := func(url string) int {
		resp, _ := d.dial().ask("GET " + url + " HTTP/1.1\r\nHost: x\r\n\r\n")
		return resp.StatusCode
	}
	ask("http://evil.test/")
	ask("http://EVIL.test./x")
	d.dial().socksName("other.test", 443)
	d.dial().ask("CONNECT 127.1:443 HTTP/1.1\r\n\r\n") // no host
	asks := s.Requests()
	if len(asks) != 2 || asks[0].Target != (policy.Target{Name: "evil.test", Port: 80}) || asks[0].Count != 2 || asks[1].Target.Name != "other.test" || asks[0].ID == asks[1].ID {
		t.Fatalf("the requests are %+v", asks)
	}
	if !s.Dismiss(asks[1].ID) || s.Dismiss(asks[1].ID) || len(s.Requests()) != 1 {
		t.Errorf("after a dismissal: %+v", s.Requests())
	}
	s.SetPolicy(l.policy("allowed.test", "evil.test"), false)
	if len(s.Requests()) != 0 {
		t.Errorf("after it was allowed: %+v", s.Requests())
	}
	if got := ask("http://evil.test/"); got != 200 {
		t.Errorf("after it was allowed: %d", got)
	}
	p := d.dial()
	for i := range 200 {
		p.ask(fmt.Sprintf("GET http://flood-%d.test/ HTTP/1.1\r\nHost: x\r\n\r\n", i))
	}
	if asks := s.Requests(); len(asks) != 64 || asks[0].Target.Name != "flood-0.test" {
		t.Errorf("after a flood: %d requests", len(asks))
	}
}

// TestNET26_Flood: 1,000 connections at once are capped, told so, and leave the
// neighbour alone.
func TestNET26_Flood(t *testing.T) {
	l := newLab(t)
	l.serve(allowedAddr, 2222, echo)
	l.web(allowedAddr, 80, ok("allowed"))
	const limit = 50
	s := l.sessionOf(egress.SessionOptions{Sandbox: "s1", Policy: l.policy("allowed.test:2222"), Limits: egress.Limits{Conns: limit}})
	d := l.open(s)
	var open []*peer
	for range limit {
		open = append(open, d.tunnel("allowed.test:2222"))
	}
	var told, closed atomic.Int32
	var tasks sync.WaitGroup
	places := make(chan struct{}, 50)
	for range 1000 {
		places <- struct{}{}
		tasks.Go(func() {
			defer func() { <-places }()
			c, err := net.Dial("tcp", d.addr)
			if err != nil {
				closed.Add(1)
				return
			}
			defer c.Close()
			_ = c.SetDeadline(time.Now().Add(wait))
			_, _ = io.WriteString(c, "CONNECT allowed.test:2222 HTTP/1.1\r\n\r\n")
			b, _ := io.ReadAll(c)
			switch text := string(b); {
			case strings.HasPrefix(text, "HTTP/1.1 429 ") && strings.Contains(text, "\r\nX-Agentbox-Egress: too_many_connections\r\n") && strings.Contains(text, "\r\nRetry-After: 1\r\n"):
				told.Add(1)
			case text == "":
				closed.Add(1)
			default:
				t.Errorf("got %q", text)
			}
		})
	}
	v := l.open(l.sessionOf(egress.SessionOptions{Sandbox: "v1", Policy: l.policy("allowed.test")}))
	for range 20 {
		if resp, _ := v.dial().ask("GET http://allowed.test/ HTTP/1.1\r\nHost: x\r\n\r\n"); resp.StatusCode != 200 {
			t.Errorf("the neighbour gets %s", resp.Status)
		}
	}
	tasks.Wait()
	if told.Load() == 0 || told.Load()+closed.Load() != 1000 || len(l.dials()) != limit+20 {
		t.Errorf("%d are told, %d closed, %d dialled", told.Load(), closed.Load(), len(l.dials()))
	}
	for _, p := range open {
		p.send("ping")
		if got := p.read(4); got != "ping" {
			t.Fatalf("got %q", got)
		}
	}
	// A place that is free again is used.
	_ = open[0].CloseWrite()
	if _, err := open[0].rest(); err != nil {
		t.Error(err)
	}
	open[0].Close()
	for free := false; !free; {
		p := d.dial()
		_, _ = io.WriteString(p, "CONNECT allowed.test:2222 HTTP/1.1\r\n\r\n")
		resp, err := http.ReadResponse(p.r, &http.Request{Method: http.MethodConnect})
		if free = err == nil && resp.StatusCode == 200; !free {
			p.Close() // or those that are told soon are too many, and others are closed
		}
	}
	if code := d.dial().socksName("allowed.test", 2222); code != 1 {
		t.Errorf("SOCKS: reply %d", code)
	}
}

// TestNET26_SlowBodies: a body that drips is cut, one that flows slowly is not.
func TestNET26_SlowBodies(t *testing.T) {
	t.Parallel() // it waits most of the time
	l := newLab(t)
	l.timeout.Body = 2 * time.Second
	l.web(allowedAddr, 80, site(t))
	d := l.open(l.session("allowed.test"))
	p := d.dial()
	p.send("POST http://allowed.test/sum HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n")
	drip := make(chan struct{})
	go func() {
		defer close(drip)
		for {
			if _, err := p.Write([]byte("x")); err != nil {
				return
			}
			time.Sleep(20 * time.Millisecond)
		}
	}()
	resp, body := p.answer("POST")
	if resp.StatusCode != 408 || resp.Header.Get(egress.CodeHeader) != string(egress.CodeTimeout) {
		t.Errorf("got %s %q", resp.Status, body)
	}
	p.Close()
	<-drip
	p = d.dial()
	p.send("POST http://allowed.test/sum HTTP/1.1\r\nHost: x\r\nContent-Length: 20480\r\n\r\n")
	for range 10 {
		p.send("%s", strings.Repeat("x", 2048))
		time.Sleep(50 * time.Millisecond)
	}
	if resp, body := p.answer("POST"); resp.StatusCode != 200 {
		t.Errorf("a slow body: %s %q", resp.Status, body)
	}
}

// TestTimeouts: what stands still ends, at whatever stage it is.
func TestTimeouts(t *testing.T) {
	t.Parallel() // it waits most of the time
	l := newLab(t)
	l.timeout = egress.Timeouts{Head: 2 * time.Second, KeepAlive: 2 * time.Second, Idle: 4 * time.Second}
	l.serve(allowedAddr, 2222, echo)
	l.serve(allowedAddr, 80, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }) // never answers
	d := l.open(l.session("allowed.test", "allowed.test:2222"))
	var tasks sync.WaitGroup
	for first, want := range map[string]string{
		"":     "",
		"GET ": "HTTP/1.1 408 ",
		"\x05": "",
		"GET http://allowed.test/ HTTP/1.1\r\nHost: x\r\n\r\n":  "HTTP/1.1 502 Proxy error: the server took too long\r\n",
		"GET http://evil.test/ HTTP/1.1\r\nHost: x\r\n\r\nGET ": "HTTP/1.1 403 ",
	} {
		p := d.dial()
		p.send("%s", first)
		tasks.Go(func() {
			if got, _ := p.rest(); !strings.HasPrefix(got, want) || want == "" && got != "" {
				t.Errorf("%q: got %q", first, got)
			}
		})
	}
	idle := d.tunnel("allowed.test:2222")
	idle.send("ping")
	idle.read(4)
	tasks.Go(func() {
		if got, err := idle.rest(); err == nil {
			t.Errorf("an idle tunnel ends with %q and no reset", got)
		}
	})
	tasks.Wait()
	hello := d.tunnel("allowed.test:2222")
	hello.send("\x16\x03")
	_, _ = hello.rest()
	l.recordOf(egress.CodeHello)
}

// TestByteLimit: what is beyond it does not come, and nothing after it.
func TestByteLimit(t *testing.T) {
	l := newLab(t)
	l.web(allowedAddr, 80, site(t))
	s := l.sessionOf(egress.SessionOptions{Sandbox: "s1", Policy: l.policy("allowed.test"), Limits: egress.Limits{Bytes: 1 << 20}})
	d := l.open(s)
	resp, err := d.client("http").Get("http://allowed.test/big?n=5000000&sized")
	if err != nil {
		t.Fatal(err)
	}
	n, err := io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	if err == nil || n > 1<<20 {
		t.Errorf("%d bytes came, then %v", n, err)
	}
	if r := l.record(0); r.Code != egress.CodeBytes || r.Verdict != egress.Denied {
		t.Errorf("the record is %+v", r)
	}
	if resp, body := d.dial().ask("GET http://allowed.test/hello HTTP/1.1\r\nHost: x\r\n\r\n"); resp.StatusCode != 429 || resp.Header.Get(egress.CodeHeader) != string(egress.CodeBytes) {
		t.Errorf("then %s %q", resp.Status, body)
	}
}

// TestBandwidth: all connections share it.
func TestBandwidth(t *testing.T) {
	t.Parallel() // it waits most of the time
	l := newLab(t)
	l.web(allowedAddr, 80, site(t))
	s := l.sessionOf(egress.SessionOptions{Sandbox: "s1", Policy: l.policy("allowed.test"), Limits: egress.Limits{BytesPerSecond: 1 << 20}})
	c := l.open(s).client("http")
	began := time.Now()
	var tasks sync.WaitGroup
	for range 3 {
		tasks.Go(func() {
			if _, body := get(t, c, "http://allowed.test/big?n=1048576&sized"); len(body) != 1<<20 {
				t.Errorf("%d bytes came", len(body))
			}
		})
	}
	tasks.Wait()
	// 3 MiB, of which 1 MiB may come at once.
	if took := time.Since(began); took < 1900*time.Millisecond {
		t.Errorf("it took %v", took)
	}
}
