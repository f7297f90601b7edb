package rpc_test

import (
	"context"
	"io"
	"net/http"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	sandboxv1 "agentbox/internal/gen/sandbox/v1"
	"agentbox/internal/gen/sandbox/v1/sandboxv1connect"
	"agentbox/internal/sandbox"
	"agentbox/internal/server"
	"agentbox/internal/server/rpc"
)

// watched is a gate that tells of each request that it let in.
type watched struct {
	server.Gate
	in chan struct{}
}

func (g watched) Stay(ctx context.Context, c sandbox.Caller) (stay context.Context, leave func(), err error) {
	stay, leave, err = g.Gate.Stay(ctx, c)
	g.in <- struct{}{}
	return stay, leave, err
}

// leaked sends the begin of a request with a key that is revoked once the request was
// let in, and then its rest. It returns when there is an answer.
func (w *world) leaked(procedure, kind string, q proto.Message, in chan struct{}, cut int, end bool) {
	w.t.Helper()
	k, secret, err := w.keys.Create(w.t.Context(), "acme", "", false)
	if err != nil {
		w.t.Fatal(err)
	}
	message, err := proto.Marshal(q)
	if err != nil {
		w.t.Fatal(err)
	}
	h2 := kind == "application/grpc"
	if kind != "application/proto" {
		message = append([]byte{0, 0, 0, 0, byte(len(message))}, message...)
	}
	tr := &http.Transport{Protocols: new(http.Protocols)}
	tr.Protocols.SetUnencryptedHTTP2(h2)
	tr.Protocols.SetHTTP1(!h2)
	defer tr.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(w.t.Context(), 30*time.Second)
	defer cancel()
	body, sender := io.Pipe()
	defer body.Close()
	r, err := http.NewRequestWithContext(ctx, "POST", w.url+procedure, body)
	if err != nil {
		w.t.Fatal(err)
	}
	r.Header.Set("Content-Type", kind)
	go func() {
		_, _ = sender.Write(message[:cut])
		<-in
		if _, err := w.keys.Revoke(context.WithoutCancel(ctx), k.ID); err != nil {
			w.t.Error(err)
		}
		_, _ = sender.Write(message[cut:])
		if end {
			sender.Close()
		}
	}()
	resp, err := keyed{tr, secret}.Do(r)
	if err == nil {
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
	if ctx.Err() != nil {
		w.t.Errorf("%s by %s goes on with a revoked key", procedure, kind)
	}
}

// TestRevokedKeySendsNoMore: a request that was let in and not sent whole is not
// carried out when its key is revoked meanwhile, nor does it wait for more.
func TestRevokedKeySendsNoMore(t *testing.T) {
	in := make(chan struct{}, 100)
	w := start(t, func(o *server.Options, _ *rpc.Parts) {
		o.Gate, o.BodyTimeout = watched{o.Gate, in}, time.Hour
	})
	id := w.session(w.client(w.acme)).GetSessionId()
	<-in
	for _, kind := range []string{"application/grpc", "application/grpc-web", "application/proto"} {
		w.leaked(sandboxv1connect.SandboxServiceDestroySessionProcedure, kind, &sandboxv1.DestroySessionRequest{SessionId: id}, in, 3, true)
		if a, err := w.client(w.acme).GetSession(t.Context(), &sandboxv1.GetSessionRequest{SessionId: id}); err != nil || a.GetSession().GetStatus() != "running" {
			t.Fatalf("%s: the session is %v, %v", kind, a, err)
		}
		<-in
	}
	upload := &sandboxv1.UploadFileRequest{SessionId: id, Path: "f", Data: []byte("x")}
	w.leaked(sandboxv1connect.SandboxServiceUploadFileProcedure, "application/grpc", upload, in, 5+proto.Size(upload), false)
}
