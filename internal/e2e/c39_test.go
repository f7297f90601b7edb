package e2e

import (
	"testing"
	"time"

	"agentbox/internal/guest/client"
	"agentbox/internal/sandbox"
)

// TestB252: a sandbox that was answered with takes its first call.
func TestB252(t *testing.T) {
	t.Parallel()
	d := SharedDaemon(t)
	for i := range Sized(9, 60) {
		id := d.Make(nil)
		box := d.Box(id)
		switch i % 3 {
		case 0:
			box.Want("ok\n", "echo ok")
		case 1:
			if got, err := readFile(box.Files(), "/etc/hostname", client.ReadOptions{}); err != nil || got == "" {
				t.Errorf("read: %q, %v", got, err)
			}
		case 2:
			w := box.OpenTerminal(query("command", "echo ok"))
			if ok := w.Ended(); !ok || w.Screen() != "ok\r\n" {
				t.Errorf("a terminal shows %q", w.Screen())
			}
		}
		if code := d.Do(d.Key, "DELETE", "/sandboxes/"+id, "", nil); code != 204 {
			t.Errorf("delete: %d", code)
		}
	}
}

// TestB254: why a sandbox died can be read after all of it was removed.
func TestB254(t *testing.T) {
	t.Parallel()
	d := SharedDaemon(t)
	id := d.Make(map[string]any{"name": "b254"})
	killSandbox(t, id)
	var p served
	Until(t, 5*time.Second, "its end is noticed", func() bool {
		return d.Do(d.Key, "GET", "/sandboxes/"+id, "", &p) == 404
	})
	for _, name := range []string{id, id[:12], "b254"} {
		if code := d.Do(d.Key, "GET", "/sandboxes/"+name, "", &p); code != 404 || p.Reason != "crashed" {
			t.Errorf("%s: %d %+v, want crashed", name, code, p)
		}
	}
	d.Do(d.Key, "DELETE", "/sandboxes/"+id, "", &p) // somebody tidies up
	if d.Do(d.Key, "GET", "/sandboxes/"+id, "", &p); p.Reason != "crashed" {
		t.Errorf("after a DELETE: %+v", p)
	}
}

// TestB256: an expired, a destroyed and an unknown sandbox are told apart.
func TestB256(t *testing.T) {
	t.Parallel()
	d := SharedDaemon(t)
	destroyed, expired, idle := d.Make(nil), d.Make(map[string]any{"lifetime": 5}), d.Make(map[string]any{"idle_timeout": 5})
	if code := d.Do(d.Key, "DELETE", "/sandboxes/"+destroyed, "", nil); code != 204 {
		t.Fatalf("delete: %d", code)
	}
	ask := func(id string) (p served) {
		d.Do(d.Key, "POST", "/sandboxes/"+id+"/execute", `{"command":"true"}`, &p)
		return p
	}
	Until(t, 8*time.Second, "they expire", func() bool {
		return d.Do(d.Key, "GET", "/sandboxes/"+expired, "", nil) == 404 && d.Do(d.Key, "GET", "/sandboxes/"+idle, "", nil) == 404
	})
	for id, want := range map[string][2]string{
		destroyed: {"sandbox_destroyed", "destroyed"}, expired: {"sandbox_expired", "lifetime"}, idle: {"sandbox_expired", "idle"},
		"0123456789ab": {"not_found", ""},
	} {
		if p := ask(id); p.Code != want[0] || p.Reason != want[1] || p.Detail != "Sandbox not found" {
			t.Errorf("got %+v, want %v", p, want)
		}
	}
}

