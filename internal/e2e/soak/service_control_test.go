package soak

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"agentbox/internal/e2e"
)

// findings is a judge that is to be told something.
type findings struct {
	mu   sync.Mutex
	text []string
}

func (f *findings) Helper() {}

func (f *findings) Error(args ...any) { f.Errorf("%s", fmt.Sprint(args...)) }

func (f *findings) Errorf(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.text = append(f.text, fmt.Sprintf(format, args...))
}

func (f *findings) Failed() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.text) > 0
}

// wrongs are what a wrong daemon could do, and what the model must say of it. A
// daemon with the fault is not to be had, so its effect is brought about: in its
// files while none runs, on the host, by another client, or by what the model
// remembers, if that is all that tells the two apart.
var wrongs = []struct {
	what string
	do   func(c *control)
	says string
}{
	{"a record is lost", func(c *control) {
		c.d.Kill()
		c.database("DELETE FROM ids; DELETE FROM sandboxes")
		c.check(os.RemoveAll(filepath.Join(c.d.Dir, "daemon", "sandboxes", c.box.uid))) // has a copy of it
		c.d.Start()
	}, `is "", which is none of \[running\]`},
	{"a tombstone is lost", func(c *control) {
		c.box.may[""] = true
		c.ask("DELETE", c.at(""), "", http.StatusNoContent)
		c.d.Kill()
		c.database("DELETE FROM tombstone_ids; DELETE FROM tombstones")
		c.d.Start()
	}, "is gone, and the reason is"},
	{"a sandbox goes", func(c *control) { c.ask("DELETE", c.at(""), "", http.StatusNoContent) }, `is "", which is none of \[running\]`},
	{"a sandbox stops", func(c *control) { c.ask("POST", c.at("/stop"), "", http.StatusOK) }, `is "stopped", which is none of \[running\]`},
	{"a create is done twice", func(c *control) { c.ask("POST", "/sandboxes", `{"memory":"160m"}`, http.StatusCreated) }, "lists .* and should list"},
	{"a create makes another one", func(c *control) { c.box.uid = unknownID }, "was 0123.*, and is"},
	{"a command is lost", func(c *control) { c.sh(": >log") }, "was written 0 times"},
	{"a command is done twice", func(c *control) { c.sh("cat log >>/tmp/log; cat /tmp/log >>log") }, "was written 2 times"},
	{"a command is another's", func(c *control) { c.sh("echo other.1 >>log") }, `nobody wrote map\[other.1:1\]`},
	{"half a file is left", func(c *control) { c.sh("truncate -s -1 up") }, "the file is .* none of"},
	{"a file is left besides", func(c *control) { c.sh("touch .up.part") }, `has \["\.up\.part"\] besides`},
	{"a background command ends", func(c *control) {
		c.ask("POST", c.at("/execs/"+c.box.jobs[0].id+"/signal"), `{"signal":"KILL"}`, http.StatusNoContent)
	}, `counts no further|is "ended" and should be running`},
	{"a byte of output is lost", func(c *control) { c.box.jobs[0].said += "\n" }, "counts wrong"},
	{"a session is another one", func(c *control) {
		c.ask("POST", c.at("/execute"), `{"command":"X=other","session":"s"}`, http.StatusOK)
	}, "variable is \"other\""},
	{"a result is another one", func(c *control) { c.box.results[0].ExitCode++ }, "the result of .* was .* and is"},
	{"a process is orphaned", func(c *control) {
		orphan := &exec.Cmd{Path: "/bin/sleep", Args: []string{filepath.Join(c.d.Dir, "daemon", "run", unknownID), "1000"}}
		c.check(orphan.Start())
		c.undo = func() { _ = orphan.Process.Kill(); _ = orphan.Wait() } // it was killed
	}, `which nobody knows, has \["process"\]`},
	{"a directory is orphaned", func(c *control) { c.mkdir("daemon", "sandboxes", unknownID) }, `which nobody knows, has \["directory"\]`},
	{"a volume goes", func(c *control) {
		c.worker.destroy(c.box)
		c.ask("DELETE", "/volumes/"+c.worker.volume.name, "", http.StatusNoContent)
	}, `volume .* is "", which is none of \["ready"\]`},
	{"a volume loses what was written", func(c *control) { c.sh(": >/data/log") }, "volume .* was written 0 times"},
	{"a volume has another's file", func(c *control) { c.sh("touch /data/other") }, `volume .* has "other" besides`},
	{"a volume is held by nobody", func(c *control) { c.worker.volume.held = nil }, "is used by .* and should be by"},
	{"a mount is left", func(c *control) {
		c.mkdir("stray")
		at, remove := filepath.Join(c.d.Dir, "stray"), c.undo
		c.check(unix.Mount("tmpfs", at, "tmpfs", 0, "size=64k"))
		c.undo = func() {
			c.check(unix.Unmount(at, 0))
			remove()
		}
	}, "volumes should be mounted"},
	{"a volume is half made", func(c *control) { c.mkdir("volumes", unknownID[:32]) }, "is half a volume"},
}

