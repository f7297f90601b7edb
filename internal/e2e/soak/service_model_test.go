package soak

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"agentbox/internal/e2e"
)

// modelBox is what a worker knows of a sandbox: a call widens what may be when it
// is sent, and its answer narrows it.
type modelBox struct {
	name, uid string
	body      string          // of the request that makes it
	volume    *modelVolume    // that it has at /data; nil: none
	may       map[string]bool // states; empty: there is none
	lines     map[string]int  // of the file log: 1 was written, 0 may have been
	files     map[string]bool // digests that the file up may have; empty: there is none
	// What follows is of the sandbox's processes, and goes with them.
	jobs     []*job
	results  []result
	session  bool
	opening  string          // key of the request for a session that had no answer
	mayHave  bool            // a session from before a stop that may not have been
	variable map[string]bool // values that X in the session may have
}

// job is a command in the background that counts.
type job struct {
	id   string
	said string
}

// gap tells what is wrong with the numbers that were said.
func (j *job) gap() string {
	lines := strings.Split(j.said, "\n")
	for i, line := range lines[:len(lines)-1] {
		if line != fmt.Sprint(i+1) {
			return fmt.Sprintf("line %d is %q", i+1, line)
		}
	}
	return ""
}

func set(values ...string) map[string]bool {
	m := map[string]bool{}
	for _, v := range values {
		m[v] = true
	}
	return m
}

// only is the state, if there is no doubt.
func (b *modelBox) only() string {
	if len(b.may) != 1 {
		return "unknown"
	}
	for s := range b.may {
		return s
	}
	return ""
}

// leave says that the processes may go. A session that does not has what it had.
func (b *modelBox) leave() {
	b.mayHave = b.mayHave || b.session || b.opening != ""
	b.variable[""] = true
	b.jobs, b.results, b.session, b.opening = nil, nil, false, ""
}

// left says that they are gone.
func (b *modelBox) left() { b.mayHave, b.variable = false, set("") }

func (b *modelBox) maybeLine(word string) { b.lines[word] = 0 }
func (b *modelBox) wrote(word string)     { b.lines[word] = 1 }

// verify compares the worker's sandboxes with what may be, after a new start, and
// settles what is in doubt.
func (w *worker) verify() {
	for _, b := range slices.Clone(w.boxes) {
		w.verifyBox(b)
		if w.t.Failed() {
			return
		}
	}
	if w.volume != nil {
		w.verifyVolume()
	}
}

// settling bounds how long a stop or start of before may still be under way: the server
// begins without a sandbox that is slow to answer.
const settling = 30 * time.Second

// look reads what the server says of a sandbox, when it has brought it into a state that
// lasts. Of one that is not there the status is empty.
func (w *worker) look(b *modelBox) (a e2e.Answer, sb shown, err error) {
	for end := time.Now().Add(settling); ; time.Sleep(50 * time.Millisecond) {
		if a, err = w.d.Try(e2e.Call{Key: w.key, Method: "GET", Path: "/sandboxes/" + b.name}); err != nil || a.Code == http.StatusNotFound {
			return a, shown{}, err
		}
		if err := json.Unmarshal([]byte(a.Text), &sb); err != nil || a.Code != http.StatusOK {
			return a, sb, fmt.Errorf("%d %s", a.Code, a.Text)
		}
		if sb.Status != "stopping" && sb.Status != "starting" || time.Now().After(end) {
			return a, sb, nil
		}
	}
}

func (w *worker) verifyBox(b *modelBox) {
	a, sb, err := w.look(b)
	if err != nil {
		w.t.Errorf("%s: %v", b.name, err)
		return
	}
	if !b.may[sb.Status] {
		w.t.Errorf("%s is %q, which is none of %v: %s", b.name, sb.Status, slices.Sorted(maps.Keys(b.may)), a.Text)
		return
	}
	created := b.uid != "" // somebody was told of it
	if created && sb.Status != "" && sb.ID != b.uid {
		w.t.Errorf("%s was %s, and is %s", b.name, b.uid, sb.ID)
		return
	}
	b.may = set(sb.Status)
	switch {
	case sb.Status == "" && created:
		w.drop(b)
		return
	case sb.Status == "" || !created: // the create had no answer: again
		w.createAgain(b)
	}
	if b.only() == "running" {
		w.verifyInside(b)
	} else {
		b.left()
	}
}

