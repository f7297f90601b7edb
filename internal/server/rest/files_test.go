package rest_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"net/url"
	"runtime"
	"strings"
	"testing"
	"time"

	"agentbox/internal/server"
	"agentbox/internal/server/rest"
)

// send sends a request with headers, and returns the answer and its body.
func (w *world) send(method, path string, body io.Reader, header map[string]string) (*http.Response, string) {
	w.t.Helper()
	r, err := http.NewRequest(method, w.url+path, body)
	if err != nil {
		w.t.Fatal(err)
	}
	r.Header.Set("X-API-Key", w.user)
	for k, v := range header {
		r.Header.Set(k, v)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Fatalf("%s %s: %v", method, path, err)
	}
	return resp, string(b)
}

func (w *world) put(box, query, content string, status int) {
	w.t.Helper()
	if resp, text := w.send("PUT", box+"/files?"+query, strings.NewReader(content), nil); resp.StatusCode != status {
		w.t.Errorf("PUT %s: %d %s, want %d", query, resp.StatusCode, text, status)
	}
}

func TestFiles(t *testing.T) {
	w := start(t)
	box := w.box()
	w.put(box, "path=a/b/c.txt&mode=600", "0123456789", 204)
	w.put(box, "path=a/b/c.txt&append=1", "ab", 204)
	for rng, want := range map[string]string{
		"": "200 0123456789ab", "bytes=2-4": "206 234", "bytes=10-": "206 ab", "bytes=-3": "206 9ab", "bytes=-100": "206 0123456789ab", "bytes=5-100": "206 56789ab",
		"bytes=12-": "416", "bytes=1-2,4-5": "200 0123456789ab", "bytes=4-2": "200 0123456789ab", "lines=1-2": "200 0123456789ab", "bytes=-0": "416",
	} {
		resp, text := w.send("GET", box+"/files?path=a/b/c.txt", nil, map[string]string{"Range": rng})
		got := fmt.Sprint(resp.StatusCode)
		if resp.StatusCode != 416 {
			got += " " + text
		} else if resp.Header.Get("Content-Range") != "bytes */12" {
			t.Errorf("%s: Content-Range %q", rng, resp.Header.Get("Content-Range"))
		}
		if got != want {
			t.Errorf("%s: %q, want %q", rng, got, want)
		}
	}
	resp, _ := w.send("HEAD", box+"/files?path=a/b/c.txt", nil, nil)
	if resp.StatusCode != 200 || resp.ContentLength != 12 || resp.Header.Get("ETag") == "" {
		t.Errorf("HEAD: %d %v", resp.StatusCode, resp.Header)
	}
	if resp, text := w.send("GET", box+"/files?path=a/b/c.txt", nil, map[string]string{"Range": "bytes=0-1", "If-Range": resp.Header.Get("ETag")}); resp.StatusCode != 206 || text != "01" {
		t.Errorf("If-Range: %d %q", resp.StatusCode, text)
	}
	if resp, _ := w.send("GET", box+"/files?path=a/b/c.txt", nil, map[string]string{"Range": "bytes=0-1", "If-Range": `"other"`}); resp.StatusCode != 200 {
		t.Errorf("If-Range of another file: %d", resp.StatusCode)
	}
	f := read[rest.File](t, w.in("GET", box+"/files/stat?path=a/b/c.txt", "", 200))
	if f.Mode != "0600" || f.Type != "file" || f.Size != 12 || f.Name != "c.txt" {
		t.Errorf("stat: %+v", f)
	}
	w.put(box, "path=owned&owner=root", "x", 204)
	if f := read[rest.File](t, w.in("GET", box+"/files/stat?path=owned", "", 200)); f.UID != 0 {
		t.Errorf("owner: %+v", f)
	}
	w.in("DELETE", box+"/files?path=a/b/c.txt", "", 204)
	w.in("DELETE", box+"/files?path=a&recursive=1", "", 204)
}

