package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"testing"
	"time"

	sandboxv1 "agentbox/internal/gen/sandbox/v1"
	"agentbox/internal/server/rest/resttest"
)

// What a command is and how it ends is the same at all doors, each in its own words.

// everyWay runs f for each way, side by side, with a sandbox that the next door made.
func everyWay(t *testing.T, f func(t *testing.T, w *way, id string)) *crossed {
	c := sharedCrossed(t)
	for i, w := range c.ways {
		t.Run(strings.ReplaceAll(w.name, "/", "_"), func(t *testing.T) {
			t.Parallel()
			f(t, w, c.ids[makers[i%len(makers)]][0])
		})
	}
	return c
}

// TestX1: a command whose time is over ends then, with what it said, and leaves no
// process.
func TestX1(t *testing.T) {
	everyWay(t, func(t *testing.T, w *way, id string) {
		mark := fmt.Sprintf("1000.%d", len(w.name))
		began := time.Now()
		got := w.run(id, "echo part; echo err >&2; sleep "+mark+" & sleep "+mark, 1)
		if took := time.Since(began); took > time.Second+Slack() {
			t.Errorf("it took %v", took)
		}
		want := ended{code: -1, stdout: "part\n", stderr: "err\nCommand timed out", timedOut: true}
		switch w.name {
		case "native":
			want.stderr = "err\n" // timed_out says the rest
		case "command line":
			want.code, want.stderr = 124, got.stderr
		}
		if got != want || !strings.HasPrefix(got.stderr, "err\n") {
			t.Errorf("it ended as %+v", got)
		}
		if left := w.run(id, "ps -ef | grep -c '[s]leep "+mark+"'", 60); left.stdout != "0\n" {
			t.Errorf("left are %+v", left)
		}
	})
}

// TestX2: what a command leaves in the background does not hold its answer.
func TestX2(t *testing.T) {
	everyWay(t, func(t *testing.T, w *way, id string) {
		began := time.Now()
		got := w.run(id, "sleep 60 & echo done", 60)
		if got.code != 0 || got.stdout != "done\n" || got.timedOut || time.Since(began) > 30*time.Second {
			t.Errorf("after %v: %+v", time.Since(began), got)
		}
	})
}

// TestX3: a session goes on after a command in it whose time was over.
func TestX3(t *testing.T) {
	c := sharedCrossed(t)
	for maker, ids := range c.ids {
		box := api + "/sandboxes/" + ids[0]
		if a := c.Send("POST", box+"/sessions", `{"name":"x3"}`); a.Code != 201 {
			t.Fatalf("%s: %v", maker, a)
		}
		defer c.Send("DELETE", box+"/sessions/x3", "")
		a := c.Send("POST", box+"/execute", `{"command":"A=kept; cd /tmp; echo part; sleep 1000","session":"x3","timeout":1}`)
		if a.Code != 200 || !strings.Contains(a.Text, `"timed_out":true`) || !strings.Contains(a.Text, `part\n`) {
			t.Errorf("%s: the first: %v", maker, a)
		}
		if a := c.Send("POST", box+"/execute", `{"command":"pwd; echo fine","session":"x3"}`); saidBy(t, a) == "" || !strings.HasSuffix(saidBy(t, a), "fine\n") {
			t.Errorf("%s: the next: %v", maker, a)
		}
		if a := c.Send("POST", box+"/execute", `{"command":"sh -c 'kill -9 $$'","session":"x3"}`); !strings.Contains(a.Text, `"exit_code":137`) { // X20
			t.Errorf("%s: signal 9 in a session: %v", maker, a)
		}
	}
}

// TestX9: the sandbox's user may write in the workspace, whatever door made it.
func TestX9(t *testing.T) {
	everyWay(t, func(t *testing.T, w *way, id string) {
		if got := w.run(id, `cd; cd /workspace; f=x9.$$; echo x >$f && [ "$(stat -c %u $f)" = "$(id -u)" ]; echo $?; rm $f`, 60); got.stdout != "0\n" || got.stderr != "" {
			t.Errorf("%+v", got)
		}
	})
}

// TestX10: programs may do what programs do.
func TestX10(t *testing.T) {
	const line = `sleep 1000 & kill $! && wait $!; echo $?; printf 'b\na\n' | sort | head -1; cd "$(mktemp -d)" && git init -q . && git rev-parse --is-inside-work-tree; python3 -c '
import os, threading
done = []
all = [threading.Thread(target=done.append, args=(i,)) for i in range(8)]
[t.start() for t in all]; [t.join() for t in all]
pid = os.fork()
if pid == 0: os._exit(7)
print(len(done), os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))'`
	everyWay(t, func(t *testing.T, w *way, id string) {
		if got := w.run(id, line, 60); got.stdout != "143\na\ntrue\n8 7\n" {
			t.Errorf("%+v", got)
		}
	})
}

// TestX7: each door says that the server has no room, and when to ask again. TestTEN10
// is about an owner's quota.
func TestX7(t *testing.T) {
	t.Parallel()
	d := StartDaemon(t, "--limits-sandboxes", "1")
	d.Tenant("acme").Create(`{}`)
	d.Tenant("zeta").wantNoRoom("limit_exceeded", "1")
}