func (w *worker) verifyInside(b *modelBox) {
	w.verifyFiles(b)
	for _, r := range b.results {
		var e struct{ Result *result }
		if w.call(e2e.Call{Method: "GET", Path: "/sandboxes/" + b.name + "/execs/" + r.ExecID}, http.StatusOK, &e) &&
			(e.Result == nil || e.Result.ExitCode != r.ExitCode || e.Result.Stdout != r.Output) {
			w.t.Errorf("%s: the result of %s was %+v, and is %+v", b.name, r.ExecID, r, e.Result)
		}
	}
	w.verifyJobs(b)
	if b.session {
		var r result
		if w.execute(b, map[string]any{"command": `echo "$X"`, "session": "s"}, http.StatusOK, &r) {
			value := strings.TrimSpace(r.Output)
			if !b.variable[value] {
				w.t.Errorf("%s: the session's variable is %q, none of %v", b.name, value, b.variable)
			}
			b.variable = set(value)
		}
	}
}

// verifyJobs checks that the commands in the background count on: with what was said
// before the daemon's death and was not read yet, and with more.
func (w *worker) verifyJobs(b *modelBox) {
	w.follow(b)
	for _, j := range b.jobs {
		before := len(j.said)
		for end := time.Now().Add(w.patience + e2e.Slack()); len(j.said) == before && !w.t.Failed(); {
			if w.follow(b); time.Now().After(end) {
				w.t.Errorf("%s: %s counts no further than %d bytes", b.name, j.id, before)
			}
		}
		var e struct{ State string }
		if w.call(e2e.Call{Method: "GET", Path: "/sandboxes/" + b.name + "/execs/" + j.id}, http.StatusOK, &e) && e.State != "running" {
			w.t.Errorf("%s: %s is %q and should be running", b.name, j.id, e.State)
		}
	}
}

// verifyFiles checks the file of lines, the file that is replaced, and that
// nothing lies beside them.
func (w *worker) verifyFiles(b *modelBox) {
	const look = "cat log 2>/dev/null; echo ==; ls -A; echo ==; test ! -e up || sha256sum <up"
	var parts []string
	// What was under way ends by itself: a command that sleeps before it writes, and
	// the half of an upload.
	for end := time.Now().Add(w.patience + e2e.Slack()); ; time.Sleep(20 * time.Millisecond) {
		var r result
		if !w.execute(b, map[string]any{"command": look}, http.StatusOK, &r) {
			w.t.Errorf("%s: no answer", b.name)
			return
		}
		parts = strings.Split(r.Output, "==\n")
		if len(parts) != 3 {
			w.t.Errorf("%s: %q", b.name, r.Output)
			return
		}
		left := strings.Fields(parts[1])
		left = slices.DeleteFunc(left, func(name string) bool { return name == "log" || name == "up" })
		if len(left) == 0 {
			break
		}
		if time.Now().After(end) {
			w.t.Errorf("%s: the directory has %q besides", b.name, left)
			return
		}
	}
	w.verifyLines(b.name, b.lines, parts[0])
	digest, _, _ := strings.Cut(parts[2], " ")
	if !b.files[digest] {
		w.t.Errorf("%s: the file is %q, none of %v", b.name, digest, b.files)
	}
	b.files = set(digest)
}

// verifyLines checks that each line of a file was written once, or not at all if
// nobody was told that it was. What was seen once must be there from then on.
func (w *worker) verifyLines(where string, lines map[string]int, text string) {
	found := map[string]int{}
	for _, word := range strings.Fields(text) {
		found[word]++
	}
	for word, told := range lines {
		n := found[word]
		if n > 1 || n < told {
			w.t.Errorf("%s: the line %s was written %d times", where, word, n)
		}
		lines[word] = n
		delete(found, word)
	}
	if len(found) > 0 {
		w.t.Errorf("%s: nobody wrote %v", where, found)
	}
}
