package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	"agentbox/internal/sandbox"
)

// The rows about faults. Each asks at its end what is left on the host.

// readyAgain starts the daemon again and returns how long it took until it was
// ready.
func (d *Daemon) readyAgain() time.Duration {
	d.t.Helper()
	began := time.Now()
	d.Start()
	if code := d.status("/readiness"); code != http.StatusOK {
		d.t.Errorf("/readiness: %d", code)
	}
	return time.Since(began)
}

// status of a path that is open without a key; 0: nobody answers.
func (d *Daemon) status(path string) int {
	resp, err := http.Get(d.URL + path) //nolint:noctx // it is local
	if err != nil {
		return 0
	}
	resp.Body.Close()
	return resp.StatusCode
}

// TestF01: twenty sandboxes outlive a kill of the daemon with all that runs in
// them, and the next daemon is ready at once.
func TestF01(t *testing.T) {
	t.Parallel()
	d := StartDaemon(t)
	before := d.HostState()
	const n = 20
	boxes := make([]*Box, n)
	var mu sync.Mutex
	i := 0
	parallel(n, 4, func() {
		mu.Lock()
		at := i
		i++
		mu.Unlock()
		boxes[at] = d.Box(d.Make(nil))
		boxes[at].Want("", "(i=0; while sleep 0.2; do i=$((i+1)); echo $i > /workspace/n.new; mv /workspace/n.new /workspace/n; done) >/dev/null 2>&1 &")
	})
	const first = "cut -d' ' -f22 /proc/1/stat" // when its first process began
	began := make([]string, n)
	counts := func() []int {
		all := make([]int, n)
		for i, b := range boxes {
			out := strings.Fields(string(b.Sh(first + "; cat /workspace/n 2>/dev/null || echo 0").Stdout))
			if len(out) != 2 || began[i] != "" && out[0] != began[i] {
				t.Fatalf("sandbox %d says %q, began %q", i, out, began[i])
			}
			began[i] = out[0]
			all[i], _ = strconv.Atoi(out[1])
		}
		return all
	}
	earlier := counts()
	d.Kill()
	starved := Starvation()
	took := d.readyAgain()
	starved = max(starved, Starvation())
	t.Logf("ready after %v; work takes %.1f times as long as on an idle machine", took.Round(time.Millisecond), starved)
	if took > time.Duration(5*starved*float64(time.Second))+Slack() {
		t.Errorf("ready after %v", took)
	}
	var all servedList
	d.Do(d.Key, "GET", "/sandboxes?status=running", "", &all)
	if len(all.Items) != n {
		t.Errorf("%d of %d run", len(all.Items), n)
	}
	Until(t, 10*time.Second, "all counters went on", func() bool {
		for i, c := range counts() {
			if c < earlier[i] {
				t.Fatalf("counter %d was %d and is %d", i, earlier[i], c)
			}
			if c < earlier[i]+2 {
				return false
			}
		}
		return true
	})
	for _, b := range boxes {
		if code := d.Do(d.Key, "DELETE", b.remote.at(""), "", nil); code != 204 {
			t.Errorf("delete: %d", code)
		}
	}
	d.WantState(before)
}

// TestF01_Frozen: sandboxes whose processes don't run hold up neither the next daemon
// nor the others.
func TestF01_Frozen(t *testing.T) {
	t.Parallel()
	d := StartDaemon(t)
	before := d.HostState()
	boxes := make([]*Box, 4)
	for i := range boxes {
		boxes[i] = d.Box(d.Make(nil))
		boxes[i].Want("", fmt.Sprint("echo ", i, " >/workspace/n"))
	}
	thawed, deleted := boxes[0], boxes[1]
	for _, b := range boxes[:2] {
		signalSandbox(t, b.remote.id, syscall.SIGSTOP)
	}
	d.Kill()
	if took := d.readyAgain(); took > 5*time.Second+Slack() {
		t.Errorf("ready after %v", took)
	}
	var all servedList
	d.Do(d.Key, "GET", "/sandboxes?status=running", "", &all)
	if len(all.Items) != len(boxes) {
		t.Errorf("%d of %d run", len(all.Items), len(boxes))
	}
	for i, b := range boxes[2:] {
		b.Want(fmt.Sprintln(2+i), "cat /workspace/n")
	}
	began := time.Now()
	if code := d.Do(d.Key, "DELETE", deleted.remote.at(""), "", nil); code != 204 {
		t.Errorf("delete: %d", code)
	}
	Within(t, began, 5*time.Second)
	signalSandbox(t, thawed.remote.id, syscall.SIGCONT)
	thawed.Want("0\n", "cat /workspace/n")
	for _, b := range []*Box{thawed, boxes[2], boxes[3]} {
		if code := d.Do(d.Key, "DELETE", b.remote.at(""), "", nil); code != 204 {
			t.Errorf("delete: %d", code)
		}
	}
	d.WantState(before)
}

