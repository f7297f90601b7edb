package e2e

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"agentbox/internal/sandbox"
)

// HostState is what a daemon has on the host.
type HostState struct {
	Processes, Cgroups, Files, Mounts, FDs int
}

// HostState counts it.
func (d *Daemon) HostState() HostState {
	d.t.Helper()
	s := HostState{Processes: Count(d.t, d.Dir+"/")}
	if owner, err := os.ReadFile(filepath.Join(d.Dir, "daemon", "owner")); err == nil {
		for _, dir := range cgroupDirs(strings.TrimSpace(string(owner))) {
			s.Cgroups += countTree(dir)
		}
	}
	for _, sub := range []string{"daemon", "owners"} {
		s.Files += countTree(filepath.Join(d.Dir, sub))
	}
	if mounts, err := os.ReadFile("/proc/self/mountinfo"); err == nil {
		s.Mounts = strings.Count(string(mounts), d.Dir+"/")
	}
	fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", d.Pid()))
	if err != nil {
		d.t.Fatal(err)
	}
	s.FDs = len(fds)
	return s
}

// countTree counts directories and files below dir, and not what is in them.
func countTree(dir string) (n int) {
	_ = filepath.WalkDir(dir, func(_ string, e os.DirEntry, err error) error {
		if err == nil && (e.IsDir() || !strings.HasPrefix(dir, cgroupRoot)) {
			n++
		}
		return nil // what is gone meanwhile is not counted
	})
	return n
}

// WantState waits until the daemon has no more on the host than before. Of open
// files a few come and go with connections.
func (d *Daemon) WantState(before HostState) {
	d.t.Helper()
	var now HostState
	defer func() {
		if d.t.Failed() {
			d.t.Logf("the host has %+v, before it was %+v", now, before)
		}
	}()
	Until(d.t, 10*time.Second, "nothing is left on the host", func() bool {
		http.DefaultClient.CloseIdleConnections()
		now = d.HostState()
		return now.Processes <= before.Processes && now.Cgroups <= before.Cgroups && now.Files <= before.Files &&
			now.Mounts <= before.Mounts && now.FDs <= before.FDs+4
	})
}

// TestB161: a daemon that was killed finds its sandboxes again, in their true
// states and usable, and reaps them when they are idle.
func TestB161(t *testing.T) {
	t.Parallel()
	d := StartDaemon(t)
	empty := d.HostState()
	ids := map[string]string{}
	for _, name := range []string{"idle", "stopped", "busy"} {
		ids[name] = d.Make(map[string]any{"name": name, "idle_timeout": 5})
	}
	if code := d.Do(d.Key, "POST", "/sandboxes/stopped/stop", "", nil); code != 200 {
		t.Fatalf("stop: %d", code)
	}
	if code := d.Do(d.Key, "POST", "/sandboxes/busy/execute", `{"command":"sleep 8; echo done","detach":true}`, nil); code != 202 {
		t.Fatalf("a command in the background: %d", code)
	}
	d.Kill()
	d.Start()
	var all servedList
	d.Do(d.Key, "GET", "/sandboxes", "", &all)
	states := map[string]string{}
	for _, sb := range all.Items {
		states[sb.ID] = sb.Status
	}
	want := map[string]string{ids["idle"]: "running", ids["stopped"]: "stopped", ids["busy"]: "running"}
	if fmt.Sprint(states) != fmt.Sprint(want) {
		t.Errorf("listed %v, want %v", states, want)
	}
	if code := d.Do(d.Key, "POST", "/sandboxes/stopped/start", "", nil); code != 200 {
		t.Errorf("start: %d", code)
	}
	for name, id := range ids {
		if res, err := d.Box(id).Try(sandbox.Command{Shell: "echo ok"}, nil, output()); err != nil || string(res.Stdout) != "ok\n" {
			t.Errorf("%s: %v, %v", name, res, err)
		}
	}
	Until(t, 30*time.Second, "all are reaped", func() bool {
		d.Do(d.Key, "GET", "/sandboxes", "", &all)
		return len(all.Items) == 0
	})
	var gone served
	if code := d.Do(d.Key, "GET", "/sandboxes/"+ids["busy"], "", &gone); code != 404 || gone.Code != "sandbox_expired" || gone.Reason != "idle" {
		t.Errorf("a reaped one: %d %+v", code, gone)
	}
	d.WantState(empty)
}

