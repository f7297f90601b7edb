package runtimetest

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	"agentbox/internal/guest/client"
	"agentbox/internal/ids"
	"agentbox/internal/runtime"
	"agentbox/internal/sandbox"
)

// testStops checks what a stop keeps and ends in a real Linux guest.
func testStops(t *testing.T, f Factory) {
	for _, c := range []struct {
		name string
		run  func(*guest)
	}{
		{"Fidelity", testFidelity},
		{"Processes", testStopProcesses},
		{"FrozenAgent", testStopFrozen},
		{"OpenFilesWithoutName", testStopUnlinked},
		{"ThenSuspend", testStopSuspend},
		{"LimitsHoldAgain", testStopLimits},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := newEnv(t, f)
			e.needStop()
			e.needGuest()
			c.run(e.guest())
		})
	}
}

// fidelity are things that files can be. Each has a place of its own, where make
// runs once and show before and after each of 20 stops; what it prints must stay.
var fidelity = []struct{ name, make, show string }{
	{"content", "head -c 300001 /dev/urandom >f; : >empty", "sha256sum f empty"},
	{"owners", "touch f g; mkdir d; ln -s x l; chown 1234:60000 f; chown 0:65535 d; chown -h 7:8 l; chown 65535:1 g", "stat -c '%n %u %g' f g d l"},
	{"modes", "for m in 0 400 777 4755 2755 1777 6711; do touch $m; chmod $m $m; mkdir d$m; chmod $m d$m; done", "stat -c '%n %a' *"},
	{
		"times",
		`for s in -0.5 -86400.000000001 0.999999999 1700000000.123456789 4102444800.5 1600000000; do
			touch f$s; mkdir d$s; ln -s x l$s; mkfifo p$s
		done
		python3 - <<'END'
import os, decimal
for n in os.listdir():
    ns = int(decimal.Decimal(n[1:]) * 10**9)
    os.utime(n, ns=(ns, ns), follow_symlinks=False)
END`,
		"stat -c '%n %.9Y' *",
	},
	{"time of a directory above new files", "mkdir -p d/e; touch d/e/f; touch -d '2001-02-03 04:05:06.123456789' d/e d", "stat -c '%n %.9Y' d d/e"},
	{"hard links", "echo text >a; ln a b; mkdir d; ln a d/c; ln -s nowhere l; ln -P l m", "stat -c '%n %h' a l; test a -ef b && test b -ef d/c && echo one; echo more >>b; wc -l <d/c >count; head -c 5 d/c; readlink m"},
	{"long link", "ln -s $(head -c 3000 /dev/zero | tr '\\0' x) l; ln -s / r; ln -s ../.. up", "readlink l r up"},
	{"fifo", "mkfifo -m 600 p", "stat -c '%F %a' p"},
	{"names", `touch "$(printf 'new\nline')" "$(printf '\377\376')" -- -dash " " "*" $(head -c 255 /dev/zero | tr '\0' n)`, "ls -b"},
	{
		"deep",
		`python3 -c 'import os
for i in range(24):
    os.mkdir("d" * 200); os.chdir("d" * 200)
open("f", "w").close(); os.utime("f", ns=(0, 1234567890123456789)); os.utime(".", ns=(0, 5))'`,
		`python3 -c 'import os
while os.path.exists("d" * 200): os.chdir("d" * 200)
print(os.stat("f").st_mtime_ns, os.stat(".").st_mtime_ns)'`,
	},
	{
		"attributes",
		`touch f; mkdir d; python3 - <<'END'
import os
for n in "f", "d":
    for k, v in {"user.text": b"text", "user.empty": b"", "user.binary": bytes(range(256)), "user.a=b": b"x", "user.\u00fc": b"\xff"}.items():
        os.setxattr(n, k, v)
os.utime("f", ns=(5, 5))
END`,
		`python3 -c 'import os
for n in "f", "d":
    print(n, sorted((k, os.getxattr(n, k)) for k in os.listxattr(n)))
print(os.stat("f").st_mtime_ns)'`,
	},
	{
		"access list",
		// Version 2; owner rwx, user 1234 r-x, group r-x, mask r-x, others none.
		`touch f; python3 -c 'import os, struct
e = [(1, 7, 2**32-1), (2, 5, 1234), (4, 5, 2**32-1), (16, 5, 2**32-1), (32, 0, 2**32-1)]
os.setxattr("f", "system.posix_acl_access", struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *x) for x in e))'`,
		`python3 -c 'import os
print(os.getxattr("f", "system.posix_acl_access"))'; stat -c %a f`,
	},
	{
		"capability",
		`touch f; python3 -c 'import os, struct
os.setxattr("f", "security.capability", struct.pack("<IIIII", 0x02000001, 1 << 10, 0, 0, 0))'`,
		`python3 -c 'import os
print(os.getxattr("f", "security.capability"))'`,
	},
	{"sparse", "truncate -s 1G f; printf data | dd of=f bs=1 seek=700M conv=notrunc 2>/dev/null; truncate -s 5G huge", "stat -c '%n %s' f huge; test $(stat -c %b f) -lt 100 && echo sparse; tail -c +734003201 f | head -c 4"},
	{"deleted file of the image", "find /usr -xdev -type f | sort >all; f=$(sed -n 1p all); rm \"$f\"; echo \"$f\" >name", "test -e \"$(cat name)\" || echo gone"},
	{"deleted directory of the image", "cp -a /usr/share /root/copy; rm -rf /usr/share", "ls /usr/share 2>&1; mkdir -p /usr/share; ls -A /usr/share; rmdir /usr/share"},
	{"directory made again", "cp -a /usr/sbin /root/sbin; rm -rf /usr/sbin; mkdir /usr/sbin; touch /usr/sbin/only", "ls -A /usr/sbin"},
	{"changed file of the image", "for n in passwd group; do cp -p /etc/$n .; done; chmod 640 /etc/group; echo '# more' >>/etc/group; touch -d '2002-02-02 02:02:02.2' /etc/group", "stat -c '%a %.9Y' /etc/group /etc/passwd; sha256sum /etc/group; cmp /etc/passwd passwd && echo same"},
	{"renamed file of the image", "cp -a /usr/bin/env .; mv /usr/bin/env /usr/bin/renamed", "cmp env /usr/bin/renamed && echo same; test -e /usr/bin/env || echo gone"},
	{
		"shared memory of a file",
		`python3 - <<'END'
import mmap, os, time
with open("f", "wb") as o: o.truncate(8192)
f = open("f", "r+b")
if os.fork(): os._exit(0)
os.setsid()
m = mmap.mmap(f.fileno(), 8192)
m[5000:5005] = b"dirty"
for fd in 0, 1, 2: os.close(fd)
open("ready", "w").close()
time.sleep(1000)
END
		while ! test -e ready; do sleep 0.01; done`,
		"tail -c +5001 f | head -c 5",
	},
}

