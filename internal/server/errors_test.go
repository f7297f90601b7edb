package server_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	"agentbox/internal/auth"
	"agentbox/internal/sandbox"
	"agentbox/internal/server"
)

var errSecret = errors.New("secret at /var/lib/agentbox")

// errorCases have an error that a door gives and what callers see of it.
var errorCases = map[string]struct {
	err    error
	status int
	code   server.Code
	want   string
}{
	"panic":             {nil, 500, server.CodeInternal, ""},
	"unknown":           {errSecret, 500, server.CodeInternal, "internal error"},
	"not found":         {fmt.Errorf("%w: %w", errdefs.ErrNotFound, errSecret), 404, server.CodeNotFound, ""},
	"refusal":           {fmt.Errorf("secret: %w", sandbox.Refuse(errdefs.ErrNotFound, "Sandbox not found")), 404, server.CodeNotFound, `"detail":"Sandbox not found"`},
	"invalid value":     {fmt.Errorf("x: %w", &sandbox.InvalidError{Field: "memory", Value: "1t", Allowed: "up to 2g"}), 400, server.CodeInvalidValue, `"field":"memory","allowed":"up to 2g"`},
	"exists":            {errdefs.ErrAlreadyExists, 409, server.CodeAlreadyExists, ""},
	"precondition":      {errdefs.ErrFailedPrecondition, 409, server.CodeConflict, ""},
	"not implemented":   {errdefs.ErrNotImplemented, 400, server.CodeUnsupported, ""},
	"exhausted":         {errdefs.ErrResourceExhausted, 503, server.CodeUnavailable, "the server has no room left for this"},
	"rate":              {&auth.RateError{After: time.Second}, 429, server.CodeRateLimited, ""},
	"destroyed":         {&sandbox.GoneError{Tombstone: sandbox.Tombstone{Reason: sandbox.ReasonOOM, ReasonText: "secret"}}, 404, server.CodeSandboxDestroyed, `"detail":"Sandbox not found"`},
	"expired":           {fmt.Errorf("x: %w", &sandbox.GoneError{Tombstone: sandbox.Tombstone{Reason: sandbox.ReasonIdle}}), 404, server.CodeSandboxExpired, `"reason":"idle"`},
	"not running":       {&sandbox.StateError{Short: "abc", Status: sandbox.Stopped, Text: sandbox.NotRunning}, 409, server.CodeNotRunning, `"detail":"Sandbox is not running"`},
	"other state":       {&sandbox.StateError{Short: "abc", Status: sandbox.Stopped, Text: "it is stopped"}, 409, server.CodeConflict, "abc"},
	"full":              {sandbox.TooMany(7, false), 429, server.CodeLimitExceeded, "Maximum number of sandboxes (7) reached"},
	"quota":             {sandbox.TooMany(7, true), 429, server.CodeQuotaExceeded, "(7)"},
	"clash":             {&sandbox.ClashError{Field: "name", Value: "web"}, 409, server.CodeAlreadyExists, "web"},
	"replay":            {&sandbox.ReplayError{}, 409, server.CodeConflict, "idempotency"},
	"draining":          {&sandbox.DrainingError{RetryAfter: 5 * time.Second}, 503, server.CodeUnavailable, "shutting down"},
	"unavailable":       {fmt.Errorf("%w: %w", errdefs.ErrUnavailable, errSecret), 503, server.CodeUnavailable, ""},
	"denied":            {errdefs.ErrPermissionDenied, 403, server.CodeForbidden, ""},
	"range":             {errdefs.ErrOutOfRange, 416, server.CodeOutOfRange, ""},
	"slow sender":       {os.ErrDeadlineExceeded, 408, server.CodeTimeout, ""},
	"own deadline":      {context.DeadlineExceeded, 503, server.CodeUnavailable, ""},
	"problem":           {server.NewProblem(server.CodeTooLarge, "too long"), 413, server.CodeTooLarge, `"detail":"too long"`},
	"code that is none": {server.NewProblem("nonsense", "secret"), 500, server.CodeInternal, ""},
}

// TestPanicCutsAnswer: what was begun must not look whole.
func TestPanicCutsAnswer(t *testing.T) {
	w := start(t, auth.Policy{NoAuth: true}, server.Options{}, server.Route{Pattern: "GET /x", Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusInternalServerError)
		_, _ = io.WriteString(w, "part")
		_ = http.NewResponseController(w).Flush()
		panic("in the middle")
	})})
	resp, err := w.client.Get(w.url + "/x")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if b, err := io.ReadAll(resp.Body); err == nil {
		t.Errorf("%q looks whole", b)
	}
	if !strings.Contains(w.log.String(), "in the middle") {
		t.Error("the log does not tell about the panic")
	}
}

func TestRetryAfter(t *testing.T) {
	w := start(t, auth.Policy{Rates: auth.Rates{PerKey: 0.01}}, server.Options{}, server.Route{Pattern: "GET /x", Handler: text("x")})
	w.do("GET", "/x", nil, "X-API-Key", w.user)
	resp, body := w.do("GET", "/x", nil, "X-API-Key", w.user)
	problem(t, resp, body, 429, server.CodeRateLimited)
	if after := resp.Header.Get("Retry-After"); !regexp.MustCompile(`^[0-9]{2,3}$`).MatchString(after) {
		t.Errorf("Retry-After is %q", after)
	}
}

func TestCodes(t *testing.T) {
	for code, status := range server.Codes() {
		if !regexp.MustCompile(`^[a-z_]+$`).MatchString(string(code)) || status < 400 || status > 599 {
			t.Errorf("%s has the status %d", code, status)
		}
		if p := server.NewProblem(code, ""); p.Detail == "" || p.GetStatus() != status {
			t.Errorf("%s is %+v", code, p)
		}
	}
}
