// Package rpctest has what tests of the gRPC door share: a request for each rpc, so
// that one that nobody thought of fails them, and a way to send any of them.
package rpctest

import (
	"context"
	"errors"
	"io"
	"strings"

	"connectrpc.com/connect/v2"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	sandboxv1 "agentbox/internal/gen/sandbox/v1"
)

// InSession has for each rpc about one session a request with the id that is asked
// for, all else in it being good. Those that change something leave the word taken
// behind.
var InSession = map[protoreflect.Name]func(id string) proto.Message{
	"DestroySession": func(id string) proto.Message { return &sandboxv1.DestroySessionRequest{SessionId: id} },
	"GetSession":     func(id string) proto.Message { return &sandboxv1.GetSessionRequest{SessionId: id} },
	"Exec": func(id string) proto.Message {
		return &sandboxv1.ExecRequest{SessionId: id, Command: "echo taken >taken"}
	},
	"ExecStream": func(id string) proto.Message {
		return &sandboxv1.ExecStreamRequest{SessionId: id, Command: "echo taken >taken"}
	},
	"WriteFile": func(id string) proto.Message {
		return &sandboxv1.WriteFileRequest{SessionId: id, Path: "taken", Content: "taken"}
	},
	"ReadFile": func(id string) proto.Message { return &sandboxv1.ReadFileRequest{SessionId: id, Path: "f"} },
	"PipInstall": func(id string) proto.Message {
		return &sandboxv1.PipInstallRequest{SessionId: id, Packages: []string{"x"}}
	},
	"UploadFile": func(id string) proto.Message {
		return &sandboxv1.UploadFileRequest{SessionId: id, Path: "taken", Data: []byte("taken")}
	},
	"DownloadFile": func(id string) proto.Message { return &sandboxv1.DownloadFileRequest{SessionId: id, Path: "f"} },
}

// Elsewhere are the rpcs that are about no session of before, and the test that keeps
// owners apart there.
var Elsewhere = map[protoreflect.Name]string{"CreateSession": "TestCreateIsIdempotent", "ListSessions": "TestX16ForeignOwner"}

// Methods are the rpcs of the service.
func Methods() (all []protoreflect.MethodDescriptor) {
	methods := sandboxv1.File_sandbox_v1_sandbox_proto.Services().ByName("SandboxService").Methods()
	for i := range methods.Len() {
		all = append(all, methods.Get(i))
	}
	return all
}

// Procedure is the path of an rpc.
func Procedure(m protoreflect.MethodDescriptor) string {
	return "/" + string(m.Parent().FullName()) + "/" + string(m.Name())
}

// JSON is a request of an rpc in the form that pages and curl send: with a session's id,
// if it has one.
func JSON(m protoreflect.MethodDescriptor, id string) string {
	request, ok := InSession[m.Name()]
	if !ok {
		return "{}"
	}
	return protojson.Format(request(id))
}

// Call sends a request and tells all that was answered: each message, and the error
// or EOF at the end.
func Call(ctx context.Context, c *connect.Client, m protoreflect.MethodDescriptor, q proto.Message) string {
	spec := connect.Spec{Procedure: Procedure(m), Schema: m}
	if m.IsStreamingClient() {
		spec.StreamType |= connect.StreamTypeClient
	}
	if m.IsStreamingServer() {
		spec.StreamType |= connect.StreamTypeServer
	}
	s, err := c.CallClientStream(ctx, spec)
	if err != nil {
		return err.Error()
	}
	defer func() { _ = s.Close() }() // what was answered says it
	err = s.Send(q)
	if err == nil || errors.Is(err, io.EOF) { // the answer says why
		err = s.CloseSend()
	}
	if err != nil {
		return err.Error()
	}
	var all strings.Builder
	for {
		a := dynamicpb.NewMessage(m.Output())
		if err := s.Receive(a); err != nil {
			return all.String() + err.Error()
		}
		b, err := proto.MarshalOptions{Deterministic: true}.Marshal(a)
		if err != nil {
			return all.String() + err.Error()
		}
		all.Write(b)
		all.WriteByte('\n')
	}
}