// unknownID is that of a sandbox, or begins with that of a volume, that never was.
var unknownID = strings.Repeat("0123456789abcdef", 4)

// TestServiceModelFinds is the control of TestServiceKills: of each thing that could
// go wrong the model says so.
func TestServiceModelFinds(t *testing.T) {
	d := e2e.StartDaemon(t)
	for n, wrong := range wrongs {
		c := newControl(t, d, fmt.Sprint("owner", n))
		if c.judge.Failed() {
			t.Fatalf("before %s", wrong.what)
		}
		found := &findings{}
		c.judge = found
		c.undo = func() {}
		wrong.do(c)
		c.worker.t = found
		c.compare()
		c.undo()
		if said := strings.Join(found.text, "\n"); !regexp.MustCompile("(?s)" + wrong.says).MatchString(said) {
			t.Errorf("%s, and the model says %q", wrong.what, said)
		}
		c.clear()
	}
}

// control is a campaign of one worker with one sandbox, in which something goes
// wrong.
type control struct {
	campaign
	worker *worker
	box    *modelBox
	undo   func() // what was done on the host
}

// newControl lets a worker do some of everything, which is as the model says.
func newControl(t *testing.T, d *e2e.Daemon, owner string) *control {
	t.Helper()
	out := d.Run("key", "create", "--owner", owner)
	if out.Code != 0 {
		t.Fatalf("make a key: %+v", out)
	}
	w := &worker{t: t, d: d, rnd: seeded(t), owner: owner, key: strings.TrimSpace(out.Stdout), name: owner, patience: time.Second}
	c := &control{campaign: campaign{t: t, judge: t, d: d, workers: []*worker{w}}, worker: w}
	w.makeVolume()
	w.create()
	c.box = w.boxes[0]
	for _, do := range []func(*modelBox){w.exec, w.fill, w.upload, w.session, w.background, w.follow} {
		do(c.box)
	}
	c.compare()
	return c
}

func (c *control) check(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

func (c *control) at(path string) string { return "/sandboxes/" + c.box.uid + path }

// ask is what another client of the same owner does.
func (c *control) ask(method, path, body string, want int) {
	c.t.Helper()
	a, err := c.d.Try(e2e.Call{Key: c.worker.key, Method: method, Path: path, Body: body})
	if err != nil || a.Code != want {
		c.t.Fatalf("%s %s: %d %s, %v", method, path, a.Code, a.Text, err)
	}
}

func (c *control) sh(command string) {
	c.t.Helper()
	c.ask("POST", c.at("/execute"), fmt.Sprintf(`{"command":%q}`, command), http.StatusOK)
}

// database changes the store of a daemon that does not run.
func (c *control) database(statements string) {
	c.t.Helper()
	const program = "import sqlite3, sys; sqlite3.connect(sys.argv[1], isolation_level=None).executescript(sys.argv[2])"
	if out, err := exec.Command("python3", "-c", program, filepath.Join(c.d.Dir, "agentbox.db"), statements).CombinedOutput(); err != nil {
		c.t.Fatalf("%s: %v: %s", statements, err, out)
	}
}

// mkdir makes a directory below the daemon's.
func (c *control) mkdir(path ...string) {
	c.t.Helper()
	dir := filepath.Join(append([]string{c.d.Dir}, path...)...)
	c.check(os.Mkdir(dir, 0o700))
	c.undo = func() { c.check(os.Remove(dir)) }
}

// clear removes all that the owner has, whoever made it.
func (c *control) clear() {
	c.t.Helper()
	var boxes struct{ Items []shown }
	c.d.Do(c.worker.key, "GET", "/sandboxes", "", &boxes)
	for _, sb := range boxes.Items {
		c.ask("DELETE", "/sandboxes/"+sb.ID, "", http.StatusNoContent)
	}
	var volumes struct{ Items []struct{ Name string } }
	c.d.Do(c.worker.key, "GET", "/volumes", "", &volumes)
	for _, v := range volumes.Items {
		c.ask("DELETE", "/volumes/"+v.Name, "", http.StatusNoContent)
	}
}