// TestX11: files that are read and written by path are those of the workspace, whatever
// the path is and wherever links lead.
func TestX11(t *testing.T) {
	c := sharedCrossed(t)
	id := c.ids["native"][0]
	c.Sh(id, "mkdir -p x11; ln -sf /etc/passwd x11/l; ln -sfn /etc x11/d")
	for _, path := range []string{"../x", "/workspace_evil/x", "x11/l", "x11/d/passwd", "/etc/passwd", "x11/../../etc/passwd"} {
		for protocol := range protocols {
			rpc := c.RPC(protocol)
			a, err := rpc.WriteFile(t.Context(), &sandboxv1.WriteFileRequest{SessionId: id, Path: path, Content: "taken"})
			if err != nil || a.GetSuccess() || a.GetError() != "Path not allowed" {
				t.Errorf("%s writes %s: %v, %v", protocol, path, a, err)
			}
			if a := rpc.read(id, path); a.GetSuccess() || a.GetError() != "Path not allowed" {
				t.Errorf("%s reads %s: %v", protocol, path, a)
			}
		}
		if a := c.Send("GET", api+"/sandboxes/"+id+"/files/download?path="+url.QueryEscape(path), ""); a.Code != 404 && a.Code != 400 || strings.Contains(a.Text, "root:") {
			t.Errorf("a download of %s: %v", path, a)
		}
	}
	form := resttest.InSandbox["POST /files/upload"]
	for _, dir := range []string{"../..", "/etc", "x11/d", "/workspace_evil"} {
		if a := c.Send("POST", api+"/sandboxes/"+id+"/files/upload?path="+url.QueryEscape(dir), form.Body, "Content-Type", form.Type); !a.Refused() {
			t.Errorf("an upload to %s: %v", dir, a)
		}
	}
	if got := c.Sh(id, "grep -rlsx taken /etc /workspace /workspace_evil /x; rm -r x11"); got != "" {
		t.Errorf("written were %q", got)
	}
}

// TestX19: what a sandbox may reach by its proxy it does not reach without, nor anything
// else: not the server, not other sandboxes, no address at all.
func TestX19(t *testing.T) {
	c := sharedCrossed(t)
	host := strings.TrimPrefix(c.d.URL, "http://")
	port := host[strings.LastIndexByte(host, ':')+1:]
	line := `env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY -u ALL_PROXY -u all_proxy python3 -c '
import socket
for a in [("192.0.2.1", 443), ("198.51.100.7", 80), ("169.254.169.254", 80), ("10.0.0.1", 80), ("127.0.0.1", ` + port + `), ("2001:db8::1", 443)]:
    try: socket.create_connection(a, timeout=5); print("reached", a)
    except OSError: pass
try: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("192.0.2.1", 53)); print("sent")
except OSError: pass
print("over")'`
	for maker, ids := range c.ids {
		if got := c.Sh(ids[0], line); got != "over\n" {
			t.Errorf("made by %s: %q", maker, got)
		}
	}
}

// TestX20: one end by a signal, and the number that each door has for it.
func TestX20(t *testing.T) {
	everyWay(t, func(t *testing.T, w *way, id string) {
		for line, want := range map[string]int{"exit 0": 0, "exit 3": 3, "exit 255": 255, "kill -9 $$": w.signaled(9), "kill -15 $$": w.signaled(15), "no-such-program": 127} {
			if got := w.run(id, line, 60); got.code != want || got.timedOut {
				t.Errorf("%s: %+v, want %d", line, got, want)
			}
		}
	})
}

// TestX22: output that is no UTF-8 fails nothing. Texts have U+FFFD, bytes are what they
// were.
func TestX22(t *testing.T) {
	c := everyWay(t, func(t *testing.T, w *way, id string) {
		want := "\uFFFDx\uFFFD\uFFFD"
		if w.name == "command line" {
			want = "\xffx\xff\xff"
		}
		if got := w.run(id, `printf '\377x\377\377'; printf '\377' >&2`, 60); got.stdout != want || got.code != 0 {
			t.Errorf("%+v", got)
		}
	})
	for protocol := range protocols {
		got, err := c.RPC(protocol).follow(t.Context(), c.ids["gRPC"][0], `printf '\377x\377\377'`)
		if err != nil || got != "\uFFFDx\uFFFD\uFFFD exit 0" {
			t.Errorf("%s, streamed: %q, %v", protocol, got, err)
		}
	}
}

// follow is all that a stream told: the output, and how it ended.
func (c *rpcs) follow(ctx context.Context, id, line string) (string, error) {
	s, err := c.ExecStream(ctx, &sandboxv1.ExecStreamRequest{SessionId: id, Command: line})
	if err != nil {
		return "", err
	}
	defer s.Close()
	var said strings.Builder
	for {
		m, err := s.Receive()
		switch {
		case errors.Is(err, io.EOF):
			return said.String(), nil
		case err != nil:
			return said.String(), err
		case m.GetType() == "exit":
			fmt.Fprintf(&said, " exit %d", m.GetExitCode())
		case m.GetType() == "error":
			said.WriteString(" error " + m.GetData())
		default:
			said.WriteString(m.GetData())
		}
	}
}
