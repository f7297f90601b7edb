package egress_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
)

// counting counts writes to the client.
type counting struct {
	*net.TCPConn
	writes *atomic.Int64
}

func (c counting) Write(p []byte) (int, error) {
	c.writes.Add(1)
	return c.TCPConn.Write(p)
}

// TestAnswersGoOutInTime: what a server says at once reaches the client with one
// write, each of which wakes a sandbox; what it says before a pause does not wait
// for the rest.
func TestAnswersGoOutInTime(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	more := make(chan struct{})
	l.serve(allowedAddr, 80, func(c net.Conn) {
		r := bufio.NewReader(c)
		for {
			req, err := http.ReadRequest(r)
			if err != nil {
				return
			}
			said := map[string][]string{
				"/length":  {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"},
				"/chunked": {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"},
				"/empty":   {"HTTP/1.1 204 No Content\r\n\r\n"},
				"/pauses":  {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", "he", "llo"},
				"/events":  {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "2\r\nhe\r\n", "3\r\nllo\r\n0\r\n\r\n"},
			}[req.URL.Path]
			for i, part := range said {
				if i > 0 {
					<-more
				}
				if _, err := io.WriteString(c, part); err != nil {
					return
				}
			}
		}
	})
	t.Cleanup(func() { close(more) }) // so that the server ends
	var writes atomic.Int64
	d := &door{lab: l, s: l.session("allowed.test"), p: l.proxy()}
	d.addr = l.accept(func(ctx context.Context, c net.Conn) {
		d.p.ServeConn(ctx, counting{c.(*net.TCPConn), &writes}, d.s)
	})
	client := d.client("http")
	for path, want := range map[string]int64{"/length": 1, "/chunked": 1, "/empty": 1, "/pauses": 3, "/events": 3} {
		writes.Store(0)
		resp, err := client.Get("http://allowed.test" + path)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		var body []byte
		if want == 3 { // the head is here; each part comes before the next is said
			part := make([]byte, 2)
			more <- struct{}{}
			if _, err := io.ReadFull(resp.Body, part); err != nil {
				t.Fatalf("%s: the first part: %v", path, err)
			}
			body = part
			more <- struct{}{}
		}
		rest, err := io.ReadAll(resp.Body)
		if body = append(body, rest...); err != nil || path != "/empty" && string(body) != "hello" {
			t.Errorf("%s: %q, %v", path, body, err)
		}
		if n := writes.Load(); n != want {
			t.Errorf("%s: the answer came with %d writes, want %d", path, n, want)
		}
	}
}
