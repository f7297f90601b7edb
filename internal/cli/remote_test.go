package cli

import (
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
)

// answering is a server that gives each request to f, with how many came before.
func answering(t *testing.T, f func(n int, w http.ResponseWriter, r *http.Request)) *httptest.Server {
	t.Helper()
	var n atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { f(int(n.Add(1))-1, w, r) }))
	t.Cleanup(s.Close)
	return s
}

func refuse(w http.ResponseWriter, status int, code, detail string) {
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"detail": detail, "code": code})
}

func toServer(t *testing.T, s *httptest.Server) *remote {
	t.Helper()
	r, err := byURL(server{URL: s.URL, Key: "abx_test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.client.CloseIdleConnections)
	return r
}

// TestRetries: what can't be done twice is sent again, everything else only when
// the server says that it did nothing.
func TestRetries(t *testing.T) {
	for _, c := range []struct {
		name, method string
		header       http.Header
		fail         func(w http.ResponseWriter)
		again        bool
	}{
		{"a question to a busy server", "GET", nil, func(w http.ResponseWriter) { refuse(w, 503, "unavailable", "stopping") }, true},
		{"a question that broke", "GET", nil, cutOff, true},
		{"a change by a busy server", "POST", nil, func(w http.ResponseWriter) { refuse(w, 503, "unavailable", "stopping") }, false},
		{"a change that broke", "POST", nil, cutOff, false},
		{"a change with a key of idempotency that broke", "POST", http.Header{idempotencyKey: {"k"}}, cutOff, true},
		{"a removal that broke", "DELETE", nil, cutOff, false},
		{"a change that came too often", "POST", nil, func(w http.ResponseWriter) { refuse(w, 429, "rate_limited", "too many") }, true},
		{"a change over a limit", "POST", nil, func(w http.ResponseWriter) { refuse(w, 429, "limit_exceeded", "too many") }, false},
		{"a wait that is too long", "GET", nil, func(w http.ResponseWriter) {
			w.Header().Set("Retry-After", "3600")
			refuse(w, 429, "rate_limited", "too many")
		}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var seen atomic.Int32
			s := answering(t, func(n int, w http.ResponseWriter, _ *http.Request) {
				seen.Add(1)
				if n == 0 {
					c.fail(w)
					return
				}
				fmt.Fprint(w, "{}")
			})
			err := toServer(t, s).callWith(t.Context(), request{method: c.method, path: "/x", header: c.header}, nil)
			if (err == nil) != c.again || (seen.Load() > 1) != c.again {
				t.Errorf("%d requests, %v", seen.Load(), err)
			}
		})
	}
}

// TestRunsOnce: a command is sent once, whatever becomes of its answer, and its user
// is told where to look; so is who makes something.
func TestRunsOnce(t *testing.T) {
	noServer(t)
	var seen atomic.Int32
	var late atomic.Bool // the answer breaks after its beginning
	s := answering(t, func(_ int, w http.ResponseWriter, _ *http.Request) {
		seen.Add(1)
		if late.Load() {
			sends(w)
		}
		cutOff(w)
	})
	t.Setenv(urlVariable, s.URL)
	for _, c := range []struct {
		args, want string
		times      int32
	}{
		{"exec dev -- x", "agentbox execs dev", 1},
		{"exec --detach dev -- x", "agentbox execs dev", 1},
		{"exec --json dev -- x", "agentbox execs dev", 1},
		{"exec --tty dev -- x", "agentbox execs dev", 1},
		{"exec --session main dev -- x", "agentbox execs dev", 1},
		{"key create", "agentbox key ls", attempts},
		{"create", "agentbox ls", attempts},
		{"volume create data", "agentbox volume ls", attempts},
		{"rm dev", "look before you repeat it", 1},
	} {
		seen.Store(0)
		got := call(t, "", strings.Fields(c.args)...)
		if got.code != ExitFailure || seen.Load() != c.times {
			t.Errorf("%s: %d requests, %+v", c.args, seen.Load(), got)
		}
		wantIn(t, got.stderr, "it may have been done all the same")
		wantIn(t, got.stderr, c.want)
	}
	late.Store(true)
	seen.Store(0)
	wantIn(t, call(t, "", "exec", "dev", "--", "x").stderr, "it may have been done all the same: see agentbox execs dev")
	if n := seen.Load(); n != 1 {
		t.Errorf("a command was sent %d times", n)
	}
	s.Close()
	if got := call(t, "", "exec", "dev", "--", "x"); strings.Contains(got.stderr, "may have been done") {
		t.Errorf("nobody was there: %+v", got)
	}
}

func cutOff(http.ResponseWriter) { panic(http.ErrAbortHandler) }

// A key goes to the server that it is for, and not where that points.
func TestKeyStaysWithServer(t *testing.T) {
	other := answering(t, func(_ int, _ http.ResponseWriter, r *http.Request) {
		t.Errorf("another server was asked with %q", r.Header.Get("Authorization"))
	})
	s := answering(t, func(_ int, w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer abx_test" {
			t.Errorf("the key is %q", r.Header.Get("Authorization"))
		}
		http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
	})
	if err := toServer(t, s).call(t.Context(), "GET", "/sandboxes", nil, nil); err == nil {
		t.Error("a redirection is an answer")
	}
}

