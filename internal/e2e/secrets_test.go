package e2e

import (
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"agentbox/internal/ids"
)

// tlsLab is a server of the test over TLS, which tells what it was sent and
// repeats it.
type tlsLab struct {
	*httptest.Server
	addr string
	got  chan string // the Authorization of each request
}

func newTLSLab(t *testing.T) *tlsLab {
	t.Helper()
	l := &tlsLab{got: make(chan string, 100)}
	l.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		auth := r.Header.Get("Authorization")
		l.got <- auth
		w.Header().Set("X-Echo", auth)
		_, _ = io.WriteString(w, "you sent "+auth)
	}))
	t.Cleanup(func() {
		l.CloseClientConnections()
		l.Close()
	})
	l.addr = l.Listener.Addr().String()
	return l
}

// bundle writes the certificate that all such servers have.
func (l *tlsLab) bundle(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: l.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// wantSent holds what the server was sent last against what it should be.
func (l *tlsLab) wantSent(t *testing.T, when, want string) {
	t.Helper()
	select {
	case got := <-l.got:
		if got != want {
			t.Errorf("%s: the server got %q, want %q", when, got, want)
		}
	default:
		t.Errorf("%s: the server got nothing", when)
	}
}

// TestLEAK08_Secrets: a secret that a sandbox was given reaches the host that it is
// for, and is nowhere else: not in the guest's environment, memory and files, not in
// the server's log, audit log, log of connections and database, and in no answer. A
// plain variable, the control, is found by the same searches.
func TestLEAK08_Secrets(t *testing.T) {
	t.Parallel()
	named, other := newTLSLab(t), newTLSLab(t)
	d := StartDaemon(t, "--egress-allow-ranges", "127.0.0.0/8", "--egress-ca-bundle", named.bundle(t))
	c := d.Admin()
	value, control := "sk-live-"+ids.Hex(16), "plain-"+ids.Hex(16)
	set := func(value string) {
		t.Helper()
		if o := Run(t, d.Dir, value+"\n", "secret", "set", "KEY", "--host", named.addr); o.Code != 0 || strings.Contains(o.Stdout+o.Stderr, value) {
			t.Fatalf("secret set: %+v", o)
		}
	}
	set(value)
	must := func(args ...string) string {
		t.Helper()
		o := d.Run(args...)
		if o.Code != 0 {
			t.Fatalf("%q: %+v", args, o)
		}
		return o.Stdout
	}
	id := strings.TrimSpace(must("create", "--name", "dev", "--secret", "KEY", "-e", "CONTROL="+control, "--allow", named.addr, "--allow", other.addr))
	placeholder := strings.TrimSpace(c.Sh("dev", "printf %s $KEY"))
	if !strings.HasPrefix(placeholder, "abx-secret-") {
		t.Fatalf("the sandbox has %q", placeholder)
	}
	ask := func(id, key string, l *tlsLab) string {
		t.Helper()
		return c.Sh(id, `curl -sSi -m 20 --noproxy '' -x http://127.0.0.1:3128 -H "Authorization: Bearer `+key+`" `+l.URL+" 2>&1")
	}
	answer := ask("dev", "$KEY", named)
	named.wantSent(t, "with the secret", "Bearer "+value)
	if strings.Contains(answer, value) || !strings.Contains(answer, "you sent Bearer "+strings.Repeat("*", len(value))) {
		t.Errorf("the sandbox is told %q", answer)
	}
	c.Sh("dev", "export KEY CONTROL; env >/workspace/env; (sleep 600 >/dev/null 2>&1 &)") // in a file, and in a process that stays
	for text, there := range map[string]bool{value: false, control: true, placeholder: true} {
		if InMemory(t, id, []byte(text)) != there {
			t.Errorf("in the guest's memory is %q: %v", text[:10], !there)
		}
	}
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range lines {
		if b, err := os.ReadFile(path); err == nil && strings.Contains(string(b), value) {
			t.Errorf("the secret is an argument of a process: %q", b)
		}
	}
	find := func(text string) string {
		return c.Sh("dev", "grep -rlsa "+text[:12]+"["+text[12:13]+"]"+text[13:]+" /workspace /tmp /home /var /etc /run /proc/[0-9]*/environ; true")
	}
	if inside := find(value); inside != "" || !strings.Contains(find(control), "/workspace/env") || !strings.Contains(find(control), "/environ") {
		t.Errorf("in the sandbox the secret is in %q, and the plain variable in %q", inside, find(control))
	}

	// Who has the placeholder has nothing: neither another host, another sandbox, nor
	// this one in clear.
	ask("dev", "$KEY", other)
	other.wantSent(t, "another host", "Bearer "+placeholder)
	c.Create(fmt.Sprintf(`{"name":"bare","network":{"allow":[%q]}}`, named.addr))
	ask("bare", placeholder, named)
	named.wantSent(t, "from a sandbox without the secret", "Bearer "+placeholder)
	thief := d.Tenant("thief")
	if a := thief.Send("POST", api+"/sandboxes", `{"secrets":["KEY"]}`); a.Code != http.StatusBadRequest || !strings.Contains(a.Text, `"secrets"`) {
		t.Errorf("another owner's sandbox: %v", a)
	}

	// It goes on after a kill of the server, and after a stop and a start.
	d.Kill()
	d.Start()
	ask("dev", "$KEY", named)
	named.wantSent(t, "after a kill", "Bearer "+value)
	if a := c.Send("POST", api+"/sandboxes/dev/stop", ""); a.Code != http.StatusOK {
		t.Fatalf("stop: %v", a)
	}
	if found := holds(t, d.Dir, value); len(found) > 0 {
		t.Errorf("the secret is in %q", found)
	}
	if found := strings.Join(holds(t, d.Dir, control), " "); !strings.Contains(found, "agentbox.db") {
		t.Errorf("the plain variable is in %q only", found)
	}
	if a := c.Send("POST", api+"/sandboxes/dev/start", ""); a.Code != http.StatusOK {
		t.Fatalf("start: %v", a)
	}
	if got := c.Sh("dev", "printf %s $KEY"); got != placeholder {
		t.Errorf("after a start the placeholder is %q, and was %q", got, placeholder)
	}
	ask("dev", "$KEY", named)
	named.wantSent(t, "after a start", "Bearer "+value)

	// A change and a removal hold at once.
	next := "sk-next-" + ids.Hex(16)
	set(next)
	ask("dev", "$KEY", named)
	named.wantSent(t, "after a change", "Bearer "+next)
	want(t, "secret ls", must("secret", "ls"), named.addr)
	told := must("secret", "ls", "--json") + must("get", "dev") + must("egress", "log", "dev", "--json") + must("audit", "--json") + must("events", "dev", "--json")
	must("secret", "rm", "KEY")
	set("sk-later-" + ids.Hex(16)) // of the same name
	ask("dev", "$KEY", named)
	named.wantSent(t, "after a removal", "Bearer "+placeholder)

	for _, route := range []string{"/secrets", "/sandboxes", "/sandboxes/dev", "/sandboxes/dev/execs", "/sandboxes/dev/network", "/sandboxes/dev/network/log", "/audit"} {
		told += c.Send("GET", api+route, "").Text
	}
	if strings.Contains(told, value) || strings.Contains(told, next) || !strings.Contains(told, `"secrets": [`) && !strings.Contains(told, `"secrets":["KEY"]`) {
		t.Errorf("told: %s", told)
	}
	log := d.Log()
	for _, v := range []string{value, next} {
		if found := holds(t, d.Dir, v); len(found) > 0 || strings.Contains(log, v) {
			t.Errorf("a secret is in %q or the log", found)
		}
	}
}
