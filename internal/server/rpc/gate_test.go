package rpc_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"connectrpc.com/connect/v2"
	"connectrpc.com/grpcreflect/v2"

	"agentbox/internal/audit"
	healthv1 "agentbox/internal/gen/health/v1"
	"agentbox/internal/gen/health/v1/healthv1connect"
	sandboxv1 "agentbox/internal/gen/sandbox/v1"
	"agentbox/internal/gen/sandbox/v1/sandboxv1connect"
	"agentbox/internal/sandbox"
	"agentbox/internal/server"
	"agentbox/internal/server/rpc"
	"agentbox/internal/server/rpc/rpctest"
)

// TestX16ForeignOwner asks each rpc of the descriptor for another owner's session, by
// each of its ids and in each protocol: the answer is that for one that never was, and
// nothing happens. An rpc without a row fails.
func TestX16ForeignOwner(t *testing.T) {
	w := start(t)
	c := w.client(w.acme)
	sb := w.session(c)
	id := sb.GetSessionId()
	w.exec(c, id, "echo x >f")
	rec, err := w.boxes.Get(t.Context(), sandbox.Caller{Owner: "acme"}, id)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range rpctest.Methods() {
		request, ok := rpctest.InSession[m.Name()]
		if guard := rpctest.Elsewhere[m.Name()]; ok == (guard != "") {
			t.Errorf("%s has no row, or two: say what guards it", m.Name())
		}
		if !ok {
			continue
		}
		for protocol := range protocols {
			other := w.rpcs(w.other, protocol)
			none := rpctest.Call(t.Context(), other, m, request("00000000-0000-4000-8000-000000000000"))
			if !strings.Contains(none, "Session not found") && m.Name() != "DestroySession" {
				t.Errorf("%s by %s in no session: %q", m.Name(), protocol, none)
			}
			for _, form := range []string{id, rec.UID, rec.Short, rec.Label} {
				if got := rpctest.Call(t.Context(), other, m, request(form)); got != none {
					t.Errorf("%s by %s of %s: %q, and of none: %q", m.Name(), protocol, form, got, none)
				}
			}
		}
	}
	all, err := w.client(w.other).ListSessions(t.Context(), &sandboxv1.ListSessionsRequest{})
	if err != nil || len(all.GetSessions()) != 0 {
		t.Errorf("the other owner's list: %v, %v", all, err)
	}
	if got := w.exec(c, id, "cat f taken").GetStdout(); got != "x\n" {
		t.Errorf("it was changed: %q", got)
	}
}

// TestKeys: each rpc but the health check asks for a key, in metadata, and refuses in
// its protocol's words.
func TestKeys(t *testing.T) {
	w := start(t)
	for name := range protocols {
		for _, key := range []string{"", "abx_0123456789012345678901234567890123456789"} {
			_, err := w.by(name, key).ListSessions(t.Context(), &sandboxv1.ListSessionsRequest{})
			if connect.CodeOf(err) != connect.CodeUnauthenticated || !strings.Contains(err.Error(), "API key") {
				t.Errorf("%s with the key %q: %v", name, key, err)
			}
		}
		ctx, info := connect.NewClientContext(t.Context())
		info.RequestHeader().Set("x-api-key", w.acme)
		info.RequestHeader().Set("x-request-id", "mine")
		if _, err := w.by(name, "").ListSessions(ctx, &sandboxv1.ListSessionsRequest{}); err != nil || info.ResponseHeader().Get("X-Request-ID") != "mine" {
			t.Errorf("%s with X-API-Key: %v, %v", name, err, info.ResponseHeader())
		}
	}
	for _, r := range w.router.Routes() {
		if open := r.Access != 0; open && !strings.HasSuffix(r.Pattern, "/health") && !strings.HasSuffix(r.Pattern, "/readiness") && !strings.HasSuffix(r.Pattern, "/metrics") &&
			!strings.Contains(r.Pattern, "/debug/") && r.Pattern != "POST "+healthv1connect.HealthCheckProcedure {
			t.Errorf("%s is open", r.Pattern)
		}
	}
	page, err := w.audit.Query(t.Context(), audit.Query{AllOwners: true, Action: audit.AuthRefused})
	if err != nil || len(page.Records) < 4 {
		t.Errorf("%d refusals are recorded, %v", len(page.Records), err)
	}
}

