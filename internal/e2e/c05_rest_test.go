package e2e

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"agentbox/internal/guest/client"
	"agentbox/internal/sandbox"
)

// TestB030_REST: output is bounded in the daemon's memory, too, also of several
// commands at once and before anything is collected; clients that stall hold
// nothing.
func TestB030_REST(t *testing.T) {
	t.Parallel()
	d := StartDaemon(t)
	box, other := d.Box(d.Make(nil)), d.Box(d.Make(nil))
	box.Want("ok\n", "echo ok")

	t.Run("B032", func(t *testing.T) { outputOverCap(t, d, box) })
	t.Run("B036", func(t *testing.T) { stalledReaders(t, d, box) })
	t.Run("B030", func(t *testing.T) { endlessOutput(t, d, box, other) })
	t.Run("B124", func(t *testing.T) { endlessJob(t, d, box) })
}

// outputOverCap: what is over a command's cap is not collected first.
func outputOverCap(t *testing.T, d *Daemon, box *Box) {
	grown := d.Highest(func() {
		res, err := box.Try(sandbox.Command{Shell: "head -c 100000000 /dev/zero", MaxOutput: sandbox.MiB}, nil, output())
		if err != nil || int64(len(res.Stdout)) != sandbox.MiB || !res.StdoutTruncated || res.ShellCode() != 0 {
			t.Errorf("got %v, %v", res, err)
		}
	})
	if grown >= 32*sandbox.MiB {
		t.Errorf("the daemon grew by %d MiB", grown/sandbox.MiB)
	}
	t.Logf("with a cap of 1 MiB the daemon grew by %d MiB", grown/sandbox.MiB)
}

// stalledReaders: clients that stall hold nothing.
func stalledReaders(t *testing.T, d *Daemon, box *Box) {
	grown := d.Highest(func() {
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				resp, err := d.Admin().Request(ctx, "POST", box.remote.at("/execute/stream"), strings.NewReader(`{"command":["yes"]}`), "Content-Type", "application/json")
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = resp.Body.Read(make([]byte, 1)) // and no more
				<-ctx.Done()
				resp.Body.Close()
			})
		}
		box.WaitCount("yes", 20, 20*time.Second)
		time.Sleep(time.Duration(Sized(3, 30)) * time.Second) // they stall for so long
		cancel()
		wg.Wait()
		box.WaitCount("yes", 0, sandbox.DisconnectGrace+2*time.Second)
	})
	if grown >= 64*sandbox.MiB {
		t.Errorf("the daemon grew by %d MiB", grown/sandbox.MiB)
	}
	t.Logf("with 20 clients that stall the daemon grew by %d MiB", grown/sandbox.MiB)
}

// endlessOutput: commands that print without end cost what they may keep, and hold up
// nobody.
func endlessOutput(t *testing.T, d *Daemon, box, other *Box) {
	var slowest time.Duration
	grown := d.Highest(func() {
		var err error
		slowest, err = meanwhile(other, func() {
			parallel(5, 5, func() {
				// A client that keeps nothing: what is measured is the daemon.
				resp, err := d.Admin().Request(t.Context(), "POST", box.remote.at("/execute"), strings.NewReader(`{"command":["yes"],"timeout":5}`), "Content-Type", "application/json")
				if err != nil {
					t.Error(err)
					return
				}
				defer resp.Body.Close()
				if n, err := io.Copy(io.Discard, resp.Body); err != nil || n > 8*sandbox.DefaultMaxOutput {
					t.Errorf("%d bytes, %v", n, err)
				}
			})
		})
		if err != nil {
			t.Error(err)
		}
	})
	if most := int64(5*sandbox.DefaultMaxOutput) + 64*sandbox.MiB; grown >= most {
		t.Errorf("the daemon grew by %d MiB, want less than %d", grown/sandbox.MiB, most/sandbox.MiB)
	}
	if slowest > time.Second+Slack() {
		t.Errorf("another request took %v meanwhile", slowest)
	}
	t.Logf("with 5 endless commands the daemon grew by %d MiB, slowest other request %v", grown/sandbox.MiB, slowest)
}

// endlessJob: a detached command that prints without end fills neither memory nor disk.
func endlessJob(t *testing.T, d *Daemon, box *Box) {
	before := treeSize(t, d.Dir)
	job := encode(t, map[string]any{"command": []string{"yes"}, "detach": true, "timeout": Sized(5, 60)})
	var started answered
	if code := d.Do(d.Key, "POST", box.remote.at("/execute"), job, &started); code != 202 {
		t.Fatalf("a command: %d", code)
	}
	grown := d.Highest(func() {
		if err := box.remote.call("POST", "/execs/"+started.ExecID+"/wait", "", nil); err != nil {
			t.Error(err)
		}
	})
	if disk := treeSize(t, d.Dir) - before; disk > 64*sandbox.MiB || grown > 64*sandbox.MiB {
		t.Errorf("the data directory grew by %d MiB, the daemon by %d MiB", disk/sandbox.MiB, grown/sandbox.MiB)
	}
	if code := d.status("/health"); code != 200 {
		t.Errorf("/health: %d", code)
	}
}

// TestB095_REST: a large file in and out through a slow client is held nowhere,
// and no request ends before it.
func TestB095_REST(t *testing.T) {
	t.Parallel()
	d := StartDaemon(t)
	size := int64(Sized(64<<20, 2<<30))
	rate := int64(Sized(64<<20, 10<<20))
	box := d.Box(d.Make(map[string]any{"disk": "6g"}))
	grown := d.Highest(func() {
		if err := box.remote.WriteFile(t.Context(), "/workspace/big", io.LimitReader(zeros{}, size), client.WriteOptions{}); err != nil {
			t.Fatal(err)
		}
		c, err := box.remote.ReadFile(t.Context(), "/workspace/big", client.ReadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		total := int64(0)
		for {
			n, err := io.CopyN(io.Discard, c, rate/10)
			total += n
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("after %d bytes: %v", total, err)
			}
			time.Sleep(100 * time.Millisecond) // a slow reader
		}
		if total != size {
			t.Errorf("%d bytes of %d came back", total, size)
		}
	})
	if grown >= 64*sandbox.MiB {
		t.Errorf("the daemon grew by %d MiB", grown/sandbox.MiB)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }
