package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// described is what these tests look at of a sandbox.
type described struct {
	served
	Limits struct {
		Memory, Pids int64
		CPUs         float64
	} `json:"limits"`
	Ports []struct{ Guest, Host int } `json:"ports"`
}

// said runs a command line and returns what it says, without the end of the line.
func (d *Daemon) said(id, line string) string {
	d.t.Helper()
	body, err := json.Marshal(map[string]any{"command": line, "timeout": 60})
	if err != nil {
		d.t.Fatal(err)
	}
	var res executed
	if code := d.Do(d.Key, "POST", "/sandboxes/"+id+"/execute", string(body), &res); code != 200 {
		d.t.Fatalf("%s: %d", line, code)
	}
	return strings.TrimSuffix(res.Output, "\n")
}

// TestPublishedPortOfServer: a port of a sandbox is the host's, until the sandbox
// stops or goes, and again when it starts or another daemon takes it over.
func TestPublishedPortOfServer(t *testing.T) {
	t.Parallel()
	d := StartDaemon(t)
	var sb described
	if code := d.Do(d.Key, "POST", "/sandboxes", `{"name":"web","ports":[{"guest":8080}]}`, &sb); code != 201 || len(sb.Ports) != 1 || sb.Ports[0].Host < 1024 {
		t.Fatalf("%d %+v", code, sb)
	}
	port := sb.Ports[0].Host
	serve := func() {
		t.Helper()
		if code := d.Do(d.Key, "POST", "/sandboxes/web/execute", `{"command":"python3 -m http.server 8080","detach":true}`, nil); code != 202 {
			t.Fatal(code)
		}
	}
	get := func() string {
		resp, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/hello", port))
		if err != nil {
			return ""
		}
		defer resp.Body.Close()
		b, _ := io.ReadAll(resp.Body) // what is missing shows
		return string(b)
	}
	d.said("web", "echo hi > hello")
	serve()
	Until(t, soon, "the host's port leads into the sandbox", func() bool { return get() == "hi\n" })
	clash := served{}
	if code := d.Do(d.Key, "POST", "/sandboxes", fmt.Sprintf(`{"ports":[{"guest":1,"host":%d}]}`, port), &clash); code != 409 || clash.Code != "already_exists" {
		t.Errorf("the port of another: %d %+v", code, clash)
	}
	d.Kill()
	d.Start()
	if got := get(); got != "hi\n" {
		t.Errorf("under the next daemon: %q", got)
	}
	if code := d.Do(d.Key, "POST", "/sandboxes/web/stop", "", nil); code != 200 {
		t.Fatal("stop: ", code)
	}
	if _, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/", port)); err == nil {
		t.Error("somebody listens for a sandbox that is stopped")
	}
	if code := d.Do(d.Key, "POST", "/sandboxes/web/start", "", &sb); code != 200 || sb.Ports[0].Host != port {
		t.Fatalf("start: %d %+v", code, sb)
	}
	serve()
	Until(t, soon, "the port leads into it again", func() bool { return get() == "hi\n" })
}

