package e2e

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"strings"
	"testing"
	"time"
)

// TestFS04_Volume: links that a guest makes in a volume lead nowhere on the host, when
// the daemon reads the volume and when it fills it.
func TestFS04_Volume(t *testing.T) {
	t.Parallel()
	d := StartDaemon(t)
	needImages(t, d)
	c := d.Admin()
	canary, text, check := hostCanary(t)
	const cron = "/etc/cron.d/agentbox-fs04-volume"
	if a := c.Send("POST", api+"/volumes", `{"name":"data","size":"64m"}`); a.Code != 201 {
		t.Fatal(a)
	}
	mounted := `{"name":"dev","volumes":[{"name":"data","path":"/data"}]}`
	c.Create(mounted)
	dir := canary[:strings.LastIndex(canary, "/")]
	line := "cd /data; ln -s " + canary + " file; ln -s " + dir + " dir; ln -s / root; ln -s ../../../../../.. up; ln -s " + cron + " cron; ln -s " + d.Dir + " data; mkfifo fifo; mkdir real; echo own >real/own; ln real/own hard; chmod 4755 real/own; ls"
	if a := c.Send("POST", api+"/sandboxes/dev/execute", quoted(`{"command":%s,"user":"root"}`, line)); !strings.Contains(a.Text, "fifo") {
		t.Fatal(a)
	}
	look := func(when string) {
		t.Helper()
		a := c.Send("GET", api+"/volumes/data/archive", "")
		if a.Code != 200 || strings.Contains(a.Text, text) || strings.Contains(a.Text, "SQLite format") {
			t.Errorf("%s: %d, %d bytes", when, a.Code, len(a.Text))
		}
		names := map[string]byte{}
		for r := tar.NewReader(strings.NewReader(a.Text)); ; {
			h, err := r.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", when, err)
			}
			names[strings.TrimPrefix(h.Name, "./")] = h.Typeflag
			if strings.Contains(h.Name, "..") || strings.HasPrefix(h.Name, "/") || h.Typeflag == tar.TypeFifo || h.Typeflag == tar.TypeChar || h.Typeflag == tar.TypeBlock {
				t.Errorf("%s: an entry %q of type %c", when, h.Name, h.Typeflag)
			}
		}
		if _, ok := names["real/own"]; !ok { // the control
			t.Errorf("%s: the archive has %v", when, names)
		}
		for name := range names {
			for _, link := range []string{"dir/", "root/", "up/", "data/"} {
				if strings.HasPrefix(name, link) && name != link {
					t.Errorf("%s: %q is behind a link", when, name)
				}
			}
		}
	}
	look("in use")
	if a := c.Send("DELETE", api+"/sandboxes/dev", ""); a.Code != 204 {
		t.Fatal(a)
	}
	look("free")
	for _, name := range []string{"file", "dir/canary", "dir/new", "cron", "root" + cron, "up" + cron, "data/agentbox.db", "root" + canary, "hard"} {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		if err := errors.Join(w.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o4755, Size: 4}), second(w.Write([]byte("from"))), w.Close()); err != nil {
			t.Fatal(err)
		}
		if a := c.Stream("PUT", api+"/volumes/data/archive", &b, "Content-Type", "application/x-tar"); a.Code >= 500 {
			t.Errorf("fill %s: %v", name, a)
		}
		check()
	}
	if _, err := os.Lstat(cron); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the host has %s: %v", cron, err)
	}
	for _, h := range hostileArchives(t) {
		if h.name == "a million entries" {
			continue // a volume may have as many
		}
		if a := c.Stream("PUT", api+"/volumes/data/archive", bytes.NewReader(h.archive), "Content-Type", "application/x-tar"); a.Code >= 500 {
			t.Errorf("%s: %v", h.name, a)
		}
	}
	look("filled")
	check()
	// What is in it now is harmless inside, too: no devices, and no rights that a file
	// of the archive would have brought.
	c.Create(mounted)
	if got := c.Sh("dev", "find /data -type b -o -type c -o -type f -perm /7000 | grep -v -x -e /data/real/own -e /data/hard"); got != "" {
		t.Errorf("in the volume there are %q", got)
	}
	if a := c.Send("DELETE", api+"/sandboxes/dev", ""); a.Code != 204 {
		t.Error(a)
	}
	// Ten gigabytes in ten megabytes end at the volume's size.
	grown, began := d.Growth(), time.Now()
	if a := c.Stream("PUT", api+"/volumes/data/archive", bytes.NewReader(gzipBomb(t)), "Content-Type", "application/gzip"); !a.Refused() || a.Code != 413 && a.Code != 422 {
		t.Errorf("a bomb: %v", a)
	}
	Within(t, began, 10*time.Second)
	if n := grown(); n > 64<<20 {
		t.Errorf("a bomb: the daemon grew by %d MiB", n>>20)
	}
	if a := c.Send("DELETE", api+"/volumes/data", ""); a.Code != 204 {
		t.Errorf("remove: %v", a)
	}
}

func second[T any](_ T, err error) error { return err }
