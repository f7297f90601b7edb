package e2e

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"agentbox/internal/guest/client"
	"agentbox/internal/sandbox"
)

// The rows about load, small; in a soak run at their full size.

// RSS is the daemon's memory, in bytes.
func (d *Daemon) RSS() (n int64) {
	d.t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", d.Pid()))
	if err != nil {
		d.t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(b), "VmRSS:")
	if _, err := fmt.Sscan(rest, &n); err != nil {
		d.t.Fatal(err)
	}
	return n << 10
}

// Highest runs f and returns by how much the daemon's memory grew meanwhile, at
// its highest.
func (d *Daemon) Highest(f func()) int64 {
	d.t.Helper()
	before, highest := d.RSS(), int64(0)
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			highest = max(highest, d.RSS())
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	}()
	f()
	close(stop)
	<-done
	return highest - before
}

// percentile of durations.
func percentile(list []time.Duration, p int) time.Duration {
	slices.Sort(list)
	return list[(len(list)-1)*p/100]
}

// timed runs f n times with w clients and returns how long each took.
func timed(n, w int, f func()) []time.Duration {
	var mu sync.Mutex
	var all []time.Duration
	parallel(n, w, func() {
		began := time.Now()
		f()
		took := time.Since(began)
		mu.Lock()
		defer mu.Unlock()
		all = append(all, took)
	})
	return all
}

// TestL01: sandboxes come and go for four clients without an error and without a
// trace.
func TestL01(t *testing.T) {
	t.Parallel()
	d := StartDaemon(t)
	cycle := func() {
		var sb served
		if err := d.ask(t.Context(), "POST", "/sandboxes", "{}", &sb); err != nil {
			t.Error(err)
			return
		}
		if res, err := d.Box(sb.ID).Try(sandbox.Command{Argv: []string{"true"}}, nil, output()); err != nil || res.ShellCode() != 0 {
			t.Errorf("got %v, %v", res, err)
		}
		if err := d.ask(t.Context(), "DELETE", "/sandboxes/"+sb.ID, "", nil); err != nil {
			t.Error(err)
		}
	}
	parallel(4, 4, cycle)
	before, memory := d.HostState(), d.RSS()
	all := timed(Sized(8, 1000), 4, cycle)
	d.WantState(before)
	grown := d.RSS() - memory
	if grown > 64*sandbox.MiB {
		t.Errorf("the daemon grew by %d MiB", grown/sandbox.MiB)
	}
	t.Logf("p50 %v, p95 %v; the daemon grew by %d MiB", percentile(all, 50), percentile(all, 95), grown/sandbox.MiB)
}

// TestL03: sandboxes that nobody uses go on, and cost what they cost.
func TestL03(t *testing.T) {
	t.Parallel()
	d := StartDaemon(t)
	n := Sized(4, 50)
	var boxes []*Box
	for range n {
		boxes = append(boxes, d.Box(d.Make(nil)))
	}
	if Soak() {
		time.Sleep(10 * time.Minute)
	}
	var total int64
	for _, b := range boxes {
		b.Want("ok\n", "echo ok")
		var stats struct{ Memory int64 }
		if d.Do(d.Key, "GET", b.remote.at("/stats"), "", &stats); stats.Memory == 0 {
			t.Error("no memory is measured")
		}
		total += stats.Memory
	}
	t.Logf("%d sandboxes, %d MiB each; the daemon has %d MiB", n, total/int64(n)/sandbox.MiB, d.RSS()/sandbox.MiB)
}

