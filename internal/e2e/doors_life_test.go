package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	sandboxv1 "agentbox/internal/gen/sandbox/v1"
	"agentbox/internal/ids"
)

// What goes on in a sandbox keeps it, and ends with it, at all doors.

// held is something that goes on in a sandbox: it begins, and is over when it returns.
type held struct {
	name string
	hold func(ctx context.Context, id string) (told string)
}

// lasting is what goes on where that is a command.
const lasting = "touch began.$$; sleep 1000"

// holds are all kinds of what can go on.
func (c *Client) holds() []held {
	body := encode(c.t, map[string]any{"command": lasting, "timeout": 600})
	plain := func(method, path, body string, headers ...string) func(context.Context, string) string {
		return func(ctx context.Context, id string) string {
			resp, err := c.Open(ctx, method, strings.ReplaceAll(path, "{id}", id), strings.NewReader(body), headers...)
			if err != nil {
				return err.Error()
			}
			defer resp.Body.Close()
			text, err := io.ReadAll(resp.Body)
			return fmt.Sprint(resp.StatusCode, " ", string(text), err)
		}
	}
	all := []held{
		{"native, waiting", plain("POST", api+"/sandboxes/{id}/execute", body)},
		{"native, streaming", plain("POST", api+"/sandboxes/{id}/execute/stream", body, "Accept", "text/event-stream")},
		{"/api/sandboxes", plain("POST", "/api/sandboxes/{id}/execute", encode(c.t, map[string]any{"command": []string{"sh", "-c", lasting}, "timeout": 600}))},
		{"terminal", c.terminal},
		{"upload", c.slowUpload},
	}
	for protocol := range protocols {
		rpc := c.RPC(protocol)
		all = append(all,
			held{protocol + ", waiting", func(ctx context.Context, id string) string {
				a, err := rpc.Exec(ctx, &sandboxv1.ExecRequest{SessionId: id, Command: lasting, Timeout: 600})
				return fmt.Sprint(a, err)
			}},
			held{protocol + ", streaming", func(ctx context.Context, id string) string {
				told, err := rpc.follow(ctx, id, lasting)
				return fmt.Sprint(told, err)
			}})
	}
	return all
}

// terminal types the command into a terminal.
func (c *Client) terminal(ctx context.Context, id string) string {
	w, err := (&Box{t: c.t, remote: &restBox{d: &Daemon{t: c.t, URL: c.d.URL, Key: c.Key}, id: id}}).dialTerminal("")
	if err != nil {
		return err.Error()
	}
	defer w.Drop()
	defer context.AfterFunc(ctx, w.Drop)()
	w.Type(lasting + "\r")
	<-w.done
	w.mu.Lock()
	defer w.mu.Unlock()
	return fmt.Sprint(w.texts, w.err)
}

// slowUpload sends a byte of a file now and then.
func (c *Client) slowUpload(ctx context.Context, id string) string {
	up, err := c.GRPC().UploadFile(ctx)
	for err == nil {
		err = up.Send(&sandboxv1.UploadFileRequest{SessionId: id, Path: "began.upload", Mode: "a", Data: []byte("x")})
		select {
		case <-ctx.Done():
		case <-time.After(2 * time.Second): // longer than what is idle here
		}
	}
	if errors.Is(err, io.EOF) { // the answer says why
		_, err = up.CloseAndReceive()
	}
	return fmt.Sprint(err)
}

// begin begins one in a sandbox, and tells what came of it.
func (c *Client) begin(h held, id string) (over <-chan string, end func()) {
	ctx, cancel := context.WithCancel(c.t.Context())
	told := make(chan string, 1)
	go func() { told <- h.hold(ctx, id) }()
	return told, cancel
}

// began waits until so many have begun.
func (c *Client) began(id string, n int) {
	c.t.Helper()
	got := 0
	Until(c.t, soon, "all to begin", func() bool {
		got = strings.Count(c.Send("GET", api+"/sandboxes/"+id+"/files/list?path=/workspace", "").Text, `"began.`)
		return got >= n
	})
}