// TestServerChoice: flags come before variables, those before profiles, and
// without any of them it is this machine's server.
func TestServerChoice(t *testing.T) {
	noServer(t)
	named := map[string]*httptest.Server{}
	for _, name := range []string{"flag", "variable", "one", "two"} {
		named[name] = answering(t, func(_ int, w http.ResponseWriter, r *http.Request) {
			fmt.Fprintf(w, `{"server":%q,"key":%q}`, name, r.Header.Get("Authorization"))
		})
	}
	for _, name := range []string{"one", "two"} {
		if got := call(t, "abx_"+name+"\n", "profile", "add", name, "--url", named[name].URL); got.code != 0 || got.stdout != "" {
			t.Fatalf("profile add: %+v", got)
		}
	}
	if got := call(t, "", "profile", "use", "two"); got.code != 0 {
		t.Fatalf("profile use: %+v", got)
	}
	for _, c := range []struct {
		name, url, profile string
		args               []string
		want               string
	}{
		{"the profile in use", "", "", nil, `"server": "two",` + "\n" + `  "key": "Bearer abx_two"`},
		{"the variable for a profile", "", "one", nil, `"one",` + "\n" + `  "key": "Bearer abx_one"`},
		{"the variable for a URL", named["variable"].URL, "one", nil, `"variable",` + "\n" + `  "key": "Bearer abx_env"`},
		{"the flag for a profile", named["variable"].URL, "two", []string{"--profile", "one"}, `"one",` + "\n" + `  "key": "Bearer abx_one"`},
		{"the flag for a URL", named["variable"].URL, "one", []string{"--url", named["flag"].URL}, `"flag",` + "\n" + `  "key": "Bearer abx_env"`},
	} {
		t.Setenv(urlVariable, c.url)
		t.Setenv(profileVariable, c.profile)
		t.Setenv(keyVariable, "abx_env")
		got := call(t, "", append([]string{"get", "x"}, c.args...)...)
		if got.code != 0 || !strings.Contains(got.stdout, c.want) {
			t.Errorf("%s: %+v", c.name, got)
		}
	}
	t.Setenv(urlVariable, "")
	for _, args := range [][]string{{"--profile", "local"}, {"--data-dir", t.TempDir()}} { // nobody listens there
		wantIn(t, call(t, "", append([]string{"get", "x"}, args...)...).stderr, "agentbox.sock")
	}
	wantIn(t, call(t, "", "get", "x", "--profile", "twoo").stderr, `no profile "twoo"; did you mean two?`)
	wantIn(t, call(t, "", "get", "x", "--profile", "one", "--url", "http://x").stderr, "exclude each other")
}

