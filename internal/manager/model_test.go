package manager_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"agentbox/internal/sandbox"
)

// model is what the sandboxes of the machine may be, by name: an operation that a
// kill cut short may have been done or not.
type model map[string][]sandbox.State

const absent = sandbox.State("absent")

// TestRandomLife does random things with sandboxes and kills the daemon, or
// sandboxes, in the middle of them. Whatever it was, the next daemon has only
// what the model allows.
func TestRandomLife(t *testing.T) {
	for seed := range uint64(5) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			g := &game{rig: newRig(t), rnd: rand.New(rand.NewPCG(seed, 1)), model: model{}, execs: map[string]string{}}
			g.d = g.open()
			for range 60 {
				g.play()
			}
			g.restart()
		})
	}
}

type game struct {
	*rig
	d     *daemon
	rnd   *rand.Rand
	model model
	execs map[string]string // a command that runs, by the name of its sandbox
	next  int
}

// play does one thing, in which the daemon may die.
func (g *game) play() {
	if g.rnd.IntN(3) == 0 {
		g.d.life.dieIn(1 + g.rnd.IntN(12))
	}
	names := slices.Sorted(maps.Keys(g.model))
	if len(names) == 0 || len(names) < 5 && g.rnd.IntN(3) == 0 {
		g.create()
	} else {
		name := names[g.rnd.IntN(len(names))]
		switch g.rnd.IntN(5) {
		case 0:
			g.apply(name, absent, func() error { return g.d.Destroy(g.t.Context(), acme, name) })
		case 1:
			g.apply(name, sandbox.Stopped, func() error { _, err := g.d.Stop(g.t.Context(), acme, name); return err })
		case 2:
			g.apply(name, sandbox.Live, func() error { _, err := g.d.Start(g.t.Context(), acme, name); return err })
		case 3:
			g.run(name)
		case 4:
			g.crash(name)
		}
	}
	if g.d.life.isDead() {
		g.restart()
	}
	g.d.life.dieIn(0)
}

func (g *game) create() {
	name := fmt.Sprint("n", g.next)
	g.next++
	g.model[name] = []sandbox.State{absent}
	g.apply(name, sandbox.Live, func() error {
		_, err := g.d.Create(g.t.Context(), acme, sandbox.CreateRequest{Name: name}, "")
		return err
	})
}

// apply does what brings a sandbox into a state, for sure when it succeeds.
func (g *game) apply(name string, to sandbox.State, f func() error) {
	err := f()
	switch {
	case err == nil && to == absent:
		delete(g.model, name)
	case err == nil:
		g.model[name] = []sandbox.State{to}
	case g.d.life.isDead():
		g.model[name] = append(g.model[name], to)
	default:
		g.t.Fatalf("%s to %s: %v", name, to, err)
	}
	if to != sandbox.Live {
		delete(g.execs, name)
	}
}

// run leaves a command running, which is to be found again.
func (g *game) run(name string) {
	if !slices.Equal(g.model[name], []sandbox.State{sandbox.Live}) || g.execs[name] != "" {
		return
	}
	e, err := g.d.StartExec(g.t.Context(), acme, name, sandbox.Command{Shell: "echo -n " + name + " > /workspace/f; echo out; sleep infinity", Background: true}, nothing, "")
	switch {
	case err == nil:
		g.execs[name] = e.ID()
	case !g.d.life.isDead():
		g.t.Fatal(err)
	}
}

// crash ends a running sandbox from outside.
func (g *game) crash(name string) {
	if g.rnd.IntN(3) > 0 || !slices.Equal(g.model[name], []sandbox.State{sandbox.Live}) {
		return
	}
	sb := g.d.get(name)
	if err := g.host.Kill(sb.UID, sandbox.ReasonCrashed, ""); err != nil {
		g.t.Fatal(err)
	}
	until(g.t, "it is buried or the daemon is dead", func() bool {
		_, err := g.d.Get(g.t.Context(), acme, name)
		return err != nil || g.d.life.isDead()
	})
	delete(g.model, name)
	delete(g.execs, name)
}

// restart kills the daemon and holds the next one against the model.
func (g *game) restart() {
	g.d.kill()
	for { // the next ones may die early
		d, err := g.tryOpen(func(l *life) {
			if g.rnd.IntN(4) == 0 {
				l.dieIn(1 + g.rnd.IntN(10))
			}
		})
		if err == nil && !d.life.isDead() {
			g.d = d
			break
		}
		if err == nil {
			d.kill()
		}
	}
	g.d.life.dieIn(0)
	g.t.Cleanup(g.d.close)
	found := g.agree(g.d)
	for name, allowed := range g.model {
		got, ok := found[name]
		if !ok {
			got = absent
		}
		if !slices.Contains(allowed, got) {
			g.t.Fatalf("%s is %s, not one of %v", name, got, allowed)
		}
		g.model[name] = []sandbox.State{got}
		if got == absent {
			delete(g.model, name)
		}
		delete(found, name)
	}
	if len(found) != 0 {
		g.t.Fatalf("nobody made %v", found)
	}
	for name, id := range g.execs {
		info, err := g.d.ExecInfo(g.t.Context(), acme, name, id, true)
		if err != nil || info.Result.Outcome != sandbox.Running || string(info.Result.Stdout) != "out\n" {
			g.t.Errorf("the command in %s: %+v, %v", name, info, err)
		}
	}
}
