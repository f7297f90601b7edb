package rest

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"agentbox/internal/auth"
	"agentbox/internal/sandbox"
	"agentbox/internal/server"
)

type limitsInput struct {
	Body struct {
		Memory  *Size     `json:"memory,omitempty"`
		Timeout *Duration `json:"timeout,omitempty"`
		Labels  []struct {
			On Bool `json:"on"`
		} `json:"labels,omitempty"`
	}
}

// TestAPI08_Quantities: no spelling of a size or a duration becomes something
// else, above all not "without limit".
func TestAPI08_Quantities(t *testing.T) {
	var got limitsInput
	post := door(t, func(_ context.Context, _ sandbox.Caller, in *limitsInput) (*struct{}, error) {
		got = *in
		return nil, nil
	})
	for body, want := range map[string]any{
		`{"memory":1}`: int64(1), `{"memory":"512m"}`: int64(512 << 20), `{"memory":1e9}`: int64(1e9), `{"memory":9007199254740993}`: int64(9007199254740993),
		`{"memory":0}`: int64(0), `{"memory":-1}`: int64(-1), `{"memory":9223372036854775808}`: int64(math.MaxInt64), `{"memory":1e300}`: int64(math.MaxInt64), `{"memory":-1e300}`: int64(math.MinInt64),
		`{"timeout":90}`: 90 * time.Second, `{"timeout":"1m30s"}`: 90 * time.Second, `{"timeout":0.25}`: 250 * time.Millisecond, `{"timeout":"90"}`: 90 * time.Second,
		`{"timeout":-1}`: -time.Second, `{"timeout":1e12}`: time.Duration(math.MaxInt64), `{"timeout":-1e300}`: time.Duration(math.MinInt64), `{"timeout":1e400}`: time.Duration(math.MaxInt64), `{"memory":-1e400}`: int64(math.MinInt64),
	} {
		got = limitsInput{}
		status, answer := post(body)
		var have any
		if got.Body.Memory != nil {
			have = got.Body.Memory.Bytes
		} else if got.Body.Timeout != nil {
			have = got.Body.Timeout.Value
		}
		if status != 204 || have != want {
			t.Errorf("%s: %d %s, read as %v; want %v", body, status, answer, have, want)
		}
	}
	for body, want := range map[string]string{
		`{"memory":"4XB"}`: "size_parsing", `{"memory":"-1"}`: "size_parsing", `{"memory":0.5}`: "size_parsing", `{"memory":"NaN"}`: "size_parsing", `{"memory":[1]}`: "size_parsing",
		`{"memory":true}`: "size_parsing", `{"memory":""}`: "size_parsing", `{"memory":"1e9"}`: "size_parsing",
		`{"timeout":"soon"}`: "duration_parsing", `{"timeout":"-1s"}`: "duration_parsing", `{"timeout":{}}`: "duration_parsing", `{"timeout":"1e300"}`: "duration_parsing",
		`{"memory":NaN}`: "json_invalid", `{"timeout":Infinity}`: "json_invalid",
		`{"labels":[{"on":true},{"on":"maybe"}]}`: `"loc":["body","labels",1,"on"]`,
	} {
		if status, answer := post(body); status != 422 || !strings.Contains(answer, want) {
			t.Errorf("%s: %d %s; want %s", body, status, answer, want)
		}
	}
}

// door is a server with one route and no keys.
func door[I, O any](t *testing.T, f func(context.Context, sandbox.Caller, *I) (*O, error)) (post func(body string) (int, string)) {
	t.Helper()
	gate, err := auth.NewGate(nil, auth.Policy{NoAuth: true})
	if err != nil {
		t.Fatal(err)
	}
	s := server.New(server.Options{Gate: gate, Origins: gate.Origins(), NoAuth: true})
	a := New(s.Router(), Parts{})
	route(a, huma.Operation{OperationID: "test", Method: http.MethodPost, Path: "/test", DefaultStatus: http.StatusNoContent}, server.Route{}, f)
	h := s.Handler()
	return func(body string) (int, string) {
		r := httptest.NewRequest(http.MethodPost, "http://localhost"+Prefix+"/test", strings.NewReader(body))
		r.RemoteAddr = "127.0.0.1:1"
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code, fmt.Sprint(w.Body)
	}
}
