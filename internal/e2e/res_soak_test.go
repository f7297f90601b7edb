package e2e

import (
	"context"
	"strconv"
	"testing"
	"time"

	"agentbox/internal/guest/client"
	"agentbox/internal/sandbox"
)

// TestRES06_Million: a million files end with success where there is memory for
// them, else with the verdict that there is not; a neighbour notices nothing,
// and all is gone quickly.
func TestRES06_Million(t *testing.T) {
	if !Soak() {
		t.Skip("a million files take minutes: scripts/soak.sh makes them")
	}
	for _, c := range []struct {
		memory int64
		may    []sandbox.Outcome
	}{
		{512 * sandbox.MiB, []sandbox.Outcome{sandbox.Exited, sandbox.OOM}},
		{4 * sandbox.GiB, []sandbox.Outcome{sandbox.Exited}},
	} {
		t.Run(sandbox.FormatSize(c.memory), func(t *testing.T) {
			const files = 1_000_000
			box := NewBox(t, sandbox.Limits{Memory: c.memory})
			check := Neighbour(t)
			cmd := Probe(t, "res06", "root", strconv.Itoa(files), "5000", "100000")
			cmd.Timeout = 20 * time.Minute
			res, err := box.Try(cmd, nil, client.Output{})
			if err != nil {
				t.Fatal(err)
			}
			t.Log(Describe(res))
			ok := false
			for _, o := range c.may {
				ok = ok || res.Outcome == o
			}
			if !ok {
				t.Errorf("ended %s", res.Outcome)
			}
			if res.Outcome == sandbox.Exited {
				f := ParseFindings(t, string(res.Stdout))
				if n, _ := strconv.Atoi(f.Get("files")); n != files {
					f.Want("files result", "ENOSPC", "EDQUOT")
				}
				began := time.Now()
				if entries, _, err := box.Session().List(t.Context(), "/workspace/many", listAsRoot); err != nil || len(entries) < 100 {
					t.Errorf("list: %d entries, %v", len(entries), err)
				}
				Within(t, began, time.Second)
			}
			check()
			began := time.Now()
			if err := box.Destroy(context.Background()); err != nil {
				t.Error(err)
			}
			t.Logf("destroyed in %v", time.Since(began).Round(time.Millisecond))
			Within(t, began, 30*time.Second)
		})
	}
}
