package manager_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/containerd/errdefs"

	"agentbox/internal/guest/client"
	"agentbox/internal/sandbox"
)

// B174: a burst does not pass the limit.
func TestBurst(t *testing.T) {
	r := newRig(t)
	r.policy.MaxSandboxes = 5
	d := r.open()
	var made, refused atomic.Int64
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			_, err := d.Create(context.WithoutCancel(t.Context()), acme, sandbox.CreateRequest{}, "")
			var l *sandbox.LimitError
			switch {
			case err == nil:
				made.Add(1)
			case errors.As(err, &l) && l.RetryAfter > 0:
				refused.Add(1)
			default:
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if made.Load() != 5 || refused.Load() != 45 || len(r.inHost()) != 5 {
		t.Errorf("%d were made, %d refused, %d are there", made.Load(), refused.Load(), len(r.inHost()))
	}
}

// Only so many sandboxes are made at the same time; the others wait.
func TestCreatesAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		r.policy.Creates = 2
		d := r.open()
		var inside atomic.Int64
		goOn := make(chan struct{})
		d.life.hook("create", func() {
			inside.Add(1)
			<-goOn
		})
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() { d.create(sandbox.CreateRequest{}) })
		}
		synctest.Wait() // until nobody gets any further
		if n := inside.Load(); n != 2 {
			t.Errorf("%d are made at once", n)
		}
		close(goOn)
		wg.Wait()
		if n := len(r.inHost()); n != 10 {
			t.Errorf("%d were made", n)
		}
	})
}

// A destroy in the middle of a creation ends both, and leaves nothing.
func TestDestroyDuringCreate(t *testing.T) {
	for _, step := range []string{"acquire", "create", "create done", "start", "attach", "save running"} {
		r := newRig(t)
		d := r.open()
		ctx := context.WithoutCancel(t.Context())
		destroyed := make(chan error, 1)
		var once sync.Once
		d.life.hook(step, func() {
			once.Do(func() {
				begun := make(chan struct{})
				go func() {
					close(begun)
					destroyed <- d.Destroy(ctx, acme, "a")
				}()
				<-begun
			})
		})
		sb, err := d.Create(ctx, acme, sandbox.CreateRequest{Name: "a"}, "")
		var gone *sandbox.GoneError
		if err != nil && (!errors.As(err, &gone) || gone.Tombstone.Reason != sandbox.ReasonDestroyed) {
			t.Errorf("%s: created %+v, %v", step, sb, err)
		}
		if err := <-destroyed; err != nil {
			t.Errorf("%s: destroyed %v", step, err)
		}
		d.wantGone("a", sandbox.ReasonDestroyed)
		if len(r.inHost()) != 0 || d.life.held != 0 {
			t.Errorf("%s: left are %v, %d images", step, r.inHost(), d.life.held)
		}
	}
}

// Who gives up waiting for a creation leaves nothing behind.
func TestCreateCanceled(t *testing.T) {
	for _, step := range []string{"admit", "acquire", "create", "start", "attach"} {
		r := newRig(t)
		d := r.open()
		ctx, cancel := context.WithCancel(t.Context())
		d.life.hook(step, cancel)
		if _, err := d.Create(ctx, acme, sandbox.CreateRequest{}, "k"); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", step, err)
		}
		if page, err := d.List(t.Context(), acme, sandbox.Filter{}); err != nil || len(page.Items) != 0 || len(r.inHost()) != 0 || d.life.held != 0 {
			t.Errorf("%s: left are %+v, %v, %v", step, page, r.inHost(), err)
		}
	}
}

// Whoever is told that a sandbox is destroyed does not see it again.
func TestManyDestroy(t *testing.T) {
	r := newRig(t)
	d := r.open()
	sb := d.create(sandbox.CreateRequest{})
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			if err := d.Destroy(context.WithoutCancel(t.Context()), acme, sb.UID); err != nil && !errdefs.IsNotFound(err) {
				t.Error(err)
			}
			if _, err := d.Get(t.Context(), acme, sb.UID); !errdefs.IsNotFound(err) {
				t.Errorf("it is still there: %v", err)
			}
		})
	}
	wg.Wait()
}

