package egress_test

import (
	"context"
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

// TestSetPolicy: new connections and requests see it at once; open ones end only
// if they are to be cut, and only those that it does not allow.
func TestSetPolicy(t *testing.T) {
	l := newLab(t)
	l.web(allowedAddr, 80, ok("allowed"))
	l.serve(allowedAddr, 2222, echo)
	l.serve(evilAddr, 2222, echo)
	s := l.session("allowed.test", "allowed.test:2222", "evil.test:2222")
	d := l.open(s)
	kept, cut, web := d.tunnel("allowed.test:2222"), d.tunnel("evil.test:2222"), d.dial()
	if resp, _ := web.ask("GET http://allowed.test/ HTTP/1.1\r\nHost: x\r\n\r\n"); resp.StatusCode != 200 {
		t.Fatal(resp.Status)
	}
	s.SetPolicy(l.policy("allowed.test:2222"), false)
	if resp, _ := web.ask("GET http://allowed.test/ HTTP/1.1\r\nHost: x\r\n\r\n"); resp.StatusCode != 403 {
		t.Errorf("a request on an open connection: %s", resp.Status)
	}
	if resp, _ := d.dial().ask("CONNECT evil.test:2222 HTTP/1.1\r\n\r\n"); resp.StatusCode != 403 {
		t.Errorf("a new connection: %s", resp.Status)
	}
	for _, p := range []*peer{kept, cut} {
		p.send("ping")
		if got := p.read(4); got != "ping" {
			t.Fatalf("got %q", got)
		}
	}
	s.SetPolicy(l.policy("evil.test:2222"), false)
	s.SetPolicy(l.policy("allowed.test:2222"), true)
	if got, err := cut.rest(); err == nil {
		t.Errorf("the connection that is not allowed any more ends with %q and no reset", got)
	}
	kept.send("ping")
	if got := kept.read(4); got != "ping" {
		t.Errorf("got %q", got)
	}
	if r := l.recordOf(egress.CodeCut); r.Name != "evil.test" || r.Verdict != egress.Denied || r.BytesUp != 4 {
		t.Errorf("the record is %+v", r)
	}
}

// TestSetPolicy_CutsARequest in the middle of its answer.
func TestSetPolicy_CutsARequest(t *testing.T) {
	l := newLab(t)
	l.web(allowedAddr, 80, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "begun")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	s := l.session("allowed.test")
	p := l.open(s).dial()
	p.send("GET http://allowed.test/ HTTP/1.1\r\nHost: x\r\n\r\n")
	resp, err := http.ReadResponse(p.r, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.ReadFull(resp.Body, make([]byte, 5))
	s.SetPolicy(nil, true)
	if b, err := io.ReadAll(resp.Body); err == nil {
		t.Errorf("the answer ends with %q", b)
	}
	if r := l.record(0); r.Code != egress.CodeCut {
		t.Errorf("the record is %+v", r)
	}
}

// TestClose ends everything, at whatever stage it is, and waits for the records.
func TestClose(t *testing.T) {
	l := newLab(t)
	l.serve(allowedAddr, 2222, echo)
	l.serve(allowedAddr, 80, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }) // never answers
	s := l.session("allowed.test", "allowed.test:2222")
	d := l.open(s)
	open := []*peer{d.tunnel("allowed.test:2222"), d.dial(), d.dial(), d.dial()}
	open[1].send("GET http://allowed.test/ HTTP/1.1\r\nHost: x\r\n\r\n")
	open[2].send("GET http://allo")
	open[3].send("\x05")
	for !l.reached(allowedAddr) || len(l.dials()) < 2 {
		time.Sleep(time.Millisecond)
	}
	s.Close()
	n := l.recorded()
	for i, p := range open {
		if got, err := p.rest(); err == nil && i < 2 {
			t.Errorf("connection %d ends with %q and no reset", i, got)
		}
	}
	if n != 2 || l.recorded() != n || l.record(0).Code != egress.CodeClosed || l.record(1).Code != egress.CodeClosed || s.Live() {
		t.Errorf("the records are %+v", l.records)
	}
	if d.p.MayResolve(s, "allowed.test") {
		t.Error("a closed session may resolve")
	}
	c, err := net.Dial("tcp", d.addr)
	if err == nil {
		_ = c.SetDeadline(time.Now().Add(wait))
		_, err = io.ReadAll(c)
		c.Close()
	}
	if err == nil {
		t.Error("a closed session serves")
	}
}

func (l *lab) dials() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []string
	for _, d := range l.dialled {
		all = append(all, d.String())
	}
	return all
}

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

// TestClientGone: a request that nobody waits for any more ends, also if the client
// asked for more behind it.
func TestClientGone(t *testing.T) {
	for name, more := range map[string]string{
		"one":       "",
		"pipelined": "GET http://allowed.test/next HTTP/1.1\r\nHost: x\r\n\r\n",
		"a part":    "GET http://",
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			begun, ended := make(chan struct{}), make(chan struct{})
			l.web(allowedAddr, 80, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				close(begun)
				<-r.Context().Done()
				close(ended)
			}))
			p := l.open(l.session("allowed.test")).dial()
			p.send("%s", "GET http://allowed.test/ HTTP/1.1\r\nHost: x\r\n\r\n"+more)
			<-begun
			_ = p.halfConn.(*net.TCPConn).SetLinger(0)
			p.Close()
			select {
			case <-ended:
			case <-time.After(wait):
				t.Fatal("the server's request goes on")
			}
			if r := l.record(0); r.Code != egress.CodeAborted {
				t.Errorf("the record is %+v", r)
			}
		})
	}
}

// TestHalfClosedRequest: a client may end its direction and wait for the answer.
func TestHalfClosedRequest(t *testing.T) {
	l := newLab(t)
	l.web(allowedAddr, 80, ok("allowed"))
	p := l.open(l.session("allowed.test")).dial()
	p.send("GET http://allowed.test/ HTTP/1.1\r\nHost: x\r\n\r\n")
	_ = p.CloseWrite()
	if resp, body := p.answer("GET"); resp.StatusCode != 200 || body != "allowed allowed.test/" {
		t.Errorf("got %s %q", resp.Status, body)
	}
	if rest, err := p.rest(); rest != "" || err != nil {
		t.Errorf("then came %q, %v", rest, err)
	}
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

// TestContextEnds: the caller's context ends a connection.
func TestContextEnds(t *testing.T) {
	l := newLab(t)
	l.serve(allowedAddr, 2222, echo)
	s := l.session("allowed.test:2222")
	p := l.proxy()
	client, server := net.Pipe()
	defer client.Close()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.ServeConn(ctx, server, s)
	}()
	_, _ = io.WriteString(client, "CONNECT allowed.test:2222 HTTP/1.1\r\n\r\n")
	_, _ = client.Read(make([]byte, 100))
	cancel()
	<-done
	if _, err := client.Read(make([]byte, 1)); err == nil {
		t.Error("the connection is open")
	}
}
