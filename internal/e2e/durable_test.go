package e2e

import (
	"bufio"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// answer is a call's answer, or what kept it from one.
type answer struct {
	Answer
	err error
}

func (d *Daemon) inBackground(c Call) <-chan answer {
	c.Key = d.Key
	out := make(chan answer, 1)
	go func() {
		a, err := d.Try(c)
		out <- answer{a, err}
	}()
	return out
}

// TestF09_LongCommand: told to end, the server is not ready any more and refuses
// to create, tells a command's client how it ended if that is soon, and lets go of
// what takes longer: the next one has its result.
func TestF09_LongCommand(t *testing.T) {
	t.Parallel()
	d := StartDaemon(t, "--http-stop-grace", "8s")
	d.Do(d.Key, "POST", "/sandboxes", `{"name":"a"}`, nil)
	url := d.URL
	short := d.inBackground(Call{Method: "POST", Path: "/sandboxes/a/execute", Body: `{"command":"echo begun >short; while ! test -e end; do sleep 0.05; done; echo short"}`})
	long := d.inBackground(Call{Method: "POST", Path: "/sandboxes/a/execute", Body: `{"command":"echo begun >long; while ! test -e after; do sleep 0.05; done; echo long; exit 7"}`})
	Until(d.t, soon, "both commands run", func() bool {
		var res executed
		d.Do(d.Key, "POST", "/sandboxes/a/execute", `{"command":"test -e short && test -e long"}`, &res)
		return res.ExitCode == 0
	})
	ended := make(chan int, 1)
	process := d.cmd.Process
	go func() { ended <- d.Stop() }()
	ready := func() int {
		resp, err := http.Get(url + "/readiness")
		if err != nil {
			return 0
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	Until(d.t, soon, "it is not ready", func() bool { return ready() == http.StatusServiceUnavailable })
	for _, path := range []string{"/sandboxes", "/sandboxes/a/start"} {
		a := <-d.inBackground(Call{Method: "POST", Path: path, Body: "{}"})
		if a.err != nil || a.Code != http.StatusServiceUnavailable || a.Header.Get("Retry-After") == "" {
			t.Errorf("%s: %d %s, Retry-After %q, %v", path, a.Code, a.Text, a.Header.Get("Retry-After"), a.err)
		}
	}
	// What is there may still be used, until the grace is over.
	if a := <-d.inBackground(Call{Method: "POST", Path: "/sandboxes/a/execute", Body: `{"command":"touch end"}`}); a.err != nil || a.Code != http.StatusOK {
		t.Errorf("a command meanwhile: %d %s, %v", a.Code, a.Text, a.err)
	}
	if a := <-short; a.err != nil || !strings.Contains(a.Text, `"output":"short\n"`) {
		t.Errorf("a command that ended within the grace: %d %s, %v", a.Code, a.Text, a.err)
	}
	if a := <-long; a.err != nil || a.Code != http.StatusServiceUnavailable || a.Header.Get("Retry-After") == "" {
		t.Errorf("a command that did not end: %d %s", a.Code, a.Text)
	}
	if code := <-ended; code != 0 {
		t.Errorf("pid %d ended with %d", process.Pid, code)
	}
	d.Start()
	var sb served
	if code := d.Do(d.Key, "GET", "/sandboxes/a", "", &sb); code != http.StatusOK || sb.Status != "running" {
		t.Errorf("after the next start: %d %+v", code, sb)
	}
	d.Do(d.Key, "POST", "/sandboxes/a/execute", `{"command":"touch after"}`, nil)
	Until(d.t, soon, "the long command has its result", func() bool {
		var all struct {
			Items []struct{ Result *executed }
		}
		d.Do(d.Key, "GET", "/sandboxes/a/execs", "", &all)
		for _, e := range all.Items {
			if e.Result != nil && e.Result.ExitCode == 7 {
				return true
			}
		}
		return false
	})
}

// fill writes a file until nothing more fits beside it.
func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for size := 1 << 20; size >= 512; {
		if _, err := f.Write(make([]byte, size)); err != nil {
			size /= 2
		}
	}
}

// TestF19_StopWithoutRoom: on a full disk nothing new is made, and it says why; what
// is there can be used and destroyed, a stop that finds no room leaves the sandbox
// running with its files, and a daemon can be started.
func TestF19_StopWithoutRoom(t *testing.T) {
	Need(t, os.Getuid() == 0, "root, to mount a small file system")
	var small string
	t.Cleanup(func() { // after the daemon's
		if err := unix.Unmount(small, 0); err != nil {
			t.Error(err)
		}
		_ = os.RemoveAll(filepath.Dir(small))
	})
	d := StartDaemon(t)
	if code := d.Stop(); code != 0 {
		t.Fatalf("it ended with %d", code)
	}
	small = filepath.Join(d.Dir, "daemon") // sandboxes lie there, the database beside it
	if err := unix.Mount("tmpfs", small, "tmpfs", 0, "size=24m"); err != nil {
		t.Fatal(err)
	}
	d.Start()
	full := filepath.Join(small, "full")
	d.Do(d.Key, "POST", "/sandboxes", `{"name":"a"}`, nil)
	var res executed
	if code := d.Do(d.Key, "POST", "/sandboxes/a/execute", `{"command":"head -c 3000000 /dev/urandom >f; sha256sum f >sum"}`, &res); code != 200 || res.ExitCode != 0 {
		t.Fatalf("fill a file: %d %+v", code, res)
	}
	fill(t, full)
	var p served
	for _, path := range []string{"/sandboxes", "/sandboxes/a/stop"} {
		if code := d.Do(d.Key, "POST", path, "{}", &p); code != http.StatusServiceUnavailable || p.Code != "unavailable" || !strings.Contains(p.Detail, "disk is full") {
			t.Errorf("%s: %d %+v", path, code, p)
		}
	}
	check := func(when string) {
		t.Helper()
		var sb served
		d.Do(d.Key, "GET", "/sandboxes/a", "", &sb)
		if code := d.Do(d.Key, "POST", "/sandboxes/a/execute", `{"command":"sha256sum -c sum"}`, &res); code != 200 || res.ExitCode != 0 {
			t.Errorf("%s it is %+v: %d %+v", when, sb, code, res)
		}
		for _, line := range d.Disagreements(map[string]string{sb.ID: sb.Status}) {
			t.Errorf("%s: %s", when, line)
		}
	}
	check("full")
	d.Kill()
	d.Start()
	check("full, after a kill")
	if err := os.Remove(full); err != nil {
		t.Fatal(err)
	}
	for _, step := range []string{"stop", "start"} {
		if code := d.Do(d.Key, "POST", "/sandboxes/a/"+step, "", &p); code != 200 {
			t.Errorf("%s, with room: %d %+v", step, code, p)
		}
	}
	check("with room")
	fill(t, full)
	if code := d.Do(d.Key, "DELETE", "/sandboxes/a", "", nil); code != 204 {
		t.Errorf("delete: %d", code)
	}
	for _, line := range d.Disagreements(nil) {
		t.Error(line)
	}
}

// holdDatabase locks the database for writing as another process would, until the
// returned function is called.
func holdDatabase(t *testing.T, path string) (release func()) {
	t.Helper()
	cmd := exec.Command("python3", "-c", `import sqlite3, sys
c = sqlite3.connect(sys.argv[1], isolation_level=None)
c.execute("BEGIN IMMEDIATE")
print("held", flush=True)
sys.stdin.read()`, path)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "held\n" {
		t.Fatalf("the database is not locked: %q, %v", line, err)
	}
	return func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	}
}

// TestDatabaseLocked: while another process holds the database nothing is changed,
// and it says that it may be tried again; commands and looks need no database.
func TestDatabaseLocked(t *testing.T) {
	t.Parallel()
	d := StartDaemon(t)
	d.Do(d.Key, "POST", "/sandboxes", `{"name":"a"}`, nil)
	path := filepath.Join(d.Dir, "agentbox.db")
	release := holdDatabase(t, path)
	var res executed
	if code := d.Do(d.Key, "POST", "/sandboxes/a/execute", `{"command":"echo hi"}`, &res); code != 200 || res.Output != "hi\n" {
		t.Errorf("a command: %d %+v", code, res)
	}
	var sb, p served
	if code := d.Do(d.Key, "GET", "/sandboxes/a", "", &sb); code != 200 {
		t.Errorf("a look: %d", code)
	}
	for _, c := range []Call{{Method: "POST", Path: "/sandboxes", Body: `{"name":"b"}`}, {Method: "POST", Path: "/sandboxes/a/stop"}, {Method: "DELETE", Path: "/sandboxes/a"}} {
		if code := d.Do(d.Key, c.Method, c.Path, c.Body, &p); code != http.StatusServiceUnavailable {
			t.Errorf("%s %s: %d %+v", c.Method, c.Path, code, p)
		}
	}
	release()
	// The removal that could not be recorded was ordered: it comes by itself, or when
	// it is asked for again.
	if code := d.Do(d.Key, "DELETE", "/sandboxes/a", "", nil); code != 204 && code != 404 {
		t.Errorf("delete, later: %d", code)
	}
	if code := d.Do(d.Key, "POST", "/sandboxes", `{"name":"b"}`, &sb); code != 201 {
		t.Errorf("create, later: %d", code)
	}
	for _, line := range d.Disagreements(map[string]string{sb.ID: "running"}) {
		t.Error(line)
	}

	// A daemon that is started meanwhile says so, and takes nothing away.
	d.Kill()
	release = holdDatabase(t, path)
	err := d.StartWith()
	release()
	if err == nil {
		t.Log("a start waits for the database")
	} else if !strings.Contains(err.Error(), "locked") {
		t.Errorf("a start says %v", err)
	}
	d.Kill()
	d.Start()
	if code := d.Do(d.Key, "GET", "/sandboxes/b", "", &sb); code != 200 || sb.Status != "running" {
		t.Errorf("after it: %d %+v", code, sb)
	}
}

// TestF16_Refused: a daemon does not begin with a database that is damaged or of a
// newer version, says what to do, and leaves the sandboxes alone. With
// the right one in its place they are back.
func TestF16_Refused(t *testing.T) {
	t.Parallel()
	d := StartDaemon(t)
	var sb served
	d.Do(d.Key, "POST", "/sandboxes", `{"name":"a"}`, &sb)
	d.Stop() // so that all is in one file
	path := filepath.Join(d.Dir, "agentbox.db")
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	replace := func(b []byte) {
		t.Helper()
		for _, suffix := range []string{"-wal", "-shm", ""} {
			if err := os.Remove(path + suffix); err != nil && !os.IsNotExist(err) {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	newer := append([]byte(nil), whole...)
	copy(newer[60:], "\x00\x00\x27\x0f") // user_version, see the format of SQLite's files
	zeroed := append([]byte(nil), whole...)
	clear(zeroed[4096 : len(zeroed)-4096])
	for name, c := range map[string]struct {
		data []byte
		want string
	}{
		"cut": {whole[:len(whole)/2], "damaged"}, "zeroed": {zeroed, "damaged"},
		"no database": {[]byte(strings.Repeat("no database at all\n", 1000)), "not a database"}, "newer": {newer, "newer agentbox"},
	} {
		replace(c.data)
		if out := Run(t, d.Dir, "", "serve", "--listen", "127.0.0.1:0", "--sandbox-image", Image); out.Code == 0 || !strings.Contains(out.Stderr, c.want) {
			t.Errorf("%s: %+v", name, out)
		}
		if len(SandboxPids(t, sb.ID)) == 0 {
			t.Fatalf("%s: the sandbox is gone", name)
		}
	}
	replace(whole)
	d.Start()
	var again served
	if code := d.Do(d.Key, "GET", "/sandboxes/a", "", &again); code != 200 || again.ID != sb.ID || again.Status != "running" {
		t.Errorf("with the whole one: %d %+v", code, again)
	}
}
