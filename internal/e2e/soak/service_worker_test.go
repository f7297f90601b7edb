package soak

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	"agentbox/internal/e2e"
)

// worker is a client that works with sandboxes of its own, one call after the
// other, and knows what may have become of each.
type worker struct {
	t           judge
	d           *e2e.Daemon
	rnd         *rand.Rand
	owner, key  string
	name        string
	patience    time.Duration // for what comes by itself
	boxes       []*modelBox
	volume      *modelVolume // nil: none
	made        int          // names sandboxes and volumes
	words       int          // no two are the same
	doubts      int          // calls without an answer
	interrupted bool
}

// judge is told what is wrong: the test, but in a control.
type judge interface {
	Helper()
	Error(args ...any)
	Errorf(format string, args ...any)
	Failed() bool
}

// most is how many sandboxes a worker has.
const most = 3

// work works until the daemon dies.
func (w *worker) work(stop <-chan struct{}) {
	for w.interrupted = false; !w.interrupted && !w.t.Failed(); {
		select {
		case <-stop:
			return
		default:
			w.step()
		}
	}
}

func (w *worker) step() {
	if len(w.boxes) == 0 || len(w.boxes) < most && w.rnd.IntN(8) == 0 {
		w.create()
		return
	}
	if w.rnd.IntN(10) == 0 && w.volumeStep() {
		return
	}
	b := w.boxes[w.rnd.IntN(len(w.boxes))]
	if b.only() == "stopped" {
		if w.rnd.IntN(5) == 0 {
			w.destroy(b)
		} else {
			w.start(b)
		}
		return
	}
	switch n := w.rnd.IntN(20); {
	case n < 3 && b.volume != nil:
		w.fill(b)
	case n < 7:
		w.exec(b)
	case n < 9:
		w.background(b)
	case n < 13:
		w.upload(b)
	case n < 16:
		w.session(b)
	case n < 17:
		w.follow(b)
	case n < 19:
		w.stop(b)
	default:
		w.destroy(b)
	}
}

// call sends a request. Without an answer it returns false: what it asked for may
// have happened or not. An answer that is not the wanted one fails the test.
func (w *worker) call(c e2e.Call, want int, out any) bool {
	w.t.Helper()
	c.Key = w.key
	a, err := w.d.Try(c)
	if err != nil {
		w.interrupted = true
		w.doubts++
		return false
	}
	if a.Code != want {
		w.t.Errorf("%s: %s %s %.200s: %d %s", w.name, c.Method, c.Path, c.Body, a.Code, a.Text)
		return false
	}
	if out != nil {
		if err := json.Unmarshal([]byte(a.Text), out); err != nil {
			w.t.Errorf("%s: %s %s: %s: %v", w.name, c.Method, c.Path, a.Text, err)
			return false
		}
	}
	return true
}

type shown struct{ ID, Status string }

func (w *worker) create() {
	w.made++
	b := &modelBox{name: fmt.Sprint(w.name, "-", w.made), may: set("", "running"), lines: map[string]int{}, files: set(""), variable: set("")}
	b.body = `{"name":"` + b.name + `","memory":"160m","disk":"256m"`
	if w.volume.free() {
		b.volume, w.volume.held = w.volume, b
		b.body += `,"volumes":[{"name":"` + w.volume.name + `","path":"/data"}]`
	}
	b.body += "}"
	w.boxes = append(w.boxes, b)
	w.createAgain(b)
}

// createAgain sends the request that makes a sandbox, once more if it had no
// answer.
func (w *worker) createAgain(b *modelBox) {
	w.t.Helper()
	var sb shown
	if w.call(e2e.Call{
		Method: "POST", Path: "/sandboxes", Body: b.body, Header: map[string]string{"Idempotency-Key": b.name},
	}, http.StatusCreated, &sb) {
		if b.uid != "" && b.uid != sb.ID {
			w.t.Errorf("%s was %s, and the same request gives %s", b.name, b.uid, sb.ID)
		}
		b.uid, b.may = sb.ID, set("running")
	}
}

func (w *worker) destroy(b *modelBox) {
	b.may[""] = true
	b.leave()
	if w.call(e2e.Call{Method: "DELETE", Path: "/sandboxes/" + b.name}, http.StatusNoContent, nil) {
		b.may = set("")
		w.drop(b)
	}
}

// drop forgets a sandbox that is gone, which the daemon must say, too.
func (w *worker) drop(b *modelBox) {
	w.t.Helper()
	for i := range w.boxes {
		if w.boxes[i] == b {
			w.boxes = append(w.boxes[:i], w.boxes[i+1:]...)
			break
		}
	}
	if b.volume != nil {
		b.volume.held = nil
	}
	var why struct{ Code, Reason string }
	if b.uid != "" && w.call(e2e.Call{Method: "GET", Path: "/sandboxes/" + b.uid}, http.StatusNotFound, &why) && why.Reason != "destroyed" {
		w.t.Errorf("%s is gone, and the reason is %+v", b.name, why)
	}
}

