package store_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"go.uber.org/goleak"

	"agentbox/internal/sandbox"
	"agentbox/internal/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var t0 = time.Date(2026, 3, 1, 12, 0, 0, 123, time.UTC)

func open(t *testing.T, path string) *store.Store {
	t.Helper()
	s, err := store.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func path(t *testing.T) string { return filepath.Join(t.TempDir(), "agent box?#%.db") }

// box is the sandbox number n of an owner.
func box(owner string, n int) sandbox.Sandbox {
	uid := fmt.Sprintf("%064x", n+1)
	return sandbox.Sandbox{
		UID: uid, Short: fmt.Sprintf("%012x", n+1), Label: fmt.Sprintf("i%020d", n+1), Owner: owner, Status: sandbox.Creating,
		Created: t0, LastActivity: t0.Add(time.Second), Epoch: 1, Env: []string{"A=ü\n"}, Labels: map[string]string{"k": "v"},
		Limits: sandbox.Limits{}.WithDefaults(), IdleTimeout: time.Minute, Lifetime: sandbox.Never, OnIdle: sandbox.IdleStop,
	}
}

func admission(sb sandbox.Sandbox) sandbox.Admission {
	return sandbox.Admission{Sandbox: sb, MaxTotal: 100, MaxOwner: 50}
}

func admit(t *testing.T, s *store.Store, sb sandbox.Sandbox) {
	t.Helper()
	if _, err := s.Admit(t.Context(), admission(sb), event(sb)); err != nil {
		t.Fatal(err)
	}
}

func event(sb sandbox.Sandbox) *sandbox.Event {
	return &sandbox.Event{UID: sb.UID, Owner: sb.Owner, Time: t0, Type: sandbox.EventState, Status: sb.Status}
}

func grave(sb sandbox.Sandbox) sandbox.Tombstone {
	return sandbox.Tombstone{UID: sb.UID, Short: sb.Short, Label: sb.Label, Name: sb.Name, Aliases: sb.Aliases, Owner: sb.Owner,
		Reason: sandbox.ReasonIdle, ReasonText: "idle", Created: sb.Created, Destroyed: t0.Add(time.Hour)}
}

// What was recorded is there after the file was closed and opened again.
func TestReopen(t *testing.T) {
	p := path(t)
	s, err := store.Open(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	sb := box("acme", 1)
	sb.Name, sb.Aliases = "web", []sandbox.Alias{{Kind: "session", Value: "s-1"}}
	admit(t, s, sb)
	sb.Status, sb.Epoch, sb.Started = sandbox.Live, 7, t0.Add(time.Minute)
	if err := s.Save(t.Context(), sb, event(sb)); err != nil {
		t.Fatal(err)
	}
	sb.LastActivity = t0.Add(time.Hour)
	if err := s.Touch(t.Context(), map[string]time.Time{sb.UID: sb.LastActivity, "gone": t0}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, p)
	all, err := s.Sandboxes(t.Context())
	if err != nil || len(all) != 1 || !reflect.DeepEqual(all[0], sb) {
		t.Errorf("got %+v, %v\nwant %+v", all, err, sb)
	}
	evs, err := s.Events(t.Context(), sb.UID, 0, 10)
	if err != nil || len(evs) != 2 || evs[1].Status != sandbox.Live || evs[1].Seq <= evs[0].Seq || !evs[0].Time.Equal(t0) {
		t.Errorf("events are %+v, %v", evs, err)
	}
	if st, err := os.Stat(p); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("the file is %v, %v", st.Mode(), err)
	}
}

func TestNewerDataIsRefused(t *testing.T) {
	p := path(t)
	if err := func() error {
		s, err := store.Open(t.Context(), p)
		if err != nil {
			return err
		}
		return s.Close()
	}(); err != nil {
		t.Fatal(err)
	}
	raw(t, p, "PRAGMA user_version = 9999")
	_, err := store.Open(t.Context(), p)
	if !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), "newer agentbox") {
		t.Errorf("got %v", err)
	}
}

