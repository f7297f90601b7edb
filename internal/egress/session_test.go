package egress_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"agentbox/internal/egress"
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
