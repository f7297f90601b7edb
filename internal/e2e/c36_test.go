package e2e

import (
	"errors"
	"io"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"agentbox/internal/guest/client"
	"agentbox/internal/sandbox"
)

// TestB231: directories of the image can be written to.
func TestB231(t *testing.T) {
	t.Parallel()
	box := NewBox(t, sandbox.Limits{})
	asRoot := sandbox.Command{Shell: "mkdir -p /usr/local/n && touch ~/t /etc/t /usr/share/t /var/lib/t && echo ok", User: "root"}
	WantExit(t, box.Exec(asRoot, nil), 0, "ok\n", "")
	box.Want("1000\nok\n", "id -u; mkdir -p ~/n && touch ~/t ~/n/t /workspace/t && echo ok")
}

// watcher prints READY, then the names of files that appear or change in
// /workspace/w, by inotify.
const watcher = `
import ctypes, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
fd = libc.inotify_init1(0)
# IN_CREATE | IN_CLOSE_WRITE | IN_MOVED_TO
assert libc.inotify_add_watch(fd, b"/workspace/w", 0x100 | 0x8 | 0x80) >= 0, ctypes.get_errno()
print("READY", flush=True)
while True:
    b = os.read(fd, 65536)
    while b:
        wd, mask, cookie, n = struct.unpack_from("iIII", b)
        print("EVENT", b[16:16 + n].rstrip(b"\0").decode(), flush=True)
        b = b[16 + n:]
`

