package e2e

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"
)

// What the sandboxes of that contract let a program do, and what not.

func TestQ14_OrdinaryWorkWorks(t *testing.T) {
	a := newAgentSandbox(t)
	id := a.create()
	a.want(id, "not root\n", `[ "$(id -u)" != 0 ] && echo not root`)
	a.want(id, "written\n", "echo written >/workspace/f && cat /workspace/f")
	a.want(id, "true\n", "git init -q repo && cd repo && git rev-parse --is-inside-work-tree")
	a.want(id, "8 threads\n", `python3 -c '
import threading
done = []
all = [threading.Thread(target=done.append, args=(i,)) for i in range(8)]
[t.start() for t in all]; [t.join() for t in all]
print(len(done), "threads")'`)
	a.want(id, "7\n", `python3 -c '
import os
pid = os.fork()
if pid == 0: os._exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))'`)
	a.want(id, "143\n", `sleep 1000 & kill $!; wait $!; echo $?`)
}

func TestQ15_HogsAreHeld(t *testing.T) {
	needLimits(t)
	a := newAgentSandbox(t)
	hog, other := a.create(), a.create()
	code, text := a.tryExecute(hog, `python3 -c 'b = bytearray(b"x") * (1 << 30)'`)
	var res executed
	if err := json.Unmarshal([]byte(text), &res); code != 200 || err != nil || res.ExitCode != 137 {
		t.Errorf("a hog of 1 GiB: %d %s", code, text)
	}
	a.want(other, "fine\n", "echo fine")

	var sb served
	if code := a.Do(a.Key, "POST", "/sandboxes", `{"cpus":0.5}`, &sb); code != 201 {
		t.Fatalf("create: %d %+v", code, sb)
	}
	used, began := CPUTime(t, sb.ID), time.Now()
	a.execute(sb.ID, `for i in 1 2 3; do timeout 4 sh -c 'while :; do :; done' & done; wait`)
	if share := float64(CPUTime(t, sb.ID)-used) / float64(time.Since(began)); share > 0.6 {
		t.Errorf("a CPU hog got %.2f of a core, its cap is 0.5", share)
	}
	a.want(other, "fine\n", "echo fine")
	if code := a.Do(a.Key, "GET", "/version", "", nil); code != 200 {
		t.Errorf("the server answers %d", code)
	}
}

func TestQ16_ForbiddenCallsFail(t *testing.T) {
	a := newAgentSandbox(t)
	id := a.create()
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	name := a.execute(id, "hostname").Output
	body, err := json.Marshal(map[string][]string{"command": Probe(t, "q16", "").Argv})
	if err != nil {
		t.Fatal(err)
	}
	var res executed
	if code := a.Do(a.Key, "POST", "/sandboxes/"+id+"/execute", string(body), &res); code != 200 || res.ExitCode != 0 {
		t.Fatalf("the probe: %d %+v", code, res)
	}
	f := ParseFindings(t, res.Output)
	for _, call := range []string{"mount", "bind", "ptrace", "reboot", "kexec_load"} {
		f.Want(call, "EPERM", "EACCES", "ENOSYS")
	}
	f.Want("name", strings.TrimSpace(name)) // whatever unshare did, it did to itself
	t.Logf("unshare: %s", f.Get("unshare"))
	if now, err := os.Hostname(); err != nil || now != host {
		t.Errorf("the host was %s and is %s, %v", host, now, err)
	}
	a.want(id, name, "hostname")
}