// TestProfiles: keys are in a file for their user alone and nowhere else.
func TestProfiles(t *testing.T) {
	noServer(t)
	file := filepath.Join(os.Getenv("XDG_CONFIG_HOME"), "agentbox", "profiles.json")
	if got := call(t, "abx_secret\n", "profile", "add", "work", "--url", "https://agentbox.example:8700"); got.code != 0 {
		t.Fatalf("profile add: %+v", got)
	}
	if got := call(t, "abx_secret\n", "profile", "add", "far", "--url", "http://agentbox.example:8700"); got.code != 0 || !strings.Contains(got.stderr, "others on the way can read it") {
		t.Errorf("a key without TLS: %+v", got)
	}
	if i, err := os.Stat(file); err != nil || i.Mode().Perm() != 0o600 {
		t.Fatalf("the file: %v, %v", i, err)
	}
	call(t, "", "profile", "use", "work")
	for _, args := range [][]string{{"profile", "ls"}, {"profile", "ls", "--json"}} {
		got := call(t, "", args...)
		if got.code != 0 || strings.Contains(got.stdout+got.stderr, "secret") || !strings.Contains(got.stdout, "https://agentbox.example:8700") {
			t.Errorf("%v: %+v", args, got)
		}
	}
	for _, c := range []struct{ stdin, args, want string }{
		{"k", "profile add local --url http://x", "but not local"},
		{"k", "profile add a/b --url http://x", "invalid name"},
		{"k", "profile add a", `required flag(s) "url" not set; see agentbox profile add --help`},
		{"", "profile add a --url http://x", "no key"},
		{"two words", "profile add a --url http://x", "no key"},
		{"", "profile use nope", `no profile "nope"`},
		{"", "profile rm nope", `no profile "nope"`},
	} {
		got := call(t, c.stdin, strings.Fields(c.args)...)
		if got.code != ExitFailure {
			t.Errorf("%s: %+v", c.args, got)
		}
		wantIn(t, got.stderr, c.want)
	}
	if err := os.Chmod(file, 0o644); err != nil {
		t.Fatal(err)
	}
	wantIn(t, call(t, "", "ls").stderr, "others may read it: chmod 600")
	if err := os.Chmod(file, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := call(t, "", "profile", "rm", "work", "far"); got.code != 0 {
		t.Errorf("profile rm: %+v", got)
	}
	text, err := os.ReadFile(file)
	if err != nil || strings.Contains(string(text), "secret") || strings.Contains(string(text), "work") {
		t.Errorf("the file has %s, %v", text, err)
	}
}

// TestTLS: a server whose certificate nobody signed is refused unless its
// authority is named.
func TestTLS(t *testing.T) {
	noServer(t)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"ok":true}`) }))
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // it complains of refusals that are wanted
	s.StartTLS()
	defer s.Close()
	t.Setenv(urlVariable, s.URL)
	wantIn(t, call(t, "", "get", "x").stderr, "name the authority that signed its certificate with --cacert")
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := call(t, "", "get", "x", "--cacert", ca); got.code != 0 {
		t.Errorf("with its authority: %+v", got)
	}
	wantIn(t, call(t, "", "get", "x", "--cacert", os.DevNull).stderr, "has none in PEM form")
	t.Chdir(filepath.Dir(ca))
	for file, want := range map[string]string{os.DevNull: "has none in PEM form", "nope.pem": "no such file", filepath.Dir(ca): "read the certificate of --cacert"} {
		got := call(t, "", "profile", "add", "work", "--no-key", "--url", s.URL, "--cacert", file)
		if got.code != ExitFailure {
			t.Errorf("a profile with %s: %+v", file, got)
		}
		wantIn(t, got.stderr, want)
	}
	if got := call(t, "", "profile", "add", "work", "--no-key", "--url", s.URL, "--cacert", "ca.pem"); got.code != 0 {
		t.Errorf("a profile: %+v", got)
	}
	t.Chdir(t.TempDir()) // a profile is for every directory
	if got := call(t, "", "get", "x", "--profile", "work"); got.code != 0 {
		t.Errorf("with the profile's authority: %+v", got)
	}
	t.Setenv(urlVariable, strings.Replace(s.URL, "https", "http", 1))
	if got := call(t, "", "get", "x"); got.code != ExitFailure {
		t.Errorf("without TLS: %+v", got)
	}
}

// TestEvents: a stream is over when it says so; one that breaks is told apart, and
// so is what the server says at its end.
func TestEvents(t *testing.T) {
	var ids []string
	read := func(text string) error {
		ids = nil
		return readEvents(io.NopCloser(strings.NewReader(text)), func(e event) (bool, error) {
			ids = append(ids, e.name+" "+e.id+" "+string(e.data))
			if e.name == "error" {
				return false, eventError(e.data)
			}
			return e.name == "exit", nil
		})
	}
	if err := read("event: start\ndata: {}\n\n:\n\nid: 1-0\nevent: stdout\ndata: {\"a\": 1}\n\nid: 1-0\nevent: exit\ndata: {}\n\n"); err != nil || len(ids) != 3 || ids[1] != `stdout 1-0 {"a": 1}` {
		t.Errorf("%v %q", err, ids)
	}
	for _, c := range []struct {
		text   string
		goesOn bool
	}{
		{"event: start\ndata: {}\n\n", true},
		{"event: error\ndata: {\"code\":\"unavailable\",\"detail\":\"about to stop\"}\n\n", true},
		{"event: error\ndata: {\"code\":\"sandbox_destroyed\",\"detail\":\"gone\"}\n\n", false},
		{"event: error\ndata: nonsense\n\n", false},
		{"event: x\ndata: " + strings.Repeat("x", maxEvent) + "\n\n", false},
	} {
		if err := read(c.text); err == nil || goesOn(err) != c.goesOn {
			t.Errorf("%.40q: %v", c.text, err)
		}
	}
	if goesOn(errors.New("x")) || goesOn(nil) || goesOn(&apiError{Status: 503, Code: "unavailable"}) {
		t.Error("an answer is no end of a stream")
	}
}

// What a server sends, whatever it is, ends in events or in an error.
func FuzzEvents(f *testing.F) {
	f.Add([]byte("id: 1-0\nevent: stdout\ndata: {\"data_base64\":\"aGk=\"}\n\nevent: exit\ndata: {\"exit_code\":3}\n\n"))
	f.Add([]byte("event: error\ndata: {\"detail\":[1],\"code\":{}}\n\n"))
	f.Add([]byte("event: error\ndata: {}\n\n"))
	f.Fuzz(func(t *testing.T, body []byte) {
		a := &App{Stdout: io.Discard, Stderr: io.Discard}
		fo := &following{output: output{app: a}}
		if err := readEvents(io.NopCloser(strings.NewReader(string(body))), func(e event) (bool, error) { return fo.take(t.Context(), e) }); err != nil && err.Error() == "" {
			t.Error("an error without words")
		}
		if e := parseProblem(&http.Response{StatusCode: 500, Status: "500", Header: http.Header{}}, body); e.Text == "" {
			t.Errorf("%q is an error without words", body)
		}
	})
}