// TestUnknownRPC: a call that there is not is Unimplemented, with a key only.
func TestUnknownRPC(t *testing.T) {
	w := start(t)
	spec := connect.Spec{Procedure: "/sandbox.v1.SandboxService/Nothing"}
	err := w.rpcs(w.acme, "gRPC").CallUnary(t.Context(), spec, &sandboxv1.ListSessionsRequest{}, &sandboxv1.ListSessionsResponse{})
	if connect.CodeOf(err) != connect.CodeUnimplemented {
		t.Errorf("with a key: %v", err)
	}
	err = w.rpcs("", "gRPC").CallUnary(t.Context(), spec, &sandboxv1.ListSessionsRequest{}, &sandboxv1.ListSessionsResponse{})
	if connect.CodeOf(err) != connect.CodeUnauthenticated {
		t.Errorf("without: %v", err)
	}
}

// TestHealthAndReflection are for gRPC's tools.
func TestHealthAndReflection(t *testing.T) {
	var sick atomic.Bool
	w := start(t, func(_ *server.Options, p *rpc.Parts) {
		p.Ready = func(context.Context) error {
			if sick.Load() {
				return errors.New("the disk is full")
			}
			return nil
		}
	})
	probe := healthv1connect.NewHealthClient(w.rpcs("", "gRPC"))
	check := func(service string) (healthv1.HealthCheckResponse_ServingStatus, error) {
		a, err := probe.Check(t.Context(), &healthv1.HealthCheckRequest{Service: service})
		return a.GetStatus(), err
	}
	for _, service := range []string{"", "sandbox.v1.SandboxService"} {
		if got, err := check(service); err != nil || got != healthv1.HealthCheckResponse_SERVING {
			t.Errorf("%q is %v, %v", service, got, err)
		}
	}
	if _, err := check("other"); connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("another service: %v", err)
	}
	sick.Store(true)
	if got, err := check(""); err != nil || got != healthv1.HealthCheckResponse_NOT_SERVING {
		t.Errorf("a server that can't do its work is %v, %v", got, err)
	}
	sick.Store(false)
	watch, err := healthv1connect.NewHealthClient(w.rpcs(w.acme, "gRPC")).Watch(t.Context(), &healthv1.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Close()
	if m, err := watch.Receive(); err != nil || m.GetStatus() != healthv1.HealthCheckResponse_SERVING {
		t.Errorf("the watch begins with %v, %v", m, err)
	}
	tools := grpcreflect.NewClient(w.rpcs(w.acme, "gRPC")).NewStream(t.Context())
	services, err := tools.ListServices()
	if err != nil || len(services) == 0 {
		t.Errorf("the services are %v, %v", services, err)
	}
	files, err := tools.FileContainingSymbol("sandbox.v1.SandboxService")
	if err != nil || len(files) == 0 {
		t.Errorf("the file is %v, %v", files, err)
	}
	tools.Close()
	w.stop()
	if m, err := watch.Receive(); err != nil || m.GetStatus() != healthv1.HealthCheckResponse_NOT_SERVING {
		t.Errorf("the watch of a server that stops: %v, %v", m, err)
	}
}

// TestC4ConnectJSON is what curl sends.
func TestC4ConnectJSON(t *testing.T) {
	w := start(t)
	r, err := http.NewRequest("POST", w.url+sandboxv1connect.SandboxServiceListSessionsProcedure, strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer "+w.acme)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if b, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != 200 || string(b) != "{}" || resp.Uncompressed {
		t.Errorf("%d %s, %v", resp.StatusCode, b, err)
	}
	http.DefaultClient.CloseIdleConnections()
}