// lost is what does not come back: it is of processes or in memory.
var lost = []struct{ name, make, gone string }{
	{"socket", `python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind("/root/sock")'`, "test ! -e /root/sock"},
	{"files in /run", "echo x >/run/f", "test ! -e /run/f"},
	{"files in /dev/shm", "echo x >/dev/shm/f", "test ! -e /dev/shm/f"},
}

func testFidelity(g *guest) {
	place := func(i int) string { return fmt.Sprintf("mkdir -p /root/%d; cd /root/%d\n", i, i) }
	// All at once: many stops have to fit into a test.
	show := ""
	for i, c := range fidelity {
		g.root(place(i) + c.make)
		show += fmt.Sprintf("echo '=== %s'\n(%s%s) || echo '=== it failed'\n", c.name, place(i), c.show)
	}
	before := strings.Split(g.root(show), "=== ")
	if len(before) != len(fidelity)+1 {
		g.Fatalf("%d places were shown: %q", len(before)-1, before)
	}
	for _, c := range lost {
		g.root(c.make)
	}
	free := g.root("df -k / | awk 'NR==2 {print $3}'")
	for range 20 {
		g.restart()
		for i, got := range strings.Split(g.root(show), "=== ") {
			if i >= len(before) || got != before[i] {
				g.Fatalf("was\n%.2000s\nis\n%.2000s", before[min(i, len(before)-1)], got)
			}
		}
		for _, c := range lost {
			if r := g.do(sandbox.Command{Shell: c.gone, User: "root"}); r.ShellCode() != 0 {
				g.Errorf("%s: still there", c.name)
			}
			g.root(c.make)
		}
	}
	if got := g.root("df -k / | awk 'NR==2 {print $3}'"); got != free {
		g.Logf("used were %s KiB, are %s", strings.TrimSpace(free), strings.TrimSpace(got))
	}
}

// root runs a shell command as root that must succeed.
func (g *guest) root(script string) string {
	g.Helper()
	r := g.do(sandbox.Command{Shell: script, User: "root"})
	if r.ShellCode() != 0 {
		g.Fatalf("%.500q ended as %v %d: %s%s", script, r.Outcome, r.ShellCode(), r.Stdout, r.Stderr)
	}
	return string(r.Stdout)
}

// testStopProcesses: no process outlives a stop, however it resists.
func testStopProcesses(g *guest) {
	for name, script := range map[string]string{
		"plain":    "sleep 1000",
		"deaf":     "trap '' TERM INT HUP; while :; do sleep 0.1; done",
		"own name": "setsid sh -c 'sleep 1000 & sleep 1000' &",
		"stopped":  "sleep 1000 & kill -STOP $!; wait",
		"bomb":     "bomb() { bomb | bomb & }; bomb; sleep 1000",
		"zombies":  "for i in 1 2 3; do (sleep 0.01 &) ; done; exec sleep 1000",
	} {
		g.write("/tmp/f", name, client.WriteOptions{})
		_, err := g.s.Start(g.ctx, ids.Hex(4), sandbox.Command{Shell: script, Background: true, Timeout: -1}, client.Output{})
		g.ok(err)
		g.restart()
		if got := g.count("true"); got > 2 {
			g.Errorf("%s: %d processes are there after the start", name, got)
		}
		if got := g.read("/tmp/f", client.ReadOptions{}); got != name {
			g.Errorf("%s: the file holds %q", name, got)
		}
	}
}

