package manager_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	"agentbox/internal/sandbox"
)

func TestLife(t *testing.T) {
	r := newRig(t)
	d := r.open()
	sb := d.create(sandbox.CreateRequest{Name: "web", Labels: map[string]string{"a": "b"}, Env: []string{"X=1"}})
	if sb.Status != sandbox.Live || sb.Image != "default" || sb.Limits.Memory != sandbox.DefaultMemory || sb.ImageDigest != "sha256:default" {
		t.Errorf("got %+v", sb)
	}
	if sb.Expires.Sub(sb.Created) != sandbox.DefaultLifetime || sb.IdleTimeout != sandbox.DefaultIdleTimeout || sb.OnIdle != sandbox.IdleDestroy {
		t.Errorf("its end is %v, %v, %v", sb.Expires, sb.IdleTimeout, sb.OnIdle)
	}
	if !slices.Equal(sb.NotEnforced, []string{sandbox.LimitCPUs}) {
		t.Errorf("not enforced: %v", sb.NotEnforced)
	}
	if res := d.sh(sb.UID, "echo $FROM $X; exit 3"); string(res.Stdout) != "image 1\n" || res.ExitCode != 3 {
		t.Errorf("got %+v", res)
	}
	if err := d.Destroy(t.Context(), acme, sb.UID); err != nil {
		t.Fatal(err)
	}
	d.wantGone(sb.Label, sandbox.ReasonDestroyed)
	if err := d.Destroy(t.Context(), acme, sb.UID); !errdefs.IsNotFound(err) {
		t.Errorf("a second time: %v", err)
	}
	if len(r.inHost()) != 0 || d.life.held != 0 {
		t.Errorf("left are %v and %d images", r.inHost(), d.life.held)
	}
	d.create(sandbox.CreateRequest{Name: "web"}) // the name is free
}

func TestEveryFormOfID(t *testing.T) {
	d := newRig(t).open()
	sb := d.create(sandbox.CreateRequest{Name: "web", Aliases: []sandbox.Alias{{Kind: "session", Value: "s-1"}}})
	for _, id := range []string{sb.UID, sb.Short, sb.Label, "web", "s-1"} {
		if got := d.get(id); got.UID != sb.UID {
			t.Errorf("%s is %s", id, got.UID)
		}
		if _, err := d.Get(t.Context(), sandbox.Caller{Owner: "other", Admin: true}, id); !errdefs.IsNotFound(err) {
			t.Errorf("another owner finds %s: %v", id, err)
		}
	}
	for _, id := range []string{"", sb.UID[:13], sb.UID[:63], strings.ToUpper(sb.Label), "we", "%", "*"} {
		if _, err := d.Get(t.Context(), acme, id); !errdefs.IsNotFound(err) {
			t.Errorf("%q is found: %v", id, err)
		}
	}
	// One text as two kinds of ids: the door's own counts first.
	named := d.create(sandbox.CreateRequest{Name: "s-2"})
	aliased := d.create(sandbox.CreateRequest{Aliases: []sandbox.Alias{{Kind: "session", Value: "s-2"}}})
	daytona := d.create(sandbox.CreateRequest{Aliases: []sandbox.Alias{{Kind: "uuid", Value: sb.Short}}})
	for _, c := range []struct {
		door, id, want string
	}{
		{"", "s-2", aliased.UID}, {"session", "s-2", aliased.UID}, {"name", "s-2", named.UID},
		{"", sb.Short, sb.UID}, {"uuid", sb.Short, daytona.UID},
	} {
		got, err := d.Get(t.Context(), sandbox.Caller{Owner: "acme", Door: c.door}, c.id)
		if err != nil || got.UID != c.want {
			t.Errorf("%q at door %q: %s, %v", c.id, c.door, got.Short, err)
		}
	}
}

