package rest_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"agentbox/internal/server"
	"agentbox/internal/server/rest"
)

func (w *world) volume(key, name string) rest.Volume {
	w.t.Helper()
	resp, text := w.do(key, "POST", "/api/v1/volumes", "application/json", `{"name":"`+name+`"}`)
	if resp.StatusCode != http.StatusCreated {
		w.t.Fatalf("%d %s", resp.StatusCode, text)
	}
	return read[rest.Volume](w.t, text)
}

// problem is the status and the code of an answer.
func problem(t testing.TB, resp *http.Response, text string) string {
	t.Helper()
	if resp.StatusCode < http.StatusBadRequest {
		return fmt.Sprint(resp.StatusCode)
	}
	if resp.StatusCode == http.StatusUnprocessableEntity {
		return "422"
	}
	return fmt.Sprintf("%d %s", resp.StatusCode, read[server.Problem](t, text).Code)
}

func TestVolumes(t *testing.T) {
	w := start(t)
	for body, want := range map[string]string{
		`{}`: "422", `{"name":""}`: "400 invalid_value", `{"name":"../x"}`: "400 invalid_value", `{"name":"a","size":"lots"}`: "422", `{"name":"a","size":0}`: "400 invalid_value",
		`{"name":"a","size":1}`: "400 invalid_value", `{"name":"a","size":"9000g"}`: "400 invalid_value", `{"name":"a","size":"1g"}`: "400 unsupported", `{"name":"a","kind":"image"}`: "422",
	} {
		if resp, text := w.post("/api/v1/volumes", body); problem(t, resp, text) != want {
			t.Errorf("%s: %d %s, want %s", body, resp.StatusCode, text, want)
		}
	}
	v := w.volume(w.user, "data")
	if v.Name != "data" || v.Kind != "directory" || v.Size != 4<<30 || len(v.NotEnforced) != 1 || len(v.UsedBy) > 0 || v.CreatedAt.IsZero() {
		t.Errorf("made: %+v", v)
	}
	resp, text := w.do(w.user, "POST", "/api/v1/volumes", "application/json", `{"name":"data"}`)
	if problem(t, resp, text) != "409 already_exists" {
		t.Errorf("again: %d %s", resp.StatusCode, text)
	}
	sb := w.create(w.user, `{"volumes":[{"name":"data","path":"/data"}]}`)
	if len(sb.Volumes) != 1 || sb.Volumes[0].Name != "data" || sb.Volumes[0].Path != "/data" || !strings.Contains(fmt.Sprint(sb.NotEnforced), "volumes") {
		t.Errorf("the sandbox: %+v", sb)
	}
	_, text = w.do(w.user, "GET", "/api/v1/volumes/data", "", "")
	if got := read[rest.Volume](t, text); len(got.UsedBy) != 1 || got.UsedBy[0] != sb.ID || got.Used == nil {
		t.Errorf("in use: %s", text)
	}
	resp, text = w.do(w.user, "POST", "/api/v1/sandboxes", "application/json", `{"volumes":[{"name":"data","path":"/data","read_only":true}]}`)
	if problem(t, resp, text) != "409 conflict" || !strings.Contains(text, sb.ID) {
		t.Errorf("a second sandbox: %d %s", resp.StatusCode, text)
	}
	for _, method := range []string{"DELETE /api/v1/volumes/data", "PUT /api/v1/volumes/data/archive"} {
		method, path, _ := strings.Cut(method, " ")
		if resp, text = w.do(w.user, method, path, "application/x-tar", ""); problem(t, resp, text) != "409 conflict" {
			t.Errorf("%s of one in use: %d %s", method, resp.StatusCode, text)
		}
	}
	for body, want := range map[string]string{
		`{"volumes":[{"name":"none","path":"/data"}]}`: "400 invalid_value", `{"volumes":[{"name":"data","path":"/proc/x"}]}`: "400 invalid_value",
		`{"volumes":[{"name":"data"}]}`: "422", `{"volumes":[{"name":"data","path":"/a","mode":1}]}`: "422",
	} {
		if resp, text = w.do(w.user, "POST", "/api/v1/sandboxes", "application/json", body); problem(t, resp, text) != want {
			t.Errorf("%s: %d %s, want %s", body, resp.StatusCode, text, want)
		}
	}
	w.do(w.user, "DELETE", "/api/v1/sandboxes/"+sb.ID, "", "")
	if resp, text = w.do(w.user, "DELETE", "/api/v1/volumes/data", "", ""); resp.StatusCode != http.StatusNoContent {
		t.Errorf("removed: %d %s", resp.StatusCode, text)
	}
	if resp, text = w.do(w.user, "GET", "/api/v1/volumes/data", "", ""); problem(t, resp, text) != "404 not_found" {
		t.Errorf("after that: %d %s", resp.StatusCode, text)
	}
	_, text = w.do(w.user, "GET", "/api/v1/audit?action=volume", "", "")
	for _, want := range []string{`"create":"data"`, `"remove":"data"`, `"write":"data"`} {
		if !strings.Contains(text, want) {
			t.Errorf("the audit log lacks %s: %s", want, text)
		}
	}
}

