package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	"agentbox/internal/guest/client"
	"agentbox/internal/sandbox"
	"agentbox/internal/transfer"
)

// hostCanary is a file of the host with a text that no sandbox may see, and a
// check that it is as it was and has no new neighbours.
func hostCanary(t *testing.T) (path, text string, check func()) {
	t.Helper()
	dir := t.TempDir()
	path, text = filepath.Join(dir, "canary"), "host canary "+dir
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path, text, func() {
		t.Helper()
		b, err := os.ReadFile(path)
		names, _ := os.ReadDir(dir)
		if err != nil || string(b) != text || len(names) != 1 {
			t.Errorf("the host's file became %q, %v, beside %v", b, err, names)
		}
	}
}

func readFile(s interface {
	ReadFile(ctx context.Context, name string, o client.ReadOptions) (*client.Content, error)
}, name string, o client.ReadOptions) (string, error) {
	r, err := s.ReadFile(context.Background(), name, o)
	if err != nil {
		return "", err
	}
	defer r.Close()
	b, err := io.ReadAll(io.LimitReader(r, 64<<20))
	return string(b), err
}

// refusal reports whether an error is the caller's: a name that is none, or
// leads to nothing or to what is not allowed.
func refusal(err error) bool {
	return errdefs.IsInvalidArgument(err) || errdefs.IsNotFound(err) || errdefs.IsPermissionDenied(err) || errdefs.IsFailedPrecondition(err) || errdefs.IsAlreadyExists(err)
}