// No call of another owner tells that there is such a sandbox.
func TestOwners(t *testing.T) {
	d := newRig(t).open()
	sb := d.create(sandbox.CreateRequest{})
	ctx := t.Context()
	other := sandbox.Caller{Owner: "other", Admin: true}
	for name, call := range map[string]func(id string) error{
		"get":     func(id string) error { _, err := d.Get(ctx, other, id); return err },
		"update":  func(id string) error { _, err := d.Update(ctx, other, id, sandbox.Update{}); return err },
		"destroy": func(id string) error { return d.Destroy(ctx, other, id) },
		"stop":    func(id string) error { _, err := d.Stop(ctx, other, id); return err },
		"start":   func(id string) error { _, err := d.Start(ctx, other, id); return err },
		"stats":   func(id string) error { _, err := d.Stats(ctx, other, id); return err },
		"events":  func(id string) error { _, err := d.Events(ctx, other, id, 0); return err },
		"follow":  func(id string) error { _, err := d.Follow(ctx, other, id, 0); return err },
		"acquire": func(id string) error { _, err := d.Acquire(ctx, other, id); return err },
		"dial":    func(id string) error { _, err := d.Dial(ctx, other, id, 80); return err },
		"ports":   func(id string) error { _, _, err := d.Ports(ctx, other, id); return err },
		"exec": func(id string) error {
			_, err := d.Exec(ctx, other, id, sandbox.Command{Shell: "true"}, nil, "")
			return err
		},
		"execs":  func(id string) error { _, err := d.Execs(ctx, other, id); return err },
		"info":   func(id string) error { _, err := d.ExecInfo(ctx, other, id, "x", false); return err },
		"wait":   func(id string) error { _, err := d.WaitExec(ctx, other, id, "x", 1, false); return err },
		"signal": func(id string) error { return d.SignalExec(ctx, other, id, "x", 9, true) },
		"write":  func(id string) error { return d.WriteExec(ctx, other, id, "x", nil, true) },
		"resize": func(id string) error { return d.ResizeExec(ctx, other, id, "x", 1, 1) },
		"output": func(id string) error { return d.Output(ctx, other, id, "x", 0, 0, false, nil) },
	} {
		mine, random := call(sb.UID), call(strings.Repeat("0", 64))
		if !errdefs.IsNotFound(mine) || mine.Error() != random.Error() {
			t.Errorf("%s: %v, but %v for an id that nobody has", name, mine, random)
		}
	}
	if page, err := d.List(ctx, other, sandbox.Filter{}); err != nil || len(page.Items) != 0 {
		t.Errorf("list: %v, %v", page, err)
	}
	if d.get(sb.UID).Status != sandbox.Live {
		t.Error("somebody else did something to it")
	}
}