func (w *worker) stop(b *modelBox) {
	b.may["stopped"] = true
	b.leave()
	if w.call(e2e.Call{Method: "POST", Path: "/sandboxes/" + b.name + "/stop"}, http.StatusOK, nil) {
		b.may = set("stopped")
		b.left()
	}
}

func (w *worker) start(b *modelBox) {
	b.may["running"] = true
	b.leave()
	if w.call(e2e.Call{Method: "POST", Path: "/sandboxes/" + b.name + "/start"}, http.StatusOK, nil) {
		b.may = set("running")
	}
}

// result is what a command's end is known by.
type result struct {
	ExecID   string `json:"exec_id"`
	ExitCode int    `json:"exit_code"`
	Stdout   string `json:"stdout"`
	Output   string `json:"output"`
}

func (w *worker) execute(b *modelBox, body map[string]any, want int, r *result) bool {
	w.t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		w.t.Error(err)
		return false
	}
	return w.call(e2e.Call{Method: "POST", Path: "/sandboxes/" + b.name + "/execute", Body: string(text)}, want, r)
}

func (w *worker) word() string {
	w.words++
	return fmt.Sprint(w.name, ".", w.words)
}

// exec writes a line, once.
func (w *worker) exec(b *modelBox) {
	word := w.word()
	b.maybeLine(word)
	var r result
	line := fmt.Sprintf("sleep 0.%d; echo %s >>log; echo %s; exit 3", w.rnd.IntN(3), word, word)
	if w.execute(b, map[string]any{"command": line}, http.StatusOK, &r) {
		b.wrote(word)
		if r.ExitCode != 3 || r.Output != word+"\n" {
			w.t.Errorf("%s: %q gives %+v", b.name, line, r)
		}
		b.results = append(b.results, r)
	}
}

// counter says numbers without end.
const counter = `exec python3 -c 'import itertools, time
for i in itertools.count(1): print(i, flush=True); time.sleep(0.02)'`

func (w *worker) background(b *modelBox) {
	if len(b.jobs) > 0 {
		w.follow(b)
		return
	}
	var r result
	if w.execute(b, map[string]any{"command": counter, "detach": true}, http.StatusAccepted, &r) {
		b.jobs = append(b.jobs, &job{id: r.ExecID})
	}
}

// follow reads on where the last reading of a background command ended.
func (w *worker) follow(b *modelBox) {
	for _, j := range b.jobs {
		a, err := w.d.Try(e2e.Call{Key: w.key, Method: "GET", Path: fmt.Sprintf("/sandboxes/%s/execs/%s/output?stream=stdout&offset=%d", b.name, j.id, len(j.said))})
		switch {
		case err != nil:
			w.interrupted = true
			return
		case a.Code != http.StatusOK:
			w.t.Errorf("%s: output of %s at %d: %d %s", b.name, j.id, len(j.said), a.Code, a.Text)
			return
		}
		j.said += a.Text
		if wrong := j.gap(); wrong != "" {
			w.t.Errorf("%s: %s counts wrong: %s", b.name, j.id, wrong)
		}
	}
}

// upload replaces a file by a larger or smaller one.
func (w *worker) upload(b *modelBox) {
	content := strings.Repeat(w.word()+"\n", 1+w.rnd.IntN(200_000))
	b.files[sum(content)] = true
	const form = "--x\r\nContent-Disposition: form-data; name=\"file\"; filename=\"up\"\r\n\r\n"
	if w.call(e2e.Call{
		Method: "POST", Path: "/sandboxes/" + b.name + "/files/upload", Body: form + content + "\r\n--x--\r\n",
		Header: map[string]string{"Content-Type": "multipart/form-data; boundary=x"},
	}, http.StatusNoContent, nil) {
		b.files = set(sum(content))
	}
}

func sum(s string) string {
	h := sha256.Sum256([]byte(s))
	return hex.EncodeToString(h[:])
}

// session sets a variable of a shell that stays.
func (w *worker) session(b *modelBox) {
	if !b.session && !w.openSession(b) {
		return
	}
	word := w.word()
	b.variable[word] = true
	var r result
	if w.execute(b, map[string]any{"command": "X=" + word, "session": "s"}, http.StatusOK, &r) {
		b.variable = set(word)
	}
}

// openSession begins a session, with the same request as long as that has no answer.
func (w *worker) openSession(b *modelBox) bool {
	if b.opening == "" {
		b.opening = w.word()
	}
	a, err := w.d.Try(e2e.Call{
		Key: w.key, Method: "POST", Path: "/sandboxes/" + b.name + "/sessions", Body: `{"name":"s"}`, Header: map[string]string{"Idempotency-Key": b.opening},
	})
	switch {
	case err != nil:
		w.interrupted = true
		w.doubts++
		return false
	case a.Code != http.StatusCreated && !(a.Code == http.StatusConflict && b.mayHave):
		w.t.Errorf("%s: begin a session: %d %s", b.name, a.Code, a.Text)
		return false
	}
	if a.Code == http.StatusCreated {
		b.variable = set("")
	}
	b.session, b.opening = true, ""
	return true
}