// hostSpellings are ways to write the path of a file of the host.
func hostSpellings(canary string) []string {
	up := strings.Repeat("../", 12)
	enc := url.PathEscape(strings.Repeat("../", 12) + canary[1:])
	return []string{
		canary, up + canary[1:], "/workspace/" + up + canary[1:], "/workspace/./.././" + up + canary[1:], "/" + canary, "///" + canary, "//workspace//.." + canary,
		enc, strings.ReplaceAll(enc, "%2F", "%252f"), strings.ReplaceAll(up, "../", "%2e%2e%2f") + canary[1:], strings.ReplaceAll(up, "../", "..%252f") + canary[1:],
		strings.ReplaceAll(up, "../", "....//") + canary[1:], strings.ReplaceAll(up, "../", `..\`) + canary[1:], strings.ReplaceAll(up, "../", "%c0%ae%c0%ae/") + canary[1:],
		strings.ReplaceAll(up, "../", "\xc0\xae\xc0\xae/") + canary[1:], canary + "\x00", "/workspace/\x00" + canary, "/proc/self/root" + canary, "/proc/1/root" + canary,
		"/proc/1/cwd/" + up + canary[1:], "/proc/self/cwd" + canary, "/proc/thread-self/root" + canary, "file://" + canary, "~/" + up + canary[1:],
	}
}

// TestFS01: no spelling of a path leads to a file of the host.
func TestFS01(t *testing.T) {
	t.Parallel()
	box := NewBox(t, sandbox.Limits{})
	canary, text, check := hostCanary(t)
	spellings := hostSpellings(canary)
	if len(spellings) != 24 {
		t.Errorf("%d spellings", len(spellings))
	}
	s := box.Session()
	for _, user := range []string{"", "root"} {
		for _, name := range spellings {
			if got, err := readFile(s, name, client.ReadOptions{User: user}); err == nil && strings.Contains(got, text) || err != nil && !refusal(err) {
				t.Errorf("read %q as %q: %q, %v", name, user, got, err)
			}
			if _, _, err := s.List(t.Context(), name, client.ListOptions{User: user}); err == nil || !refusal(err) {
				t.Errorf("list %q as %q: %v", name, user, err)
			}
			if err := s.Remove(t.Context(), name, client.RemoveOptions{User: user}); err != nil && !refusal(err) {
				t.Errorf("remove %q as %q: %v", name, user, err)
			}
			err := s.WriteFile(t.Context(), name, strings.NewReader("overwritten"), client.WriteOptions{User: user})
			if err != nil && !refusal(err) {
				t.Errorf("write %q as %q: %v", name, user, err)
			}
		}
		check()
	}
}

// TestFS04: a link in the sandbox that names a path of the host leads to the
// sandbox's own file.
func TestFS04(t *testing.T) {
	t.Parallel()
	box := NewBox(t, sandbox.Limits{})
	canary, _, check := hostCanary(t)
	const cron = "/etc/cron.d/agentbox-fs04"
	box.Exec(sandbox.Command{Shell: "mkdir -p /etc/cron.d " + filepath.Dir(canary) + "; cd /workspace; ln -s " + cron + " f; ln -s " + canary + " g; ln -s " + filepath.Dir(canary) + " d", User: "root"}, nil)
	s := box.Session()
	for _, name := range []string{"/workspace/f", "/workspace/g", "/workspace/d/canary", "/workspace/d/new"} {
		for _, o := range []client.WriteOptions{{User: "root"}, {User: "root", Atomic: true}, {User: "root", Append: true}, {}} {
			if err := s.WriteFile(t.Context(), name, strings.NewReader("from inside"), o); err != nil && !refusal(err) {
				t.Errorf("write %s: %v", name, err)
			}
		}
		if _, err := s.Chmod(t.Context(), name, 0o777, client.ChangeOptions{User: "root"}); err != nil {
			t.Errorf("chmod %s: %v", name, err)
		}
		if _, _, err := s.Copy(t.Context(), "/etc/hostname", name, client.CopyOptions{User: "root", Overwrite: true}); err != nil {
			t.Errorf("copy to %s: %v", name, err)
		}
	}
	if got, err := readFile(s, "/etc/cron.d/agentbox-fs04", client.ReadOptions{User: "root"}); err != nil || !strings.HasPrefix(got, "from inside") {
		t.Errorf("the sandbox's own file reads %q, %v", got, err)
	}
	if _, err := os.Lstat(cron); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the host has %s: %v", cron, err)
	}
	check()
}

// TestFS10: what is collected from a hostile directory are regular files only.
func TestFS10(t *testing.T) {
	t.Parallel()
	box := NewBox(t, sandbox.Limits{})
	canary, text, check := hostCanary(t)
	many, most := Sized(20_000, 100_000), Sized(5_000, 75_000)
	res := box.Exec(sandbox.Command{Argv: []string{"python3", "-c", `
import os, socket, sys
os.chdir(sys.argv[1])
os.symlink(sys.argv[2], "a-link"); os.symlink("/", "a-root"); os.mkfifo("a-fifo")
try: os.mknod("a-null", 0o20666, os.makedev(1, 3))
except PermissionError: pass
socket.socket(socket.AF_UNIX).bind("a-socket")
with open("a-sparse", "wb") as f: f.truncate(1 << 40)
for n in ["a\n\x1b[31m", "a..%2f", "a\\..\\b", "a ok"]: open(n, "w").write("kept")
os.mkdir("many")
for i in range(int(sys.argv[3])): os.close(os.open("many/%06d" % i, os.O_CREAT | os.O_WRONLY))
`, "/workspace", canary, fmt.Sprint(many)}, User: "root"}, nil)
	WantExit(t, res, 0, "", "")
	began := time.Now()
	r, err := box.Session().GetArchive(t.Context(), "/workspace", client.ArchiveOptions{MaxBytes: 100 << 20, MaxEntries: int64(most)})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	dst := t.TempDir()
	links, err := transfer.Unpack(r, dst, transfer.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d files of %d collected in %v", most, many, time.Since(began).Round(time.Millisecond))
	Within(t, began, 30*time.Second)
	var names []string
	files := 0
	err = filepath.WalkDir(dst, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		files++
		if !d.Type().IsRegular() {
			t.Errorf("%q is %v", p, d.Type())
		}
		if b, _ := os.ReadFile(p); bytes.Contains(b, []byte(text)) {
			t.Errorf("%q has the host's text", p)
		}
		if filepath.Dir(p) == dst {
			names = append(names, d.Name())
		}
		return nil
	})
	left := r.Skipped()
	if err != nil || !slices.Equal(names, []string{"a\n\x1b[31m", "a ok", "a..%2f", "a\\..\\b"}) || files > most || len(links) != 2 {
		t.Errorf("%d files, %q; links left out: %q; %v", files, names, links, err)
	}
	reasons := map[client.SkipReason]int{}
	for _, f := range left.First {
		reasons[f.Reason]++
	}
	if left.Total < many-most+3 || reasons[client.SkipFIFO] != 1 || reasons[client.SkipSocket] != 1 || reasons[client.SkipSize] != 1 || reasons[client.SkipCount] == 0 {
		t.Errorf("left out: %+v", left)
	}
	check()
}

// TestFS12: names are bytes: they come back as they are, whatever a header or a
// terminal would make of them.
func TestFS12(t *testing.T) {
	t.Parallel()
	box := NewBox(t, sandbox.Limits{})
	s := box.Session()
	names := []string{"a\"\r\nSet-Cookie: x=1", "x.html", "..%2fx", "\x1b]0;title\a", "\xff\xfe", "a\tb", "-rf", "$(id)", "日本 ü", "e\u0301", strings.Repeat("n", 255)}
	for _, n := range names {
		if err := s.WriteFile(t.Context(), "/workspace/n/"+n, strings.NewReader(n), client.WriteOptions{Parents: true}); err != nil {
			t.Errorf("write %q: %v", n, err)
		}
	}
	entries, _, err := s.List(t.Context(), "/workspace/n", client.ListOptions{})
	if err != nil || len(entries) != len(names) {
		t.Errorf("%d entries, %v", len(entries), err)
	}
	for _, i := range entries {
		if got, err := readFile(s, i.Path, client.ReadOptions{}); err != nil || got != i.Name || !slices.Contains(names, i.Name) {
			t.Errorf("%q reads %q, %v", i.Path, got, err)
		}
	}
	_, err = readFile(s, "/workspace/n/"+names[0]+"gone", client.ReadOptions{})
	if !errdefs.IsNotFound(err) || strings.ContainsAny(err.Error(), "\r\n") {
		t.Errorf("an error with a hostile name: %q", err)
	}
}

// TestFS17: an upload that is cut leaves what was there, at each moment.
func TestFS17(t *testing.T) {
	t.Parallel()
	box := NewBox(t, sandbox.Limits{})
	s := box.Session()
	atomic := client.WriteOptions{Atomic: true}
	if err := s.WriteFile(t.Context(), "/workspace/d/f", strings.NewReader("old"), client.WriteOptions{Parents: true}); err != nil {
		t.Fatal(err)
	}
	stop, stopped := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			got, err := readFile(s, "/workspace/d/f", client.ReadOptions{})
			if err != nil || got != "old" {
				stopped <- fmt.Errorf("read %.20q, %w", got, err)
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
	for i := range 50 {
		size := int64(Sized(2<<20, 50<<20))
		if i == 0 {
			size = 50 << 20
		}
		ctx, cancel := context.WithCancel(t.Context())
		err := s.WriteFile(ctx, "/workspace/d/f", &cut{left: size, end: func() error {
			if i%2 == 0 {
				return errors.New("cut")
			}
			cancel() // the connection ends, without a word
			<-ctx.Done()
			return ctx.Err()
		}}, atomic)
		cancel()
		if err == nil {
			t.Error("half an upload succeeded")
		}
		if err := s.WriteFile(t.Context(), "/workspace/d/none", &cut{left: 1 << 10, end: func() error { return errors.New("cut") }}, atomic); err == nil {
			t.Error("half an upload succeeded")
		}
	}
	close(stop)
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	deadline := time.Now().Add(10*time.Second + Slack())
	for {
		entries, _, err := s.List(t.Context(), "/workspace/d", client.ListOptions{})
		if err == nil && len(entries) == 1 && entries[0].Name == "f" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("what was cut stays: %+v, %v", entries, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// cut gives some bytes and then what end says.
type cut struct {
	left int64
	end  func() error
}

func (c *cut) Read(p []byte) (int, error) {
	if c.left <= 0 {
		return 0, c.end()
	}
	n := min(int64(len(p)), c.left)
	c.left -= n
	return int(n), nil
}