// TestC8Preflight: pages of an allowed origin may call by gRPC-Web and Connect, and
// read how a call ended; others may not.
func TestC8Preflight(t *testing.T) {
	w := start(t)
	for origin, want := range map[string]int{"https://app.example": 204, "https://evil.example": 401} {
		r, err := http.NewRequest("OPTIONS", w.url+sandboxv1connect.SandboxServiceExecProcedure, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Origin", origin)
		r.Header.Set("Access-Control-Request-Method", "POST")
		r.Header.Set("Access-Control-Request-Headers", "authorization,content-type,x-grpc-web")
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		h := resp.Header
		if want != 204 {
			if resp.StatusCode < 400 || h.Get("Access-Control-Allow-Origin") != "" {
				t.Errorf("%s: %d %v", origin, resp.StatusCode, h)
			}
			continue
		}
		if resp.StatusCode != want || h.Get("Access-Control-Allow-Origin") != origin || h.Get("Access-Control-Allow-Credentials") != "" {
			t.Errorf("%s: %d %v", origin, resp.StatusCode, h)
		}
		allowed := strings.ToLower(h.Get("Access-Control-Allow-Headers"))
		for _, name := range []string{"content-type", "x-grpc-web", "x-user-agent", "grpc-timeout", "connect-protocol-version", "connect-timeout-ms", "authorization", "x-api-key", "x-request-id"} {
			if !strings.Contains(allowed, name) {
				t.Errorf("%s may not send %s: %s", origin, name, allowed)
			}
		}
		seen := strings.ToLower(h.Get("Access-Control-Expose-Headers"))
		for _, name := range []string{"grpc-status", "grpc-message", "grpc-status-details-bin"} {
			if !strings.Contains(seen, name) {
				t.Errorf("%s may not see %s: %s", origin, name, seen)
			}
		}
	}
	http.DefaultClient.CloseIdleConnections()
}

// TestGRPCHasNoBrowser: answers to gRPC itself, refusals too, have no headers for browsers,
// which its clients would take for metadata. Whatever a page can read has them, however it
// is asked for.
func TestGRPCHasNoBrowser(t *testing.T) {
	w := start(t)
	const call, rest = sandboxv1connect.SandboxServiceListSessionsProcedure, "/health"
	for _, c := range []struct {
		path, kind string
		two, has   bool // HTTP/2; headers for browsers
	}{
		{call, "application/grpc", true, false},
		{call, "application/grpc+proto", true, false},
		{call, "Application/gRPC", true, false},
		{healthv1connect.HealthCheckProcedure, "application/grpc", true, false},
		{call, "application/grpc", false, true}, // which is no gRPC
		{call, "application/grpc-web", true, true},
		{call, "application/grpc-Web+proto", true, true},
		{call, "application/grpc-web-text", true, true},
		{call, "application/grpcx", true, true},
		{call, "application/proto", true, true},
		{call, "application/json", true, true},
		{rest, "application/grpc", true, true},
		{rest + "/none", "application/grpc", true, true},
	} {
		for _, key := range []string{w.acme, ""} {
			transport := &http.Transport{Protocols: new(http.Protocols)}
			transport.Protocols.SetUnencryptedHTTP2(c.two)
			transport.Protocols.SetHTTP1(!c.two)
			r, err := http.NewRequest("POST", w.url+c.path, strings.NewReader(""))
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Content-Type", c.kind)
			resp, err := keyed{transport, key}.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			transport.CloseIdleConnections()
			for _, name := range []string{"X-Content-Type-Options", "Content-Security-Policy", "Cache-Control", "Vary"} {
				if got := resp.Header.Get(name); (got != "") != c.has {
					t.Errorf("%s as %q by %s with the key %q: %s is %q", c.path, c.kind, resp.Proto, key, name, got)
				}
			}
		}
	}
}

// TestNoBombs: a message that grows over the limit when it is unpacked is refused.
func TestNoBombs(t *testing.T) {
	w := start(t)
	c := sandboxv1connect.NewSandboxServiceClient(w.rpcs(w.acme, "gzip"))
	id := w.session(w.client(w.acme)).GetSessionId()
	_, err := c.WriteFile(t.Context(), &sandboxv1.WriteFileRequest{SessionId: id, Path: "bomb", Content: string(bytes.Repeat([]byte("0"), 65<<20))})
	if connect.CodeOf(err) != connect.CodeResourceExhausted {
		t.Errorf("65 MiB in a small message: %v", err)
	}
	if a, err := c.WriteFile(t.Context(), &sandboxv1.WriteFileRequest{SessionId: id, Path: "f", Content: "x"}); err != nil || !a.GetSuccess() {
		t.Errorf("a packed message: %v, %v", a, err)
	}
}
