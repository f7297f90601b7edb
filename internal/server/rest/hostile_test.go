package rest_test

import (
	"io"
	"net/url"
	"strings"
	"testing"

	"agentbox/internal/server/rest"
)

// TestProcessAPIFrames: the frames that clients of the process API know.
func TestProcessAPIFrames(t *testing.T) {
	w := start(t)
	box := w.box()
	for command, want := range map[string]string{
		"printf a; exit 3": `{"type":"stdout","data":"a"}|{"type":"exit","exit_code":3}`,
		"kill -TERM $$":    `{"type":"exit","exit_code":-15}`,
		"echo b >&2":       `{"type":"stderr","data":"b\n"}|{"type":"exit","exit_code":0}`,
	} {
		s := w.stream("POST", box+"/execute/stream", `{"command":"`+command+`"}`, map[string]string{"Accept": "text/event-stream; profile=process-api"})
		b, err := io.ReadAll(s.resp.Body)
		if got := strings.ReplaceAll(strings.TrimSuffix(strings.TrimPrefix(string(b), "data: "), "\n\n"), "\n\ndata: ", "|"); err != nil || got != want {
			t.Errorf("%s: %q %v", command, got, err)
		}
	}
}

// TestHostilePaths: FS-01, FS-04. Names are bytes of the sandbox: odd ones come
// back as they are, and none reaches a file of the host.
func TestHostilePaths(t *testing.T) {
	w := start(t)
	box := w.box()
	for _, name := range []string{"a\xffb", "new\nline", "quo\"te", "per%cent", "sp ace", "ünï", ".hidden", "-rf", "semi;colon", "$(touch x)", strings.Repeat("n", 255)} {
		q := "path=" + url.QueryEscape("h/"+name)
		w.put(box, q, name, 204)
		if resp, text := w.send("GET", box+"/files?"+q, nil, nil); resp.StatusCode != 200 || text != name {
			t.Errorf("%q: %d %q", name, resp.StatusCode, text)
		}
	}
	list := read[rest.List[rest.File]](t, w.in("GET", box+"/files/list?path=h", "", 200))
	odd := 0
	for _, f := range list.Items {
		if string(f.PathBase64) == "h/a\xffb" {
			odd++
		}
	}
	if len(list.Items) != 11 || odd != 1 {
		t.Errorf("%d entries: %+v", len(list.Items), list.Items)
	}
	for _, path := range []string{"../../../../../../proc/self/environ", "/proc/self/root/etc/hostname", "/proc/1/root/etc/shadow", "//etc//shadow", strings.Repeat("../", 500) + "etc/shadow", strings.Repeat("n", 256), strings.Repeat("d/", 2100)} {
		if resp, text := w.send("GET", box+"/files?path="+url.QueryEscape(path), nil, nil); resp.StatusCode < 400 || resp.StatusCode > 499 {
			t.Errorf("%.60q: %d %.100q", path, resp.StatusCode, text)
		}
	}
}
