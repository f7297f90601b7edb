package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"agentbox/internal/failpoint"
)

// stormy is a daemon with at most one sandbox, called a, of which a step fails.
type stormy struct {
	*Daemon
	t     *testing.T
	round int // names the create that is repeated
}

// call must succeed, unless wantErr; it returns the answer.
func (s *stormy) must(method, path, body string) []byte {
	s.t.Helper()
	code, text := s.send(s.Key, method, path, body)
	if code >= 300 {
		s.t.Fatalf("%s %s: %d %s", method, path, code, text)
	}
	return text
}

var errRefused = errors.New("refused")

// do sends a request that may fail.
func (s *stormy) do(c Call) error {
	c.Key = s.Key
	a, err := s.Try(c)
	if err == nil && a.Code >= 300 {
		err = fmt.Errorf("%w: %d %s", errRefused, a.Code, a.Text)
	}
	return err
}

// state is that of the sandbox a, empty if there is none.
func (s *stormy) state() string {
	s.t.Helper()
	var sb served
	if code := s.Do(s.Key, "GET", "/sandboxes/a", "", &sb); code == http.StatusNotFound {
		return ""
	}
	return sb.Status
}

// agrees checks that the host has what the daemon says, and no more.
func (s *stormy) agrees(when string) {
	s.t.Helper()
	var all servedList
	s.Do(s.Key, "GET", "/sandboxes", "", &all)
	states := map[string]string{}
	for _, sb := range all.Items {
		states[sb.ID] = sb.Status
	}
	for _, d := range s.Disagreements(states) {
		s.t.Errorf("%s: %s", when, d)
	}
}

func (s *stormy) sh(line string) string {
	s.t.Helper()
	var res executed
	body, err := json.Marshal(map[string]string{"command": line})
	if err != nil {
		s.t.Fatal(err)
	}
	if err := json.Unmarshal(s.must("POST", "/sandboxes/a/execute", string(body)), &res); err != nil || res.ExitCode != 0 {
		s.t.Fatalf("%s: %+v, %v", line, res, err)
	}
	return res.Output
}

// file is a file of the workspace, read without a command.
func (s *stormy) file(name string) string {
	s.t.Helper()
	return string(s.must("GET", "/sandboxes/a/files/download?path="+name, ""))
}

// make makes the sandbox with a file in it, if it is not there.
func (s *stormy) make() {
	s.t.Helper()
	if s.state() == "" {
		s.must("POST", "/sandboxes", `{"name":"a"}`)
		s.sh("printf old >f; printf kept >g; touch log")
	}
	s.must("POST", "/sandboxes/a/start", "")
}

func (s *stormy) stopped() { s.t.Helper(); s.make(); s.must("POST", "/sandboxes/a/stop", "") }

func (s *stormy) gone() {
	s.t.Helper()
	if s.state() != "" {
		s.must("DELETE", "/sandboxes/a", "")
	}
}

// upload replaces the file f by one that is sent in many parts.
func (s *stormy) upload() error {
	const form = "--x\r\nContent-Disposition: form-data; name=\"file\"; filename=\"f\"\r\n\r\n"
	return s.do(Call{
		Method: "POST", Path: "/sandboxes/a/files/upload", Body: form + strings.Repeat("new", 1<<20) + "\r\n--x--\r\n",
		Header: map[string]string{"Content-Type": "multipart/form-data; boundary=x"},
	})
}

// stormyOp is an operation, and which states of the sandbox it may leave behind.
type stormyOp struct {
	points []failpoint.Point
	before func(*stormy)
	do     func(*stormy) error
	// allowed after a failure, done after success; empty: there is no sandbox.
	allowed []string
	done    string
	// check, if there is one, looks at the inside after each try.
	check func(s *stormy, done bool)
}

var engineStart = []failpoint.Point{failpoint.EngineGroup, failpoint.EngineBooted}

