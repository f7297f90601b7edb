package e2e

import (
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect/v2"

	sandboxv1 "agentbox/internal/gen/sandbox/v1"
	"agentbox/internal/sandbox"
)

// TestB174: a burst of creates does not pass the limit, and the refusals say
// when to come again.
func TestB174(t *testing.T) {
	t.Parallel()
	const most = 5
	for flag, code := range map[string]string{"--limits-sandboxes": "limit_exceeded", "--limits-sandboxes-per-owner": "quota_exceeded"} {
		d := StartDaemon(t, flag, "5")
		var mu sync.Mutex
		made := map[string]bool{}
		rpc := d.Admin().GRPC()
		var asked atomic.Int32
		parallel(50, 50, func() {
			if asked.Add(1)%2 == 0 {
				a, err := rpc.CreateSession(t.Context(), &sandboxv1.CreateSessionRequest{})
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					made[a.GetSession().GetSessionId()] = true
				} else if connect.CodeOf(err) != connect.CodeResourceExhausted {
					t.Errorf("gRPC is refused with %v", err)
				}
				return
			}
			resp, err := d.Admin().Request(t.Context(), "POST", "/sandboxes", strings.NewReader("{}"), "Content-Type", "application/json")
			mu.Lock()
			defer mu.Unlock()
			switch p := (*Problem)(nil); {
			case err == nil:
				made[resp.Header.Get("X-Request-ID")] = true
				resp.Body.Close()
			case asProblem(err, &p) && (p.Status != http.StatusTooManyRequests || p.Code != code || p.Header.Get("Retry-After") == ""):
				t.Errorf("refused with %v, %v", p, p.Header)
			case p == nil:
				t.Error(err)
			}
		})
		var all servedList
		if d.Do(d.Key, "GET", "/sandboxes", "", &all); len(made) != most || len(all.Items) != most {
			t.Errorf("%s: %d were made and %d are listed, want %d", flag, len(made), len(all.Items), most)
		}
		// One that goes makes room.
		d.Do(d.Key, "DELETE", "/sandboxes/"+all.Items[0].ID, "", nil)
		d.Make(nil)
	}
}

// TestB176: ports that the server chooses for many sandboxes at once don't
// collide, and are free again when these are gone.
func TestB176(t *testing.T) {
	t.Parallel()
	d := StartDaemon(t, "--port-range", "23100-23199", "--limits-sandboxes-per-owner", "100")
	n := Sized(8, 40)
	for range 2 {
		var mu sync.Mutex
		hosts := map[int]string{}
		parallel(n, n, func() {
			var sb struct {
				ID    string
				Ports []struct{ Guest, Host int }
			}
			err := d.ask(t.Context(), "POST", "/sandboxes", `{"ports":[{"guest":80},{"guest":5900}]}`, &sb)
			mu.Lock()
			defer mu.Unlock()
			if err != nil || len(sb.Ports) != 2 {
				t.Errorf("got %+v, %v", sb, err)
				return
			}
			for _, p := range sb.Ports {
				if hosts[p.Host] != "" || p.Host < 23100 || p.Host > 23199 {
					t.Errorf("port %d of the host is given twice, or out of range", p.Host)
				}
				hosts[p.Host] = sb.ID
			}
		})
		if len(hosts) != 2*n {
			t.Errorf("%d ports are given, want %d", len(hosts), 2*n)
		}
		gone := map[string]bool{}
		for port, id := range hosts {
			conn, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
			if err != nil && !gone[id] {
				t.Errorf("port %d: %v", port, err)
			} else if err == nil {
				conn.Close()
			}
			if !gone[id] {
				gone[id] = true
				d.Do(d.Key, "DELETE", "/sandboxes/"+id, "", nil)
			}
		}
		for port := range hosts {
			if conn, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))); err == nil {
				conn.Close()
				t.Errorf("port %d still leads somewhere", port)
			}
		}
	}
}

// TestB179: a sandbox whose processor is used up still answers.
func TestB179(t *testing.T) {
	t.Parallel()
	box := NewRemote(t, sandbox.Limits{CPUs: 1})
	r := box.remote
	box.Want("", "for i in $(seq 16); do (while :; do :; done) >/dev/null 2>&1 & done")
	for range Sized(5, 20) {
		for name, call := range map[string]func(){
			"exec": func() { box.Want("ok\n", "echo ok") },
			"read": func() {
				if got := r.d.Text(r.d.Key, r.at("/files?path=/etc/hostname")); got == "" {
					t.Error("nothing is read")
				}
			},
			"get": func() {
				var sb served
				if code := r.d.Do(r.d.Key, "GET", r.at(""), "", &sb); code != 200 || sb.Status != "running" {
					t.Errorf("get: %d %+v", code, sb)
				}
			},
		} {
			began := time.Now()
			call()
			if took := time.Since(began); took > 5*time.Second+Slack() {
				t.Errorf("%s took %v", name, took)
			}
		}
	}
	// The control: they do use it up.
	before := CPUTime(t, r.id)
	time.Sleep(time.Second)
	if used := CPUTime(t, r.id) - before; used < 200*time.Millisecond {
		t.Errorf("the loops use %v in a second", used)
	}
}