// TestB163: destroyed sandboxes leave nothing on the host.
func TestB163(t *testing.T) {
	t.Parallel()
	d := StartDaemon(t)
	cycle := func() {
		id := d.Make(nil)
		WantExit(t, d.Box(id).Sh("echo ok"), 0, "ok\n", "")
		if code := d.Do(d.Key, "DELETE", "/sandboxes/"+id, "", nil); code != 204 {
			t.Errorf("delete: %d", code)
		}
	}
	cycle() // what is made once
	before := d.HostState()
	if id := d.Make(nil); d.HostState().Processes == before.Processes || d.HostState().Cgroups == before.Cgroups {
		t.Error("a sandbox is not seen on the host: the test does not count right")
	} else if code := d.Do(d.Key, "DELETE", "/sandboxes/"+id, "", nil); code != 204 {
		t.Errorf("delete: %d", code)
	}
	for range Sized(5, 200) {
		cycle()
	}
	d.WantState(before)
}

// TestB165: the next client works, whatever became of the one before; what a
// client left goes when it is idle.
func TestB165(t *testing.T) {
	t.Parallel()
	d := StartDaemon(t)
	script := fmt.Sprintf(`id=$(curl -sf -H 'Authorization: Bearer %s' -H 'Content-Type: application/json' -d '{"name":"$0","idle_timeout":5}' %s/api/v1/sandboxes) && echo made && sleep 100`, d.Key, d.URL)
	for i, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGKILL} {
		name := "left" + strconv.Itoa(i)
		cmd := exec.Command("bash", "-c", strings.ReplaceAll(script, "$0", name))
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		stdout, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := stdout.Read(make([]byte, 8)); err != nil {
			t.Fatalf("the client made nothing: %v", err)
		}
		_ = syscall.Kill(-cmd.Process.Pid, sig)
		_ = cmd.Wait() // it was killed
	}
	id := d.Make(map[string]any{"name": "next"})
	WantExit(t, d.Box(id).Sh("echo ok"), 0, "ok\n", "")
	Until(t, 12*time.Second, "what the clients left is reaped", func() bool {
		var all servedList
		d.Do(d.Key, "GET", "/sandboxes", "", &all)
		return len(all.Items) == 1
	})
}

// TestB167: a command leaves no file, no descriptor and no goroutine.
func TestB167(t *testing.T) {
	t.Parallel()
	d := StartDaemon(t)
	box := d.Box(d.Make(nil))
	run := func(n int) {
		parallel(n, 4, func() {
			if res, err := box.Try(sandbox.Command{Argv: []string{"true"}}, nil, output()); err != nil || res.ShellCode() != 0 {
				t.Errorf("got %v, %v", res, err)
			}
		})
	}
	run(50)
	before, grown := d.HostState(), d.goroutines()
	run(Sized(100, 1000))
	d.WantState(before)
	Until(t, 10*time.Second, "no more goroutines", func() bool {
		http.DefaultClient.CloseIdleConnections()
		return d.goroutines() <= grown*105/100+5
	})
}

// goroutines of the daemon, as its metrics tell.
func (d *Daemon) goroutines() int {
	d.t.Helper()
	text := d.Admin().Send("GET", "/metrics", "").Text
	m := regexp.MustCompile(`(?m)^go_goroutines (\d+)$`).FindStringSubmatch(text)
	if m == nil {
		d.t.Fatalf("the metrics don't tell: %.500s", text)
	}
	n, err := strconv.Atoi(m[1])
	if err != nil {
		d.t.Fatal(err)
	}
	return n
}
