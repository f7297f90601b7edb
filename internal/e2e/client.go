package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"agentbox/internal/server/rest/resttest"
)

// api begins the paths of the native REST API.
const api = "/api/v1"

// upgrade are the headers that ask for a WebSocket.
var upgrade = []string{"Connection", "Upgrade", "Upgrade", "websocket", "Sec-WebSocket-Version", "13", "Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="}

// served is what the tests look at of a sandbox, and of an error.
type served struct {
	ID      string `json:"id"`
	ShortID string `json:"short_id"`
	Status  string `json:"status"`
	Detail  string `json:"detail"`
	Code    string `json:"code"`
	Reason  string `json:"reason"`
}

// executed is what a client of the oldest contract looks at.
type executed struct {
	ExitCode int    `json:"exit_code"`
	Output   string `json:"output"`
}

// servedList is a page of sandboxes.
type servedList struct {
	Items []served `json:"items"`
}

// Client sends requests to a daemon with a key; without one if that is empty.
type Client struct {
	t   testing.TB
	d   *Daemon
	Key string
}

// As is who has a key of the daemon.
func (d *Daemon) As(key string) *Client { return &Client{d.t, d, key} }

// Tenant makes a key of an owner.
func (d *Daemon) Tenant(owner string) *Client {
	d.t.Helper()
	var made struct{ Key string }
	if code := d.Do(d.Key, "POST", "/keys", `{"owner":"`+owner+`"}`, &made); code != http.StatusCreated {
		d.t.Fatalf("make a key of %s: %d", owner, code)
	}
	return d.As(made.Key)
}

// Admin is who has the daemon's first key; without keys it is everybody.
func (d *Daemon) Admin() *Client { return d.As(d.Key) }

// Answer is what a daemon answered.
type Answer struct {
	Code   int
	Header http.Header
	Text   string
}

// problem is the one form of errors, for values and rights.
type problem struct {
	Detail, Code, Field string
	RequestID           string `json:"request_id"`
}

// Problem is the error in an answer; the zero value if it has another form.
func (a Answer) Problem() (p problem) {
	_ = json.Unmarshal([]byte(a.Text), &p) // a list of details leaves the rest empty
	return p
}

func (a Answer) String() string { return fmt.Sprintf("%d %.300s", a.Code, a.Text) }

// Refused reports whether the request was the caller's mistake, and said so.
func (a Answer) Refused() bool {
	return a.Code >= 400 && a.Code < 500 && strings.Contains(a.Text, `"detail"`)
}

// Send sends a request; the path is all that stands behind the host, headers come
// in pairs. A body that is not empty is JSON unless a header says otherwise.
func (c *Client) Send(method, path, body string, headers ...string) Answer {
	c.t.Helper()
	return c.Stream(method, path, strings.NewReader(body), headers...)
}

// Stream is Send with a body of any length, which is sent in chunks if its length
// is not known.
func (c *Client) Stream(method, path string, body io.Reader, headers ...string) Answer {
	c.t.Helper()
	a, err := c.Try(method, path, body, headers...)
	if err != nil {
		c.t.Fatalf("%s %s: %v", method, path, err)
	}
	return a
}

// Try is Stream for connections that may break.
func (c *Client) Try(method, path string, body io.Reader, headers ...string) (Answer, error) {
	resp, err := c.Open(c.t.Context(), method, path, body, headers...)
	if err != nil {
		return Answer{}, err
	}
	defer resp.Body.Close()
	a := Answer{Code: resp.StatusCode, Header: resp.Header}
	if a.Code == http.StatusSwitchingProtocols {
		return a, nil
	}
	text, err := io.ReadAll(resp.Body)
	a.Text = string(text)
	return a, err
}

// Open sends a request, as all others do by it, and leaves the answer's body to the
// caller. It ends with ctx.
func (c *Client) Open(ctx context.Context, method, path string, body io.Reader, headers ...string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, c.d.URL+path, body)
	if err != nil {
		return nil, err
	}
	if r.ContentLength > 0 {
		r.Header.Set("Content-Type", "application/json")
	}
	if c.Key != "" {
		r.Header.Set("Authorization", "Bearer "+c.Key)
	}
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Host" {
			r.Host = headers[i+1]
			continue
		}
		r.Header.Set(headers[i], headers[i+1])
	}
	return http.DefaultClient.Do(r)
}

