package manager_test

import (
	"database/sql"
	"os"
	"testing"

	_ "modernc.org/sqlite" // to damage a record

	"agentbox/internal/sandbox"
)

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
		"record": func(t *testing.T, path string) {
			db, err := sql.Open("sqlite", path)
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			if _, err := db.Exec("UPDATE sandboxes SET record = '{'"); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			d := r.open()
			runs := d.create(sandbox.CreateRequest{Name: "a", Labels: map[string]string{"x": "y"}, Env: []string{"SECRET=1"}})
			still := d.create(sandbox.CreateRequest{Name: "b", IdleTimeout: sandbox.Never})
			d.must(d.Stop(t.Context(), acme, still.UID))
			d.kill()
			lose(t, r.path)
			d = r.open()
			got := d.get("a")
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
