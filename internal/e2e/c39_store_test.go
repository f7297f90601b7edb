package e2e

import (
	"database/sql"
	"path/filepath"
	"strings"
	"testing"

	_ "modernc.org/sqlite" // to damage a record
)

// TestB258: a record that can't be read, or that has more than this version
// knows, hides no sandbox and keeps no name, and is told.
func TestB258(t *testing.T) {
	t.Parallel()
	d := StartDaemon(t)
	before := d.HostState()
	ids := map[string]string{}
	for _, name := range []string{"good", "newer", "bad", "dead"} {
		ids[name] = d.Make(map[string]any{"name": name})
	}
	d.Kill()
	killSandbox(t, ids["dead"])
	db, err := sql.Open("sqlite", filepath.Join(d.Dir, "agentbox.db"))
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range []string{
		`UPDATE sandboxes SET record = json_set(record, '$.Invented', json('{"x":1}')) WHERE uid = '` + ids["newer"] + `'`,
		`UPDATE sandboxes SET record = '{"UID":' WHERE uid IN ('` + ids["bad"] + `', '` + ids["dead"] + `')`,
	} {
		if res, err := db.Exec(q); err != nil {
			t.Fatal(err)
		} else if n, _ := res.RowsAffected(); n == 0 {
			t.Fatalf("nothing is damaged by %s", q)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	d.Start()
	for _, name := range []string{"good", "newer", "bad"} {
		var sb served
		if code := d.Do(d.Key, "GET", "/sandboxes/"+name, "", &sb); code != 200 || sb.ID != ids[name] || sb.Status != "running" {
			t.Errorf("%s: %d %+v", name, code, sb)
			continue
		}
		d.Box(sb.ID).Want("ok\n", "echo ok")
	}
	var p served
	if code := d.Do(d.Key, "GET", "/sandboxes/dead", "", &p); code != 404 || p.Reason == "" {
		t.Errorf("the dead one: %d %+v", code, p)
	}
	if n := strings.Count(d.logs.String(), "is damaged"); n != 2 {
		t.Errorf("%d damaged records are told of, want 2", n)
	}
	for name, id := range ids {
		d.Do(d.Key, "DELETE", "/sandboxes/"+id, "", nil)
		again := d.Make(map[string]any{"name": name}) // the name is free
		d.Do(d.Key, "DELETE", "/sandboxes/"+again, "", nil)
	}
	d.WantState(before)
}