func TestNoDatabase(t *testing.T) {
	p := path(t)
	if err := os.WriteFile(p, []byte(strings.Repeat("this is no database\n", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Open(t.Context(), p); !errdefs.IsDataLoss(err) {
		t.Errorf("got %v", err)
	}
	if _, err := store.Open(t.Context(), filepath.Join(p, "below a file")); !errdefs.IsUnavailable(err) {
		t.Errorf("got %v", err)
	}
}

// A page of rows that was overwritten is found before anybody relies on the rest.
func TestDamaged(t *testing.T) {
	p := path(t)
	s, err := store.Open(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	for n := range 200 {
		if _, err := s.Admit(t.Context(), sandbox.Admission{Sandbox: box("acme", n), MaxTotal: 1 << 20, MaxOwner: 1 << 20}, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(p)
	if err != nil {
		t.Fatal(err)
	}
	const page = 4096
	refused := 0
	for at := page; at+page <= len(whole); at += page {
		damaged := slices.Concat(whole[:at], bytes.Repeat([]byte{0xa5}, page), whole[at+page:])
		if err := os.WriteFile(p, damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := store.Open(t.Context(), p)
		if err == nil {
			t.Errorf("page %d is damaged, and nobody says so", at/page)
			_ = s.Close()
			continue
		}
		if refused++; !errdefs.IsDataLoss(err) {
			t.Errorf("page %d: %v", at/page, err)
		}
	}
	if refused == 0 {
		t.Error("there was no page to damage")
	}
	if err := os.WriteFile(p, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	if all, err := open(t, p).Sandboxes(t.Context()); err != nil || len(all) != 200 {
		t.Errorf("the whole one has %d sandboxes, %v", len(all), err)
	}
}

// uri names the database p for a connection of the test's own.
func uri(p string) string { return (&url.URL{Scheme: "file", Path: p}).String() }

func raw(t *testing.T, p string, statements ...string) {
	t.Helper()
	db, err := sql.Open("sqlite", uri(p))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, q := range statements {
		if _, err := db.ExecContext(t.Context(), q); err != nil {
			t.Fatal(err)
		}
	}
}

func TestIDsAreUnique(t *testing.T) {
	s := open(t, path(t))
	first := box("acme", 1)
	first.Name, first.Aliases = "web", []sandbox.Alias{{Kind: "session", Value: "s"}}
	admit(t, s, first)
	for _, c := range []struct {
		name   string
		change func(*sandbox.Sandbox)
		want   string // field of the clash, "draw", or "" for none
	}{
		{"name", func(b *sandbox.Sandbox) { b.Name = "web" }, "name"},
		{"alias", func(b *sandbox.Sandbox) { b.Aliases = []sandbox.Alias{{Kind: "session", Value: "s"}} }, "session"},
		{"short", func(b *sandbox.Sandbox) { b.Short = first.Short }, "draw"},
		{"label", func(b *sandbox.Sandbox) { b.Label = first.Label }, "draw"},
		{"short that is a name", func(b *sandbox.Sandbox) { b.Short = "web" }, "draw"},
		{"label of another owner", func(b *sandbox.Sandbox) { b.Owner, b.Label = "other", first.Label }, "draw"},
		{"uid", func(b *sandbox.Sandbox) { b.UID = first.UID }, "draw"},
		{"name of another owner", func(b *sandbox.Sandbox) { b.Owner, b.Name = "other", "web" }, ""},
		{"alias of another kind", func(b *sandbox.Sandbox) { b.Aliases = []sandbox.Alias{{Kind: "uuid", Value: "s"}} }, ""},
	} {
		sb := box("acme", 100)
		c.change(&sb)
		_, err := s.Admit(t.Context(), admission(sb), nil)
		var clash *sandbox.ClashError
		switch {
		case c.want == "" && err != nil,
			c.want == "draw" && !errors.Is(err, sandbox.ErrDrawAgain),
			c.want != "" && c.want != "draw" && (!errors.As(err, &clash) || clash.Field != c.want || !errdefs.IsAlreadyExists(err)):
			t.Errorf("%s: %v", c.name, err)
		}
		if err := s.Forget(t.Context(), box("", 100).UID); err != nil {
			t.Fatal(err)
		}
	}
	if all, _ := s.Sandboxes(t.Context()); len(all) != 1 {
		t.Errorf("a refused sandbox was recorded: %d are there", len(all))
	}
}

// A burst does not pass the limits.
func TestLimits(t *testing.T) {
	s := open(t, path(t))
	var wg sync.WaitGroup
	errs := make([]error, 30)
	for i := range errs {
		wg.Go(func() {
			a := sandbox.Admission{Sandbox: box([]string{"a", "b", "c"}[i%3], i), MaxTotal: 7, MaxOwner: 3}
			_, errs[i] = s.Admit(t.Context(), a, nil)
		})
	}
	wg.Wait()
	quota := map[string]int{}
	for _, err := range errs {
		var l *sandbox.LimitError
		switch {
		case err == nil:
			quota["in"]++
		case errors.As(err, &l) && errdefs.IsResourceExhausted(err) && l.RetryAfter > 0:
			quota[l.Text]++
		default:
			t.Error(err)
		}
	}
	if quota["in"] != 7 || quota["Maximum number of sandboxes (7) reached"]+quota["Maximum number of sandboxes (3) reached"] != 23 {
		t.Errorf("got %v", quota)
	}
}

// A file that cannot grow fails calls by their class and leaves no half of them.
func TestFull(t *testing.T) {
	p := path(t)
	s := open(t, p)
	s.LimitPages(t)
	sb := box("acme", 1)
	admit(t, s, sb)
	var err error
	n := 2
	for ; err == nil && n < 10_000; n++ {
		big := box("acme", n)
		big.Env = []string{"X=" + strings.Repeat("x", 10_000)}
		a := sandbox.Admission{Sandbox: big, MaxTotal: 1 << 20, MaxOwner: 1 << 20, Key: fmt.Sprint(n), Request: []byte{1}}
		_, err = s.Admit(t.Context(), a, event(big))
	}
	if !errdefs.IsResourceExhausted(err) {
		t.Fatalf("sandbox %d: %v", n, err)
	}
	all, err := s.Sandboxes(t.Context())
	if err != nil || len(all) != n-2 {
		t.Errorf("there are %d sandboxes after %d successes, %v", len(all), n-2, err)
	}
	// A removal makes room again.
	for _, sb := range all[1:3] {
		if err := s.Forget(t.Context(), sb.UID); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Admit(t.Context(), sandbox.Admission{Sandbox: box("acme", n), MaxTotal: 1 << 20, MaxOwner: 1 << 20}, nil); err != nil {
		t.Error(err)
	}
}

func TestLocked(t *testing.T) {
	p := path(t)
	s := open(t, p)
	s.Impatient(t)
	admit(t, s, box("acme", 1))
	db, err := sql.Open("sqlite", uri(p))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	c, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.ExecContext(t.Context(), "BEGIN IMMEDIATE"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Admit(t.Context(), admission(box("acme", 2)), nil); !errdefs.IsUnavailable(err) {
		t.Errorf("write: %v", err)
	}
	if all, err := s.Sandboxes(t.Context()); err != nil || len(all) != 1 {
		t.Errorf("read: %v, %v", all, err)
	}
	if _, err := c.ExecContext(t.Context(), "ROLLBACK"); err != nil {
		t.Fatal(err)
	}
	admit(t, s, box("acme", 2))
}

// Who goes away does not leave a half of it behind, and does not stop the others.
func TestCanceled(t *testing.T) {
	s := open(t, path(t))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Admit(ctx, admission(box("acme", 1)), nil); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	admit(t, s, box("acme", 1))
}
