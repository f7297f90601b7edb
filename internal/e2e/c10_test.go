package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"agentbox/internal/guest/client"
	"agentbox/internal/sandbox"
)

// events runs a command as a stream of events in a remote sandbox.
func (b *Box) events(ctx context.Context, fields map[string]any) *EventStream {
	b.t.Helper()
	r := b.remote
	s, err := r.d.Events(ctx, r.d.Key, "POST", r.at("/execute/stream"), encode(b.t, fields))
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(s.Close)
	return s
}

// next is the next event, which must be of that name.
func (s *EventStream) want(t testing.TB, name string, to any) Event {
	t.Helper()
	ev, err := s.Next()
	if err != nil || ev.Name != name {
		t.Fatalf("got event %+v, %v; want %s", ev, err, name)
	}
	if err := json.Unmarshal([]byte(ev.Data), to); err != nil {
		t.Fatalf("event %+v: %v", ev, err)
	}
	return ev
}

type outputData struct {
	Offset int64
	Data   string
}

// TestB072: events come when their output does.
func TestB072(t *testing.T) {
	t.Parallel()
	box := SharedRemote(t)
	s := box.events(t.Context(), map[string]any{"command": "for i in 1 2 3 4; do echo $i; sleep 1; done"})
	var start answered
	s.want(t, "start", &start)
	var first time.Time
	for i := 1; i <= 4; i++ {
		var o outputData
		if s.want(t, "stdout", &o); o.Data != fmt.Sprintf("%d\n", i) {
			t.Errorf("output %d is %+v", i, o)
		}
		if i == 1 {
			first = s.Last
		}
	}
	if spread := s.Last.Sub(first); spread < 2500*time.Millisecond {
		t.Errorf("the first and the last line are %v apart: they were held back", spread)
	}
	var end answered
	if s.want(t, "exit", &end); end.ExitCode == nil || *end.ExitCode != 0 || end.ExecID != start.ExecID {
		t.Errorf("it ends with %+v", end)
	}
}

// TestB074: a long stream ends with its one last event and a whole answer, for
// curl as for Go.
func TestB074(t *testing.T) {
	t.Parallel()
	box := SharedRemote(t)
	r := box.remote
	body := `{"command":"seq 1 20000"}`
	want := &strings.Builder{}
	for i := 1; i <= 20000; i++ {
		fmt.Fprintln(want, i)
	}
	parallel(Sized(16, 150), 8, func() {
		out, err := exec.Command("curl", "-sN", "--http1.1", "-H", "Authorization: Bearer "+r.d.Key, "-H", "Content-Type: application/json",
			"-d", body, r.d.URL+"/api/v1"+r.at("/execute/stream")).Output()
		events := strings.Split(strings.TrimSuffix(string(out), "\n\n"), "\n\n")
		if last := events[len(events)-1]; err != nil || strings.Count(string(out), "event: exit") != 1 || !strings.Contains(last, "event: exit") {
			t.Errorf("curl: %v, the last event of %d is %q", err, len(events), last)
		}
	})
	parallel(Sized(16, 150), 8, func() {
		var got strings.Builder
		res, err := box.Try(sandbox.Command{Shell: "seq 1 20000", MaxOutput: -1}, nil, client.Output{Stdout: &got})
		if err != nil || res.ShellCode() != 0 || got.String() != want.String() {
			t.Errorf("got %d bytes, %v, %v", got.Len(), res, err)
		}
	})
}

// TestB075: what can't run is told in the stream, without null in place of lists
// and texts.
func TestB075(t *testing.T) {
	t.Parallel()
	s := SharedRemote(t).events(t.Context(), map[string]any{"command": []string{"/nonexistent"}})
	said := ""
	for {
		ev, err := s.Next()
		if err != nil {
			t.Fatal(err)
		}
		var fields map[string]any
		if err := json.Unmarshal([]byte(ev.Data), &fields); err != nil {
			t.Fatal(err)
		}
		for name, v := range fields {
			if v == nil && name != "signal" { // the one field that has none here, and says so in the document
				t.Errorf("event %s: %s is null", ev.Name, name)
			}
		}
		switch ev.Name {
		case "stderr":
			said += fmt.Sprint(fields["data"])
		case "exit":
			said += fmt.Sprint(fields["reason"])
			if fields["exit_code"] != 127.0 || !strings.Contains(said, "/nonexistent") {
				t.Errorf("it ends with %s after %q", ev.Data, said)
			}
			return
		}
	}
}

