package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"mime"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestFS01_REST: no spelling of a path, in a query or in JSON, leads to a file of
// the host.
func TestFS01_REST(t *testing.T) {
	t.Parallel()
	d := StartDaemon(t)
	c := d.Admin()
	c.Create(`{"name":"dev"}`)
	canary, text, check := hostCanary(t)
	state := filepath.Join(d.Dir, "agentbox.db")
	box := api + "/sandboxes/dev/files"
	asked, spellings := 0, append(hostSpellings(canary), hostSpellings(state)...)
	for _, name := range spellings {
		query := url.QueryEscape(name)
		targets := []string{query}
		if raw := strings.ReplaceAll(name, "\x00", "%00"); strings.Contains(name, "%") { // as a client that decodes twice would send it
			targets = append(targets, raw)
		}
		for _, q := range targets {
			for _, user := range []string{"", "&user=root"} {
				for call, body := range map[string]string{
					"GET ?path=%s": "", "HEAD ?path=%s": "", "GET /stat?path=%s": "", "GET /list?path=%s": "", "GET /archive?path=%s": "", "GET /glob?pattern=*&path=%s": "", "GET /search?pattern=canary&path=%s": "",
					"PUT ?path=%s": "over", "DELETE ?path=%s": "", "GET /download?path=%s": "",
				} {
					method, path, _ := strings.Cut(call, " ")
					more := user
					if strings.Contains(path, "download") {
						more = ""
					}
					a := c.Send(method, box+fmt.Sprintf(path, q)+more, body, "Content-Type", "application/octet-stream")
					if asked++; a.Code >= 500 || strings.Contains(a.Text, text) || strings.Contains(a.Text, "SQLite format") {
						t.Errorf("%s %q: %v", call, q, a)
					}
				}
			}
		}
		for call, body := range map[string]string{
			"/mkdir": quoted(`{"path":%s}`, name), "/move": quoted(`{"from":%s,"to":"moved"}`, name), "/copy": quoted(`{"from":%[1]s,"to":"copied","overwrite":true}`, name), "/chmod": quoted(`{"path":%s,"mode":"0777"}`, name),
			"/chown": quoted(`{"path":%s,"owner":"0:0","user":"root"}`, name), "/symlink": quoted(`{"target":"x","path":%s}`, name), "/copy ": quoted(`{"from":"/etc/hostname","to":%s,"overwrite":true,"user":"root"}`, name),
		} {
			if a := c.Send("POST", box+strings.TrimSpace(call), body); a.Code >= 500 || strings.Contains(a.Text, text) {
				t.Errorf("%s %s: %v", call, body, a)
			}
			asked++
		}
	}
	t.Logf("%d requests with paths of the host", asked)
	if out := c.Sh("dev", "grep -rl -e 'host canary' -e 'SQLite format' /workspace /tmp /root 2>/dev/null"); out != "" {
		t.Errorf("what is the host's is in %q", out)
	}
	if info, err := os.Stat(state); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the store: %v %v", info, err)
	}
	check()
	// The control: a file of the sandbox is found by such spellings.
	c.Write("dev", "/tmp/own", text)
	for _, name := range []string{"../tmp/own", "/proc/self/root/tmp/own", "//tmp///own", "/workspace/../tmp/./own"} {
		if a := c.Read("dev", name); a.Text != text {
			t.Errorf("%q: %v", name, a)
		}
	}
}

// TestFS04_REST: a link that names a path of the host leads to the sandbox's own file.
func TestFS04_REST(t *testing.T) {
	t.Parallel()
	d := StartDaemon(t)
	c := d.Admin()
	c.Create(`{"name":"dev"}`)
	canary, _, check := hostCanary(t)
	state, err := os.ReadFile(filepath.Join(d.Dir, "daemon", "owner"))
	if err != nil {
		t.Fatal(err)
	}
	const cron = "/etc/cron.d/agentbox-fs04-rest"
	targets := map[string]string{"f": cron, "g": filepath.Join(d.Dir, "daemon", "owner"), "h": canary, "s": filepath.Join(d.Dir, "agentbox.sock")}
	for name, target := range targets {
		body := quoted(`{"command":%s,"user":"root"}`, "mkdir -p "+filepath.Dir(target)+"; ln -s "+target+" /workspace/"+name)
		if a := c.Send("POST", api+"/sandboxes/dev/execute", body); !strings.Contains(a.Text, `"exit_code":0`) {
			t.Fatal(a)
		}
	}
	for name := range targets {
		path := url.QueryEscape("/workspace/" + name)
		for _, call := range []string{"?path=" + path + "&user=root", "?path=" + path + "&user=root&append=1", "?path=" + path} {
			if a := c.Send("PUT", api+"/sandboxes/dev/files"+call, "from inside", "Content-Type", "application/octet-stream"); a.Code >= 500 {
				t.Errorf("PUT %s: %v", call, a)
			}
		}
		form := "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"" + name + "\"\r\n\r\nfrom inside\r\n--b--\r\n"
		if a := c.Send("POST", api+"/sandboxes/dev/files/upload", form, "Content-Type", "multipart/form-data; boundary=b"); a.Code >= 500 {
			t.Errorf("upload %s: %v", name, a)
		}
		if a := c.Read("dev", "/workspace/"+name); a.Code == 200 && a.Text != "from inside" && !strings.HasPrefix(a.Text, "from insidefrom inside") {
			t.Errorf("read %s: %v", name, a)
		}
	}
	if a := c.Send("GET", api+"/sandboxes/dev/files?user=root&path="+cron, ""); !strings.HasPrefix(a.Text, "from inside") {
		t.Errorf("the sandbox's own file: %v", a)
	}
	if _, err := os.Lstat(cron); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the host has %s: %v", cron, err)
	}
	if now, err := os.ReadFile(filepath.Join(d.Dir, "daemon", "owner")); err != nil || !bytes.Equal(now, state) {
		t.Errorf("the daemon's mark became %q, %v", now, err)
	}
	check()
}