var stormyOps = map[string]stormyOp{
	"create": {
		points: slices.Concat([]failpoint.Point{failpoint.CreateRecorded, failpoint.CreateImage, failpoint.CreateVolumes, failpoint.CreateBox}, engineStart,
			[]failpoint.Point{failpoint.CreateCreated, failpoint.CreateAgent, failpoint.CreateMade, failpoint.CreateRunning}),
		before: func(s *stormy) { s.gone(); s.round++ },
		do: func(s *stormy) error {
			return s.do(Call{Method: "POST", Path: "/sandboxes", Body: `{"name":"a"}`, Header: map[string]string{"Idempotency-Key": fmt.Sprint(s.round)}})
		},
		allowed: []string{"", "running"}, done: "running",
	},
	"destroy": {
		points: []failpoint.Point{failpoint.DestroyRecorded, failpoint.EngineKilled, failpoint.DestroyCleared, failpoint.DestroyRemoved, failpoint.DestroyReleased, failpoint.DestroyBuried},
		before: (*stormy).make,
		do: func(s *stormy) error {
			err := s.do(Call{Method: "DELETE", Path: "/sandboxes/a"})
			if err != nil && strings.Contains(err.Error(), "sandbox_destroyed") {
				return nil // by an earlier try
			}
			return err
		},
		allowed: []string{"", "destroying", "running"}, done: "",
	},
	"stop": {
		points: []failpoint.Point{failpoint.StopRecorded, failpoint.StopKilled, failpoint.StopWritten, failpoint.StopSaved, failpoint.StopSealed, failpoint.StopFreed, failpoint.StopStopped},
		before: (*stormy).make,
		do:     func(s *stormy) error { return s.do(Call{Method: "POST", Path: "/sandboxes/a/stop"}) },
		// One that could not be stopped runs on; the next daemon stops it.
		allowed: []string{"running", "stopped"}, done: "stopped",
	},
	"start": {
		points: slices.Concat([]failpoint.Point{failpoint.StartRecorded, failpoint.StartBegun}, engineStart,
			[]failpoint.Point{failpoint.StartRestored, failpoint.StartKeyed, failpoint.StartApplied, failpoint.StartRan, failpoint.StartRunning}),
		before:  (*stormy).stopped,
		do:      func(s *stormy) error { return s.do(Call{Method: "POST", Path: "/sandboxes/a/start"}) },
		allowed: []string{"stopped", "running"}, done: "running",
	},
	"exec": {
		points: []failpoint.Point{failpoint.ExecBegin, failpoint.ExecStarted, failpoint.ExecEnded},
		before: func(s *stormy) { s.make(); s.sh(": >log") },
		do: func(s *stormy) error {
			return s.do(Call{Method: "POST", Path: "/sandboxes/a/execute", Body: `{"command":"echo line >>log"}`})
		},
		allowed: []string{"running"}, done: "running",
		check: (*stormy).checkLog,
	},
	"upload": {
		points:  []failpoint.Point{failpoint.UploadBegin, failpoint.UploadPart, failpoint.UploadSent},
		before:  func(s *stormy) { s.make(); s.sh("printf old >f") },
		do:      (*stormy).upload,
		allowed: []string{"running"}, done: "running",
		check: (*stormy).checkFile,
	},
}

// checkLog: a command runs as often as somebody was told, and at most once more
// for each failure; what it did is kept as its result.
func (s *stormy) checkLog(done bool) {
	s.t.Helper()
	var all struct {
		Items []struct {
			Command []string
			Result  *struct {
				ExitCode int `json:"exit_code"`
			}
		}
	}
	began, ended := 1, 0
	for end := time.Now().Add(10*time.Second + Slack()); ended < began && time.Now().Before(end); {
		began, ended = 0, 0
		s.Do(s.Key, "GET", "/sandboxes/a/execs?limit=1000", "", &all)
		for _, e := range all.Items {
			if slices.Contains(e.Command, "echo line >>log") {
				began++
				if e.Result != nil && e.Result.ExitCode == 0 {
					ended++
				}
			}
		}
	}
	lines := strings.Count(s.file("log"), "line\n")
	if began != ended || ended < lines || done && lines == 0 {
		s.t.Errorf("%d lines were written, and of %d commands that write one %d have a result", lines, began, ended)
	}
}

// checkFile: a file is the old or the new one, and nothing lies beside it.
func (s *stormy) checkFile(done bool) {
	s.t.Helper()
	if names := s.sh("ls -A | tr '\\n' ' '"); names != "f g log " {
		s.t.Errorf("the directory has %q", names)
	}
	size := s.sh("stat -c %s f; tail -c 3 f")
	if size != "3145728\nnew" && (done || size != "3\nold") {
		s.t.Errorf("the file has %q", size)
	}
}

// verify checks what there is after a try. alive: nothing is on its way any more.
func (op *stormyOp) verify(s *stormy, when string, done, alive bool) {
	s.t.Helper()
	s.agrees(when)
	state := s.state()
	if done && state != op.done || !slices.Contains(op.allowed, state) || alive && state == "destroying" {
		s.t.Errorf("%s: the sandbox is %q", when, state)
	}
	if state == "running" && op.check != nil {
		op.check(s, done)
	}
	if state == "running" && op.done != "running" && s.file("g") != "kept" {
		s.t.Errorf("%s: a file is lost", when)
	}
}

