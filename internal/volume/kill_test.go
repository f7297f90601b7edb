//go:build linux

package volume_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	"agentbox/internal/sandbox"
	"agentbox/internal/volume"
)

// childEnv tells a process that it is the daemon that a test kills, and where.
const childEnv = "AGENTBOX_TEST_VOLUMES"

type childTask struct {
	Dir  string
	Kind sandbox.VolumeKind
}

// killedChild makes, uses and removes volumes until it is killed, if this is the
// process for that. It says a word before each step.
func killedChild() bool {
	task := os.Getenv(childEnv)
	if task == "" {
		return false
	}
	var c childTask
	err := json.Unmarshal([]byte(task), &c)
	if err == nil {
		err = c.run(context.Background())
	}
	fmt.Fprintln(os.Stderr, err)
	return true
}

func (c childTask) options() (volume.Options, error) {
	r, err := recordsAt(filepath.Join(c.Dir, "records"))
	return volume.Options{
		Dir: filepath.Join(c.Dir, "volumes"), Storage: filepath.Join(c.Dir, "storage"), Records: r,
		UID: base, GID: base, IDs: 65_536, Kind: c.Kind,
	}, err
}

func (c childTask) run(ctx context.Context) error {
	o, err := c.options()
	if err != nil {
		return err
	}
	v, _, err := volume.Open(ctx, o, nil)
	if err != nil {
		return err
	}
	if _, err := v.Create(ctx, "default", "kept", size(v, volume.MinSize)); err != nil && !errdefs.IsAlreadyExists(err) {
		return err
	}
	for i := 0; ; i++ {
		name := fmt.Sprint("v", i%3)
		var m volume.Mount
		var s volume.Storage
		var archive bytes.Buffer
		for _, step := range []func() error{
			func() error { _, err := v.Create(ctx, "default", name, size(v, volume.MinSize)); return err },
			func() error { m, err = v.Acquire(ctx, "default", name, "s", false); return err },
			func() error { return os.WriteFile(filepath.Join(m.Path, "f"), []byte("x"), 0o644) },
			func() error { return v.Release(ctx, "default", name, "s") },
			func() error { _, err := v.Backup(ctx, "default", name, &archive, volume.Bounds{}); return err },
			func() error { _, err := v.Restore(ctx, "default", name, &archive, volume.Bounds{}); return err },
			func() error { return v.Remove(ctx, "default", name) },
			func() error { s, err = v.AcquireTenant(ctx, "a", name, "s"); return err },
			func() error { return os.MkdirAll(filepath.Join(s.Outputs, "a/b/c"), 0o755) },
			func() error { v.ReleaseTenant("a", name, "s"); return v.RemoveTenant(ctx, "a", name) },
		} {
			fmt.Println("step")
			if err := step(); err != nil && !errdefs.IsAlreadyExists(err) {
				return err
			}
		}
	}
}

// kill runs the child and kills it some time after its given step.
func (c childTask) kill(t *testing.T, step int, later time.Duration) {
	t.Helper()
	task, err := json.Marshal(c)
	must(t, err)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+string(task))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	lines := bufio.NewScanner(out)
	for range step {
		if !lines.Scan() {
			break
		}
	}
	time.Sleep(later) // which moment of the step is left to chance
	must(t, cmd.Process.Kill())
	if err := cmd.Wait(); err == nil {
		t.Error("the child ended by itself")
	}
}

// A daemon that is killed at any moment leaves nothing half made to the next
// one, and what was whole stays whole.
func TestKilledAnywhere(t *testing.T) {
	eachKind(t, func(t *testing.T, h *host) {
		c := childTask{Dir: t.TempDir(), Kind: h.Kind}
		h.Dir = filepath.Join(c.Dir, "volumes")
		t.Cleanup(func() { h.clear(t) })
		seed := rand.Uint64()
		rnd := rand.New(rand.NewPCG(seed, 0))
		t.Logf("seed %d", seed)
		for round := range 12 {
			c.kill(t, 1+rnd.IntN(15), time.Duration(rnd.IntN(40_000))*time.Microsecond)
			o, err := c.options()
			must(t, err)
			v, _, err := volume.Open(t.Context(), o, nil)
			must(t, err)
			inOrder(t, h, v, o)
			must(t, v.Close())
			if t.Failed() {
				t.Fatalf("in round %d", round)
			}
		}
	})
}

// inOrder checks that records, directories, mounts and devices agree.
func inOrder(t *testing.T, h *host, v *volume.Volumes, o volume.Options) {
	t.Helper()
	all, err := o.Records.Volumes(t.Context(), "")
	must(t, err)
	var want, have []string
	for _, vol := range all {
		want = append(want, vol.ID)
		if vol.State != sandbox.VolumeReady {
			t.Errorf("%s is %s", vol.Name, vol.State)
		}
		m, err := v.Acquire(t.Context(), vol.Owner, vol.Name, "s", false)
		must(t, err)
		must(t, os.WriteFile(filepath.Join(m.Path, "g"), []byte("x"), 0o644))
		must(t, v.Release(t.Context(), vol.Owner, vol.Name, "s"))
	}
	names, err := os.ReadDir(o.Dir)
	must(t, err)
	for _, n := range names {
		have = append(have, n.Name())
	}
	slices.Sort(want)
	if !slices.Equal(want, have) {
		t.Errorf("records of %v, directories %v", want, have)
	}
	if n := h.mounts(t); n != 0 {
		t.Errorf("%d mounts were left", n)
	}
	h.noLoops(t)
	if _, err := os.Stat(filepath.Join(o.Storage, ".removed")); err == nil {
		t.Error("a removed tenant's storage was left")
	}
}

// Whatever step fails, the next daemon finishes.
func TestHalfMade(t *testing.T) {
	eachKind(t, func(t *testing.T, h *host) {
		for _, at := range []sandbox.VolumeState{sandbox.VolumeReady, sandbox.VolumeRemoving} {
			v, _ := h.open(t)
			dead := false
			h.records.fail = func(s sandbox.VolumeState) error {
				if dead = dead || s == at; dead { // nothing works from there on
					return errKilled
				}
				return nil
			}
			_, err := v.Create(t.Context(), "default", "half", size(v, volume.MinSize))
			if err == nil {
				err = v.Remove(t.Context(), "default", "half")
			}
			if err == nil {
				t.Fatal("nothing failed")
			}
			h.records.fail = nil
			if id := h.records.only(t); at == sandbox.VolumeRemoving {
				must(t, h.records.SetVolumeState(t.Context(), id, sandbox.VolumeRemoving))
			}
			if _, err := v.Acquire(t.Context(), "default", "half", "s", false); !errdefs.IsNotFound(err) {
				t.Errorf("a half made volume can be used: %v", err)
			}
			_, rep := h.open(t)
			if !slices.Equal(rep.Finished, []string{"default/half"}) {
				t.Errorf("%s: the report is %+v", at, rep)
			}
			if names, _ := os.ReadDir(h.Dir); len(names) != 0 || len(h.records.all) != 0 {
				t.Errorf("%s: left %v and %d records", at, names, len(h.records.all))
			}
		}
	})
}
