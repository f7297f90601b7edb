package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"agentbox/internal/failpoint"
)

// TestVolumeDaemonIsKilled: after a kill -9 the next daemon finds the sandbox with
// its volume, mounted and held; stop and start keep it so.
func TestVolumeDaemonIsKilled(t *testing.T) {
	t.Parallel()
	d := StartDaemon(t)
	d.Do(d.Key, "POST", "/volumes", `{"name":"data"}`, nil)
	sb := d.box(withData)
	body := `{"command":"while sleep 0.05; do echo line >> /data/log; done","detach":true}`
	if code := d.Do(d.Key, "POST", "/sandboxes/"+sb.ID+"/execute", body, nil); code != http.StatusAccepted {
		t.Fatalf("a command in the background: %d", code)
	}
	size := func() int { return len(d.sh(sb.ID, "cat /data/log").Output) }
	grows := func() {
		t.Helper()
		first := size()
		for end := time.Now().Add(10*time.Second + Slack()); size() <= first; time.Sleep(20 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("the command writes no more")
			}
		}
	}
	grows()
	for range 2 {
		d.Kill()
		d.Start()
		grows()
		if got := d.holders("data"); len(got) != 1 || got[0] != sb.ID {
			t.Errorf("held by %v", got)
		}
		var p served
		if code := d.Do(d.Key, "POST", "/sandboxes", withData, &p); code != http.StatusConflict || !strings.Contains(p.Detail, sb.ID) {
			t.Errorf("a second sandbox: %d %+v", code, p)
		}
	}
	if code := d.Do(d.Key, "POST", "/sandboxes/"+sb.ID+"/stop", "", nil); code != http.StatusOK {
		t.Fatalf("stop: %d", code)
	}
	d.Kill()
	d.Start()
	if got := d.holders("data"); len(got) != 1 {
		t.Errorf("while it is stopped the volume is held by %v", got)
	}
	if code := d.Do(d.Key, "POST", "/sandboxes/"+sb.ID+"/start", "", nil); code != http.StatusOK {
		t.Fatalf("start: %d", code)
	}
	if size() == 0 {
		t.Error("the files are gone")
	}
	if code := d.Do(d.Key, "DELETE", "/sandboxes/"+sb.ID, "", nil); code != http.StatusNoContent {
		t.Errorf("destroy: %d", code)
	}
	if got := d.holders("data"); len(got) != 0 {
		t.Errorf("after its end the volume is held by %v", got)
	}
	d.NoneMounted()
}

// TestVolumeKilledAtEachFailpoint kills the daemon at each step of making and of
// destroying a sandbox with a volume: the next one has the sandbox, which holds the
// volume, or nothing, and the volume is free and not mounted.
func TestVolumeKilledAtEachFailpoint(t *testing.T) {
	t.Parallel()
	d := StartDaemon(t)
	d.Do(d.Key, "POST", "/volumes", `{"name":"data"}`, nil)
	const body = `{"name":"a","volumes":[{"name":"data","path":"/data"}]}`
	ready := func() {
		if code := d.Do(d.Key, "GET", "/sandboxes/a", "", nil); code == http.StatusNotFound {
			d.sh(d.box(body).ID, "echo kept > /data/f")
		}
	}
	for _, op := range []struct {
		call   Call
		points []failpoint.Point
		before func()
	}{
		{Call{Key: d.Key, Method: "POST", Path: "/sandboxes", Body: body}, stormyOps["create"].points, func() { d.Do(d.Key, "DELETE", "/sandboxes/a", "", nil) }},
		{Call{Key: d.Key, Method: "DELETE", Path: "/sandboxes/a"}, stormyOps["destroy"].points, ready},
	} {
		ready() // so that there is a file to find
		for _, p := range op.points {
			op.before()
			d.Stop()
			if err := d.StartWith(failpoint.Variable + "=" + string(p) + "=kill"); err != nil {
				t.Fatalf("%s: %v", p, err)
			}
			if a, err := d.Try(op.call); err == nil {
				t.Fatalf("%s: the daemon lives, and says %d %s", p, a.Code, a.Text)
			}
			d.Kill()
			d.Start()
			var sb served
			code, held := d.Do(d.Key, "GET", "/sandboxes/a", "", &sb), d.holders("data")
			switch {
			case code == http.StatusNotFound && len(held) == 0:
				d.NoneMounted()
				if pids := Count(t, d.Dir+"/daemon"); pids != 0 {
					t.Errorf("%s: %d processes of sandboxes are left", p, pids)
				}
				ready()
			case code != http.StatusOK || sb.Status != "running" || len(held) != 1 || held[0] != sb.ID:
				t.Fatalf("%s: the sandbox is %d %+v, and %v hold the volume", p, code, sb, held)
			}
			d.Do(d.Key, "GET", "/sandboxes/a", "", &sb)
			if got := d.sh(sb.ID, "cat /data/f && echo >> /data/log"); got.Output != "kept\n" {
				t.Errorf("%s: the file holds %+v", p, got)
			}
		}
	}
	d.Do(d.Key, "DELETE", "/sandboxes/a", "", nil)
	d.NoneMounted()
}