// TestX6: a sandbox in which something goes on is not idle, whatever it is and by
// whichever door; when that is over it is.
func TestX6(t *testing.T) {
	t.Parallel()
	d := StartDaemon(t)
	c := d.Admin()
	going := map[string]func(){}
	idle := func(id string) {
		t.Helper()
		if a := c.Send("PATCH", api+"/sandboxes/"+id, `{"idle_timeout":1}`); a.Code != 200 {
			t.Fatalf("%v", a)
		}
	}
	for i, h := range c.holds() {
		if strings.HasPrefix(h.name, "Connect") && i%2 == 0 {
			continue // the other kind of command is held for this protocol
		}
		id := c.Create(`{"idle_timeout":0,"memory":"128m"}`).ID
		over, end := c.begin(h, id)
		going[id] = end
		go func() { <-over }()
	}
	for id := range going {
		c.began(id, 1)
		idle(id)
	}
	control := c.Create(`{"memory":"128m"}`).ID
	idle(control)
	Until(t, 2*time.Second+soon, "the idle one to go", func() bool { return !slices.Contains(c.Sandboxes(), control) })
	if got := c.Sandboxes(); len(got) != len(going) {
		t.Errorf("of %d in which something goes on there are %v", len(going), got)
	}
	for id, end := range going {
		c.Sh(id, "pkill -x sleep; true") // a command that is waited for outlives its client
		end()
	}
	Until(t, 2*time.Second+soon, "all to go", func() bool { return len(c.Sandboxes()) == 0 })
}

// TestX23: all that goes on in a sandbox ends when it is destroyed, by whichever door,
// at once and with a reason.
func TestX23(t *testing.T) {
	c := sharedCrossed(t)
	destroyers := c.ways
	made := c.makeByAll("x23-" + ids.Hex(3))
	for i, maker := range makers {
		id := made[maker][0]
		over := map[string]<-chan string{}
		for _, h := range c.holds() {
			told, end := c.begin(h, id)
			defer end()
			over[h.name] = told
		}
		c.began(id, len(over))
		began := time.Now()
		w := destroyers[i]
		if got := w.destroy(id); strings.Contains(got, "false") {
			t.Errorf("%s destroys what %s made: %s", w.name, maker, got)
		}
		for name, told := range over {
			select {
			case got := <-told:
				if !reasonable(got) {
					t.Errorf("%s ended with no reason by %s: %s", name, w.name, got)
				}
			case <-time.After(soon + Slack()):
				t.Errorf("%s goes on", name)
			}
		}
		t.Logf("all ended %v after %s began to destroy it", time.Since(began), w.name)
	}
}

// reasonable reports whether an answer says that the sandbox is no more.
func reasonable(told string) bool {
	return slices.ContainsFunc([]string{"was destroyed", "is destroying", "Sandbox is not running", "Session not found", "Sandbox not found", "destroyed"}, func(text string) bool { return strings.Contains(told, text) })
}

// TestX21: of 100 MB of output the server keeps no more than a command's output may have,
// and says that there was more; what is streamed it does not keep.
func TestX21(t *testing.T) {
	t.Parallel()
	d := StartDaemon(t)
	c := d.Admin()
	const most, large, line = 10_000_000, 100_000_000, `head -c 100000000 /dev/zero | tr '\0' x`
	id := c.Create(`{}`).ID
	for _, w := range c.ways() {
		if w.name == "command line" || w.name == "gRPC-Web" || w.name == "Connect" {
			continue // the first streams, the others are gRPC in another frame
		}
		grown := d.Growth()
		got := w.run(id, line, 300)
		if n := len(got.stdout); n < most || n > most+64 || !got.cut || !strings.HasSuffix(got.stdout, "\n... [output truncated]") || got.code != 0 {
			t.Errorf("%s: %d bytes, cut: %v, exit %d %.200s", w.name, n, got.cut, got.code, got.stderr)
		}
		grew := grown()
		t.Logf("%s: the server grew by %d MiB", w.name, grew>>20)
		if grew > 64<<20 { // the output, its form in the answer, and what of earlier ones is not given back yet
			t.Errorf("%s: the server grew by %d MiB", w.name, grew>>20)
		}
	}
	grown := d.Growth()
	if got, err := c.GRPC().follow(t.Context(), id, line); err != nil || len(got) != large+len(" exit 0") {
		t.Errorf("streamed: %d bytes, %v", len(got), err)
	}
	if grew := grown(); grew > 32<<20 {
		t.Errorf("streamed: the server grew by %d MiB", grew>>20)
	}
}

