package soak

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"

	"agentbox/internal/e2e"
)

// modelVolume is what a worker knows of its volume.
type modelVolume struct {
	name  string
	told  bool            // somebody was told that it was made
	may   map[string]bool // "ready"; empty: there is none
	lines map[string]int  // of its file log, as a modelBox has them
	held  *modelBox       // the sandbox that has it, or may have it
}

// free reports whether it is there for sure, and no sandbox has it.
func (v *modelVolume) free() bool { return v != nil && v.held == nil && !v.may[""] }

// volumeStep makes, reads or removes the worker's volume. It returns false if there
// was nothing to do.
func (w *worker) volumeStep() bool {
	switch {
	case w.volume == nil:
		w.makeVolume()
	case w.volume.free() && w.rnd.IntN(3) == 0:
		w.removeVolume()
	case w.volume.may[""]:
		return false
	default:
		w.verifyContent(w.volume)
	}
	return true
}

func (w *worker) makeVolume() {
	w.made++
	w.volume = &modelVolume{name: fmt.Sprint(w.name, "-", w.made), may: set("", "ready"), lines: map[string]int{}}
	w.makeVolumeAgain(w.volume)
}

// makeVolumeAgain sends the request that makes a volume, once more if it had no
// answer.
func (w *worker) makeVolumeAgain(v *modelVolume) {
	w.t.Helper()
	if w.call(e2e.Call{
		Method: "POST", Path: "/volumes", Body: `{"name":"` + v.name + `","size":"16m"}`, Header: map[string]string{"Idempotency-Key": "v" + v.name},
	}, http.StatusCreated, nil) {
		v.told, v.may = true, set("ready")
	}
}

func (w *worker) removeVolume() {
	v := w.volume
	v.may[""] = true
	if w.call(e2e.Call{Method: "DELETE", Path: "/volumes/" + v.name}, http.StatusNoContent, nil) {
		w.volume = nil
	}
}

// fill writes a line into the volume of a sandbox, once.
func (w *worker) fill(b *modelBox) {
	word := w.word()
	b.volume.lines[word] = 0
	var r result
	if w.execute(b, map[string]any{"command": fmt.Sprintf("sleep 0.%d; echo %s >>/data/log", w.rnd.IntN(2), word)}, http.StatusOK, &r) {
		b.volume.lines[word] = 1
		if r.ExitCode != 0 {
			w.t.Errorf("%s: write to a volume: %+v", b.name, r)
		}
	}
}

// verifyVolume compares the worker's volume with what may be, after a new start.
func (w *worker) verifyVolume() {
	v := w.volume
	a, err := w.d.Try(e2e.Call{Key: w.key, Method: "GET", Path: "/volumes/" + v.name})
	if err != nil {
		w.t.Error(err)
		return
	}
	state := ""
	var is struct {
		UsedBy []string `json:"used_by"`
	}
	if a.Code != http.StatusNotFound {
		state = "ready"
		if err := json.Unmarshal([]byte(a.Text), &is); err != nil || a.Code != http.StatusOK {
			w.t.Errorf("volume %s: %d %s", v.name, a.Code, a.Text)
			return
		}
	}
	if !v.may[state] {
		w.t.Errorf("volume %s is %q, which is none of %q", v.name, state, slices.Sorted(maps.Keys(v.may)))
		return
	}
	v.may = set(state)
	switch {
	case state == "" && v.told:
		w.volume = nil
		return
	case !v.told: // the request had no answer: again
		w.makeVolumeAgain(v)
	}
	var want []string
	if v.held != nil {
		want = []string{v.held.uid}
	}
	if !slices.Equal(is.UsedBy, want) {
		w.t.Errorf("volume %s is used by %q, and should be by %q", v.name, is.UsedBy, want)
	}
	w.verifyContent(v)
}

// verifyContent compares what is in a volume with what was written.
func (w *worker) verifyContent(v *modelVolume) {
	a, err := w.d.Try(e2e.Call{Key: w.key, Method: "GET", Path: "/volumes/" + v.name + "/archive"})
	if err != nil {
		w.interrupted = true
		return
	}
	if a.Code != http.StatusOK {
		w.t.Errorf("read volume %s: %d %s", v.name, a.Code, a.Text)
		return
	}
	text := ""
	for archive := tar.NewReader(strings.NewReader(a.Text)); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			w.t.Errorf("volume %s is no archive: %v", v.name, err)
			return
		}
		if h.Typeflag == tar.TypeDir {
			continue
		}
		if h.Name != "log" {
			w.t.Errorf("volume %s has %q besides", v.name, h.Name)
		}
		content, err := io.ReadAll(archive)
		if err != nil {
			w.t.Errorf("volume %s: %v", v.name, err)
		}
		text += string(content)
	}
	w.verifyLines("volume "+v.name, v.lines, text)
}
