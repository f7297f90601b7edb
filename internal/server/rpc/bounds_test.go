package rpc_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect/v2"
	"connectrpc.com/grpcreflect/v2"

	healthv1 "agentbox/internal/gen/health/v1"
	"agentbox/internal/gen/health/v1/healthv1connect"
	sandboxv1 "agentbox/internal/gen/sandbox/v1"
	"agentbox/internal/gen/sandbox/v1/sandboxv1connect"
	"agentbox/internal/server"
	"agentbox/internal/server/rpc"
)

// TestProbesAreSmall: whoever has no key makes the server hold a few KiB, packed or not;
// nor does reflection take more.
func TestProbesAreSmall(t *testing.T) {
	w := start(t)
	for _, protocol := range []string{"gRPC", "gRPC-Web", "gRPC-Web text", "Connect", "Connect with JSON", "gzip"} {
		c := healthv1connect.NewHealthClient(w.rpcs("", protocol))
		for _, size := range []int{5 << 10, 1 << 20} {
			_, err := c.Check(t.Context(), &healthv1.HealthCheckRequest{Service: strings.Repeat("x", size)})
			if connect.CodeOf(err) != connect.CodeResourceExhausted {
				t.Errorf("%s: a check of %d bytes: %v", protocol, size, err)
			}
		}
		if a, err := c.Check(t.Context(), &healthv1.HealthCheckRequest{}); err != nil || a.GetStatus() != healthv1.HealthCheckResponse_SERVING {
			t.Errorf("%s: a check is %v, %v", protocol, a, err)
		}
	}
	tools := grpcreflect.NewClient(w.rpcs(w.acme, "gRPC")).NewStream(t.Context())
	defer tools.Close()
	if _, err := tools.FileContainingSymbol("a.x"); connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("a symbol that there is not: %v", err)
	}
	tools = grpcreflect.NewClient(w.rpcs(w.acme, "gRPC")).NewStream(t.Context())
	defer tools.Close()
	if _, err := tools.FileByFilename(strings.Repeat("x", 5<<10)); connect.CodeOf(err) != connect.CodeResourceExhausted {
		t.Errorf("reflection of 5 KiB: %v", err)
	}
}

// TestManyValues: a message may be large, but not have more values than a small one, each
// of which takes memory. Many in a packed one would be gigabytes.
func TestManyValues(t *testing.T) {
	w := start(t)
	for _, protocol := range []string{"gzip", "gRPC", "Connect with JSON"} {
		c := w.by(protocol, w.acme)
		id := w.session(c).GetSessionId()
		if _, err := c.CreateSession(t.Context(), &sandboxv1.CreateSessionRequest{AllowedHosts: make([]string, 1<<20)}); connect.CodeOf(err) != connect.CodeInvalidArgument {
			t.Errorf("%s: hosts: %v", protocol, err)
		}
		if _, err := c.PipInstall(t.Context(), &sandboxv1.PipInstallRequest{SessionId: id, Packages: make([]string, 1<<20)}); connect.CodeOf(err) != connect.CodeInvalidArgument {
			t.Errorf("%s: packages: %v", protocol, err)
		}
	}
}

// TestLargeCalls: each call takes messages of up to 64 MiB, whatever it makes of them then.
func TestLargeCalls(t *testing.T) {
	w := start(t)
	c := w.by("gRPC", w.acme)
	id := w.session(c).GetSessionId()
	upload := func(data string) error {
		up, err := c.UploadFile(t.Context())
		if err != nil {
			return err
		}
		if err := up.Send(&sandboxv1.UploadFileRequest{SessionId: id, Path: "f", Data: []byte(data)}); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		_, err = up.CloseAndReceive()
		return err
	}
	calls := map[string]func(string) error{
		"tenant": func(s string) error {
			_, err := c.CreateSession(t.Context(), &sandboxv1.CreateSessionRequest{TenantId: &s})
			return err
		},
		"path": func(s string) error {
			_, err := c.ReadFile(t.Context(), &sandboxv1.ReadFileRequest{SessionId: id, Path: s})
			return err
		},
		"command": func(s string) error {
			_, err := c.Exec(t.Context(), &sandboxv1.ExecRequest{SessionId: id, Command: "true #" + s})
			return err
		},
		"part": upload,
	}
	for _, size := range []int{3 << 20, 64<<20 - 100, 64 << 20} {
		data := strings.Repeat("x", size)
		for name, call := range calls {
			if err := call(data); (connect.CodeOf(err) == connect.CodeResourceExhausted) != (size == 64<<20) {
				t.Errorf("%s of %d bytes: %.300v", name, size, err)
			}
		}
	}
}