// TestVolumeKilledAtEachWrite kills the daemon at each record that it writes while a
// volume is made or removed: the next one has a whole volume, or nothing of it, and
// the same request, sent again, has its effect.
func TestVolumeKilledAtEachWrite(t *testing.T) {
	t.Parallel()
	d := StartDaemon(t)
	d.killedAtEachWrite(http.StatusCreated, http.StatusCreated, func(key string) Call {
		d.Do(d.Key, "DELETE", "/volumes/v", "", nil) // if there is one
		return Call{Key: d.Key, Method: "POST", Path: "/volumes", Body: `{"name":"v"}`, Header: map[string]string{"Idempotency-Key": key}}
	}, d.wholeVolumes)
	d.killedAtEachWrite(http.StatusNoContent, http.StatusNotFound, func(string) Call {
		d.Do(d.Key, "POST", "/volumes", `{"name":"v"}`, nil) // if there is none
		return Call{Key: d.Key, Method: "DELETE", Path: "/volumes/v"}
	}, d.wholeVolumes)
}

// wholeVolumes looks for half volumes, and reads the others.
func (d *Daemon) wholeVolumes(when string) {
	d.t.Helper()
	var all struct{ Items []servedVolume }
	d.Do(d.Key, "GET", "/volumes", "", &all)
	for _, v := range all.Items {
		d.Text(d.Key, "/volumes/"+v.Name+"/archive")
	}
	for _, line := range d.VolumeDisagreements(len(all.Items), 0) {
		d.t.Errorf("%s: %s", when, line)
	}
}

// TestSessionKilledAtEachWrite does so while a session is made, which the same request
// finds as its own.
func TestSessionKilledAtEachWrite(t *testing.T) {
	t.Parallel()
	d := StartDaemon(t)
	box := "/sandboxes/" + d.Make(nil)
	d.killedAtEachWrite(http.StatusCreated, http.StatusCreated, func(key string) Call {
		d.Do(d.Key, "DELETE", box+"/sessions/s", "", nil) // if there is one
		return Call{Key: d.Key, Method: "POST", Path: box + "/sessions", Body: `{"name":"s"}`, Header: map[string]string{"Idempotency-Key": key}}
	}, func(when string) {
		var all servedList
		if d.Do(d.Key, "GET", box+"/sessions", "", &all); len(all.Items) > 1 {
			t.Errorf("%s: there are %d sessions", when, len(all.Items))
		}
	})
}

// TestKeyKilledAtEachWrite does so while an API key is made: whoever sends the request
// again gets a key, or is told which one was made and never shown. There is one.
func TestKeyKilledAtEachWrite(t *testing.T) {
	t.Parallel()
	d := StartDaemon(t)
	d.killedAtEachWrite(http.StatusCreated, http.StatusConflict, func(key string) Call {
		return Call{Key: d.Key, Method: "POST", Path: "/keys", Body: fmt.Sprintf(`{"name":%q}`, key), Header: map[string]string{"Idempotency-Key": key}}
	}, func(string) {})
	var all struct{ Items []struct{ Name string } }
	d.Do(d.Key, "GET", "/keys?limit=1000", "", &all)
	made := map[string]int{}
	for _, k := range all.Items {
		if made[k.Name]++; made[k.Name] > 1 {
			t.Errorf("%d keys were made by one request: %s", made[k.Name], k.Name)
		}
	}
	if len(made) < 4 {
		t.Errorf("the keys are %v", made)
	}
}

// killedAtEachWrite sends requests, which prepare makes with a key of their own, to
// daemons that die at the first, second … record that they write, until one lives, and
// answers with want. The next daemon gets the same request again, after look: it has
// its effect now, or had it, which the answer again says.
func (d *Daemon) killedAtEachWrite(want, again int, prepare func(key string) Call, look func(when string)) {
	d.t.Helper()
	for _, p := range []failpoint.Point{failpoint.StoreBegin, failpoint.StoreCommit, failpoint.StoreCommitted} {
		deaths, lives := 0, false
		for n := 1; !lives; n++ {
			call := prepare(fmt.Sprint(p, n))
			d.Kill()
			if err := d.StartWith(fmt.Sprintf("%s=%s=kill+%d", failpoint.Variable, p, n)); err != nil {
				d.Start() // it died of what it writes in its start
				continue
			}
			a, err := d.Try(call)
			d.Kill()
			d.Start()
			when := fmt.Sprintf("%s %s, killed at %s+%d", call.Method, call.Path, p, n)
			if lives = err == nil; lives {
				if a.Code != want || deaths == 0 {
					d.t.Errorf("%s: after %d deaths the daemon lives, and says %d %s", when, deaths, a.Code, a.Text)
				}
				continue
			}
			deaths++
			look(when)
			a, err = d.Try(call)
			if err != nil || a.Code != want && a.Code != again {
				d.t.Errorf("%s, and sent again: %d %s, %v", when, a.Code, a.Text, err)
			}
		}
		d.t.Logf("%d deaths at %s", deaths, p)
	}
}
