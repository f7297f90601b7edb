package main

import (
	"context"
	_ "embed" // egress.py
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
)

//go:embed egress.py
var egressClient string

// Sizes of what goes through the proxy.
const (
	egressRequests = 500
	egressBytes    = 1 << 30
	egressConns    = 200 // of the 224 that a sandbox may have
)

// proxyAddr is where sandboxes find the proxy.
const proxyAddr = "127.0.0.1:3128"

// egress measures what the way to the network costs: requests and a download
// through the proxy, beside the same client and the sandbox's own loopback, which no
// network is faster than, in turns.
func (b *bench) egress(ctx context.Context) (err error) {
	size := egressBytes / b.div >> 20 << 20
	ok := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/bytes" {
			w.Header().Set("Content-Length", strconv.Itoa(size))
			_ = sendBytes(w, size) // the client finds out
			return
		}
		_, _ = io.WriteString(w, "ok")
	})
	web, secure := httptest.NewServer(ok), httptest.NewTLSServer(ok)
	defer web.Close()
	defer secure.Close()
	authority := filepath.Join(b.dir, "authority.pem")
	if err := os.WriteFile(authority, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw}), 0o600); err != nil {
		return err
	}
	source, err := byteSource(size)
	if err != nil {
		return err
	}
	defer func() { _ = source.Close() }()
	s, err := startServed(ctx, b.program, b.dataDir, filepath.Join(b.dir, "egress"), b.image, "--egress-allow-ranges", "127.0.0.0/8", "--egress-ca-bundle", authority)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	at, safe, from := web.Listener.Addr().String(), secure.Listener.Addr().String(), source.Addr().String()
	var box struct{ ID string }
	if err := s.call(ctx, "POST", "/sandboxes", map[string]any{"network": map[string]any{"allow": []string{at, safe, from}, "intercept": []string{safe}}}, &box); err != nil {
		return err
	}
	text, err := s.output(ctx, box.ID, "python3", "-c", egressClient, proxyAddr, at, safe, from, strconv.Itoa(b.n(egressRequests)), strconv.Itoa(size), strconv.Itoa(egressConns))
	if err != nil {
		return err
	}
	var got struct {
		Own, HTTP, Tunnel, Intercepted, Rate, Curl, Many samples
		OwnRate                                          samples `json:"own_rate"`
		OwnCurl                                          samples `json:"own_curl"`
	}
	if err := json.Unmarshal([]byte(text), &got); err != nil {
		return fmt.Errorf("read what the client measured: %w", err)
	}
	r := b.report
	r.add("request on the sandbox's own loopback", "ms", got.Own, nil, "")
	r.add("- added by the proxy", "ms", less(got.HTTP, got.Own), nil, "<= 1 ms")
	r.add("- added by a tunnel of the proxy", "ms", less(got.Tunnel, got.Own), nil, "<= 1 ms")
	r.add("- added by TLS that is intercepted", "ms", less(got.Intercepted, got.Own), nil, "<= 3 ms")
	r.add(fmt.Sprintf("download of %d MB by curl through the proxy", size/1_000_000), "MB/s", got.Curl, nil, "")
	r.add("- of that from the sandbox's own loopback", "share", over(got.Curl, got.OwnCurl), nil, ">= 0.5")
	r.add("the same bytes by a socket with large buffers", "MB/s", got.Rate, nil, "")
	r.add("- of those from the sandbox's own loopback", "share", over(got.Rate, got.OwnRate), nil, "")
	r.add(fmt.Sprintf("%d connections at once, each asked once", egressConns), "ms", got.Many, nil, "")
	return nil
}

// less is each sample of a without that of b in the same round.
func less(a, b samples) (rest samples) {
	for i := range a {
		rest = append(rest, a[i]-b[i])
	}
	return rest
}

// byteSource sends so many bytes to each client that sends a byte.
func byteSource(size int) (net.Listener, error) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				if _, err := c.Read(make([]byte, 1)); err == nil {
					_ = sendBytes(c, size) // the client finds out
				}
			}()
		}
	}()
	return l, nil
}

func sendBytes(w io.Writer, size int) error {
	block := make([]byte, 1<<20)
	for left := size; left > 0; left -= len(block) {
		if _, err := w.Write(block); err != nil {
			return err
		}
	}
	return nil
}