func TestRequests(t *testing.T) {
	r := newRig(t)
	r.policy.MaxIdleTimeout, r.policy.MaxLifetime = time.Hour, 2*time.Hour
	d := r.open()
	huge := sandbox.CreateRequest{Defaults: sandbox.Limits{Memory: 1 << 50, CPUs: 99, Disk: 1 << 50}}
	if sb := d.create(huge); sb.Limits.Memory != r.policy.Max.Memory || sb.Limits.CPUs != 4 || sb.Limits.Disk != r.policy.Max.Disk {
		t.Errorf("a door's defaults became %+v", sb.Limits)
	}
	if sb := d.create(sandbox.CreateRequest{Limits: sandbox.Limits{Memory: 64 * sandbox.MiB}, Defaults: sandbox.Limits{Memory: sandbox.GiB}}); sb.Limits.Memory != 64*sandbox.MiB || sb.Limits.Shm != 32*sandbox.MiB {
		t.Errorf("the caller's limits became %+v", sb.Limits)
	}
	if sb := d.create(sandbox.CreateRequest{}); sb.Lifetime != 2*time.Hour || sb.IdleTimeout != 30*time.Minute {
		t.Errorf("defaults are %v and %v", sb.Lifetime, sb.IdleTimeout)
	}
	many := make([]string, sandbox.MaxEnv+1)
	for i := range many {
		many[i] = fmt.Sprintf("V%d=", i)
	}
	for field, reqs := range map[string][]sandbox.CreateRequest{
		"memory":       {{Limits: sandbox.Limits{Memory: 1 << 50}}, {Limits: sandbox.Limits{Memory: -1}}, {Limits: sandbox.Limits{Memory: 1}}},
		"disk":         {{Limits: sandbox.Limits{Disk: 1 << 50}}},
		"pids":         {{Limits: sandbox.Limits{Pids: 1 << 20}}},
		"idle_timeout": {{IdleTimeout: 61 * time.Minute}, {IdleTimeout: sandbox.Never}, {IdleTimeout: time.Nanosecond}, {IdleTimeout: -time.Hour}},
		"lifetime":     {{Lifetime: sandbox.Never}, {Lifetime: 3 * time.Hour}},
		"on_idle":      {{OnIdle: "sleep"}},
		"name":         {{Name: "-rf"}, {Name: "../x"}, {Name: "a b"}, {Name: "."}, {Name: "a\n"}, {Name: "ü"}, {Name: strings.Repeat("a", 129)}},
		"id":           {{Aliases: []sandbox.Alias{{Kind: "session"}}}},
		"image":        {{Image: "a b"}, {Image: "Upper/case"}, {Image: "../x"}, {Image: strings.Repeat("a/", 150) + "a"}},
		"workdir":      {{Workdir: "relative"}, {Workdir: "/\x00"}},
		"env":          {{Env: []string{"no value"}}, {Env: []string{"=x"}}, {Env: []string{"A=\x00"}}, {Env: many}, {Env: []string{"A=" + strings.Repeat("x", 200_000)}}},
		"labels":       {{Labels: map[string]string{"": "x"}}, {Labels: map[string]string{"k": strings.Repeat("x", 2000)}}, {Labels: map[string]string{"k": "\xff"}}},
	} {
		for _, req := range reqs {
			_, err := d.Create(t.Context(), acme, req, "")
			var inv *sandbox.InvalidError
			if !errors.As(err, &inv) || inv.Field != field || inv.Allowed == "" || !errdefs.IsInvalidArgument(err) {
				t.Errorf("%s: %v", field, err)
			}
		}
	}
	if _, err := d.Create(t.Context(), acme, sandbox.CreateRequest{Limits: sandbox.Limits{CPUs: 1}}, ""); !errdefs.IsNotImplemented(err) {
		t.Errorf("a limit that can't be enforced: %v", err)
	}
	if _, err := d.Create(t.Context(), sandbox.Caller{}, sandbox.CreateRequest{}, ""); !errdefs.IsInvalidArgument(err) {
		t.Errorf("nobody's sandbox: %v", err)
	}
	if _, err := d.Create(t.Context(), acme, sandbox.CreateRequest{Image: "missing"}, ""); !errdefs.IsNotFound(err) {
		t.Errorf("no image: %v", err)
	}
	if n := len(r.inHost()); n != 3 {
		t.Errorf("%d sandboxes are there", n)
	}
}

func TestLimitsOfNumber(t *testing.T) {
	r := newRig(t)
	r.policy.MaxSandboxes, r.policy.MaxPerOwner = 3, 2
	d := r.open()
	first := d.create(sandbox.CreateRequest{})
	d.create(sandbox.CreateRequest{})
	_, err := d.Create(t.Context(), acme, sandbox.CreateRequest{}, "")
	var l *sandbox.LimitError
	if !errors.As(err, &l) || !l.Quota || l.Text != "Maximum number of sandboxes (2) reached" || l.RetryAfter <= 0 {
		t.Errorf("quota: %v", err)
	}
	other := sandbox.Caller{Owner: "other"}
	if _, err := d.Create(t.Context(), other, sandbox.CreateRequest{}, ""); err != nil {
		t.Error(err)
	}
	if _, err := d.Create(t.Context(), other, sandbox.CreateRequest{}, ""); !errors.As(err, &l) || l.Quota || !errdefs.IsResourceExhausted(err) {
		t.Errorf("maximum: %v", err)
	}
	if err := d.Destroy(t.Context(), acme, first.UID); err != nil {
		t.Fatal(err)
	}
	d.create(sandbox.CreateRequest{})
}