// TestX24: each action by each door is recorded, with who did it, where, when and by
// which request; so is a caller who is refused.
func TestX24(t *testing.T) {
	t.Parallel()
	d := SharedDaemon(t)
	owner := "audit-" + ids.Hex(3)
	for _, w := range d.Tenant(owner).ways() {
		c := d.Tenant(owner) // a key for each way
		for _, mine := range c.ways() {
			if mine.name == w.name {
				w = mine
			}
		}
		id := w.make("x24-" + ids.Hex(3))
		full := c.forms(id)[0]
		w.run(id, "echo in the command", 60)
		want := []string{"create", "destroy", "exec"}
		ok := true
		switch rpc, isRPC := protocols[w.name]; {
		case isRPC:
			r := c.RPC(w.name)
			r.write(id, "f", "secret content", "")
			r.read(id, "f")
			want, _ = append(want, "file_read", "file_write"), rpc
		case w.name == "command line":
			ok = c.CLI("stop", id).Code == 0 && c.CLI("start", id).Code == 0 && c.CLI("files", "ls", id, "/").Code == 0
			want = append(want, "stop", "start", "file_read")
		case w.name == "native":
			for _, path := range []string{"/stop", "/start"} {
				ok = ok && c.Send("POST", api+"/sandboxes/"+id+path, "").Code == 200
			}
			ok = ok && c.Write(id, "f", "secret content").Code/100 == 2 && c.Read(id, "f").Code == 200
			want = append(want, "stop", "start", "file_read", "file_write")
		default:
			for _, path := range []string{"/stop", "/start"} {
				ok = ok && c.Send("POST", "/api/sandboxes/"+id+path, "").Code == 200
			}
			want = append(want, "stop", "start")
		}
		if !ok {
			t.Errorf("%s could not do its work", w.name)
		}
		w.destroy(id)
		records := d.records(full)
		var got []string
		key := records[0].KeyID
		for _, r := range records {
			got = append(got, r.Action)
			if r.Owner != owner || r.KeyID == "" || r.KeyID != key || r.RequestID == "" || r.Result != "ok" || time.Since(r.Time) > time.Hour || strings.Contains(fmt.Sprint(r.Details), "secret content") {
				t.Errorf("%s: a record is %+v", w.name, r)
			}
			if r.Action == "exec" && !strings.Contains(fmt.Sprint(r.Details), "echo in the command") {
				t.Errorf("%s: the command is in no detail: %+v", w.name, r)
			}
		}
		slices.Sort(want)
		slices.Sort(got)
		if got = slices.Compact(got); !slices.Equal(got, want) {
			t.Errorf("%s: recorded are %q, want %q", w.name, got, want)
		}
	}
	before := len(d.refusals())
	for _, w := range d.As("abx_" + strings.Repeat("0", 40)).ways() {
		if got := w.run("none", "true", 10); !strings.Contains(got.stderr, "API key") {
			t.Errorf("%s with a wrong key: %+v", w.name, got)
		}
	}
	if n := len(d.refusals()) - before; n < len(protocols)+3 {
		t.Errorf("%d refusals are recorded", n)
	}
}

// record is one of the audit log.
type record struct {
	Time          time.Time
	Action, Owner string
	KeyID         string `json:"key_id"`
	Details       map[string]string
	RequestID     string `json:"request_id"`
	Result        string
}

func (d *Daemon) audit(query string) []record {
	d.t.Helper()
	var page struct{ Items []record }
	a := d.Admin().Send("GET", api+"/audit?all=1&limit=1000&"+query, "")
	if err := json.Unmarshal([]byte(a.Text), &page); err != nil || a.Code != http.StatusOK {
		d.t.Fatalf("the audit log: %v", a)
	}
	return page.Items
}

// records are those of a sandbox.
func (d *Daemon) records(id string) []record {
	d.t.Helper()
	all := d.audit("sandbox=" + id)
	if len(all) == 0 {
		d.t.Fatalf("nothing is recorded of %s", id)
	}
	return all
}

func (d *Daemon) refusals() []record { return d.audit("action=auth_refused") }