// slowly begins a call of a large message, and returns when the server has read some of it.
// No more comes until end is called.
func (w *world) slowly(key string, size uint32) (end func()) {
	w.t.Helper()
	body, sender := io.Pipe()
	q, err := http.NewRequestWithContext(w.t.Context(), http.MethodPost, w.url+sandboxv1connect.SandboxServiceWriteFileProcedure, body)
	if err != nil {
		w.t.Fatal(err)
	}
	q.Header.Set("Content-Type", "application/grpc-web+proto")
	q.Header.Set("Authorization", "Bearer "+key)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if a, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(q); err == nil {
			a.Body.Close()
		}
	}()
	head := binary.BigEndian.AppendUint32([]byte{0}, size)
	if _, err := sender.Write(append(head, make([]byte, 24<<20)...)); err != nil { // more than sockets hold
		w.t.Fatal(err)
	}
	return sync.OnceFunc(func() {
		sender.CloseWithError(io.ErrUnexpectedEOF)
		<-ended
	})
}

// TestLargeAtOnce: large messages wait for one another, those of one owner before those of
// others, and not for ever. Small ones need not.
func TestLargeAtOnce(t *testing.T) {
	w := start(t, func(_ *server.Options, p *rpc.Parts) { p.LargeWait = 500 * time.Millisecond })
	for _, protocol := range []string{"gRPC", "gRPC-Web", "gRPC-Web text", "Connect", "gzip"} {
		t.Run(protocol, func(t *testing.T) {
			acme, other := w.by(protocol, w.acme), w.by(protocol, w.other)
			mine, theirs := w.session(acme).GetSessionId(), w.session(other).GetSessionId()
			large := strings.Repeat("0123456789abcdef", 4<<20/16)
			end := w.slowly(w.acme, 63<<20)
			defer end()
			if got := w.write(acme, mine, "small", "x", "w"); got != "" {
				t.Errorf("a small one meanwhile: %s", got)
			}
			if got := w.write(other, theirs, "large", large, "w"); got != "" {
				t.Errorf("another owner's meanwhile: %s", got)
			}
			ctx, info := connect.NewClientContext(t.Context())
			_, err := acme.WriteFile(ctx, &sandboxv1.WriteFileRequest{SessionId: mine, Path: "large", Content: large})
			after := info.ResponseTrailer().Get("Retry-After") + info.ResponseHeader().Get("Retry-After")
			if connect.CodeOf(err) != connect.CodeResourceExhausted || !strings.Contains(err.Error(), "other large messages") || after == "" {
				t.Errorf("a second one: %v, again after %q", err, after)
			}
			end()
			if got := w.write(acme, mine, "large", large, "w"); got != "" {
				t.Errorf("afterwards: %s", got)
			}
		})
	}
	ends := []func(){w.slowly(w.acme, 63<<20), w.slowly(w.other, 63<<20)}
	for _, end := range ends {
		end()
	}
}

