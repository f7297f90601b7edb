package manager_test

import (
	"database/sql"
	"encoding/json"
	"errors"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	_ "modernc.org/sqlite" // to damage a record

	"agentbox/internal/runtime"
	"agentbox/internal/sandbox"
)

// damage lets no record of a sandbox be read.
func damage(t *testing.T, path string) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec("UPDATE sandboxes SET record = '{'"); err != nil {
		t.Fatal(err)
	}
}

// A daemon that lost its store, or some records in it, has its sandboxes again:
// under their owners and names, with their settings.
func TestF18_LostRecords(t *testing.T) {
	for name, lose := range map[string]func(t *testing.T, path string){
		"store": func(t *testing.T, path string) {
			for _, suffix := range []string{"", "-wal", "-shm"} {
				if err := os.Remove(path + suffix); err != nil && !os.IsNotExist(err) {
					t.Fatal(err)
				}
			}
		},
		"record": damage,
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			d := r.open()
			runs := d.create(sandbox.CreateRequest{Name: "a", Labels: map[string]string{"x": "y"}, Env: []string{"SECRET=1"}})
			runs = d.must(d.Update(t.Context(), acme, runs.UID, sandbox.Update{Limits: sandbox.Limits{Memory: sandbox.GiB}}))
			still := d.create(sandbox.CreateRequest{Name: "b", IdleTimeout: sandbox.Never})
			d.must(d.Stop(t.Context(), acme, still.UID))
			d.kill()
			lose(t, r.path)
			d = r.open()
			got := d.get("a")
			if got.Limits != runs.Limits || r.limitsInHost(runs.UID) != runs.Limits {
				t.Errorf("limits are %+v, on the machine %+v, were %+v", got.Limits, r.limitsInHost(runs.UID), runs.Limits)
			}
			if got.UID != runs.UID || got.Status != sandbox.Live || got.Labels["x"] != "y" || got.User != runs.User || !got.Created.Equal(runs.Created) {
				t.Errorf("got %+v, was %+v", got, runs)
			}
			if got := d.get("b"); got.UID != still.UID || got.Status != sandbox.Stopped || got.IdleTimeout != sandbox.Never {
				t.Errorf("got %+v, was %+v", got, still)
			}
			res, err := d.Exec(t.Context(), acme, "a", sandbox.Command{Shell: "echo ok"}, nil, "")
			if err != nil || string(res.Stdout) != "ok\n" {
				t.Errorf("got %+v, %v", res, err)
			}
			d.must(d.Start(t.Context(), acme, "b"))
			d.kill()
			r.agree(r.open()) // what was taken up is recorded
		})
	}
}

// TestF18_Network: the network of the copy may be wider than the last one, so it
// does not come back.
func TestF18_Network(t *testing.T) {
	r := newRig(t)
	g := &gateway{open: map[string]bool{}, addrs: map[string][]netip.Addr{}}
	r.egress = g
	d := r.open()
	sb := d.create(sandbox.CreateRequest{Network: sandbox.Network{Allow: []string{"a.example", "b.example"}}})
	if _, err := d.SetNetwork(t.Context(), acme, sb.UID, sandbox.Network{Allow: []string{"a.example"}}, true); err != nil {
		t.Fatal(err)
	}
	d.kill()
	damage(t, r.path)
	g.Shut(sb.UID)
	d = r.open()
	g.mu.Lock()
	defer g.mu.Unlock()
	if got := d.get(sb.UID).Network; got.Mode != sandbox.NetworkNone || len(got.Allow) > 0 || g.open[sb.UID] {
		t.Errorf("its network is %+v, with a way out: %v", got, g.open[sb.UID])
	}
}

// One that was given more time than its copy knows of is not ended at once.
func TestF18_LongerLife(t *testing.T) {
	r := newRig(t)
	rec := sandbox.Sandbox{
		UID: strings.Repeat("0a", 32), Owner: acme.Owner, Name: "old", OnIdle: sandbox.IdleDestroy, IdleTimeout: sandbox.Never,
		Created: time.Now().Add(-2 * time.Hour), Lifetime: time.Hour, Expires: time.Now().Add(-time.Hour),
	}
	text, err := json.Marshal(rec)
	if err != nil {
		t.Fatal(err)
	}
	rt := r.host.Open()
	defer rt.Close()
	spec := runtime.Spec{ID: rec.UID, Limits: sandbox.Limits{}.WithDefaults(), Labels: map[string]string{"agentbox.record": string(text)}}
	if err := errors.Join(rt.Create(t.Context(), spec), rt.Start(t.Context(), rec.UID)); err != nil {
		t.Fatal(err)
	}
	d := r.open()
	if got := d.get("old"); time.Until(got.Expires) < rec.Lifetime/2 {
		t.Errorf("it ends at %v", got.Expires)
	}
}

// What was being destroyed when its record was damaged goes, with a reason.
func TestF18_DestroyedMeanwhile(t *testing.T) {
	r := newRig(t)
	d := r.open()
	sb := d.create(sandbox.CreateRequest{})
	d.life.failing("destroy", errors.New("busy"))
	if err := d.Destroy(t.Context(), acme, sb.UID); err == nil {
		t.Fatal("destroyed")
	}
	d.kill()
	damage(t, r.path)
	d = r.open()
	d.wantGone(sb.UID, sandbox.ReasonDestroyed)
	r.agree(d)
}