// Lists come in pages; an owner has so many at most; a key makes one only.
func TestVolumePagesQuotaAndKey(t *testing.T) {
	w := start(t)
	for _, name := range []string{"c", "a", "d"} {
		w.volume(w.user, name)
	}
	var names string
	for path := "/api/v1/volumes?limit=2"; path != ""; {
		_, text := w.do(w.user, "GET", path, "", "")
		page := read[rest.List[rest.Volume]](t, text)
		for _, v := range page.Items {
			names += v.Name
		}
		path = ""
		if page.NextCursor != nil {
			path = "/api/v1/volumes?limit=2&cursor=" + *page.NextCursor
		}
	}
	if names != "acd" {
		t.Errorf("the pages have %q", names)
	}
	once := func(body string) string {
		code, text := w.once(w.user, "/volumes", body, "k")
		return fmt.Sprint(code, " ", text)
	}
	first := once(`{"name":"e"}`)
	if again := once(`{"name":"e"}`); again != first || !strings.HasPrefix(first, "201 ") {
		t.Errorf("with a key: %s, and again: %s", first, again)
	}
	if got := once(`{"name":"f"}`); !strings.HasPrefix(got, "409 ") {
		t.Errorf("another body: %s", got)
	}
	if resp, text := w.do(w.user, "POST", "/api/v1/volumes", "application/json", `{"name":"f"}`); problem(t, resp, text) != "429 quota_exceeded" {
		t.Errorf("one too many: %d %s", resp.StatusCode, text)
	}
}

// What a volume holds goes out as an archive and into another one.
func TestVolumeArchive(t *testing.T) {
	w := start(t)
	w.volume(w.user, "from")
	w.volume(w.user, "to")
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	tw := tar.NewWriter(z)
	err := errors.Join(
		tw.WriteHeader(&tar.Header{Name: "d/f", Mode: 0o640, Size: 4, Typeflag: tar.TypeReg}), func() error { _, err := tw.Write([]byte("text")); return err }(),
		tw.WriteHeader(&tar.Header{Name: "l", Linkname: "/etc/passwd", Typeflag: tar.TypeSymlink}),
		tw.WriteHeader(&tar.Header{Name: "../out", Mode: 0o644, Typeflag: tar.TypeReg}),
		tw.WriteHeader(&tar.Header{Name: "dev", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 3}),
		tw.Close(), z.Close())
	if err != nil {
		t.Fatal(err)
	}
	resp, text := w.do(w.user, "PUT", "/api/v1/volumes/from/archive", "application/gzip", b.String())
	if resp.StatusCode != http.StatusNoContent || resp.Header.Get("X-Skipped") != "2" {
		t.Fatalf("%d %s, skipped %q", resp.StatusCode, text, resp.Header.Get("X-Skipped"))
	}
	resp, text = w.do(w.user, "GET", "/api/v1/volumes/from/archive", "", "")
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "application/x-tar" || resp.Trailer.Get("X-Skipped") != "0" {
		t.Fatalf("%d %v %v", resp.StatusCode, resp.Header, resp.Trailer)
	}
	if resp, out := w.do(w.user, "PUT", "/api/v1/volumes/to/archive", "application/x-tar", text); resp.StatusCode != http.StatusNoContent {
		t.Fatalf("%d %s", resp.StatusCode, out)
	}
	_, copied := w.do(w.user, "GET", "/api/v1/volumes/to/archive", "", "")
	tr := tar.NewReader(strings.NewReader(copied))
	found := map[string]string{}
	for {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		content, _ := io.ReadAll(tr)
		found[h.Name] = fmt.Sprintf("%o %s%s", h.Mode, content, h.Linkname)
	}
	if len(found) != 3 || found["d/f"] != "640 text" || !strings.HasSuffix(found["l"], "/etc/passwd") {
		t.Errorf("the copy has %v", found)
	}
	for what, send := range map[string][2]string{"no archive": {"application/x-tar", strings.Repeat("x", 2000)}, "no gzip": {"application/gzip", "xxx"}, "cut": {"application/x-tar", text[:600]}} {
		if resp, text := w.do(w.user, "PUT", "/api/v1/volumes/to/archive", send[0], send[1]); problem(t, resp, text) != "400 invalid_value" {
			t.Errorf("%s: %d %s", what, resp.StatusCode, text)
		}
	}
	if resp, text := w.do(w.user, "PUT", "/api/v1/volumes/to/archive", "text/plain", "x"); problem(t, resp, text) != "415 unsupported_media_type" {
		t.Errorf("text: %d %s", resp.StatusCode, text)
	}
}

