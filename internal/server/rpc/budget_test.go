package rpc_test

import (
	"context"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"agentbox/internal/audit"
	sandboxv1 "agentbox/internal/gen/sandbox/v1"
	"agentbox/internal/server"
	"agentbox/internal/server/rpc"
)

// paused is an audit log in which records about the path "paused" are not written before
// proceed is closed.
type paused struct {
	rpc.Audit
	there, proceed chan struct{}
}

func (p paused) Write(r audit.Record) error {
	if strings.HasSuffix(r.Details["path"], "/paused") {
		p.there <- struct{}{}
		<-p.proceed
	}
	return p.Audit.Write(r)
}

// padded is a message with a field that nobody knows, of 8 MiB.
func padded[M proto.Message](m M) M {
	m.ProtoReflect().SetUnknown(protowire.AppendBytes(protowire.AppendTag(nil, 1000, protowire.BytesType), make([]byte, 8<<20)))
	return m
}

// TestLargeIsGivenBack: what a large message took is free for others of its owner as soon as
// the sandbox has it, though the call goes on.
func TestLargeIsGivenBack(t *testing.T) {
	const all = 64<<20 - 100 // of what an owner may have
	large := strings.Repeat("0123456789abcdef", 8<<20/16)
	for name, call := range map[string]func(*testing.T, *world, context.Context, string){
		"UploadFile, between its parts": func(t *testing.T, w *world, ctx context.Context, id string) {
			up, err := w.client(w.acme).UploadFile(ctx)
			if err == nil {
				err = up.Send(&sandboxv1.UploadFileRequest{SessionId: id, Path: "f", Data: []byte(large)})
			}
			if err != nil {
				t.Error(err)
			}
		},
		"WriteFile, while the sandbox writes": func(_ *testing.T, w *world, ctx context.Context, id string) {
			_, _ = w.client(w.acme).WriteFile(ctx, &sandboxv1.WriteFileRequest{SessionId: id, Path: "paused", Content: large})
		},
		"ReadFile, with more than its fields": func(_ *testing.T, w *world, ctx context.Context, id string) {
			_, _ = w.client(w.acme).ReadFile(ctx, padded(&sandboxv1.ReadFileRequest{SessionId: id, Path: "paused"}))
		},
		"ExecStream, with more than its fields": func(t *testing.T, w *world, ctx context.Context, id string) {
			s, err := w.client(w.acme).ExecStream(ctx, padded(&sandboxv1.ExecStreamRequest{SessionId: id, Command: "echo begun; sleep 60"}))
			if err == nil {
				_, err = s.Receive()
			}
			if err != nil {
				t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := paused{there: make(chan struct{}), proceed: make(chan struct{})}
			w := start(t, func(_ *server.Options, parts *rpc.Parts) {
				p.Audit = parts.Audit
				parts.Audit = p
			})
			id := w.session(w.client(w.acme)).GetSessionId()
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				call(t, w, ctx, id)
			}()
			select {
			case <-ended: // but for its stream
			case <-p.there:
			}
			if got := w.write(w.client(w.acme), id, "other", strings.Repeat("x", all), "w"); got != "" {
				t.Errorf("another one meanwhile: %s", got)
			}
			cancel()
			close(p.proceed)
			<-ended
		})
	}
}
