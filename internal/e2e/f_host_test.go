package e2e

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/errdefs"
)

// memoryGroup makes a control group with a memory limit and returns how a process
// gets in.
func memoryGroup(t testing.TB, limit int64) func(pid int) {
	t.Helper()
	name := fmt.Sprintf("agentbox-f22-%d", os.Getpid())
	root, file := filepath.Join(cgroupRoot, "memory"), "memory.limit_in_bytes"
	if _, err := os.Stat(root); err != nil {
		root, file = cgroupRoot, "memory.max"
	}
	dir := filepath.Join(root, name)
	if err := os.Mkdir(dir, 0o755); err != nil {
		Need(t, false, "a control group for memory: "+err.Error())
	}
	t.Cleanup(func() { _ = os.Remove(dir) })
	write := func(file, text string) {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(file, fmt.Sprint(limit))
	return func(pid int) { write("cgroup.procs", fmt.Sprint(pid)) }
}

// TestF22: a daemon that the kernel kills for its memory loses no sandbox.
func TestF22(t *testing.T) {
	t.Parallel()
	Need(t, os.Getuid() == 0, "root, for a control group")
	d := StartDaemon(t)
	join := memoryGroup(t, 64<<20)
	var boxes []*Box
	for range 4 {
		boxes = append(boxes, d.Box(d.Make(nil)))
	}
	join(d.Pid())
	gone := make(chan error, 1)
	cmd := d.cmd
	go func() { gone <- cmd.Wait() }()
	stop := make(chan struct{})
	var load sync.WaitGroup
	for i := range 16 {
		load.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
					_ = d.ask(ctx, "POST", boxes[i%4].remote.at("/execute"), `{"command":"head -c 50000000 /dev/zero","max_output":50000000}`, nil) // until it is killed
					cancel()
				}
			}
		})
	}
	var err error
	select {
	case err = <-gone:
	case <-time.After(2 * time.Minute):
		t.Error("the kernel does not kill it")
		_ = cmd.Process.Kill()
		err = <-gone
	}
	close(stop)
	load.Wait()
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL {
		t.Errorf("it ended with %v", err)
	}
	d.Start()
	var all servedList
	d.Do(d.Key, "GET", "/sandboxes?status=running", "", &all)
	if len(all.Items) != len(boxes) {
		t.Errorf("%d of %d run", len(all.Items), len(boxes))
	}
	for _, b := range boxes {
		b.Want("ok\n", "echo ok")
	}
}

// cutter is a proxy to a daemon that resets each connection after some bytes, one
// way or the other.
func cutter(t testing.TB, to string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				far, err := net.Dial("tcp", to)
				if err != nil {
					_ = conn.Close()
					return
				}
				up, down := int64(1<<20), int64(1<<20)
				if rand.N(2) == 0 {
					up = rand.N(int64(400)) // in the middle of the request
				} else {
					down = rand.N(int64(1500)) // of the answer, or behind it
				}
				var wg sync.WaitGroup
				end := func(dst, src net.Conn, n int64) {
					_, err := io.CopyN(dst, src, n)
					if err == nil { // the bytes are used up
						_ = conn.(*net.TCPConn).SetLinger(0)
					}
					_ = conn.Close()
					_ = far.Close()
				}
				wg.Go(func() { end(far, conn, up) })
				wg.Go(func() { end(conn, far, down) })
				wg.Wait()
			}()
		}
	}()
	return l.Addr().String()
}

// TestF25: creates that are repeated because their connections broke make one
// sandbox each.
func TestF25(t *testing.T) {
	t.Parallel()
	n := Sized(8, 200)
	d := StartDaemon(t, "--limits-sandboxes", "300", "--limits-sandboxes-per-owner", "300")
	far := *d
	far.URL = "http://" + cutter(t, strings.TrimPrefix(d.URL, "http://"))
	var mu sync.Mutex
	made, next := map[string]string{}, 0
	cuts := 0
	parallel(n, 4, func() {
		mu.Lock()
		key := fmt.Sprint("f25-", next)
		next++
		mu.Unlock()
		for try := range 6 {
			from := &far
			if try == 5 {
				from = d // the last one arrives
			}
			resp, err := from.Admin().Request(t.Context(), "POST", "/sandboxes", strings.NewReader(`{"labels":{"key":"`+key+`"}}`),
				"Content-Type", "application/json", "Idempotency-Key", key, "Connection", "close")
			var body []byte
			if err == nil {
				body, err = io.ReadAll(resp.Body)
				resp.Body.Close()
			}
			mu.Lock()
			var p *Problem
			switch id := idIn(body); {
			case asProblem(err, &p):
				t.Errorf("%s: %v", key, err)
			case err != nil:
				cuts++
			case made[key] != "" && made[key] != id:
				t.Errorf("%s: %s, and before %s", key, id, made[key])
			default:
				made[key] = id
			}
			mu.Unlock()
		}
	})
	var all servedList
	if d.Do(d.Key, "GET", "/sandboxes?limit=1000", "", &all); len(all.Items) != n || len(made) != n {
		t.Errorf("%d sandboxes are there, %d were answered with, want %d", len(all.Items), len(made), n)
	}
	if cuts < n {
		t.Errorf("only %d connections were cut: nothing is tested", cuts)
	}
	if err := d.ask(t.Context(), "POST", "/sandboxes", "{}", nil); errdefs.IsFailedPrecondition(err) {
		t.Error(err)
	}
}