// TestFS06_REST: twenty archives that nobody should unpack as they are; what is
// refused is named.
func TestFS06_REST(t *testing.T) {
	t.Parallel()
	d := StartDaemon(t)
	c := d.Admin()
	c.Create(`{"name":"dev"}`)
	c.Write("dev", "/workspace/outside", "safe")
	for _, h := range hostileArchives(t) {
		a := c.Stream("PUT", api+"/sandboxes/dev/files/archive?path=/workspace/t", bytes.NewReader(h.archive), "Content-Type", "application/x-tar")
		if (a.Code/100 == 2) != h.taken || !h.taken && (!a.Refused() || a.Code != 400 && a.Code != 413 && a.Code != 422) {
			t.Errorf("%s: %v", h.name, a)
		}
		if !h.taken && !strings.Contains(a.Text, "entry") && !strings.Contains(a.Text, "entries") {
			t.Errorf("%s: the error does not name the entry: %v", h.name, a)
		}
	}
	if a := c.Read("dev", "/workspace/outside"); a.Text != "safe" {
		t.Errorf("a file outside of the target: %v", a)
	}
	a := c.Send("POST", api+"/sandboxes/dev/execute", quoted(`{"command":%s,"user":"root"}`, unpackedWrong))
	if got := saidBy(t, a); got != "" {
		t.Errorf("there are %q", got)
	}
}

// TestFS08_REST: ten gigabytes in ten megabytes end at the disk's limit, quickly, and
// cost the daemon no memory.
func TestFS08_REST(t *testing.T) {
	d := StartDaemon(t)
	c := d.Admin()
	c.Create(`{"name":"dev","disk":"256m"}`)
	bomb := gzipBomb(t)
	free := freeBytes(t)
	for form, headers := range map[string][]string{
		"by type": {"Content-Type", "application/gzip"}, "by encoding": {"Content-Type", "application/x-tar", "Content-Encoding", "gzip"},
	} {
		grown, began := d.Growth(), time.Now()
		a := c.Stream("PUT", api+"/sandboxes/dev/files/archive?path=/workspace/t", bytes.NewReader(bomb), headers...)
		if !a.Refused() || a.Code != 413 {
			t.Errorf("%s: %v", form, a)
		}
		Within(t, began, 10*time.Second)
		if n := grown(); n > 64<<20 {
			t.Errorf("%s: the daemon grew by %d MiB", form, n>>20)
		}
		c.Sh("dev", "rm -rf /workspace/t")
	}
	if took := free - freeBytes(t); took > 384<<20 { // others write, too
		t.Errorf("the host has %d MiB less", took>>20)
	}
	for _, headers := range [][]string{
		{"Content-Type", "application/zstd"}, {"Content-Type", "application/x-tar", "Content-Encoding", "zstd"}, {"Content-Type", "application/x-tar", "Content-Encoding", "gzip, gzip"}, {"Content-Type", "application/zip"},
	} {
		if a := c.Stream("PUT", api+"/sandboxes/dev/files/archive?path=/workspace/t", bytes.NewReader(bomb), headers...); a.Code != http.StatusUnsupportedMediaType {
			t.Errorf("%v: %v", headers, a)
		}
	}
	// An upload is stored as it is: nothing unpacks it.
	if a := c.Stream("PUT", api+"/sandboxes/dev/files?path=/workspace/b.gz", bytes.NewReader(bomb), "Content-Type", "application/octet-stream", "Content-Encoding", "gzip"); a.Code/100 == 2 {
		if got := strings.TrimSpace(c.Sh("dev", "stat -c %s b.gz")); got != fmt.Sprint(len(bomb)) {
			t.Errorf("the upload has %s bytes, not %d", got, len(bomb))
		}
	} else if !a.Refused() {
		t.Errorf("an upload with an encoding: %v", a)
	}
}

