package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"agentbox/internal/nearest"
)

// apiError is a server's refusal, in its own words.
type apiError struct {
	Status     int
	Code       string
	Text       string
	first      int64 // of out_of_range: the first offset that is there
	retryAfter time.Duration
}

func (e *apiError) Error() string { return e.Text }

// refusal reads a server's error and adds what to do about it.
func (r *remote) refusal(ctx context.Context, path string, resp *http.Response, answer []byte) error {
	e := parseProblem(resp, answer)
	switch {
	case e.Code == "unauthenticated" && r.key == "":
		e.Text += "\n(set " + keyVariable + ", or add a profile; on the server's machine agentbox key create makes a key)"
	case e.Code == "unauthenticated":
		e.Text += "\n(the key is not this server's, or was revoked; on the server's machine agentbox key create makes another)"
	case e.Code == "forbidden":
		e.Text += "\n(on the server's machine agentbox key create --admin makes an admin's key)"
	case e.Status == http.StatusNotFound && e.Code == "":
		e.Text += fmt.Sprintf("\n(is %s an agentbox server of this version?)", r.where)
	case e.Code == "not_found" && e.Text == unknownSandbox:
		e.Text = r.unknown(ctx, path)
	}
	return e
}

// unknownSandbox is what a server says of a sandbox that never was.
const unknownSandbox = "Sandbox not found"

// parseProblem reads the body of an error, in both forms that the API has.
func parseProblem(resp *http.Response, answer []byte) *apiError {
	var p struct {
		Detail json.RawMessage `json:"detail"`
		Code   string          `json:"code"`
		Reason string          `json:"reason"`
	}
	e := &apiError{Status: resp.StatusCode}
	if first, err := strconv.ParseInt(resp.Header.Get("X-First-Offset"), 10, 64); err == nil {
		e.first = first
	}
	if seconds, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && seconds >= 0 {
		e.retryAfter = time.Duration(seconds) * time.Second
	}
	var fields []struct {
		Loc []any  `json:"loc"`
		Msg string `json:"msg"`
	}
	switch {
	case json.Unmarshal(answer, &p) != nil:
	case json.Unmarshal(p.Detail, &e.Text) == nil:
	case json.Unmarshal(p.Detail, &fields) == nil && len(fields) > 0:
		e.Text = strings.TrimSpace(fmt.Sprintln(append(fields[0].Loc, fields[0].Msg)...))
	}
	e.Code = p.Code
	if e.Text == "" {
		e.Text = "the server answered " + resp.Status
	}
	if p.Reason != "" {
		e.Text += " (" + p.Reason + ")"
	}
	return e
}

// unknown names the sandbox that was not found, and the one that was meant.
func (r *remote) unknown(ctx context.Context, path string) string {
	rest, _ := strings.CutPrefix(path, "/sandboxes/")
	end := strings.IndexAny(rest, "/?")
	if end < 0 {
		end = len(rest)
	}
	name, err := url.PathUnescape(rest[:end])
	if err != nil || name == "" {
		return unknownSandbox
	}
	text := fmt.Sprintf("no sandbox %q on the server", name)
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	names, err := r.names(ctx)
	if like := nearest.Name(name, names); err == nil && like != "" {
		return text + "; did you mean " + like + "?"
	}
	return text + "\n(agentbox ls lists them; those of agentbox run are in agentbox ps)"
}

// names are what the sandboxes of the server are called by: names, else short ids.
func (r *remote) names(ctx context.Context) ([]string, error) {
	all, _, err := onePage[sandboxRow](ctx, r, "/sandboxes", url.Values{"limit": {strconv.Itoa(maxPage)}})
	var names []string
	for i := range all {
		names = append(names, all[i].called())
	}
	return names, err
}
