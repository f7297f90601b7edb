package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// TestProcessAPIClientThatLeaves: its command ends with it.
func TestProcessAPIClientThatLeaves(t *testing.T) {
	i := sharedInside(t)
	got := i.python(`
import subprocess
for route in "/exec", "/exec/stream":
    s = socket.create_connection(("127.0.0.1", 2024))
    body = json.dumps({"command": "exec sleep 987654"})
    s.sendall(("POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (route, len(body), body)).encode())
    there = lambda: subprocess.run(["pgrep", "-f", "^sleep 987654"], capture_output=True).stdout != b""
    end = time.time() + 60
    while not there() and time.time() < end: time.sleep(0.05)
    began = there()
    s.close()
    while there() and time.time() < end: time.sleep(0.05)
    print(began, there())`)
	if got != "True False\nTrue False\n" {
		t.Errorf("got %q", got)
	}
}

// TestProcessAPISlowClients: connections that say nothing keep the host from nothing, and
// what asks for it is served again when they were silent for too long.
func TestProcessAPISlowClients(t *testing.T) {
	i := sharedInside(t)
	job := i.c.Background(i.id, `python3 -c '
import socket, time
all = [socket.create_connection(("127.0.0.1", 2024)) for _ in range(200)]
for s in all: s.sendall(b"POST /exec HTTP/1.1\r\nHost: ")
open("/workspace/slow", "w").close()
time.sleep(30)'`)
	Until(t, 30*time.Second, "200 connections are open", func() bool { return i.c.Read(i.id, "/workspace/slow").Code == 200 })
	if got := i.c.Sh(i.id, "echo on"); got != "on\n" {
		t.Errorf("a command of the host: %q", got)
	}
	i.want(200, `{"exit_code":0,"stdout":"on\n","stderr":"","timed_out":false}`, "/exec", `{"command":"echo on"}`)
	_ = job
}

// TestProcessAPIOnlyWhereAsked: a sandbox of the native API has it when it is asked for,
// for its own programs and as its own user, and then also after a stop, a start and the
// daemon's death.
func TestProcessAPIOnlyWhereAsked(t *testing.T) {
	t.Parallel()
	d := StartDaemon(t)
	c := d.Admin()
	for _, sb := range []served{c.Create(`{}`), c.Create(`{"process_api":false}`)} {
		if got := c.Sh(sb.ID, "curl -sS -m 5 http://127.0.0.1:2024/health 2>&1 || cat /proc/net/tcp"); strings.Contains(got, `"ok"`) || strings.Contains(got, ":07E8") {
			t.Errorf("it is there unasked: %q", got)
		}
		c.Send("DELETE", api+"/sandboxes/"+sb.ID, "")
	}
	out := d.Run("create", "--name", "asked", "--process-api")
	if out.Code != 0 {
		t.Fatal(out)
	}
	var sb struct {
		ID         string `json:"id"`
		ProcessAPI bool   `json:"process_api"`
	}
	if a := c.Send("GET", api+"/sandboxes/asked", ""); json.Unmarshal([]byte(a.Text), &sb) != nil || !sb.ProcessAPI {
		t.Errorf("it is shown as %v", a)
	}
	i := &apiUser{t, c, "asked"}
	works := func(when string) {
		t.Helper()
		if got := i.ask("POST", "/exec", `{"command":"id -u"}`); got != `200 {"exit_code":0,"stdout":"1000\n","stderr":"","timed_out":false}` {
			t.Errorf("%s: %s", when, got)
		}
	}
	works("at first")
	d.Kill()
	d.Start()
	c = d.Admin()
	i.c = c
	works("with a new daemon")
	for _, change := range []string{"/stop", "/start"} {
		if a := c.Send("POST", api+"/sandboxes/asked"+change, ""); a.Code >= 300 {
			t.Fatal(a)
		}
	}
	works("after a start")
}

// TestProcessAPIPort: the host does not reach the API, and a program of the sandbox that
// waits on its port has it, for the host, too.
func TestProcessAPIPort(t *testing.T) {
	t.Parallel()
	c := SharedDaemon(t).Admin()
	a := c.Send("POST", api+"/sandboxes", `{"process_api":true,"ports":[{"guest":2024}]}`)
	var sb struct {
		ID    string
		Ports []struct{ Guest, Host int }
	}
	if err := json.Unmarshal([]byte(a.Text), &sb); err != nil || len(sb.Ports) != 1 {
		t.Fatal(a)
	}
	defer func() { c.Send("DELETE", api+"/sandboxes/"+sb.ID, "") }()
	i := &apiUser{t, c, sb.ID}
	if got := i.ask("GET", "/health", ""); got != `200 {"status":"ok"}` {
		t.Fatal(got)
	}
	host := func() string {
		conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", sb.Ports[0].Host))
		if err != nil {
			return err.Error()
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(time.Minute))
		_, _ = io.WriteString(conn, "GET /health HTTP/1.0\r\n\r\n")
		b, _ := io.ReadAll(conn)
		return string(b)
	}
	if got := host(); strings.Contains(got, "HTTP") {
		t.Errorf("the host reaches it: %q", got)
	}
	for _, bind := range []string{"0.0.0.0", "127.0.0.1", "::"} {
		job := c.Background(sb.ID, fmt.Sprintf(`mkdir -p /tmp/site && cd /tmp/site && echo mine >health && exec python3 -m http.server --bind %s 2024`, bind))
		Until(t, 30*time.Second, "a program on "+bind+" has the port", func() bool { return strings.HasSuffix(i.ask("GET", "/health", ""), " mine") })
		if got := host(); !strings.HasSuffix(got, "mine\n") {
			t.Errorf("with a program on %s the host gets %q", bind, got)
		}
		if a := c.Send("POST", api+"/sandboxes/"+sb.ID+"/execs/"+job+"/signal", `{"signal":"KILL","tree":true}`); a.Code >= 300 {
			t.Fatal(a)
		}
		Until(t, 30*time.Second, "the API has the port again", func() bool {
			return strings.HasPrefix(c.Sh(sb.ID, `curl -s -m 5 http://127.0.0.1:2024/health; true`), `{"status"`)
		})
	}
}
