package egress_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"agentbox/internal/egress"
	"agentbox/internal/egress/policy"
)

// recordingDialer takes every connection, and keeps what was dialled and said.
type recordingDialer struct {
	mu      sync.Mutex
	targets []policy.Target
	said    []*bytes.Buffer
	tasks   sync.WaitGroup
	respond string
}

func (d *recordingDialer) Dial(_ context.Context, t policy.Target) (net.Conn, netip.AddrPort, error) {
	if t.Name == "broken.test" {
		return nil, netip.AddrPort{}, errors.New("broken")
	}
	here, there := net.Pipe()
	said := new(bytes.Buffer)
	d.mu.Lock()
	d.targets, d.said = append(d.targets, t), append(d.said, said)
	d.mu.Unlock()
	d.tasks.Go(func() { // answers each time that something comes
		defer there.Close()
		b := make([]byte, 4096)
		for {
			n, err := there.Read(b)
			said.Write(b[:n])
			if err != nil {
				return
			}
			if _, err := io.WriteString(there, d.respond); err != nil {
				return
			}
		}
	})
	return here, netip.AddrPortFrom(allowedAddr, t.Port), nil
}

// talk sends bytes to a proxy whose session allows allowed.test and broken.test
// alone, and gives what came back and what was dialled.
func talk(t *testing.T, input []byte, respond string) (string, *recordingDialer) {
	p, err := policy.Compile(policy.Spec{Allow: []string{"allowed.test", "broken.test"}})
	if err != nil {
		t.Fatal(err)
	}
	s := egress.NewSession(egress.SessionOptions{Sandbox: "s1", Policy: p})
	d := &recordingDialer{respond: respond}
	proxy := egress.New(egress.Options{Dialer: d, Timeouts: egress.Timeouts{Head: wait, KeepAlive: wait, Idle: wait}})
	client, server := net.Pipe()
	var tasks sync.WaitGroup
	tasks.Go(func() { proxy.ServeConn(context.Background(), &halfPipe{Conn: server, in: input}, s) })
	out, _ := io.ReadAll(client)
	client.Close()
	tasks.Wait()
	s.Close()
	d.tasks.Wait()
	return string(out), d
}

// halfPipe reads given bytes and then the end; what is written goes to a pipe.
type halfPipe struct {
	net.Conn
	mu sync.Mutex
	in []byte
}

func (h *halfPipe) Read(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.in) == 0 {
		return 0, io.EOF
	}
	n := copy(p, h.in)
	h.in = h.in[n:]
	return n, nil
}

func (h *halfPipe) CloseWrite() error { return h.Conn.Close() }

const canned = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"

// check holds what was dialled, and what was said there, against the one host
// that is allowed.
func check(t *testing.T, d *recordingDialer, input []byte) {
	t.Helper()
	for i, target := range d.targets {
		if target.Name != "allowed.test" || target.Port != 80 && target.Port != 443 {
			t.Fatalf("%q: dialled %v", input, target)
		}
		said := d.said[i].Bytes()
		// Whatever was said in HTTP was said to the host that was dialled. A lenient
		// server sees what readers that differ from ours see, so look at lines.
		if target.Port == 80 && len(said) > 0 {
			r := bufio.NewReader(bytes.NewReader(said))
			line, _ := r.ReadString('\n')
			host, _ := r.ReadString('\n')
			if parts := strings.Split(line, " "); len(parts) != 3 || parts[2] != "HTTP/1.1\r\n" || strings.HasPrefix(parts[1], "http") || host != "Host: allowed.test\r\n" {
				t.Fatalf("%q: the server got %q", input, said)
			}
		}
	}
}