// TestL05: eight clients run commands in one sandbox.
func TestL05(t *testing.T) {
	t.Parallel()
	box := NewRemote(t, sandbox.Limits{})
	end := time.Now().Add(time.Duration(Sized(1, 60)) * time.Second)
	var mu sync.Mutex
	var all []time.Duration
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for time.Now().Before(end) {
				began := time.Now()
				res, err := box.Try(sandbox.Command{Argv: []string{"true"}}, nil, output())
				if err != nil || res.ShellCode() != 0 {
					t.Errorf("got %v, %v", res, err)
					return
				}
				mu.Lock()
				all = append(all, time.Since(began))
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	t.Logf("%d commands, p50 %v, p99 %v", len(all), percentile(all, 50), percentile(all, 99))
}

// TestL07: large files go in and come out whole, and the daemon does not hold
// them.
func TestL07(t *testing.T) {
	t.Parallel()
	d := StartDaemon(t)
	size := int64(Sized(16<<20, 1<<30))
	box := d.Box(d.Make(map[string]any{"disk": "6g", "memory": "1g"}))
	grown := d.Highest(func() {
		var wg sync.WaitGroup
		for i := range 4 {
			wg.Go(func() {
				name := fmt.Sprintf("/workspace/f%d", i)
				in, out := sha256.New(), sha256.New()
				if err := box.remote.WriteFile(context.Background(), name, io.TeeReader(io.LimitReader(rand.Reader, size), in), client.WriteOptions{}); err != nil {
					t.Error(err)
					return
				}
				c, err := box.remote.ReadFile(context.Background(), name, client.ReadOptions{})
				if err != nil {
					t.Error(err)
					return
				}
				defer c.Close()
				if n, err := io.Copy(out, c); err != nil || n != size || string(out.Sum(nil)) != string(in.Sum(nil)) {
					t.Errorf("%s: %d bytes came back, %v", name, n, err)
				}
			})
		}
		wg.Wait()
	})
	if grown > 64*sandbox.MiB {
		t.Errorf("the daemon grew by %d MiB", grown/sandbox.MiB)
	}
	t.Logf("4 x %d MiB up and down: the daemon grew by %d MiB", size>>20, grown/sandbox.MiB)
}

// TestL09: sixty-four clients look at sandboxes all the time.
func TestL09(t *testing.T) {
	t.Parallel()
	d := StartDaemon(t, "--rate-limit-per-key", "0")
	var ids []string
	for range 3 {
		ids = append(ids, d.Make(nil))
	}
	end := time.Now().Add(time.Duration(Sized(1, 30)) * time.Second)
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	defer client.CloseIdleConnections()
	var mu sync.Mutex
	codes, all := map[int]int{}, []time.Duration(nil)
	var wg sync.WaitGroup
	for i := range 64 {
		path := []string{"/sandboxes", "/sandboxes/" + ids[i%3]}[i%2]
		wg.Go(func() {
			for time.Now().Before(end) {
				began := time.Now()
				r, err := http.NewRequestWithContext(t.Context(), "GET", d.URL+"/api/v1"+path, nil)
				if err != nil {
					t.Error(err)
					return
				}
				r.Header.Set("X-API-Key", d.Key)
				resp, err := client.Do(r)
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = io.Copy(io.Discard, resp.Body) // its status counts
				resp.Body.Close()
				mu.Lock()
				codes[resp.StatusCode]++
				all = append(all, time.Since(began))
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if len(codes) != 1 || codes[200] == 0 {
		t.Errorf("the answers were %v", codes)
	}
	t.Logf("%d answers, p50 %v, p99 %v", len(all), percentile(all, 50), percentile(all, 99))
}

// TestL15: in the middle of mixed work the daemon is killed again and again: no
// sandbox is in a wrong state, and nothing is left.
func TestL15(t *testing.T) {
	t.Parallel()
	d := StartDaemon(t)
	before := d.HostState()
	kept := []*Box{d.Box(d.Make(nil)), d.Box(d.Make(nil))}
	for round := range Sized(1, 10) {
		end := time.Now().Add(time.Duration(Sized(3, 120)) * time.Second)
		var wg sync.WaitGroup
		for i := range 4 {
			wg.Go(func() {
				for time.Now().Before(end) {
					ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
					_, _ = kept[i%2].Try(sandbox.Command{Shell: "date > /workspace/d", Timeout: 10 * time.Second}, nil, output()) // what is under way at the kill is cut
					var sb served
					if i == 3 && d.ask(ctx, "POST", "/sandboxes", `{"idle_timeout":10}`, &sb) == nil {
						_ = d.ask(ctx, "DELETE", "/sandboxes/"+sb.ID, "", nil)
					}
					cancel()
				}
			})
		}
		time.Sleep(time.Until(end) * 2 / 3)
		_ = d.cmd.Process.Kill()
		wg.Wait()
		_ = d.cmd.Wait() // it was killed
		d.Start()
		for _, b := range kept {
			b.Want(fmt.Sprintln("round", round), fmt.Sprint("echo round ", round))
		}
	}
	var all servedList
	d.Do(d.Key, "GET", "/sandboxes?limit=1000", "", &all)
	for _, sb := range all.Items {
		if sb.Status != "running" {
			t.Errorf("%s is %s", sb.ID, sb.Status)
		}
		d.Do(d.Key, "DELETE", "/sandboxes/"+sb.ID, "", nil)
	}
	d.WantState(before)
}

// TestL16: twenty creates at once, again and again.
func TestL16(t *testing.T) {
	t.Parallel()
	d := StartDaemon(t)
	var all []time.Duration
	for range Sized(1, 10) {
		var mu sync.Mutex
		var ids []string
		all = append(all, timed(20, 20, func() {
			var sb served
			if err := d.ask(t.Context(), "POST", "/sandboxes", "{}", &sb); err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			ids = append(ids, sb.ID)
		})...)
		parallel(20, 4, func() {
			mu.Lock()
			id := ids[0]
			ids = ids[1:]
			mu.Unlock()
			if err := d.ask(t.Context(), "DELETE", "/sandboxes/"+id, "", nil); err != nil {
				t.Error(err)
			}
		})
	}
	t.Logf("%d creates, p50 %v, p95 %v", len(all), percentile(all, 50), percentile(all, 95))
}