// TestLimitsOfServer: limits change under what runs, on the host and in the
// guest, and hold under the next daemon.
func TestLimitsOfServer(t *testing.T) {
	t.Parallel()
	d := StartDaemon(t)
	var sb described
	if code := d.Do(d.Key, "POST", "/sandboxes", `{"name":"dev","memory":"96m","pids":100}`, &sb); code != 201 {
		t.Fatal(code)
	}
	Need(t, len(cgroupDirs(sb.ID)) > 0, "control groups on the host")
	patch := func(body string, want int) (got described) {
		t.Helper()
		if code := d.Do(d.Key, "PATCH", "/sandboxes/dev", body, &got); code != want {
			t.Errorf("%s: %d %+v, want %d", body, code, got, want)
		}
		return got
	}
	onHost := func(names ...string) string {
		t.Helper()
		for _, dir := range cgroupDirs(sb.ID) {
			for _, name := range names {
				if b, err := os.ReadFile(filepath.Join(dir, name)); err == nil {
					return strings.TrimSpace(string(b))
				}
			}
		}
		t.Fatalf("the host has none of %v", names)
		return ""
	}
	memory := func() string { return onHost("memory.max", "memory.limit_in_bytes") }

	const hold = `python3 -c 'b = bytearray(150 << 20); open("held", "w").close(); import time; time.sleep(1000)'`
	if got := patch(`{"memory":"512m","cpus":0.5}`, 200); got.Limits.Memory != 512<<20 || got.Limits.CPUs != 0.5 || got.Limits.Pids != 100 {
		t.Errorf("%+v", got.Limits)
	}
	if memory() != "536870912" || !strings.HasPrefix(onHost("cpu.max", "cpu.cfs_quota_us"), "50000") {
		t.Errorf("the host limits memory to %s, processors to %s", memory(), onHost("cpu.max", "cpu.cfs_quota_us"))
	}
	if code := d.Do(d.Key, "POST", "/sandboxes/dev/execute", quoted(`{"command":%s,"detach":true}`, hold), nil); code != 202 {
		t.Fatal(code)
	}
	Until(t, soon, "more is in use than the first limit", func() bool { return d.said("dev", "ls held 2>&1") == "held" })
	if got := patch(`{"memory":"100m"}`, 409); got.Code != "conflict" || memory() != "536870912" {
		t.Errorf("below what is in use: %+v, the limit is %s", got, memory())
	}
	patch(`{"pids":20,"cpus":1}`, 200)
	if out := d.said("dev", "for i in $(seq 40); do sleep 5 & done 2>&1; echo; jobs -p | wc -l"); !strings.Contains(out, "annot fork") && !strings.Contains(out, "emporarily unavailable") {
		t.Errorf("40 processes of 20: %q", out)
	}
	patch(`{"pids":200}`, 200)
	Until(t, soon, "200 processes may be", func() bool {
		return d.said("dev", "for i in $(seq 100); do sleep 3 & done 2>&1 | wc -c") == "0"
	})
	patch(`{"disk":"8g"}`, 400)

	d.Kill()
	d.Start()
	var again described
	if d.Do(d.Key, "GET", "/sandboxes/dev", "", &again); again.Limits.Memory != 512<<20 || again.Limits.Pids != 200 || memory() != "536870912" {
		t.Errorf("under the next daemon: %+v, the limit is %s", again.Limits, memory())
	}
	// What programs see follows with the next start.
	total := func() string { return d.said("dev", "awk '/MemTotal/ {print int($2/1024)}' /proc/meminfo") }
	if got := total(); got != "96" {
		t.Errorf("programs see %s MiB before a start", got)
	}
	for _, verb := range []string{"stop", "start"} {
		if code := d.Do(d.Key, "POST", "/sandboxes/dev/"+verb, "", nil); code != 200 {
			t.Fatal(verb, code)
		}
	}
	if got := total(); got != "512" || memory() != "536870912" {
		t.Errorf("programs see %s MiB after a start, the limit is %s", got, memory())
	}
}

// TestOOMWithoutDaemon: a sandbox that reached its limit of memory while no
// daemon ran says so, and nothing of it is left.
func TestOOMWithoutDaemon(t *testing.T) {
	t.Parallel()
	d := StartDaemon(t)
	var sb served
	if code := d.Do(d.Key, "POST", "/sandboxes", `{"memory":"64m"}`, &sb); code != 201 {
		t.Fatal(code)
	}
	Need(t, len(cgroupDirs(sb.ID)) > 0, "control groups on the host")
	bomb := `python3 -c 'import os, time
while not os.path.exists("go"): time.sleep(0.05)
time.sleep(1); b = bytearray(10**9)'`
	if code := d.Do(d.Key, "POST", "/sandboxes/"+sb.ID+"/execute", quoted(`{"command":%s,"detach":true}`, bomb), nil); code != 202 {
		t.Fatal(code)
	}
	d.said(sb.ID, "touch go")
	d.Kill()
	Until(t, soon, "the sandbox is dead", func() bool { return len(SandboxPids(t, sb.ID)) == 0 })
	d.Start()
	var got served
	if code := d.Do(d.Key, "GET", "/sandboxes/"+sb.ID, "", &got); code != 404 || got.Reason != "oom" {
		t.Errorf("%d %+v", code, got)
	}
	if groups := cgroupDirs(sb.ID); len(groups) != 0 {
		t.Errorf("left on the host: %v", groups)
	}
}
