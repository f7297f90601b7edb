package server

import (
	"context"
	"net/http"

	"agentbox/internal/ids"
	"agentbox/internal/sandbox"
)

type (
	requestIDKey struct{}
	callerKey    struct{}
)

// requestIDHeader is taken from clients and always returned.
const requestIDHeader = "X-Request-ID"

// RequestID is the id of the request that ctx belongs to.
func RequestID(ctx context.Context) string {
	id, _ := ctx.Value(requestIDKey{}).(string)
	return id
}

// Caller is who sent the request that ctx belongs to. On open routes it is
// nobody: the zero value but for the request's id.
func Caller(ctx context.Context) sandbox.Caller {
	c, _ := ctx.Value(callerKey{}).(sandbox.Caller)
	c.RequestID = RequestID(ctx)
	return c
}

// withRequestID takes the client's id, if it can stand in a log, or makes one.
func withRequestID(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := r.Header.Get(requestIDHeader)
		if !isRequestID(id) {
			id = ids.Hex(16)
		}
		w.Header().Set(requestIDHeader, id)
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), requestIDKey{}, id)))
	})
}

// isRequestID: 1 to 128 of A-Z, a-z, 0-9, ".", "_" and "-".
func isRequestID(s string) bool {
	for _, c := range []byte(s) {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '.' && c != '_' && c != '-' {
			return false
		}
	}
	return s != "" && len(s) <= 128
}
