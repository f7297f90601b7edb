package store_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	"agentbox/internal/sandbox"
)

func TestTombstones(t *testing.T) {
	s := open(t, path(t))
	for i := range 2 { // two of the same name, one after the other
		sb := box("acme", i)
		sb.Name, sb.Aliases = "web", []sandbox.Alias{{Kind: "session", Value: "s"}}
		admit(t, s, sb)
		dead := grave(sb)
		dead.Destroyed = t0.Add(time.Duration(i) * time.Hour)
		for range 2 { // a repetition changes nothing
			if err := s.Bury(t.Context(), dead, nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	latest := box("acme", 1)
	for _, id := range []string{latest.UID, latest.Short, latest.Label, "web", "s"} {
		dead, err := s.Tombstone(t.Context(), "acme", id)
		if err != nil || dead.UID != latest.UID || dead.Reason != sandbox.ReasonIdle {
			t.Errorf("%s: %+v, %v", id, dead, err)
		}
		if _, err := s.Tombstone(t.Context(), "other", id); !errdefs.IsNotFound(err) {
			t.Errorf("another owner finds %s: %v", id, err)
		}
	}
	if _, err := s.Tombstone(t.Context(), "acme", latest.UID[:20]); !errdefs.IsNotFound(err) {
		t.Errorf("found by the beginning of its id: %v", err)
	}
	if err := s.Save(t.Context(), latest, nil); !errdefs.IsNotFound(err) {
		t.Errorf("a dead sandbox was recorded: %v", err)
	}
	if err := s.Expire(t.Context(), t0.Add(sandbox.KeepTombstone)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Tombstone(t.Context(), "acme", box("", 0).UID); !errdefs.IsNotFound(err) {
		t.Errorf("after a day: %v", err)
	}
	if evs, err := s.Events(t.Context(), box("", 0).UID, 0, 1); err != nil || len(evs) != 0 {
		t.Errorf("after a day there are events %v, %v", evs, err)
	}
	if _, err := s.Tombstone(t.Context(), "acme", latest.UID); err != nil {
		t.Errorf("before its day is over: %v", err)
	}
}

// The environment of a sandbox that is gone, which may hold secrets, is in no file
// of the store any more.
func TestEnvironmentIsGone(t *testing.T) {
	const secret = "hunter2hunter2"
	p := path(t)
	s := open(t, p)
	held := func() (in []string) {
		files, err := filepath.Glob(filepath.Join(filepath.Dir(p), "*"))
		if err != nil || len(files) == 0 {
			t.Fatal(files, err)
		}
		for _, f := range files {
			b, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			if bytes.Contains(b, []byte(secret)) {
				in = append(in, filepath.Base(f))
			}
		}
		return in
	}
	for what, remove := range map[string]func(sandbox.Sandbox) error{
		"bury":   func(sb sandbox.Sandbox) error { return s.Bury(t.Context(), grave(sb), nil) },
		"forget": func(sb sandbox.Sandbox) error { return s.Forget(t.Context(), sb.UID) },
	} {
		sb := box("acme", len(what))
		sb.Env = []string{"PASSWORD=" + secret}
		admit(t, s, sb)
		if len(held()) == 0 {
			t.Fatal("it is in no file while the sandbox is there")
		}
		if err := remove(sb); err != nil {
			t.Fatal(err)
		}
		if in := held(); len(in) > 0 {
			t.Errorf("%s: it is in %q", what, in)
		}
	}
}

func TestEventsAreBounded(t *testing.T) {
	s := open(t, path(t))
	sb, other := box("acme", 1), box("acme", 2)
	for _, b := range []sandbox.Sandbox{other, sb} {
		admit(t, s, b)
	}
	p := sandbox.MaxEvents + 5
	var last int64
	for range p {
		ev := event(sb)
		if err := s.AddEvent(t.Context(), ev); err != nil {
			t.Fatal(err)
		}
		last = ev.Seq
	}
	evs, err := s.Events(t.Context(), sb.UID, 0, 2*p)
	if err != nil || len(evs) != sandbox.MaxEvents || evs[len(evs)-1].Seq != last {
		t.Errorf("%d events, %v", len(evs), err)
	}
	if evs, err := s.Events(t.Context(), sb.UID, last-1, 10); err != nil || len(evs) != 1 {
		t.Errorf("after %d: %v, %v", last-1, evs, err)
	}
	if evs, err := s.Events(t.Context(), other.UID, 0, 10); err != nil || len(evs) != 1 {
		t.Errorf("the other's: %v, %v", evs, err)
	}
}