func TestMemoryIsShort(t *testing.T) {
	r := newRig(t)
	available := int64(9)
	r.memory = func() (int64, int64, error) { return available, 100, nil }
	d := r.open()
	if _, err := d.Create(t.Context(), acme, sandbox.CreateRequest{}, ""); !errdefs.IsResourceExhausted(err) {
		t.Errorf("got %v", err)
	}
	available = 10
	sb := d.must(d.Create(t.Context(), acme, sandbox.CreateRequest{}, "k"))
	available = 9 // what is there already needs no more
	if again, err := d.Create(t.Context(), acme, sandbox.CreateRequest{}, "k"); err != nil || again.UID != sb.UID {
		t.Errorf("the same request again: %s, %v", again.Short, err)
	}
}

// While an image is pulled for one sandbox others are made.
func TestPullHoldsNobodyUp(t *testing.T) {
	r := newRig(t)
	r.policy.Creates = 1
	d := r.open()
	pulling, pulled := make(chan struct{}), make(chan struct{})
	d.life.hook("acquire", func() {
		d.life.hook("acquire", nil) // the first one only
		close(pulling)
		<-pulled
	})
	slow := make(chan error)
	go func() {
		_, err := d.Create(context.WithoutCancel(t.Context()), acme, sandbox.CreateRequest{}, "")
		slow <- err
	}()
	<-pulling
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := d.Create(ctx, acme, sandbox.CreateRequest{}, ""); err != nil {
		t.Error(err)
	}
	close(pulled)
	if err := <-slow; err != nil {
		t.Error(err)
	}
}

func TestDraining(t *testing.T) {
	d := newRig(t).open()
	sb := d.create(sandbox.CreateRequest{})
	d.Drain()
	_, err := d.Create(t.Context(), acme, sandbox.CreateRequest{}, "")
	var draining *sandbox.DrainingError
	if !errors.As(err, &draining) || draining.RetryAfter <= 0 || !errdefs.IsUnavailable(err) {
		t.Errorf("got %v", err)
	}
	if res := d.sh(sb.UID, "echo on"); string(res.Stdout) != "on\n" {
		t.Errorf("got %+v", res)
	}
}

func TestEvents(t *testing.T) {
	d := newRig(t).open()
	sb := d.create(sandbox.CreateRequest{})
	f, err := d.Follow(t.Context(), acme, sb.UID, 0)
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan string)
	go func() {
		defer close(got)
		for {
			evs, err := f.Next(context.WithoutCancel(t.Context()))
			if err != nil {
				got <- err.Error()
				return
			}
			for _, ev := range evs {
				got <- fmt.Sprint(ev.Type, " ", ev.Status, " ", ev.Reason)
			}
		}
	}()
	go func() {
		ctx := context.WithoutCancel(t.Context())
		_, err1 := d.Stop(ctx, acme, sb.UID)
		_, err2 := d.Start(ctx, acme, sb.UID)
		_, err3 := d.Update(ctx, acme, sb.UID, sandbox.Update{})
		if err := errors.Join(err1, err2, err3, d.Destroy(ctx, acme, sb.UID)); err != nil {
			t.Error(err)
		}
	}()
	var all []string
	for s := range got {
		all = append(all, s)
	}
	want := []string{
		"state creating ", "state running ", "state stopping stopped", "state stopped stopped", "state starting ", "state running ",
		"update running ", "state destroying destroyed", "state destroyed destroyed", "EOF",
	}
	if !slices.Equal(all, want) {
		t.Errorf("got %q", all)
	}
	if _, err := d.Events(t.Context(), acme, sb.UID, 0); !errdefs.IsNotFound(err) {
		t.Errorf("of a sandbox that is gone: %v", err)
	}
}

func TestStdinOfRun(t *testing.T) {
	d := newRig(t).open()
	sb := d.create(sandbox.CreateRequest{})
	in := bytes.Repeat([]byte("0123456789"), 50_000)
	res, err := d.Exec(t.Context(), acme, sb.UID, sandbox.Command{Argv: []string{"cat"}}, bytes.NewReader(in), "")
	if err != nil || !bytes.Equal(res.Stdout, in) {
		t.Errorf("%d bytes came back, %v", len(res.Stdout), err)
	}
}