func TestFileTree(t *testing.T) {
	w := start(t)
	box := w.box()
	w.in("POST", box+"/files/mkdir", `{"path":"d/e","mode":"0750"}`, 204)
	for i := range 5 {
		w.put(box, fmt.Sprintf("path=d/f%d", i), "needle "+fmt.Sprint(i)+"\n", 204)
	}
	var names []string
	for cursor := ""; ; {
		p := read[rest.List[rest.File]](t, w.in("GET", box+"/files/list?path=d&depth=2&limit=2&cursor="+cursor, "", 200))
		for _, f := range p.Items {
			names = append(names, f.Path)
		}
		if p.NextCursor == nil {
			break
		}
		cursor = *p.NextCursor
	}
	if got := strings.Join(names, " "); got != "d/e d/f0 d/f1 d/f2 d/f3 d/f4" {
		t.Errorf("list: %s", got)
	}
	w.in("POST", box+"/files/move", `{"from":"d/f0","to":"d/g0"}`, 204)
	if c := read[rest.Copied](t, w.in("POST", box+"/files/copy", `{"from":"d","to":"copy","recursive":true}`, 200)); c.Entries != 6 || c.Skipped.Total != 0 {
		t.Errorf("copy: %+v", c)
	}
	if c := read[rest.Changed](t, w.in("POST", box+"/files/chmod", `{"path":"copy/g0","mode":"4711"}`, 200)); c.Changed != 1 {
		t.Errorf("chmod: %+v", c)
	}
	w.in("POST", box+"/files/chown", `{"path":"copy/g0","owner":"root"}`, 200)
	w.in("POST", box+"/files/symlink", `{"path":"link","target":"copy/g0"}`, 204)
	l := read[rest.File](t, w.in("GET", box+"/files/stat?path=link", "", 200))
	to := read[rest.File](t, w.in("GET", box+"/files/stat?path=link&follow=1", "", 200))
	if l.Type != "symlink" || l.Target != "copy/g0" || to.Type != "file" || to.UID != 0 {
		t.Errorf("link: %+v %+v", l, to)
	}
	g := read[rest.Found](t, w.in("GET", box+"/files/glob?path=d&pattern=**/f*&pattern=e&exclude=f4", "", 200))
	if len(g.Items) != 4 || g.Truncated != "" {
		t.Errorf("glob: %+v", g)
	}
	s := read[rest.FoundLines](t, w.in("GET", box+"/files/search?path=d&pattern=needle+[23]", "", 200))
	if len(s.Items) != 2 || s.Items[0].Path != "d/f2" || s.Items[0].Line != 1 || s.Items[0].Text != "needle 2" {
		t.Errorf("search: %+v", s)
	}
}

func TestFileErrors(t *testing.T) {
	w := start(t)
	box := strings.TrimPrefix(w.box(), "/api/v1")
	w.in("POST", "/api/v1"+box+"/files/mkdir", `{"path":"dir/full"}`, 204)
	for _, c := range []struct {
		method, path, body string
		status             int
		code               server.Code
	}{
		{"GET", "/files?path=none", "", 404, server.CodeNotFound},
		{"GET", "/files?path=dir", "", 400, server.CodeInvalidValue},
		{"GET", "/files?path=a%00b", "", 400, server.CodeInvalidValue},
		{"PUT", "/files?path=a&mode=9", "x", 400, server.CodeInvalidValue},
		{"PUT", "/files?path=dir", "x", 400, server.CodeInvalidValue},
		{"PUT", "/files?path=/etc/x&user=user", "x", 403, server.CodeForbidden},
		{"PUT", "/files?path=x&owner=nobody-like-this", "x", 404, server.CodeNotFound},
		{"DELETE", "/files?path=none", "", 404, server.CodeNotFound},
		{"DELETE", "/files?path=dir", "", 409, server.CodeConflict},
		{"GET", "/files/stat?path=none", "", 404, server.CodeNotFound},
		{"GET", "/files/list?path=none", "", 404, server.CodeNotFound},
		{"GET", "/files/list?cursor=%25", "", 400, server.CodeInvalidValue},
		{"GET", "/files/list?depth=65", "", 400, server.CodeInvalidValue},
		{"GET", "/files/watch?path=none", "", 404, server.CodeNotFound},
		{"POST", "/files/mkdir", `{"path":"dir","parents":false}`, 409, server.CodeAlreadyExists},
		{"POST", "/files/move", `{"from":"none","to":"x"}`, 404, server.CodeNotFound},
		{"POST", "/files/copy", `{"from":"dir","to":"x"}`, 400, server.CodeInvalidValue},
		{"POST", "/files/chmod", `{"path":"dir","mode":"8"}`, 400, server.CodeInvalidValue},
		{"POST", "/files/chown", `{"path":"dir","owner":"nobody-like-this"}`, 404, server.CodeNotFound},
		{"GET", "/files/glob?pattern=[", "", 400, server.CodeInvalidValue},
		{"GET", "/files/search?pattern=(", "", 400, server.CodeInvalidValue},
		{"GET", "/files/search?pattern=a&timeout=1m", "", 400, server.CodeInvalidValue},
		{"GET", "/files/archive?path=none", "", 404, server.CodeNotFound},
		{"PUT", "/files/archive?path=x", "no archive", 415, server.CodeUnsupportedMedia},
	} {
		if p := w.problem(w.user, c.method, box+c.path, c.body, c.status, c.code); strings.Contains(p.Detail, "/root/") || p.Detail == "" {
			t.Errorf("%s %s: %q", c.method, c.path, p.Detail)
		}
	}
	for _, path := range []string{"/files", "/files/stat", "/files/download", "/files/search"} {
		w.in("GET", "/api/v1"+box+path, "", 422)
	}
}

