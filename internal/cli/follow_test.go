package cli

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

// sends writes events, each an id, a name and data, at once.
func sends(w http.ResponseWriter, events ...[3]string) {
	for _, e := range events {
		if e[0] != "" {
			fmt.Fprintf(w, "id: %s\n", e[0])
		}
		fmt.Fprintf(w, "event: %s\ndata: %s\n\n", e[1], e[2])
	}
	_ = http.NewResponseController(w).Flush()
}

var (
	started = [3]string{"", "start", `{"exec_id":"e1"}`}
	exited  = [3]string{"", "exit", `{"exit_code":0}`}
)

// said is an event of output: one letter, up to offset end.
func said(letter string, end int) [3]string {
	data, _ := json.Marshal(map[string][]byte{"data_base64": []byte(letter)})
	return [3]string{fmt.Sprintf("%d-0", end), "stdout", string(data)}
}

// breaking is a server with a command that said "ab…". It breaks after the start of
// each stream that is not the last, and has no byte before first once it did.
func breaking(t *testing.T, first int) *httptest.Server {
	var streams atomic.Int32
	return answering(t, func(_ int, w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/execs/e1"):
			begin := 0
			if streams.Load() > 0 {
				begin = first
			}
			fmt.Fprintf(w, `{"exec_id":"e1","stdout":{"first":%d,"end":9},"stderr":{"first":0,"end":0}}`, begin)
			return
		case strings.HasSuffix(r.URL.Path, "/signal"):
			w.WriteHeader(http.StatusNoContent)
			return
		}
		at := 0
		_, _ = fmt.Sscanf(r.Header.Get("Last-Event-ID"), "%d-0", &at)
		n := streams.Add(1)
		switch {
		case n == 1:
			sends(w, started, said("a", 1))
			cutOff(w)
		case n == 2 && at >= first:
			sends(w, started) // and nothing yet
			cutOff(w)
		case at < first:
			w.Header().Set("X-First-Offset", fmt.Sprint(first))
			refuse(w, 416, "out_of_range", "there is no output at this offset")
		default:
			sends(w, started)
			for i := at; i < 9; i++ {
				sends(w, said(string(rune('a'+i)), i+1))
			}
			sends(w, exited)
		}
	})
}

// TestOutputOnce: no byte of a command's output is shown twice, and none is left
// out in silence, whenever the server goes away.
func TestOutputOnce(t *testing.T) {
	for _, args := range []string{"exec dev -- x", "logs -f dev e1", "logs -f --stdout dev e1"} {
		noServer(t)
		t.Setenv(urlVariable, breaking(t, 0).URL)
		if got := call(t, "", strings.Fields(args)...); got.code != 0 || got.stdout != "abcdefghi" || strings.Contains(got.stderr, "not there any more") {
			t.Errorf("%s: %+v", args, got)
		}
		t.Setenv(urlVariable, breaking(t, 5).URL)
		got := call(t, "", strings.Fields(args)...)
		if got.code != 0 || got.stdout != "afghi" {
			t.Errorf("%s with output that is gone: %+v", args, got)
		}
		wantIn(t, got.stderr, "4 bytes of standard output are not there any more")
	}
}

// A place that the user named is not moved.
func TestOffsetIsKept(t *testing.T) {
	noServer(t)
	s := answering(t, func(_ int, w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/execs/e1") {
			fmt.Fprint(w, `{"exec_id":"e1","stdout":{"first":5,"end":9}}`)
			return
		}
		refuse(w, 416, "out_of_range", "it begins at 5")
	})
	t.Setenv(urlVariable, s.URL)
	got := call(t, "", "logs", "-f", "--stdout", "--offset", "2", "dev", "e1")
	if got.code != ExitFailure || got.stdout != "" {
		t.Errorf("%+v", got)
	}
	wantIn(t, got.stderr, "it begins at 5")
}

// Output that is dropped while it is asked for is told, and the rest is shown.
func TestDroppedMeanwhile(t *testing.T) {
	noServer(t)
	first := 5 // of what is left; the command says more with each question
	s := answering(t, func(_ int, w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/execs/e1") {
			fmt.Fprint(w, `{"exec_id":"e1","stdout":{"first":2,"end":6}}`)
			return
		}
		if r.URL.Query().Get("stream") == "stderr" {
			return
		}
		if r.URL.Query().Get("offset") == "7" {
			fmt.Fprint(w, "rest")
			return
		}
		w.Header().Set("X-First-Offset", fmt.Sprint(first))
		first = 7
		refuse(w, 416, "out_of_range", "there is no output at this offset")
	})
	t.Setenv(urlVariable, s.URL)
	got := call(t, "", "logs", "dev", "e1")
	if got.code != 0 || got.stdout != "rest" {
		t.Errorf("%+v", got)
	}
	for _, want := range []string{"the first 2 bytes of", "3 bytes of standard output are not there any more", "2 bytes of standard output are not there any more"} {
		wantIn(t, got.stderr, want)
	}
	got = call(t, "", "logs", "--stdout", "--offset", "3", "dev", "e1")
	if got.code != ExitFailure || got.stdout != "" {
		t.Errorf("from a place that was named: %+v", got)
	}
	wantIn(t, got.stderr, "there is no output at this offset")
}