// TestF03: a daemon that is killed while it makes a sandbox has it afterwards,
// whole, or nothing of it.
func TestF03(t *testing.T) {
	t.Parallel()
	d := StartDaemon(t)
	before := d.HostState()
	made, absent := 0, 0
	for i := range Sized(4, 100) {
		name := fmt.Sprint("n", i)
		done := make(chan error, 1)
		go func() {
			done <- d.ask(context.Background(), "POST", "/sandboxes", fmt.Sprintf(`{"name":%q}`, name), nil)
		}()
		time.Sleep(rand.N(500 * time.Millisecond)) // the moments that are tried
		d.Kill()
		answered := <-done == nil
		d.Start()
		var sb served
		switch code := d.Do(d.Key, "GET", "/sandboxes/"+name, "", &sb); {
		case code == 200 && sb.Status == "running":
			made++
			d.Box(sb.ID).Want("ok\n", "echo ok")
			if code := d.Do(d.Key, "DELETE", "/sandboxes/"+name, "", nil); code != 204 {
				t.Errorf("delete: %d", code)
			}
		case code == 404 && !answered:
			absent++
		default:
			t.Errorf("after the kill: %d %+v; create had answered: %v", code, sb, answered)
		}
		d.WantState(before)
	}
	t.Logf("%d were made, %d were not", made, absent)
}

// TestF04: a daemon that is killed while it destroys a sandbox goes on with that.
func TestF04(t *testing.T) {
	t.Parallel()
	d := StartDaemon(t)
	before := d.HostState()
	for range Sized(4, 100) {
		id := d.Make(nil)
		done := make(chan error, 1)
		go func() { done <- d.ask(context.Background(), "DELETE", "/sandboxes/"+id, "", nil) }()
		time.Sleep(rand.N(100 * time.Millisecond)) // the moments that are tried
		d.Kill()
		answered := <-done == nil
		d.Start()
		var p served
		code := d.Do(d.Key, "GET", "/sandboxes/"+id, "", &p)
		if answered && code != 404 {
			t.Errorf("after an answered DELETE: %d %+v", code, p)
		}
		if code == 404 && p.Reason != "destroyed" {
			t.Errorf("it is gone for %+v", p)
		}
		if err := d.ask(t.Context(), "DELETE", "/sandboxes/"+id, "", nil); err != nil && !errdefs.IsNotFound(err) {
			t.Errorf("delete again: %v", err)
		}
		d.WantState(before)
	}
}

// TestF07: a command that ran while the daemon was killed ran once, and its
// result is given.
func TestF07(t *testing.T) {
	t.Parallel()
	d := StartDaemon(t)
	box := d.Box(d.Make(nil))
	r := box.remote
	go func() {
		_ = r.call("POST", "/execute", `{"command":"echo ran >> /workspace/once; sleep 3.07; exit 7"}`, nil) // it is cut
	}()
	Until(t, 10*time.Second, "it runs", func() bool { return box.Count("3.07") > 0 })
	var all struct {
		Items []struct {
			ExecID  string `json:"exec_id"`
			Command []string
		}
	}
	d.Do(d.Key, "GET", r.at("/execs"), "", &all)
	id := ""
	for _, e := range all.Items {
		if strings.Contains(strings.Join(e.Command, " "), "once") {
			id = e.ExecID
		}
	}
	d.Kill()
	d.Start()
	var done struct {
		State  string
		Result *answered
	}
	if code := d.Do(d.Key, "POST", r.at("/execs/"+id+"/wait"), "", &done); code != 200 || done.State != "ended" || done.Result == nil || *done.Result.ExitCode != 7 {
		t.Errorf("wait for %q: %d %+v", id, code, done)
	}
	box.Want("ran\n", "cat /workspace/once")
}

// TestF09: a daemon that is told to stop under load takes nothing new, lets
// commands end, and leaves the sandboxes.
func TestF09(t *testing.T) {
	t.Parallel()
	d := StartDaemon(t, "--http-stop-grace", "8s")
	boxes := []*Box{d.Box(d.Make(nil)), d.Box(d.Make(nil))}
	type end struct {
		res *sandbox.Result
		err error
	}
	ends := make(chan end, 8)
	for i := range 8 {
		go func() {
			res, err := boxes[i%2].Try(sandbox.Command{Shell: "sleep 3.09; echo done"}, nil, output())
			ends <- end{res, err}
		}()
	}
	for _, b := range boxes {
		b.WaitCount("3.09", 8, 10*time.Second) // the shell and the sleep of each
	}
	if err := d.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	Until(t, time.Second, "it is not ready", func() bool { return d.status("/readiness") == http.StatusServiceUnavailable })
	var p *Problem
	err := d.ask(t.Context(), "POST", "/sandboxes", "{}", nil)
	if !asProblem(err, &p) || p.Status != http.StatusServiceUnavailable || p.Header.Get("Retry-After") == "" {
		t.Errorf("a create meanwhile: %v", err)
	}
	for range 8 {
		if e := <-ends; e.err != nil || string(e.res.Stdout) != "done\n" {
			t.Errorf("a command ended with %v, %v", e.res, e.err)
		}
	}
	_ = d.cmd.Wait() // the status says it
	if code := d.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("it ended with %d", code)
	}
	d.Start()
	for _, b := range boxes {
		b.Want("kept\n", "echo kept")
	}
}