func TestWatch(t *testing.T) {
	w := start(t)
	box := w.box()
	w.in("POST", box+"/files/mkdir", `{"path":"d"}`, 204)
	s := w.stream("GET", box+"/files/watch?path=d&recursive=1", "", nil)
	if e := s.next(); e.name != "ready" {
		t.Fatalf("%+v", e)
	}
	w.put(box, "path=d/new", "x", 204)
	e := s.next()
	if c := read[rest.Change](t, e.data); e.name != "create" || c.Path != "d/new" || c.Name != "new" || c.File == nil {
		t.Errorf("%+v", e)
	}
	w.in("DELETE", box+"/files?path=d&recursive=1", "", 204)
	for e = s.next(); e.name != "end"; e = s.next() {
		if e.name == "" || e.name == "error" {
			t.Fatalf("%+v", e)
		}
	}
}

func TestArchive(t *testing.T) {
	w := start(t)
	box := w.box()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	tw := tar.NewWriter(z)
	for _, name := range []string{"one", "sub/two"} {
		_ = tw.WriteHeader(&tar.Header{Name: name, Mode: 0o640, Size: 3, Typeflag: tar.TypeReg})
		_, _ = tw.Write([]byte("abc"))
	}
	_, _ = tw.Close(), z.Close()
	packed := b.String()
	for i, h := range []map[string]string{{"Content-Type": "application/gzip"}, {"Content-Type": "application/x-tar", "Content-Encoding": "gzip"}} {
		if resp, text := w.send("PUT", fmt.Sprintf("%s/files/archive?path=in%d", box, i), strings.NewReader(packed), h); resp.StatusCode != 204 {
			t.Errorf("%v: %d %s", h, resp.StatusCode, text)
		}
		for _, h := range []map[string]string{{"Accept-Encoding": "identity"}, {}, {"Accept": "application/gzip"}} {
			resp, text := w.send("GET", fmt.Sprintf("%s/files/archive?path=in%d", box, i), nil, h)
			content := io.Reader(strings.NewReader(text))
			if h["Accept"] != "" {
				z, err := gzip.NewReader(content)
				if err != nil {
					t.Fatal(err)
				}
				content = z
			}
			var names []string
			r := tar.NewReader(content)
			for e, err := r.Next(); !errors.Is(err, io.EOF); e, err = r.Next() {
				if err != nil {
					t.Fatal(err)
				}
				names = append(names, e.Name)
			}
			if got := strings.Join(names, " "); got != "one sub/ sub/two" || resp.Trailer.Get("X-Skipped") != "0" {
				t.Errorf("%v: %s %v", h, got, resp.Trailer)
			}
		}
	}
	b.Reset()
	tw = tar.NewWriter(&b)
	_ = tw.WriteHeader(&tar.Header{Name: "../out", Mode: 0o640, Typeflag: tar.TypeReg})
	_ = tw.Close()
	if resp, text := w.send("PUT", box+"/files/archive?path=in", &b, map[string]string{"Content-Type": "application/x-tar"}); resp.StatusCode != 400 {
		t.Errorf("an entry that leads out: %d %s", resp.StatusCode, text)
	}
}

// uploadForm is a form with a file, whose name stands in it as it is.
func uploadForm(field, disposition, content string) (body io.Reader, contentType string) {
	var b bytes.Buffer
	m := multipart.NewWriter(&b)
	_ = m.WriteField("before", "x")
	p, _ := m.CreatePart(textproto.MIMEHeader{"Content-Disposition": {`form-data; name="` + field + `"` + disposition}})
	_, _ = io.WriteString(p, content)
	_ = m.Close()
	return &b, m.FormDataContentType()
}

