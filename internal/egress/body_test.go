package egress_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
)

func (f flows) expect(t *testing.T) {
	r, _ := http.NewRequest("POST", f.url+"/sum", random(50_000))
	r.Header.Set("Expect", "100-continue")
	resp, err := f.c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if b, _ := io.ReadAll(resp.Body); strings.TrimSpace(string(b)) != sumOf(random(50_000)) {
		t.Errorf("the server got %q", b)
	}
}

// expectRefused: a body that the server does not want is not sent.
func (f flows) expectRefused(t *testing.T) {
	body := &counted{Reader: random(1 << 20)}
	r, _ := http.NewRequest("POST", f.url+"/refuse", body)
	r.Header.Set("Expect", "100-continue")
	resp, err := f.c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 417 || body.n.Load() > 0 {
		t.Errorf("got %s %v after %d bytes; closes: %v", resp.Status, resp.Header, body.n.Load(), resp.Close)
	}
}

type counted struct {
	io.Reader
	n atomic.Int64
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n.Add(int64(n))
	return n, err
}

// TestBodyThatEndsEarly: what breaks off must not look whole.
func TestBodyThatEndsEarly(t *testing.T) {
	l := newLab(t)
	for port, answer := range map[uint16]string{
		81: "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nonly this",
		82: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nonly this\r\n",
	} {
		l.serve(allowedAddr, port, func(c net.Conn) {
			readHead(c)
			_, _ = io.WriteString(c, answer)
		})
		d := l.open(l.session("allowed.test:81", "allowed.test:82"))
		resp, err := d.client("http").Get(fmt.Sprintf("http://allowed.test:%d/", port))
		if err != nil {
			continue // the reset was faster than the head
		}
		b, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err == nil || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("port %d: got %q and %v", port, b, err)
		}
	}
}

// TestExpectRefused: a server that refuses a body and keeps the connection does
// not get it, and the client is not told to send it.
func TestExpectRefused(t *testing.T) {
	l := newLab(t)
	l.serve(allowedAddr, 80, func(c net.Conn) {
		r := bufio.NewReader(c)
		for line := "-"; line != "\r\n"; {
			var err error
			if line, err = r.ReadString('\n'); err != nil {
				return
			}
		}
		_, _ = io.WriteString(c, "HTTP/1.1 417 No\r\nContent-Length: 0\r\n\r\n")
		if n, _ := io.Copy(io.Discard, r); n > 0 {
			t.Errorf("the server got %d bytes of the body", n)
		}
	})
	d := l.open(l.session("allowed.test"))
	for range 20 {
		p := d.dial()
		resp, _ := p.ask("POST http://allowed.test/ HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n")
		if resp.StatusCode != 417 || !resp.Close {
			t.Fatalf("got %s, closes: %v", resp.Status, resp.Close)
		}
	}
}
