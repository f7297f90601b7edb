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
	"agentbox/internal/packages"
)

// apiError is a server's refusal, in its own words.
type apiError struct {
	Status     int
	Code       string
	Text       string
	field      string // of invalid_value
	reason     string // of a sandbox's end
	first      int64  // of out_of_range: the first offset that is there
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
	case e.Status == http.StatusNotFound && e.Code == "":
		e.Text += fmt.Sprintf("\n(is %s an agentbox server of this version?)", r.where)
	case e.Code == "not_found" && e.Text == unknownSandbox:
		e.Text = r.unknown(ctx, path)
	case e.Code == "sandbox_destroyed" || e.Code == "sandbox_expired":
		if name := sandboxOf(path); name != "" {
			e.Text = fmt.Sprintf("sandbox %q is not there any more (%s)\n(agentbox ls lists those that are)", name, e.reason)
		}
	default:
		e.Text += advice(e, path)
	}
	return e
}

// advice is a further line for refusals about which another command helps.
func advice(e *apiError, path string) string {
	box := sandboxOf(path)
	switch {
	case e.Code == "forbidden" && strings.Contains(e.Text, "admin key"):
		return "\n(on the server's machine agentbox key create --admin makes an admin's key)"
	case e.Code == "forbidden" && strings.Contains(e.Text, "in allowed_hosts"):
		tool, _ := packages.Find(path[strings.LastIndex(path, "/")+1:])
		return fmt.Sprintf("\n(agentbox egress allow %s %s lets it reach them)", box, tool.Preset)
	case e.Code == "invalid_value" && e.field == "image":
		return "\n(on the server's machine agentbox images ls shows them, agentbox images pull and build get others)"
	case e.Code == "not_running" && e.Text == "Sandbox is not running" && box != "":
		return fmt.Sprintf("\n(agentbox start %s runs it again, if it was stopped)", box)
	case e.Code == "invalid_value" && e.field == "volumes" && strings.Contains(e.Text, "that you have made"):
		return "\n(agentbox volume create makes one, agentbox volume ls lists them)"
	case e.Code == "invalid_value" && e.field == "secrets" && strings.Contains(e.Text, "that you have set"):
		return "\n(agentbox secret set sets one, agentbox secret ls lists them)"
	case strings.Contains(e.Text, "is not on the list of the sandbox's network"):
		return fmt.Sprintf("\n(agentbox egress policy %s shows the list, and the numbers of what was denied and not decided)", box)
	case e.Code == "conflict" && strings.HasPrefix(e.Text, "volume ") && strings.Contains(e.Text, " is used by "):
		return "\n(agentbox rm of that sandbox frees it; agentbox volume ls says which sandbox has which)"
	case e.Code != "not_found":
		return ""
	}
	if name, ok := strings.CutPrefix(e.Text, "there is no session "); ok {
		if end := strings.IndexAny(name, ",;"); end >= 0 { // behind it are the others
			name = name[:end]
		}
		return fmt.Sprintf("\n(agentbox sessions create %s %s begins it)", box, name)
	}
	for beginning, command := range map[string]string{
		"there is no exec ":              "agentbox execs " + box,
		"there is no undecided request ": "agentbox egress policy " + box,
		"Volume not found":               "agentbox volume ls",
		"Key not found":                  "agentbox key ls",
		"Secret not found":               "agentbox secret ls",
	} {
		if strings.HasPrefix(e.Text, beginning) {
			return "\n(" + command + " lists them)"
		}
	}
	return ""
}

// unknownSandbox is what a server says of a sandbox that never was.
const unknownSandbox = "Sandbox not found"

// parseProblem reads the body of an error, in both forms that the API has.
func parseProblem(resp *http.Response, answer []byte) *apiError {
	var p struct {
		Detail json.RawMessage `json:"detail"`
		Code   string          `json:"code"`
		Reason string          `json:"reason"`
		Field  string          `json:"field"`
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
		e.Text = place(fields[0].Loc) + fields[0].Msg
	}
	e.Code, e.field, e.reason = p.Code, p.Field, p.Reason
	if e.Text == "" {
		e.Text = "the server answered " + resp.Status
	}
	if p.Reason != "" {
		e.Text += " (" + p.Reason + ")"
	}
	return e
}

// place is where in a request something is wrong, before what it is: field.part: …
func place(loc []any) string {
	if len(loc) > 0 && (loc[0] == "body" || loc[0] == "query") {
		loc = loc[1:]
	}
	parts := make([]string, len(loc))
	for i := range loc {
		parts[i] = fmt.Sprint(loc[i])
	}
	if len(parts) == 0 {
		return ""
	}
	return strings.Join(parts, ".") + ": "
}

// sandboxOf is the sandbox that a path is about, as its user called it; "" without one.
func sandboxOf(path string) string {
	rest, ok := strings.CutPrefix(path, "/sandboxes/")
	if end := strings.IndexAny(rest, "/?"); end >= 0 {
		rest = rest[:end]
	}
	name, err := url.PathUnescape(rest)
	if !ok || err != nil {
		return ""
	}
	return name
}

// unknown names the sandbox that was not found, and the one that was meant.
func (r *remote) unknown(ctx context.Context, path string) string {
	name := sandboxOf(path)
	if name == "" {
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