// TestFS12_REST: a download's name is one header, its type is that of no page.
func TestFS12_REST(t *testing.T) {
	t.Parallel()
	d := StartDaemon(t)
	c := d.Admin()
	c.Create(`{"name":"dev"}`)
	names := []string{"a\"\r\nSet-Cookie: x=1", "x.html", "x.svg", "..%2fx", "\x1b]0;t\a", "a\tb", "-rf", "$(id)", "日本 ü", "\u202egnp.exe", `a\b`, "a;b=c", "a'b", strings.Repeat("n", 255)}
	for _, name := range names {
		if a := c.Write("dev", "/workspace/"+name, name); a.Code/100 != 2 {
			t.Errorf("write %q: %v", name, a)
		}
		for _, path := range []string{"/files/download?path=", "/files?path=/workspace/"} {
			a := c.Send("GET", api+"/sandboxes/dev"+path+url.QueryEscape(name), "")
			if a.Code != 200 || a.Text != name || a.Header.Get("Set-Cookie") != "" || a.Header.Get("X-Content-Type-Options") != "nosniff" {
				t.Errorf("%q: %v %v", name, a, a.Header)
			}
			csp, disposition := a.Header.Get("Content-Security-Policy"), a.Header.Get("Content-Disposition")
			kind, params, err := mime.ParseMediaType(disposition)
			switch {
			case !strings.Contains(csp, "sandbox"):
				t.Errorf("%q: a page would run as the server's own: %q", name, csp)
			case strings.Contains(path, "download") && (err != nil || kind != "attachment" || params["filename"] == "" || strings.ContainsAny(disposition, "\r\n")):
				t.Errorf("%q: %q, %v", name, disposition, err)
			case strings.Contains(path, "?path=/") && strings.Contains(a.Header.Get("Content-Type"), "html"):
				t.Errorf("%q: %v", name, a.Header)
			}
		}
		a := c.Read("dev", "/workspace/gone"+name[:min(len(name), 200)])
		if !a.Refused() || strings.ContainsAny(a.Text, "\r\x1b") {
			t.Errorf("no %q: %v", name, a)
		}
	}
	if out := strings.TrimSpace(c.Sh("dev", "find /workspace -type f -printf x | wc -c")); out != fmt.Sprint(len(names)) {
		t.Errorf("there are %s files", out)
	}
}

// TestFS17_REST: an upload whose connection is cut leaves what was there.
func TestFS17_REST(t *testing.T) {
	t.Parallel()
	d := StartDaemon(t)
	c := d.Admin()
	c.Create(`{"name":"dev"}`)
	c.Write("dev", "/workspace/d/f", "old")
	stop, stopped := make(chan struct{}), make(chan error, 1)
	go func() {
		for n := 0; ; n++ {
			a, err := c.Try("GET", api+"/sandboxes/dev/files?path=/workspace/d/f", nil)
			if err != nil || a.Text != "old" {
				stopped <- fmt.Errorf("read %v, %w", a, err)
				return
			}
			select {
			case <-stop:
				stopped <- nil
				return
			default:
			}
		}
	}()
	const rounds = 50
	for i := range rounds {
		half := int64(Sized(1<<20, 50<<20))
		body := &cut{left: half, end: func() error { return errors.New("cut") }}
		path, kind := api+"/sandboxes/dev/files?path=/workspace/d/"+[]string{"f", "none"}[i%2], "application/octet-stream"
		method, sent := "PUT", io.Reader(body)
		if i%5 == 4 {
			method, path, kind = "POST", api+"/sandboxes/dev/files/upload?path=d", "multipart/form-data; boundary=b"
			sent = io.MultiReader(strings.NewReader("--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"f\"\r\n\r\n"), body)
		}
		if a, err := c.Try(method, path, sent, "Content-Type", kind); err == nil && a.Code/100 == 2 {
			t.Errorf("half an upload succeeded: %v", a)
		}
	}
	close(stop)
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	Until(t, soon, "what was cut is gone", func() bool { return c.Sh("dev", "ls -A d") == "f\n" })
	if a := c.Read("dev", "/workspace/d/f"); a.Text != "old" {
		t.Errorf("afterwards: %v", a)
	}
	// The control: a whole one replaces it.
	if a := c.Write("dev", "/workspace/d/f", "new"); a.Code/100 != 2 || c.Read("dev", "/workspace/d/f").Text != "new" || !slices.Contains([]int{200, 201, 204}, a.Code) {
		t.Errorf("a whole upload: %v", a)
	}
}