// Many clients do everything at once with a few sandboxes: what they are told is
// an answer or an error that fits, and at the end nothing is left.
func TestHammer(t *testing.T) {
	r := newRig(t)
	d := r.open()
	names := []string{"a", "b", "c"}
	var wg sync.WaitGroup
	for n := range 8 {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(n), 2))
			for range 40 {
				name := names[rnd.IntN(len(names))]
				if err := d.act(context.WithoutCancel(t.Context()), rnd.IntN(9), name); err != nil && !fits(err) {
					t.Errorf("%s: %v", name, err)
				}
			}
		})
	}
	wg.Wait()
	for _, name := range names {
		if err := d.Destroy(t.Context(), acme, name); err != nil && !errdefs.IsNotFound(err) {
			t.Error(err)
		}
	}
	if page, err := d.List(t.Context(), acme, sandbox.Filter{}); err != nil || len(page.Items) != 0 || len(r.inHost()) != 0 || d.life.held != 0 {
		t.Errorf("left are %+v, %v, %d images, %v", page, r.inHost(), d.life.held, err)
	}
}

// F-03: a daemon is killed while many clients work. The next one agrees with the
// machine, and every sandbox is of use.
func TestKilledUnderLoad(t *testing.T) {
	r := newRig(t)
	rnd := rand.New(rand.NewPCG(3, 4))
	names := []string{"a", "b", "c", "d"}
	for range 10 {
		d := r.open()
		r.agree(d)
		d.life.dieIn(20 + rnd.IntN(60))
		var wg sync.WaitGroup
		for range 6 {
			mine := rand.New(rand.NewPCG(rnd.Uint64(), 5))
			wg.Go(func() {
				for i := 0; i < 200 && !d.life.isDead(); i++ {
					name := names[mine.IntN(len(names))]
					err := d.act(context.WithoutCancel(t.Context()), mine.IntN(9), name)
					if err != nil && !fits(err) && !d.life.isDead() {
						t.Errorf("%s: %v", name, err)
					}
				}
			})
		}
		wg.Wait()
		d.kill()
	}
	d := r.open()
	for name := range r.agree(d) {
		if err := d.Destroy(t.Context(), acme, name); err != nil {
			t.Error(err)
		}
	}
	if left := r.inHost(); len(left) != 0 {
		t.Errorf("left is %v", left)
	}
}

func (d *daemon) act(ctx context.Context, what int, name string) (err error) {
	switch what {
	case 0, 1:
		_, err = d.Create(ctx, acme, sandbox.CreateRequest{Name: name}, "")
	case 2:
		err = d.Destroy(ctx, acme, name)
	case 3:
		_, err = d.Stop(ctx, acme, name)
	case 4:
		_, err = d.Start(ctx, acme, name)
	case 5:
		_, err = d.Update(ctx, acme, name, sandbox.Update{})
	case 6:
		var l interface {
			Session() *client.Session
			Release()
		}
		if l, err = d.Acquire(ctx, acme, name); err == nil {
			err = l.Session().WriteFile(ctx, "/workspace/upload", strings.NewReader("x"), client.WriteOptions{})
			l.Release()
		}
	case 7:
		if _, err = d.Get(ctx, acme, name); err == nil {
			_, err = d.Events(ctx, acme, name, 0)
		}
	default:
		var res *sandbox.Result
		res, err = d.Exec(ctx, acme, name, sandbox.Command{Shell: "echo hi"}, nil, "")
		if err == nil && res.Outcome != sandbox.Lost && string(res.Stdout) != "hi\n" {
			err = errors.New("a wrong result")
		}
	}
	return err
}

// fits reports an error that other clients' work explains.
func fits(err error) bool {
	return errdefs.IsNotFound(err) || errdefs.IsFailedPrecondition(err) || errdefs.IsAlreadyExists(err) || errdefs.IsUnavailable(err)
}