func idIn(body []byte) string {
	_, rest, _ := bytes.Cut(body, []byte(`"id":"`))
	id, _, _ := bytes.Cut(rest, []byte(`"`))
	return string(id)
}

// TestF34: what a daemon left when it died is taken away, and what is others' is
// not touched.
func TestF34(t *testing.T) {
	t.Parallel()
	foreign := StartDaemon(t)
	theirs := foreign.Box(foreign.Make(nil))
	d := StartDaemon(t)
	before := d.HostState()
	dead, alive := d.Make(nil), d.Make(nil)
	owner, err := os.ReadFile(filepath.Join(d.Dir, "daemon", "owner"))
	if err != nil {
		t.Fatal(err)
	}
	groups := cgroupDirs(strings.TrimSpace(string(owner)))
	d.Kill()
	killSandbox(t, dead)

	// Left behind: a socket, a lock file, half of a sandbox, empty groups.
	half := strings.Repeat("ab", 32)
	var own []string
	for _, g := range groups {
		own = append(own, filepath.Join(g, half))
	}
	own = append(own, filepath.Join(d.Dir, "daemon", "sandboxes", half))
	for _, dir := range own {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	// Of others: groups beside ours, a file, a process with our path, a port.
	var decoys []string
	for _, g := range groups {
		decoys = append(decoys, filepath.Join(filepath.Dir(g), "decoy-"+filepath.Base(d.Dir)))
	}
	decoys = append(decoys, filepath.Join(d.Dir, "notes"))
	for _, dir := range decoys {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.Remove(dir) })
	}
	sleeper := exec.Command("sleep", "1000")
	sleeper.Dir = filepath.Join(d.Dir, "notes")
	if err := sleeper.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sleeper.Process.Kill(); _ = sleeper.Wait() })
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	if out := Run(t, d.Dir, "", "serve", "--listen", busy.Addr().String(), "--sandbox-image", Image); out.Code == 0 || !strings.Contains(out.Stderr, busy.Addr().String()) {
		t.Errorf("on a busy port: %+v", out)
	}
	d.Start()
	for _, dir := range own {
		if _, err := os.Stat(dir); err == nil {
			t.Errorf("%s is left", dir)
		}
	}
	for _, dir := range decoys {
		if _, err := os.Stat(dir); err != nil {
			t.Errorf("a decoy is gone: %v", err)
		}
	}
	if err := sleeper.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("another's process is gone: %v", err)
	}
	theirs.Want("ok\n", "echo ok")
	d.Box(alive).Want("ok\n", "echo ok")
	var p served
	if code := d.Do(d.Key, "GET", "/sandboxes/"+dead, "", &p); code != 404 || p.Reason == "" {
		t.Errorf("the dead one: %d %+v", code, p)
	}
	d.Do(d.Key, "DELETE", "/sandboxes/"+alive, "", nil)
	d.WantState(before)
}

// TestF35: a data directory has one daemon, also right after that was killed.
func TestF35(t *testing.T) {
	t.Parallel()
	d := StartDaemon(t)
	box := d.Box(d.Make(nil))
	second := func() Out {
		return Run(t, d.Dir, "", "serve", "--listen", "127.0.0.1:0", "--sandbox-image", Image)
	}
	if out := second(); out.Code == 0 || !strings.Contains(out.Stderr, "another daemon") {
		t.Errorf("a second daemon: %+v", out)
	}
	box.Want("ok\n", "echo ok")
	d.Kill()
	d.Start()
	box.Want("ok\n", "echo ok")
	if out := second(); out.Code == 0 || !strings.Contains(out.Stderr, "another daemon") {
		t.Errorf("a second daemon beside the next one: %+v", out)
	}
}