// testStopFrozen: guest root can freeze the agent, but can't prevent a stop.
func testStopFrozen(g *guest) {
	g.write("/tmp/f", "text", client.WriteOptions{})
	ctx, cancel := context.WithTimeout(g.ctx, 3*time.Second)
	defer cancel()
	_, err := g.s.Run(ctx, sandbox.Command{Shell: "sleep 1000 & kill -STOP 1; sleep 1000", User: "root"}, nil)
	if err == nil {
		g.Fatal("a command of a frozen sandbox ended")
	}
	g.restart()
	if got := g.read("/tmp/f", client.ReadOptions{}); got != "text" {
		g.Errorf("the file holds %q", got)
	}
}

// testStopUnlinked: what an open file without a name takes is not kept, so that
// it can't gather over many stops, beyond the disk's limit.
func testStopUnlinked(g *guest) {
	stats, ok := runtime.As[runtime.StatsReader](g.rt)
	for range 3 {
		g.background("exec 3>/tmp/big; rm /tmp/big; head -c 30000000 /dev/urandom >&3; : >/tmp/written; sleep 1000")
		g.eventually("the file is written", func() bool {
			return g.do(sandbox.Command{Shell: "test -e /tmp/written"}).ShellCode() == 0
		})
		g.sh("rm /tmp/written")
		g.ok(g.rt.Stop(g.ctx, g.id))
		if ok {
			m, err := stats.Stats(g.ctx, g.id)
			g.ok(err)
			if m.DiskUsed > 10<<20 {
				g.Errorf("%d bytes are kept", m.DiskUsed)
			}
		}
		g.ok(g.rt.Start(g.ctx, g.id))
		g.epoch = 0
		g.connect()
	}
	g.sh("head -c 50000000 /dev/zero >/tmp/most") // the space is free again
}

// testStopSuspend: a sandbox that was stopped can be suspended, and the other
// way round.
func testStopSuspend(g *guest) {
	sus, ok := runtime.As[runtime.Suspender](g.rt)
	if !ok || !g.rt.Capabilities().Suspend {
		g.Skipf("%s has no suspend", g.rt.Capabilities().Name)
	}
	images := g.imagesDir()
	for round := range 2 {
		g.sh(fmt.Sprintf("echo %d >>/tmp/f", round))
		g.restart()
		image := fmt.Sprint(images, "/", round)
		g.suspendTo(sus, image)
		g.ok(sus.Resume(g.ctx, g.spec(g.id), image))
		g.connect()
	}
	if got := g.sh("cat /tmp/f"); got != "0\n1\n" {
		g.Errorf("the file holds %q", got)
	}
	if i := g.info(g.id); !i.Saved.IsZero() {
		g.Errorf("a resumed sandbox has saved files: %+v", i)
	}
	_, err := g.s.Stat(g.ctx, "/tmp/none", client.StatOptions{})
	g.want("what is not there", err, errdefs.IsNotFound)
}

// testStopLimits: limits are in force again after each start.
func testStopLimits(g *guest) {
	for range 5 {
		g.restart()
		out := g.sh(`python3 -c 'import threading
threading.stack_size(65536)
end, n = threading.Event(), 0
try:
    for i in range(500):
        threading.Thread(target=end.wait).start(); n += 1
except RuntimeError: pass
end.set(); print(n)'`)
		if n, _ := strconv.Atoi(strings.TrimSpace(out)); int64(n) >= g.spec(g.id).Limits.Pids {
			g.Errorf("%d threads were started; the limit is %d", n, g.spec(g.id).Limits.Pids)
		}
	}
	testDisk(g)
	if slices.Contains(g.info(g.id).NotEnforced, sandbox.LimitMemory) {
		g.Logf("%s does not limit memory here", g.rt.Capabilities().Name)
		return
	}
	// The kernel ends a process of the sandbox, or all of it.
	_, _ = g.s.Run(g.ctx, sandbox.Command{Shell: `exec python3 -c 'b = []
while True: b.append(b"x" * (16 << 20))'`, Timeout: time.Minute}, nil)
	if st, ok := runtime.As[runtime.StatsReader](g.rt); ok {
		m, err := st.Stats(g.ctx, g.id)
		g.ok(err)
		if m.OOMKills == 0 || m.PeakMemory > g.spec(g.id).Limits.Memory+1<<20 {
			g.Errorf("a program that takes more memory than there is: %+v", m)
		}
	}
}