// rudely sends a request for a stream, waits until its command runs and cuts the
// connection, by a FIN or a RST.
func rudely(t *testing.T, box *Box, fields map[string]any, running string, rst bool) {
	t.Helper()
	r := box.remote
	body := encode(t, fields)
	conn, err := net.Dial("tcp", strings.TrimPrefix(r.d.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(conn, "POST /api/v1%s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
		r.at("/execute/stream"), conn.RemoteAddr(), r.d.Key, len(body), body)
	box.WaitCount(running, 1, 10*time.Second)
	if rst {
		_ = conn.(*net.TCPConn).SetLinger(0)
	}
	_ = conn.Close()
}

// TestB078: the command of a stream whose client went away is killed after the
// grace; a detached one goes on and can be followed again.
func TestB078(t *testing.T) {
	t.Parallel()
	box := NewRemote(t, sandbox.Limits{})
	const detached = "while sleep 0.37878"
	rudely(t, box, map[string]any{"command": "i=0; " + detached + "; do i=$((i+1)); echo line$i; done", "detach": true}, detached, true)
	for i, rst := range []bool{true, false} {
		loop := fmt.Sprintf("while sleep 0.%d7878", i+1)
		rudely(t, box, map[string]any{"command": fmt.Sprintf("%s; do echo x >> /workspace/t%d; done", loop, i)}, loop, rst)
	}
	began := time.Now()
	for i, rst := range []bool{true, false} {
		box.WaitCount(fmt.Sprintf("while sleep 0.%d7878", i+1), 0, sandbox.DisconnectGrace+2*time.Second)
		before := box.Sh(fmt.Sprintf("wc -l < /workspace/t%d", i))
		res := box.Sh(fmt.Sprintf("sleep 1; wc -l < /workspace/t%d", i))
		if string(res.Stdout) != string(before.Stdout) || len(before.Stdout) == 0 {
			t.Errorf("RST %v: it wrote %q lines, and later %q", rst, before.Stdout, res.Stdout)
		}
	}
	if time.Since(began) < sandbox.DisconnectGrace/2 {
		t.Error("they were killed before the grace was over")
	}
	var all struct {
		Items []struct {
			ExecID string `json:"exec_id"`
			State  string
		}
	}
	r := box.remote
	found := ""
	r.d.Do(r.d.Key, "GET", r.at("/execs"), "", &all)
	for _, e := range all.Items {
		if e.State == "running" {
			found = e.ExecID
		}
	}
	s, err := r.d.Events(t.Context(), r.d.Key, "GET", r.at("/execs/"+found+"/output"), "")
	if err != nil {
		t.Fatalf("follow %q again: %v", found, err)
	}
	defer s.Close()
	for text := ""; !strings.Contains(text, "line1\n") || strings.Count(text, "\n") < 18; {
		ev, err := s.Next()
		if err != nil {
			t.Fatalf("after %q: %v", text, err)
		}
		var o outputData
		if ev.Name == "stdout" && json.Unmarshal([]byte(ev.Data), &o) == nil {
			text += o.Data
		}
	}
}

// TestB080: a command in the background is found again after a while, from its
// first output on or from where its client was.
func TestB080(t *testing.T) {
	t.Parallel()
	box := NewRemote(t, sandbox.Limits{})
	r := box.remote
	lines, every, later := Sized(20, 200), "0.3", 2*time.Second
	if Soak() {
		every, later = "1", 130*time.Second
	}
	var job answered
	body := map[string]any{"command": fmt.Sprintf("for i in $(seq %d); do echo $i; sleep %s; done", lines, every), "detach": true}
	if code := r.d.Do(r.d.Key, "POST", r.at("/execute"), encode(t, body), &job); code != http.StatusAccepted {
		t.Fatalf("a command in the background: %d", code)
	}
	time.Sleep(later) // nobody looks at it
	want := &strings.Builder{}
	for i := 1; i <= lines; i++ {
		fmt.Fprintln(want, i)
	}
	var wg sync.WaitGroup
	for _, skip := range []int64{0, 4} { // 1\n2\n
		wg.Go(func() {
			s, err := r.d.Events(t.Context(), r.d.Key, "GET", r.at("/execs/"+job.ExecID+"/output"), "", "Last-Event-ID", fmt.Sprintf("%d-0", skip))
			if err != nil {
				t.Error(err)
				return
			}
			defer s.Close()
			text, live := "", 0
			for {
				ev, err := s.Next()
				if err != nil {
					t.Errorf("after %q: %v", text, err)
					return
				}
				var o outputData
				var end answered
				switch {
				case ev.Name == "stdout" && json.Unmarshal([]byte(ev.Data), &o) == nil:
					text += o.Data
					live++
				case ev.Name == "exit" && json.Unmarshal([]byte(ev.Data), &end) == nil:
					if text != want.String()[skip:] || end.ExitCode == nil || *end.ExitCode != 0 || live < 4 {
						t.Errorf("from %d: %q in %d events, then %s", skip, text, live, ev.Data)
					}
					return
				}
			}
		})
	}
	wg.Wait()
}

// TestB083: a result has all that was written before the command ended.
func TestB083(t *testing.T) {
	t.Parallel()
	box := SharedRemote(t)
	parallel(Sized(150, 1000), 16, func() {
		res, err := box.Try(sandbox.Command{Shell: "echo a; echo b >&2"}, nil, output())
		if err != nil {
			t.Error(err)
			return
		}
		WantExit(t, res, 0, "a\n", "b\n")
	})
}
