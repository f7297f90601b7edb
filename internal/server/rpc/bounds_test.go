package rpc_test

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect/v2"
	"connectrpc.com/grpcreflect/v2"

	healthv1 "agentbox/internal/gen/health/v1"
	"agentbox/internal/gen/health/v1/healthv1connect"
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
