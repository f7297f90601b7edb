package rpc_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
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
	for _, protocol := range []string{"gRPC", "gRPC-Web", "Connect", "Connect with JSON", "gzip"} {
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

// TestSmallCalls: only texts of files come in large messages. Many values in a packed one
// would be gigabytes.
func TestSmallCalls(t *testing.T) {
	w := start(t)
	c := w.by("gzip", w.acme)
	id := w.session(c).GetSessionId()
	large := strings.Repeat("x", 1<<20)
	huge := strings.Repeat(large, 4)
	for name, call := range map[string]func() error{
		"hosts": func() error {
			_, err := c.CreateSession(t.Context(), &sandboxv1.CreateSessionRequest{AllowedHosts: make([]string, 1<<20)})
			return err
		},
		"tenant": func() error {
			_, err := c.CreateSession(t.Context(), &sandboxv1.CreateSessionRequest{TenantId: &large})
			return err
		},
		"packages": func() error {
			_, err := c.PipInstall(t.Context(), &sandboxv1.PipInstallRequest{SessionId: id, Packages: make([]string, 1<<20)})
			return err
		},
		"path": func() error {
			_, err := c.ReadFile(t.Context(), &sandboxv1.ReadFileRequest{SessionId: id, Path: large})
			return err
		},
		"command": func() error {
			_, err := c.Exec(t.Context(), &sandboxv1.ExecRequest{SessionId: id, Command: huge})
			return err
		},
		"chunk": func() error {
			up, err := c.UploadFile(t.Context())
			if err != nil {
				return err
			}
			if err := up.Send(&sandboxv1.UploadFileRequest{SessionId: id, Path: "f", Data: []byte(huge)}); err != nil && !errors.Is(err, io.EOF) {
				return err
			}
			_, err = up.CloseAndReceive()
			return err
		},
	} {
		if err := call(); connect.CodeOf(err) != connect.CodeResourceExhausted {
			t.Errorf("%s: %v", name, err)
		}
	}
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
	for _, m := range []*sandboxv1.UploadFileRequest{first, {Data: make([]byte, 5<<20)}} {
		if err := up.Send(m); err != nil && !errors.Is(err, io.EOF) { // the answer says why
			t.Fatal(err)
		}
	}
	if _, err := up.CloseAndReceive(); connect.CodeOf(err) != connect.CodeResourceExhausted || !strings.Contains(err.Error(), "4194304") {
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