// TestB233: what the file calls write is seen by watchers inside.
func TestB233(t *testing.T) {
	t.Parallel()
	box := NewBox(t, sandbox.Limits{})
	box.Want("", "mkdir /workspace/w")
	r, w := io.Pipe()
	p, err := box.Start(t.Context(), sandbox.Command{Argv: []string{"python3", "-c", watcher}, MaxOutput: -1}, client.Output{Stdout: w, Stderr: w})
	if err != nil {
		t.Fatal(err)
	}
	lines := make(chan string)
	go func() {
		var seen strings.Builder
		buf := make([]byte, 4096)
		for {
			n, err := r.Read(buf)
			seen.Write(buf[:n])
			if lines <- seen.String(); err != nil {
				return
			}
		}
	}()
	await := func(what string) {
		t.Helper()
		limit := time.After(10*time.Second + Slack())
		seen := ""
		for !strings.Contains(seen, what) {
			select {
			case seen = <-lines:
			case <-limit:
				t.Fatalf("no %q from the watcher, only %q", what, seen)
			}
		}
	}
	await("READY")
	ctx := t.Context()
	if err := box.Session().WriteFile(ctx, "/workspace/w/written", strings.NewReader("x"), client.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	await("EVENT written")
	if err := box.PutTree(ctx, "/workspace/w", tarOf(t, "uploaded")); err != nil {
		t.Fatal(err)
	}
	await("EVENT uploaded")
	go func() { // the watcher's last words
		for range lines {
		}
	}()
	if err := errors.Join(p.Kill(ctx), w.Close()); err != nil {
		t.Error(err)
	}
}

// TestB236: a datagram ICMP socket opens, a raw one is for the user forbidden.
func TestB236(t *testing.T) {
	t.Parallel()
	const try = `
import socket
for kind in (socket.SOCK_DGRAM, socket.SOCK_RAW):
    try:
        socket.socket(socket.AF_INET, kind, socket.IPPROTO_ICMP); print("ok")
    except OSError as e: print(e.strerror)
`
	for _, user := range []string{"", "root"} {
		res := Shared(t).Exec(sandbox.Command{Argv: []string{"python3", "-c", try}, User: user}, nil)
		WantExit(t, res, 0, "ok\nOperation not permitted\n", "")
	}
	documented(t, "ping")
}

// TestB237: interpreters start, each time. Node needs the image that has it and
// starts 20 times; the soak run makes the image and starts it 300 times.
func TestB237(t *testing.T) {
	t.Parallel()
	starts := func(box *Box, n int, argv ...string) {
		parallel(n, 4, func() {
			res, err := box.Try(sandbox.Command{Argv: argv}, nil, client.Output{})
			if err != nil {
				t.Error(err)
			} else if string(res.Stdout) != "1\n" || res.ShellCode() != 0 {
				t.Errorf("%q: %s", argv, Describe(res))
			}
		})
	}
	starts(Shared(t), 100, "python3", "-c", "print(1)")

	images := Run(t, SharedDir(t), "", "images", "ls").Stdout
	nodes := 20
	switch {
	case Soak():
		nodes = 300
	case !strings.Contains(images, "default "):
		t.Log("the image with Node is not there; the soak run makes it and starts Node 300 times")
		return
	}
	e := Engine(t)
	sb, err := createIn(e, "default", sandbox.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	defer sb.Destroy(t.Context())
	starts(&Box{Sandbox: sb, t: t}, nodes, "node", "-e", "console.log(1)")
}

// TestB239: debuggers work, and what gVisor lacks fails in the way that makes
// programs take another path.
func TestB239(t *testing.T) {
	t.Parallel()
	const try = `
import ctypes, os, signal
libc = ctypes.CDLL(None, use_errno=True)
child = os.fork()
if child == 0:
    traced = libc.syscall(101, 0, 0, 0, 0)  # ptrace(PTRACE_TRACEME)
    os.kill(os.getpid(), signal.SIGSTOP)
    os._exit(traced & 0xff)
_, status = os.waitpid(child, 0)
print("stopped", os.WIFSTOPPED(status))
print("resumed", libc.syscall(101, 7, child, 0, 0))  # PTRACE_CONT
_, status = os.waitpid(child, 0)
print("ended", os.WEXITSTATUS(status))
print(libc.syscall(425, 8, ctypes.create_string_buffer(120)), ctypes.get_errno())  # io_uring_setup: ENOSYS
`
	res := Shared(t).Exec(sandbox.Command{Argv: []string{"python3", "-c", try}}, nil)
	WantExit(t, res, 0, "stopped True\nresumed 0\nended 0\n-1 38\n", "")
	documented(t, "ptrace")
}

// TestB240: nested namespaces end in success or a clean error.
func TestB240(t *testing.T) {
	t.Parallel()
	box := NewBox(t, sandbox.Limits{})
	res := box.Sh("unshare -Ur id -u")
	if works := res.ShellCode() == 0 && string(res.Stdout) == "0\n"; !works && (res.Outcome != sandbox.Exited || len(res.Stderr) == 0) {
		t.Errorf("unshare: %s", Describe(res))
	}
	t.Logf("unshare: %s", Describe(res))
	const overlay = `cd /dev/shm && mkdir l u w m && mount -t overlay none -o lowerdir=l,upperdir=u,workdir=w m && touch m/a && mv m/a m/b && ls m`
	res = box.Exec(sandbox.Command{Shell: overlay, User: "root"}, nil)
	if works := res.ShellCode() == 0 && string(res.Stdout) == "b\n"; !works && (res.Outcome != sandbox.Exited || len(res.Stderr) == 0) {
		t.Errorf("overlay: %s", Describe(res))
	}
	t.Logf("overlay: %s", Describe(res))
	box.Want("alive\n", "echo alive")
	documented(t, "user namespaces")
}

// TestB241: packet filters and container engines fail with words and harm
// nothing.
func TestB241(t *testing.T) {
	t.Parallel()
	box := NewBox(t, sandbox.Limits{})
	res := box.Exec(sandbox.Command{Shell: "iptables -L; echo rc=$?", User: "root"}, nil)
	if !strings.HasPrefix(string(res.Stdout), "rc=") || strings.HasPrefix(string(res.Stdout), "rc=0") || len(res.Stderr) == 0 {
		t.Errorf("iptables: %s", Describe(res))
	}
	// What iptables asks the kernel, without the program: IPT_SO_GET_INFO of
	// the table "filter".
	const ask = `
import socket
try:
    s = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
    s.getsockopt(socket.IPPROTO_IP, 64, 84)
    print("there are tables")
except OSError as e: print("refused:", e.strerror)
`
	res = box.Exec(sandbox.Command{Argv: []string{"python3", "-c", ask}, User: "root"}, nil)
	if !strings.HasPrefix(string(res.Stdout), "refused: ") {
		t.Errorf("packet filter: %s", Describe(res))
	}
	box.Want("alive\n", "echo alive")
	documented(t, "iptables")
}

// TestB243: there is room for a browser in /dev/shm.
func TestB243(t *testing.T) {
	t.Parallel()
	res := Shared(t).Sh("df -m /dev/shm | tail -1 | awk '{print $2}'")
	n, err := strconv.ParseInt(strings.TrimSpace(string(res.Stdout)), 10, 64)
	if err != nil || n < 256 || n > sandbox.DefaultMemory/sandbox.MiB {
		t.Errorf("%d MiB, want 256 to the memory limit: %v, %s", n, err, Describe(res))
	}
}

// documented fails the test unless the page on what works inside has the word.
func documented(t *testing.T, word string) {
	t.Helper()
	b, err := os.ReadFile("../../docs/COMPATIBILITY.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(b), word) {
		t.Errorf("docs/COMPATIBILITY.md says nothing of %s", word)
	}
}
