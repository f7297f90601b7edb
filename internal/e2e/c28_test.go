package e2e

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"agentbox/internal/sandbox"
)

// asProblem reports an error that is an answer of the REST API.
func asProblem(err error, p **Problem) bool { return errors.As(err, p) }

// TestB180: what a DELETE took away does not come back by a start that was under
// way.
func TestB180(t *testing.T) {
	t.Parallel()
	d := StartDaemon(t)
	before := d.HostState()
	var gone []string
	n := Sized(4, 100)
	for i := range n {
		id := d.Make(nil)
		if code := d.Do(d.Key, "POST", "/sandboxes/"+id+"/stop", "", nil); code != 200 {
			t.Fatalf("stop: %d", code)
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			var p *Problem
			err := d.ask(t.Context(), "POST", "/sandboxes/"+id+"/start", "", nil)
			if err != nil && (!asProblem(err, &p) || p.Status != 404 && p.Status != 409) {
				t.Errorf("start: %v", err)
			}
		})
		time.Sleep(time.Duration(i) * 60 * time.Millisecond / time.Duration(n)) // the moments that are tried
		if code := d.Do(d.Key, "DELETE", "/sandboxes/"+id, "", nil); code != 204 {
			t.Errorf("delete: %d", code)
		}
		wg.Wait()
		gone = append(gone, id)
	}
	d.WantState(before)
	for _, id := range gone {
		var p served
		if code := d.Do(d.Key, "GET", "/sandboxes/"+id, "", &p); code != 404 || p.Reason != "destroyed" {
			t.Errorf("get: %d %+v", code, p)
		}
	}
}

// TestB182: a sandbox that is being made can be deleted at any moment.
func TestB182(t *testing.T) {
	t.Parallel()
	d := StartDaemon(t)
	before := d.HostState()
	for i, wait := range []time.Duration{0, 10, 50, 100, 200, 400} {
		name := fmt.Sprint("n", i)
		made := make(chan error, 1)
		go func() { made <- d.ask(t.Context(), "POST", "/sandboxes", fmt.Sprintf(`{"name":%q}`, name), nil) }()
		time.Sleep(wait * time.Millisecond) // the moments that are tried
		var p *Problem
		first := d.ask(t.Context(), "DELETE", "/sandboxes/"+name, "", nil)
		if first != nil && (!asProblem(first, &p) || p.Code != "not_found") {
			t.Errorf("delete after %v ms: %v", wait, first)
		}
		err := <-made
		switch {
		case first != nil && err != nil:
			t.Errorf("nobody deleted it, and create says %v", err)
		case err != nil && (!asProblem(err, &p) || p.Status != 404 && p.Status != 409):
			t.Errorf("create: %v", err)
		}
		if first != nil {
			first = d.ask(t.Context(), "DELETE", "/sandboxes/"+name, "", nil)
		}
		if again := d.ask(t.Context(), "DELETE", "/sandboxes/"+name, "", nil); first != nil || !asProblem(again, &p) || p.Code != "sandbox_destroyed" && p.Code != "not_found" {
			t.Errorf("delete: %v, and again: %v", first, again)
		}
	}
	d.WantState(before)
}

// TestB184: a late DELETE by the id hits the sandbox that it meant, not the next
// of that name.
func TestB184(t *testing.T) {
	t.Parallel()
	d := SharedDaemon(t)
	old := d.Make(map[string]any{"name": "b184"})
	if code := d.Do(d.Key, "DELETE", "/sandboxes/b184", "", nil); code != 204 {
		t.Fatalf("delete: %d", code)
	}
	next := d.Make(map[string]any{"name": "b184"})
	for _, id := range []string{old, old[:12]} {
		var p served
		if code := d.Do(d.Key, "DELETE", "/sandboxes/"+id, "", &p); code != 404 || p.Code != "sandbox_destroyed" {
			t.Errorf("delete of %s: %d %+v", id, code, p)
		}
	}
	d.Box(next).Want("alive\n", "echo alive")
	d.Do(d.Key, "DELETE", "/sandboxes/"+next, "", nil)
}

// TestB185: whatever goes on in a sandbox, it is deleted at once.
func TestB185(t *testing.T) {
	t.Parallel()
	d := SharedDaemon(t)
	detach := func(box *Box, line string) {
		if code := d.Do(d.Key, "POST", box.remote.at("/execute"), encode(t, map[string]any{"command": line, "detach": true}), nil); code != 202 {
			t.Errorf("%s: %d", line, code)
		}
	}
	for name, prepare := range map[string]func(box *Box){
		"idle": func(*Box) {},
		"stubborn": func(box *Box) {
			detach(box, "trap '' TERM INT HUP; sleep 33.185 & wait; sleep 33.185")
			box.WaitCount("33.185", 2, 10*time.Second) // the shell names it, too
		},
		"200 processes": func(box *Box) {
			detach(box, "for i in $(seq 200); do sleep 44.185 & done; wait")
			Until(t, 20*time.Second, "they run", func() bool { return box.Count("44.185") >= 190 })
		},
		"a terminal": func(box *Box) { box.OpenTerminal("").Text("start") },
		"writing": func(box *Box) {
			detach(box, "while :; do head -c 50000000 /dev/zero > /workspace/f; sync; done")
			Until(t, 10*time.Second, "it writes", func() bool { return box.Sh("test -s /workspace/f").ExitCode == 0 })
		},
	} {
		box := NewRemote(t, sandbox.Limits{}).With(t)
		prepare(box)
		began := time.Now()
		if code := d.Do(d.Key, "DELETE", box.remote.at(""), "", nil); code != 204 {
			t.Errorf("%s: %d", name, code)
		}
		if took := time.Since(began); took > 5*time.Second+Slack() {
			t.Errorf("%s: the delete took %v", name, took)
		}
		if left := SandboxPids(t, box.remote.id); len(left) > 0 {
			t.Errorf("%s: processes are left: %v", name, left)
		}
	}
}
