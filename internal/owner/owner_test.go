package owner_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"

	"agentbox/internal/owner"
)

// TestMain lets the test binary play an owner that is killed.
func TestMain(m *testing.M) {
	if dir := os.Getenv("OWNER_TEST_HOLD"); dir != "" {
		o, err := owner.New(dir)
		if err != nil {
			os.Exit(1)
		}
		os.Stdout.WriteString("held\n")
		_, _ = os.Stdin.Read(make([]byte, 1))
		runtime.KeepAlive(o)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// hold starts a process that holds an owner directory in data.
func hold(t *testing.T, data string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "OWNER_TEST_HOLD="+data)
	if _, err := cmd.StdinPipe(); err != nil { // stays open: the process waits on it
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _, _ = cmd.Process.Wait() })
	if _, err := out.Read(make([]byte, 8)); err != nil {
		t.Fatal(err)
	}
	return cmd
}

func TestSweepTakesOnlyTheDead(t *testing.T) {
	data := t.TempDir()
	mine, err := owner.New(data)
	if err != nil {
		t.Fatal(err)
	}
	killed := hold(t, data)
	hold(t, data)
	if live, err := owner.Live(data); err != nil || len(live) != 3 {
		t.Fatalf("Live = %v, %v; want three", live, err)
	}
	if err := killed.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_, _ = killed.Process.Wait()

	var seen []string
	gone, err := owner.Sweep(context.Background(), data, func(_ context.Context, id, dir string) error {
		if _, err := os.Stat(dir); err != nil {
			t.Error(err)
		}
		seen = append(seen, id)
		return nil
	})
	if err != nil || len(gone) != 1 || !slices.Equal(gone, seen) {
		t.Fatalf("Sweep = %v, %v after reclaiming %v; want the killed one", gone, err, seen)
	}
	live, err := owner.Live(data)
	if err != nil || len(live) != 2 || !slices.Contains(live, mine.ID) {
		t.Fatalf("Live after the sweep = %v, %v; want mine (%s) and one more", live, err, mine.ID)
	}
	if err := mine.Release(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(mine.Dir); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("released directory: %v", err)
	}
}

func TestSweepKeepsWhatCouldNotBeReclaimed(t *testing.T) {
	data := t.TempDir()
	p := hold(t, data)
	_ = p.Process.Kill()
	_, _ = p.Process.Wait()
	boom := errors.New("boom")
	gone, err := owner.Sweep(context.Background(), data, func(context.Context, string, string) error { return boom })
	if !errors.Is(err, boom) || len(gone) != 0 {
		t.Fatalf("Sweep = %v, %v", gone, err)
	}
	left, _ := filepath.Glob(filepath.Join(data, "owners", "[^.]*"))
	if len(left) != 1 {
		t.Fatalf("directories left: %v; want the one that failed", left)
	}
	gone, err = owner.Sweep(context.Background(), data, func(context.Context, string, string) error { return nil })
	if err != nil || len(gone) != 1 {
		t.Fatalf("second Sweep = %v, %v; want it gone", gone, err)
	}
}

func TestSweepOfNothing(t *testing.T) {
	if gone, err := owner.Sweep(context.Background(), t.TempDir(), nil); err != nil || len(gone) != 0 {
		t.Fatalf("Sweep = %v, %v", gone, err)
	}
}

// Processes that begin and end side by side leave nothing and hear of nothing, while
// others look who is alive.
func TestManyComeAndGo(t *testing.T) {
	data := t.TempDir()
	ended := make(chan struct{})
	var lookers, owners sync.WaitGroup
	for _, look := range []func() error{
		func() error { _, err := owner.Live(data); return err },
		func() error {
			_, err := owner.Sweep(t.Context(), data, func(context.Context, string, string) error { return nil })
			return err
		},
	} {
		lookers.Go(func() {
			for {
				select {
				case <-ended:
					return
				default:
				}
				if err := look(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range 4 {
		owners.Go(func() {
			for range 200 {
				o, err := owner.New(data)
				if err == nil {
					err = o.Release()
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	owners.Wait()
	close(ended)
	lookers.Wait()
	if live, err := owner.Live(data); err != nil || len(live) > 0 {
		t.Errorf("left %v, %v", live, err)
	}
}