// TestF11: the end of a sandbox's process is noticed at once, told, and leaves
// nothing.
func TestF11(t *testing.T) {
	t.Parallel()
	d := StartDaemon(t)
	before := d.HostState()
	id := d.Make(nil)
	s, err := d.Events(t.Context(), d.Key, "GET", "/sandboxes/"+id+"/events?follow=1", "")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	began := time.Now()
	killSandbox(t, id)
	for {
		ev, err := s.Next()
		if err != nil {
			t.Fatalf("no event tells of it: %v", err)
		}
		var said struct{ Status, Reason string }
		if json.Unmarshal([]byte(ev.Data), &said) == nil && said.Reason == "crashed" {
			break
		}
	}
	Within(t, began, 2*time.Second)
	var p served
	Until(t, 2*time.Second, "it is gone", func() bool { return d.Do(d.Key, "GET", "/sandboxes/"+id, "", &p) == 404 })
	if p.Reason != "crashed" {
		t.Errorf("it is gone for %+v", p)
	}
	if code := d.Do(d.Key, "DELETE", "/sandboxes/"+id, "", &p); code != 404 || p.Reason != "crashed" {
		t.Errorf("delete: %d %+v", code, p)
	}
	d.WantState(before)
}

// TestF13: a guest that kills its own first process harms itself at most, and is
// told why its sandbox is gone.
func TestF13(t *testing.T) {
	t.Parallel()
	d := StartDaemon(t)
	before := d.HostState()
	for _, line := range []string{"kill -9 1", "kill -SEGV 1", "kill -ABRT 1", "kill -TERM 1"} {
		id := d.Make(nil)
		box := d.Box(id)
		_, _ = box.Try(sandbox.Command{Shell: line, User: "root", Timeout: 5 * time.Second}, nil, output()) // it may go down with its sandbox
		var p *Problem
		res, err := box.Try(sandbox.Command{Shell: "echo ok", Timeout: 10 * time.Second}, nil, output())
		switch {
		case err == nil && string(res.Stdout) == "ok\n":
			t.Logf("%s: ignored", line)
		case asProblem(err, &p) && (p.Status == 404 || p.Status == 409):
			t.Logf("%s: %v", line, err)
			var gone served
			Until(t, 5*time.Second, "its end is told", func() bool { return d.Do(d.Key, "GET", "/sandboxes/"+id, "", &gone) == 404 })
			if gone.Reason != "exited" && gone.Reason != "crashed" {
				t.Errorf("%s: gone for %+v", line, gone)
			}
		default:
			t.Errorf("%s: then a command gives %v, %v", line, res, err)
		}
		d.Do(d.Key, "DELETE", "/sandboxes/"+id, "", nil)
	}
	d.WantState(before)
}

// TestF38: a client that is killed leaves a command that runs on with its result
// kept, if it waited, and none at all, if it followed the output.
func TestF38(t *testing.T) {
	t.Parallel()
	box := NewRemote(t, sandbox.Limits{})
	r := box.remote
	leave := func(path, line, mark string) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() {
			if resp, err := r.d.Admin().Request(ctx, "POST", r.at(path), strings.NewReader(encode(t, map[string]any{"command": line})), "Content-Type", "application/json"); err == nil {
				_, _ = io.Copy(io.Discard, resp.Body) // until it is cut
				resp.Body.Close()
			}
		}()
		Until(t, 10*time.Second, "it runs", func() bool { return box.Count(mark) > 0 })
	}
	leave("/execute", "sleep 3.38; echo kept", "3.38")
	leave("/execute/stream", "sleep 44.38", "44.38")
	cli := box.command("sleep", "55.38")
	if err := cli.Start(); err != nil {
		t.Fatal(err)
	}
	box.WaitCount("55.38", 1, 10*time.Second)
	_ = cli.Process.Kill()
	_ = cli.Wait() // it was killed
	const atOnce = 2 * time.Second
	box.WaitCount("55.38", 0, atOnce)
	box.WaitCount("44.38", 0, sandbox.DisconnectGrace+2*time.Second)
	box.WaitCount("3.38", 0, 10*time.Second)
	var all struct {
		Items []struct {
			ExecID  string `json:"exec_id"`
			Command []string
		}
	}
	r.d.Do(r.d.Key, "GET", r.at("/execs?limit=1000"), "", &all)
	for _, e := range all.Items {
		if strings.Contains(strings.Join(e.Command, " "), "sleep 3.38; echo kept") {
			var done struct{ Result answered }
			if code := r.d.Do(r.d.Key, "GET", r.at("/execs/"+e.ExecID), "", &done); code != 200 || done.Result.Stdout != "kept\n" {
				t.Errorf("its result: %d %+v", code, done)
			}
			return
		}
	}
	t.Error("the command of the waiting client is not listed")
}