// TestLargeOfStrangers: who has no key is refused before its message is read.
func TestLargeOfStrangers(t *testing.T) {
	w := start(t)
	sent := &counted{r: io.LimitReader(zeros{}, 64<<20)}
	q, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.url+sandboxv1connect.SandboxServiceWriteFileProcedure, sent)
	if err != nil {
		t.Fatal(err)
	}
	q.Header.Set("Content-Type", "application/proto")
	tr := &http.Transport{DisableKeepAlives: true}
	a, err := tr.RoundTrip(q)
	if err == nil {
		a.Body.Close()
	}
	// What the sockets hold, and what net/http takes of a body to keep a connection.
	if n := sent.n.Load(); err == nil && a.StatusCode != http.StatusUnauthorized || n > 16<<20 {
		t.Errorf("it is answered with %v, %v, after %d bytes", a, err, n)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

type counted struct {
	r io.Reader
	n atomic.Int64
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n.Add(int64(n))
	return n, err
}

// TestShortErrors: what is refused is not sent back in full.
func TestShortErrors(t *testing.T) {
	w := start(t)
	c := w.client(w.acme)
	long := strings.Repeat("x", 1<<19)
	for name, q := range map[string]*sandboxv1.CreateSessionRequest{
		"session": {SessionId: &long}, "tenant": {TenantId: &long}, "host": {AllowedHosts: []string{long}},
		"host of no network": {AllowedHosts: []string{long}, Network: sandboxv1.Network_NETWORK_NONE},
	} {
		if _, err := c.CreateSession(t.Context(), q); connect.CodeOf(err) != connect.CodeInvalidArgument || len(err.Error()) > 1000 {
			t.Errorf("%s: %.1000v", name, err)
		}
	}
	full, err := c.CreateSession(t.Context(), &sandboxv1.CreateSessionRequest{Network: sandboxv1.Network_NETWORK_FULL})
	if err != nil {
		t.Fatal(err)
	}
	a, err := c.PipInstall(t.Context(), &sandboxv1.PipInstallRequest{SessionId: full.GetSession().GetSessionId(), Packages: []string{long}})
	if err != nil || len(a.GetStderr()) > 1000 || !strings.HasPrefix(a.GetStderr(), "Invalid package specifier: xxx") {
		t.Errorf("package: %.1000v, %.1000v", a, err)
	}
}

// TestShortReasons: nor is a message that can't be read.
func TestShortReasons(t *testing.T) {
	w := start(t)
	for _, kind := range []string{"application/json", "application/grpc-web+json"} {
		body := `{"timeout":` + strings.Repeat("9", 1<<19) + `}`
		if kind != "application/json" {
			body = "\x00" + string(binary.BigEndian.AppendUint32(nil, uint32(len(body)))) + body
		}
		r, err := http.NewRequest("POST", w.url+sandboxv1connect.SandboxServiceExecProcedure, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", kind)
		r.Header.Set("X-API-Key", w.acme)
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || len(b) > 1000 || !strings.Contains(string(b)+resp.Header.Get("Grpc-Message"), "timeout") {
			t.Errorf("%s: %d bytes, %.300s %v, %v", kind, len(b), b, resp.Header, err)
		}
	}
	http.DefaultClient.CloseIdleConnections()
}

// TestLargeChunk: a message in the middle of an upload that is too large is its sender's
// error, and none of the server.
func TestLargeChunk(t *testing.T) {
	var log bytes.Buffer
	w := start(t, func(o *server.Options, _ *rpc.Parts) {
		o.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelError}))
	})
	c := w.client(w.acme)
	up, err := c.UploadFile(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	first := &sandboxv1.UploadFileRequest{SessionId: w.session(c).GetSessionId(), Path: "f", Data: []byte("x")}
	for _, m := range []*sandboxv1.UploadFileRequest{first, {Data: make([]byte, 65<<20)}} {
		if err := up.Send(m); err != nil && !errors.Is(err, io.EOF) { // the answer says why
			t.Fatal(err)
		}
	}
	if _, err := up.CloseAndReceive(); connect.CodeOf(err) != connect.CodeResourceExhausted || !strings.Contains(err.Error(), "67108864") {
		t.Errorf("it is refused with %v", err)
	}
	w.stop()
	if log.Len() > 0 {
		t.Errorf("the log has %s", &log)
	}
}

// TestSlowProbe: a health check that is sent byte by byte has its end.
func TestSlowProbe(t *testing.T) {
	const timeout = time.Second
	w := start(t, func(o *server.Options, _ *rpc.Parts) { o.BodyTimeout = timeout })
	body, sender := io.Pipe()
	go func() {
		defer sender.Close()
		for b := range bytes.SplitSeq([]byte("\x00\x00\x00\x0f\xff"+strings.Repeat("x", 145)), nil) { // of 4095 bytes
			if _, err := sender.Write(b); err != nil {
				return
			}
			time.Sleep(timeout / 10)
		}
	}()
	begin := time.Now()
	resp, err := http.Post(w.url+healthv1connect.HealthCheckProcedure, "application/grpc", body)
	if err == nil {
		_, err = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
	body.Close()
	if took := time.Since(begin); took > 10*timeout {
		t.Errorf("it ended after %v, %v", took, err)
	}
	http.DefaultClient.CloseIdleConnections()
}