// TestF20_KilledAtEachFailpoint kills the daemon at each step of each operation: the
// next one finds all of it or nothing, nothing of it stays on the host, and the
// same request, sent again, does what it says.
func TestF20_KilledAtEachFailpoint(t *testing.T) {
	t.Parallel()
	covered := 0
	for name, op := range stormyOps {
		covered += len(op.points)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &stormy{Daemon: StartDaemon(t), t: t}
			traps := []string{}
			for _, p := range op.points {
				traps = append(traps, string(p)+"=kill")
			}
			if name == "create" || name == "destroy" {
				for _, p := range []failpoint.Point{failpoint.StoreBegin, failpoint.StoreCommit, failpoint.StoreCommitted} {
					for passes := range 3 { // also in the start, which takes the sandbox over
						traps = append(traps, strings.TrimSuffix(fmt.Sprintf("%s=kill+%d", p, passes), "+0"))
					}
				}
			}
			for _, trap := range traps {
				op.before(s)
				if code := s.Stop(); code != 0 {
					t.Errorf("told to end it ended with %d", code)
				}
				err := s.StartWith(failpoint.Variable + "=" + trap)
				if err == nil && !strings.Contains(s.Log(), "THIS SERVER FAILS ON PURPOSE") {
					t.Error("the daemon does not say that it is armed")
				}
				if err == nil {
					err = op.do(s)
				}
				var dead *url.Error
				store := strings.HasPrefix(trap, "store.")
				if !store && !errors.As(err, &dead) {
					t.Errorf("%s: the daemon lives: %v", trap, err)
				}
				s.Kill() // to wait for it, and for one that never came to the store's point
				s.Start()
				op.verify(s, trap, err == nil, true)
				for range 2 {
					if err := op.do(s); err != nil {
						t.Errorf("%s: again: %v", trap, err)
					}
				}
				op.verify(s, trap+", again", true, true)
				if t.Failed() {
					return
				}
			}
		})
	}
	if want := len(failpoint.All) - 3; covered < want { // the store's are in two of them
		t.Errorf("%d points of %d belong to an operation", covered, want)
	}
}

// TestF20_ErrorAtEachFailpoint lets each step of each operation fail once: the daemon
// lives on with all of it or nothing, and the request may be repeated until it
// does what it says.
func TestF20_ErrorAtEachFailpoint(t *testing.T) {
	t.Parallel()
	for name, op := range stormyOps {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &stormy{Daemon: StartDaemon(t), t: t}
			op.before(s)
			s.Stop()
			traps := []string{}
			for _, p := range op.points {
				traps = append(traps, string(p)+"=error*1")
			}
			most := len(traps)
			if name == "exec" { // the command that nobody was told of has an end, too, now or later
				traps[len(traps)-1] = string(failpoint.ExecEnded) + "=error*2"
				most++
			}
			if name == "create" {
				traps = append(traps, "store.begin=error*1", "store.commit=error*1")
				most = len(traps)
			}
			if err := s.StartWith(failpoint.Variable + "=" + strings.Join(traps, ",")); err != nil {
				t.Fatal(err)
			}
			failed := 0
			for err := op.do(s); err != nil; err = op.do(s) {
				if failed++; !strings.Contains(err.Error(), " 500 ") || failed > most {
					t.Fatalf("failure %d: %v", failed, err)
				}
				op.verify(s, fmt.Sprint("failure ", failed), false, false)
				if t.Failed() {
					return
				}
				if s.state() == op.done && op.check == nil {
					op.before(s) // it failed after all was done
				}
			}
			if failed < len(traps) && name != "create" { // its undoing fails at the store, too
				t.Errorf("%d of %d steps failed:\n%s", failed, len(traps), s.Log())
			}
			op.verify(s, "at last", true, true)
			s.Stop()
			s.Start()
			op.verify(s, "later", true, true)
		})
	}
}

// TestF20_DestroyAtEachDelay lets each step take its time while the sandbox is
// destroyed and the same request comes once more: all end well, and nothing is left.
func TestF20_DestroyAtEachDelay(t *testing.T) {
	t.Parallel()
	for name, op := range stormyOps {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &stormy{Daemon: StartDaemon(t), t: t}
			for _, p := range op.points {
				op.before(s)
				s.Stop()
				if err := s.StartWith(failpoint.Variable + "=" + string(p) + "=delay:200ms*2"); err != nil {
					t.Fatal(err)
				}
				var busy sync.WaitGroup
				for range 2 {
					busy.Go(func() {
						if err := op.do(s); err != nil && !errors.Is(err, errRefused) || err != nil && strings.Contains(err.Error(), " 500 ") {
							t.Errorf("%s: %v", p, err)
						}
					})
				}
				time.Sleep(50 * time.Millisecond) // somewhere in the middle
				for end := time.Now().Add(20*time.Second + Slack()); s.state() != "" && time.Now().Before(end); {
					_ = s.do(Call{Method: "DELETE", Path: "/sandboxes/a"})
				}
				busy.Wait()
				if s.state() != "" { // it was made after the destroy
					s.gone()
				}
				s.agrees(string(p))
				if t.Failed() {
					return
				}
			}
		})
	}
}