// TEN-09: another owner's volume is one that never was, whatever is asked of it,
// and the storage of equally named tenants is not shared.
func TestTEN09Volumes(t *testing.T) {
	w := start(t)
	w.volume(w.user, "data")
	for _, r := range [][3]string{
		{"GET", "/volumes/data"}, {"DELETE", "/volumes/data"}, {"GET", "/volumes/data/archive"}, {"PUT", "/volumes/data/archive", "application/x-tar"},
	} {
		ask := func(name string) string {
			resp, text := w.do(w.admin, r[0], "/api/v1"+strings.Replace(r[1], "data", name, 1), r[2], "")
			p := read[server.Problem](t, text)
			return fmt.Sprintf("%d %s %s", resp.StatusCode, p.Code, p.Detail)
		}
		if got, none := ask("data"), ask("none"); got != none || got != "404 not_found Volume not found" {
			t.Errorf("%s %s: %q, of one that never was %q", r[0], r[1], got, none)
		}
	}
	if _, text := w.do(w.admin, "GET", "/api/v1/volumes", "", ""); len(read[rest.List[rest.Volume]](t, text).Items) > 0 {
		t.Errorf("another owner lists %s", text)
	}
	mount := `{"volumes":[{"name":"%s","path":"/data"}]}`
	_, theirs := w.post("/api/v1/sandboxes", fmt.Sprintf(mount, "data"))
	_, none := w.post("/api/v1/sandboxes", fmt.Sprintf(mount, "none"))
	clean := func(s string) string {
		p := read[server.Problem](t, s)
		return strings.ReplaceAll(fmt.Sprint(p.Code, p.Detail, p.Field), "data", "none")
	}
	if clean(theirs) != clean(none) {
		t.Errorf("a sandbox with another owner's volume: %s; with none: %s", theirs, none)
	}
	w.volume(w.admin, "data") // names are an owner's own
	ours := w.create(w.user, `{"tenant_id":"t"}`)
	if ours.TenantID == nil || *ours.TenantID != "t" {
		t.Errorf("%+v", ours)
	}
	w.do(w.user, "PUT", "/api/v1/sandboxes/"+ours.ID+"/files?path=/workspace/f", "application/octet-stream", "ours")
	other := w.create(w.admin, `{"tenant_id":"t"}`)
	if resp, text := w.do(w.admin, "GET", "/api/v1/sandboxes/"+other.ID+"/files?path=/workspace/f", "", ""); resp.StatusCode != http.StatusNotFound {
		t.Errorf("the same tenant of another owner reads %d %s", resp.StatusCode, text)
	}
	// Kept and removed as asked.
	w.do(w.user, "DELETE", "/api/v1/sandboxes/"+ours.ID, "", "")
	again := w.create(w.user, `{"tenant_id":"t"}`)
	if _, text := w.do(w.user, "GET", "/api/v1/sandboxes/"+again.ID+"/files?path=/workspace/f", "", ""); text != "ours" {
		t.Errorf("the next sandbox reads %q", text)
	}
	if resp, text := w.do(w.user, "DELETE", "/api/v1/sandboxes/"+again.ID+"?remove_storage=true", "", ""); resp.StatusCode != http.StatusNoContent {
		t.Errorf("%d %s", resp.StatusCode, text)
	}
	// The files of the fake outlive the directory, so the host is asked.
}