// Create makes a sandbox.
func (c *Client) Create(body string) served {
	c.t.Helper()
	a := c.Send("POST", api+"/sandboxes", body)
	var sb served
	if err := json.Unmarshal([]byte(a.Text), &sb); err != nil || a.Code != http.StatusCreated {
		c.t.Fatalf("create %s: %v", body, a)
	}
	return sb
}

// Sandboxes are the ids of the tenant's sandboxes.
func (c *Client) Sandboxes() (ids []string) {
	c.t.Helper()
	var list servedList
	if a := c.Send("GET", api+"/sandboxes", ""); json.Unmarshal([]byte(a.Text), &list) != nil || a.Code != http.StatusOK {
		c.t.Fatalf("list: %v", a)
	}
	for _, sb := range list.Items {
		ids = append(ids, sb.ID)
	}
	return ids
}

// Sh runs a command line in a sandbox, which must answer, and gives its output.
func (c *Client) Sh(id, line string) string {
	c.t.Helper()
	body, err := json.Marshal(map[string]string{"command": line})
	if err != nil {
		c.t.Fatal(err)
	}
	a := c.Send("POST", api+"/sandboxes/"+id+"/execute", string(body))
	var res executed
	if err := json.Unmarshal([]byte(a.Text), &res); err != nil || a.Code != http.StatusOK {
		c.t.Fatalf("%s: %v", line, a)
	}
	return res.Output
}

// Background starts a command line and gives its id.
func (c *Client) Background(id, line string) string {
	c.t.Helper()
	body, err := json.Marshal(map[string]any{"command": line, "detach": true})
	if err != nil {
		c.t.Fatal(err)
	}
	var job struct {
		ExecID string `json:"exec_id"`
	}
	a := c.Send("POST", api+"/sandboxes/"+id+"/execute", string(body))
	if err := json.Unmarshal([]byte(a.Text), &job); err != nil || a.Code != http.StatusAccepted {
		c.t.Fatalf("%s: %v", line, a)
	}
	return job.ExecID
}

// CLI calls the binary as a client of the daemon's port, with the same key.
func (c *Client) CLI(args ...string) Out {
	c.t.Helper()
	return runWith(c.t, 5*time.Minute, []string{"AGENTBOX_URL=" + c.d.URL, "AGENTBOX_API_KEY=" + c.Key}, "", args...)
}

// Read gives a file of a sandbox.
func (c *Client) Read(id, path string) Answer {
	c.t.Helper()
	return c.Send("GET", api+"/sandboxes/"+id+"/files?path="+url.QueryEscape(path), "")
}

// Write writes a file of a sandbox.
func (c *Client) Write(id, path, content string) Answer {
	c.t.Helper()
	return c.Send("PUT", api+"/sandboxes/"+id+"/files?path="+url.QueryEscape(path), content, "Content-Type", "application/octet-stream")
}

// Raw sends bytes that need be no request and gives what comes back until the
// daemon closes. Unless they ask it to, they are all that it gets.
func (d *Daemon) Raw(request string) string {
	d.t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(d.URL, "http://"))
	if err != nil {
		d.t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(30*time.Second + Slack()))
	_, _ = io.WriteString(conn, request) // it may be cut off before its end
	if !strings.Contains(request, "Connection: close\r\n") {
		_ = conn.(*net.TCPConn).CloseWrite() // the daemon may have closed it all
	}
	text, _ := io.ReadAll(bufio.NewReader(io.LimitReader(conn, 1<<20)))
	return string(text)
}

// Routes are the patterns of the daemon's OpenAPI document, and those of the door that
// has none.
func (d *Daemon) Routes() (patterns []string) {
	d.t.Helper()
	a := d.Admin().Send("GET", "/openapi.json", "")
	var document struct{ Paths map[string]map[string]any }
	if err := json.Unmarshal([]byte(a.Text), &document); err != nil || a.Code != http.StatusOK {
		d.t.Fatalf("the OpenAPI document: %v", a)
	}
	for path, methods := range document.Paths {
		for method := range methods {
			patterns = append(patterns, strings.ToUpper(method)+" "+path)
		}
	}
	if len(patterns) < 50 {
		d.t.Fatalf("the OpenAPI document has only %d routes", len(patterns))
	}
	patterns = slices.AppendSeq(patterns, maps.Keys(resttest.Projects))
	return slices.AppendSeq(patterns, maps.Keys(resttest.InProject))
}

// quoted puts a text into JSON.
func quoted(format, s string) string {
	text, _ := json.Marshal(s) // a text always can
	return fmt.Sprintf(format, text)
}