// TestB257: a sandbox tells since when it is what it is.
func TestB257(t *testing.T) {
	t.Parallel()
	d := SharedDaemon(t)
	began := time.Now()
	id := d.Make(nil)
	type times struct {
		Created  time.Time  `json:"created_at"`
		Started  *time.Time `json:"started_at"`
		Stopped  *time.Time `json:"stopped_at"`
		Activity time.Time  `json:"last_activity_at"`
		Expires  *time.Time `json:"expires_at"`
	}
	look := func(call string) (now times) {
		t.Helper()
		if call != "" {
			if code := d.Do(d.Key, "POST", "/sandboxes/"+id+call, "", nil); code != 200 {
				t.Fatalf("%s: %d", call, code)
			}
		}
		d.Do(d.Key, "GET", "/sandboxes/"+id, "", &now)
		if _, offset := now.Created.Zone(); offset != 0 {
			t.Errorf("a time is not UTC: %v", now.Created)
		}
		return now
	}
	ordered := func(what string, list ...time.Time) {
		t.Helper()
		for i := 1; i < len(list); i++ {
			if list[i].Before(list[i-1]) {
				t.Errorf("%s: %v", what, list)
			}
		}
	}
	made := look("")
	if made.Started == nil || made.Stopped != nil || made.Expires == nil {
		t.Fatalf("made: %+v", made)
	}
	ordered("made", began, made.Created, *made.Started, time.Now())
	d.Box(id).Exec(sandbox.Command{Argv: []string{"true"}}, nil)
	used := look("")
	ordered("used", made.Activity, used.Activity, time.Now())
	if !used.Activity.After(made.Activity) {
		t.Errorf("a command is no activity: %v, %v", made.Activity, used.Activity)
	}
	stopped := look("/stop")
	if stopped.Stopped == nil {
		t.Fatalf("stopped: %+v", stopped)
	}
	ordered("stopped", *made.Started, *stopped.Stopped, time.Now())
	again := look("/start")
	ordered("started again", *stopped.Stopped, *again.Started, time.Now())
	if !again.Created.Equal(made.Created) || !again.Started.After(*made.Started) {
		t.Errorf("made %+v, started again %+v", made, again)
	}
	d.Do(d.Key, "DELETE", "/sandboxes/"+id, "", nil)
}

// TestB054: a command line that looks in does not shorten a sandbox's life.
func TestB054(t *testing.T) {
	t.Parallel()
	d := SharedDaemon(t)
	id := d.Make(map[string]any{"lifetime": 1800})
	expires := func() time.Time {
		var sb struct {
			Expires time.Time `json:"expires_at"`
		}
		d.Do(d.Key, "GET", "/sandboxes/"+id, "", &sb)
		return sb.Expires
	}
	first := expires()
	if left := time.Until(first); left < 29*time.Minute || left > 30*time.Minute {
		t.Errorf("it expires in %v", left)
	}
	for _, args := range [][]string{{"exec", id, "--", "true"}, {"ls"}, {"get", id}} {
		if out := d.Run(args...); out.Code != 0 {
			t.Errorf("%v: %+v", args, out)
		}
	}
	d.Box(id).OpenTerminal("").Text("start")
	if now := expires(); !now.Equal(first) {
		t.Errorf("it expired at %v, and now at %v", first, now)
	}
	d.Do(d.Key, "DELETE", "/sandboxes/"+id, "", nil)
}

// TestB055: a lifetime of zero is no end, which is shown; less is refused, and so
// is more than the most.
func TestB055(t *testing.T) {
	t.Parallel()
	d := SharedDaemon(t)
	id := d.Make(map[string]any{"lifetime": 0})
	var sb struct {
		Expires *time.Time `json:"expires_at"`
	}
	if d.Do(d.Key, "GET", "/sandboxes/"+id, "", &sb); sb.Expires != nil {
		t.Errorf("it expires at %v", sb.Expires)
	}
	d.Do(d.Key, "DELETE", "/sandboxes/"+id, "", nil)
	for _, field := range []string{"lifetime", "idle_timeout"} {
		for _, value := range []string{"-1", "10000000000", "0.001"} {
			var p struct{ Code, Field string }
			if code := d.Do(d.Key, "POST", "/sandboxes", `{"`+field+`":`+value+`}`, &p); code != 400 || p.Code != "invalid_value" || p.Field != field {
				t.Errorf("%s %s: %d %+v", field, value, code, p)
			}
		}
	}
	capped := StartDaemon(t, "--limits-lifetime", "1h")
	if code := capped.Do(capped.Key, "POST", "/sandboxes", `{"lifetime":0}`, nil); code != 400 {
		t.Errorf("without end where the operator has a maximum: %d", code)
	}
	id = capped.Make(nil)
	if capped.Do(capped.Key, "GET", "/sandboxes/"+id, "", &sb); sb.Expires == nil || time.Until(*sb.Expires) > time.Hour {
		t.Errorf("by default it expires at %v", sb.Expires)
	}
}