// FuzzHTTPProxy: whatever is sent, nothing but the allowed host is dialled, and
// what it gets is a request for it.
func FuzzHTTPProxy(f *testing.F) {
	for _, s := range []string{
		"GET http://allowed.test/ HTTP/1.1\r\nHost: x\r\n\r\n", "GET http://evil.test/ HTTP/1.1\r\nHost: allowed.test\r\n\r\n",
		"CONNECT allowed.test:443 HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\nHost: allowed.test\r\n\r\n", "CONNECT allowed.test:80 HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\nHost: evil.test\r\n\r\n",
		"POST http://allowed.test/ HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\nGET http://evil.test/ HTTP/1.1\r\n\r\n",
		"POST http://allowed.test/ HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhelloGET http://allowed.test/ HTTP/1.0\r\n\r\n",
		"GET http://allowed.test@evil.test/ HTTP/1.1\r\n\r\n", "GET / HTTP/1.1\r\n\r\n", "OPTIONS * HTTP/1.1\r\n\r\n", "\r\nGET http://broken.test/ HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\n",
		"GET http://allowed.test/ HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nxyz",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, input []byte) {
		if len(input) > 0 && input[0] == 5 {
			t.Skip("SOCKS has a target of its own")
		}
		out, d := talk(t, input, canned)
		check(t, d, input)
		if len(out) > 0 && !strings.HasPrefix(out, "HTTP/1.1 ") {
			t.Fatalf("%q: answered %q", input, out)
		}
	})
}

// FuzzSOCKS: the same for SOCKS.
func FuzzSOCKS(f *testing.F) {
	f.Add([]byte("\x05\x01\x00\x05\x01\x00\x03\x0callowed.test\x00\x50GET / HTTP/1.1\r\nHost: allowed.test\r\n\r\n"))
	f.Add([]byte("\x05\x01\x00\x05\x01\x00\x03\x09evil.test\x00\x50"))
	f.Add([]byte("\x05\x01\x00\x05\x01\x00\x01\x7f\x00\x00\x01\x00\x50"))
	f.Add([]byte("\x05\x02\x02\x00\x05\x03\x00\x04\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01\x01\xbb"))
	f.Fuzz(func(t *testing.T, input []byte) {
		input = append([]byte{5}, input...)
		_, d := talk(t, input, canned)
		check(t, d, input)
	})
}

// FuzzClientHello: what is read is what is there for everybody: the name is in the
// bytes, in one place of one extension, and no byte is taken.
func FuzzClientHello(f *testing.F) {
	for _, name := range []string{"allowed.test", "", "a.b"} {
		h := hello(f, &tls.Config{ServerName: name, InsecureSkipVerify: true})
		f.Add(h)
		f.Add(fragmented(h, 11))
		f.Add(h[:len(h)/2])
	}
	f.Fuzz(func(t *testing.T, input []byte) {
		r := bufio.NewReaderSize(bytes.NewReader(input), egress.MaxHead)
		name, err := egress.ServerName(r)
		rest, _ := io.ReadAll(r)
		if !bytes.Equal(rest, input) {
			t.Fatalf("%d of %d bytes are left", len(rest), len(input))
		}
		if err == nil && name != oracleName(input) {
			t.Fatalf("got %q, the slow reader %q: %x", name, oracleName(input), input)
		}
	})
}

// oracleName is a slow reader of a ClientHello that was found to be well-formed
// (RFC 8446, section 4.1.2; RFC 6066, section 3).
func oracleName(input []byte) string {
	var message []byte
	for len(input) >= 5 && input[0] == 0x16 {
		n := int(binary.BigEndian.Uint16(input[3:]))
		if len(input) < 5+n {
			break
		}
		message = append(message, input[5:5+n]...)
		input = input[5+n:]
	}
	m := message[4+2+32:]
	skip := func(lengthBytes int) []byte {
		n := 0
		for _, b := range m[:lengthBytes] {
			n = n<<8 | int(b)
		}
		part := m[lengthBytes : lengthBytes+n]
		m = m[lengthBytes+n:]
		return part
	}
	skip(1) // session
	skip(2) // cipher suites
	skip(1) // compression
	if len(m) < 2 {
		return ""
	}
	m = skip(2)
	for len(m) >= 4 {
		kind := binary.BigEndian.Uint16(m)
		m = m[2:]
		body := skip(2)
		if kind != 0 {
			continue
		}
		for list := body[2:]; len(list) >= 3; {
			n := int(binary.BigEndian.Uint16(list[1:]))
			if list[0] == 0 {
				return strings.ToLower(string(list[3 : 3+n]))
			}
			list = list[3+n:]
		}
	}
	return ""
}
