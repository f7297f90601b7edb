package rpc

import (
	"net/http"
	"testing"
)

// TestKinds: a body is weighed as what connect takes it for, however its type is written.
func TestKinds(t *testing.T) {
	for given, plain := range map[string]bool{
		"application/proto": true, "Application/JSON; charset=utf-8": true, "application/json ;x=y": true,
		"application/grpc": false, "Application/gRPC": false, "application/grpc ; x=y": false, " application/grpc+PROTO": false,
		"APPLICATION/grpc-web+json": false, "application/Connect+json": false,
	} {
		if got := isPlain(kindOf(http.Header{"Content-Type": {given}})); got != plain {
			t.Errorf("%q: one message and nothing else: %v, want %v", given, got, plain)
		}
	}
}