// TestUploadDownload: Q8, Q9, Q10, Q11.
func TestUploadDownload(t *testing.T) {
	w := start(t)
	box := w.box()
	upload := func(path, field, disposition string) (int, string) {
		t.Helper()
		body, contentType := uploadForm(field, disposition, "content\x00\xff")
		resp, text := w.send("POST", box+"/files/upload?path="+url.QueryEscape(path), body, map[string]string{"Content-Type": contentType})
		return resp.StatusCode, text
	}
	w.execute(box, `{"command":"ln -s /etc link; ln -s /etc/passwd passwd; mkdir real; ln -s real/../real ok"}`)
	for _, c := range []struct {
		path, disposition, at string
	}{
		{"", `; filename="a b.txt"`, "a b.txt"}, {"sub/dir", `; filename="x"`, "sub/dir/x"}, {"", "", "uploaded_file"}, {"/workspace/sub", `; filename="y"`, "sub/y"}, {"ok", `; filename="z"`, "real/z"},
	} {
		if status, text := upload(c.path, "file", c.disposition); status != 204 || text != "" {
			t.Errorf("%+v: %d %s", c, status, text)
		}
		resp, text := w.send("GET", box+"/files/download?path="+url.QueryEscape(c.at), nil, nil)
		base := c.at[strings.LastIndex(c.at, "/")+1:]
		if resp.StatusCode != 200 || text != "content\x00\xff" || resp.Header.Get("Content-Disposition") != `attachment; filename="`+base+`"` {
			t.Errorf("%s: %d %q %v", c.at, resp.StatusCode, text, resp.Header)
		}
		f := read[rest.File](t, w.in("GET", box+"/files/stat?path=/workspace/"+url.QueryEscape(c.at), "", 200))
		if f.UID == 0 {
			t.Errorf("%s is root's", c.at)
		}
	}
	for _, c := range [][2]string{{"../..", "x"}, {"/etc", "x"}, {"", "../x"}, {"", ".."}, {"a/../../b", "x"}, {"link", "x"}, {"", "passwd"}, {"/workspace_evil", "x"}, {"", "/etc/x"}} {
		if status, text := upload(c[0], "file", `; filename="`+c[1]+`"`); status < 400 || status > 499 {
			t.Errorf("%q: %d %s", c, status, text)
		}
	}
	if status, text := upload("", "other", `; filename="x"`); status != 422 || !strings.Contains(text, `"loc":["body","file"]`) {
		t.Errorf("no file: %d %s", status, text)
	}
	if resp, _ := w.send("POST", box+"/files/upload", strings.NewReader("{}"), map[string]string{"Content-Type": "application/json"}); resp.StatusCode != 422 {
		t.Errorf("no form: %d", resp.StatusCode)
	}
	for _, path := range []string{"none", "sub", "link", "../../etc/passwd", "/etc/passwd", "passwd", "link/passwd", "../x"} {
		resp, text := w.send("GET", box+"/files/download?path="+url.QueryEscape(path), nil, nil)
		if p := read[server.Problem](t, text); resp.StatusCode != 404 || p.Detail != "File not found in sandbox" {
			t.Errorf("%s: %d %s", path, resp.StatusCode, text)
		}
	}
}

// pattern is content without end that is the same each time.
type pattern struct{ at int64 }

func (p *pattern) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = byte((p.at + int64(i)) % 251)
	}
	p.at += int64(len(b))
	return len(b), nil
}

// TestLargeFiles: 64 MiB go up and down, and what the server holds is bounded.
// The toy sandbox keeps the file itself.
func TestLargeFiles(t *testing.T) {
	const size = 64 << 20
	w := start(t)
	box := w.box()
	up := func() {
		resp, text := w.send("PUT", box+"/files?path=big", io.LimitReader(&pattern{}, size), nil)
		if resp.StatusCode != 204 {
			t.Fatalf("%d %s", resp.StatusCode, text)
		}
	}
	up()
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	r, _ := http.NewRequest("GET", w.url+box+"/files?path=big", nil)
	r.Header.Set("X-API-Key", w.user)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	got, want := make([]byte, 1<<20), make([]byte, 1<<20)
	from := &pattern{}
	for n := 0; n < size; n += len(got) { // a slow reader: nothing is sent ahead of it
		if _, err := io.ReadFull(resp.Body, got); err != nil {
			t.Fatal(err)
		}
		if _, _ = from.Read(want); !bytes.Equal(got, want) {
			t.Fatalf("differs in MiB %d", n>>20)
		}
		if n == size/2 {
			if grown := heap() - before; grown > 24<<20 {
				t.Errorf("half-way %d MiB more are held", grown>>20)
			}
		}
	}
}

// TestUploadCut: of an upload whose client goes away there is no file.
func TestUploadCut(t *testing.T) {
	w := start(t)
	box := w.box()
	pr, pw := io.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	r, _ := http.NewRequestWithContext(ctx, "PUT", w.url+box+"/files?path=half", pr)
	r.Header.Set("X-API-Key", w.user)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if resp, err := http.DefaultClient.Do(r); err == nil {
			resp.Body.Close()
		}
	}()
	_, _ = pw.Write(make([]byte, 1<<20))
	cancel()
	pw.CloseWithError(context.Canceled)
	<-done
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		list := read[rest.List[rest.File]](t, w.in("GET", box+"/files/list", "", 200))
		if len(list.Items) == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("left behind: %+v", list.Items)
		}
	}
}
