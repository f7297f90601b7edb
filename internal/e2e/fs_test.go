package e2e

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
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

func readFile(s *client.Session, name string, o client.ReadOptions) (string, error) {
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

// TestFS01: no spelling of a path leads to a file of the host.
func TestFS01(t *testing.T) {
	t.Parallel()
	box := NewBox(t, sandbox.Limits{})
	canary, text, check := hostCanary(t)
	up := strings.Repeat("../", 12)
	enc := url.PathEscape(strings.Repeat("../", 12) + canary[1:])
	spellings := []string{
		canary, up + canary[1:], "/workspace/" + up + canary[1:], "/workspace/./.././" + up + canary[1:], "/" + canary, "///" + canary, "//workspace//.." + canary,
		enc, strings.ReplaceAll(enc, "%2F", "%252f"), strings.ReplaceAll(up, "../", "%2e%2e%2f") + canary[1:], strings.ReplaceAll(up, "../", "..%252f") + canary[1:],
		strings.ReplaceAll(up, "../", "....//") + canary[1:], strings.ReplaceAll(up, "../", `..\`) + canary[1:], strings.ReplaceAll(up, "../", "%c0%ae%c0%ae/") + canary[1:],
		strings.ReplaceAll(up, "../", "\xc0\xae\xc0\xae/") + canary[1:], canary + "\x00", "/workspace/\x00" + canary, "/proc/self/root" + canary, "/proc/1/root" + canary,
		"/proc/1/cwd/" + up + canary[1:], "/proc/self/cwd" + canary, "/proc/thread-self/root" + canary, "file://" + canary, "~/" + up + canary[1:],
	}
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

// rawTar is an archive of one entry whose header is changed before it is sent.
func rawTar(t testing.TB, h tar.Header, change func(block []byte)) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	if err := w.WriteHeader(&h); err != nil {
		t.Fatal(err)
	}
	if _, err := io.CopyN(w, strings.NewReader(strings.Repeat("x", int(h.Size))), h.Size); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	raw := b.Bytes()
	change(raw[:512])
	copy(raw[148:156], "        ")
	sum := 0
	for _, c := range raw[:512] {
		sum += int(c)
	}
	copy(raw[148:156], fmt.Sprintf("%06o\x00 ", sum))
	return raw
}

// TestFS06: twenty archives that nobody should unpack as they are.
func TestFS06(t *testing.T) {
	t.Parallel()
	box := NewBox(t, sandbox.Limits{})
	s := box.Session()
	box.Want("", "mkdir /workspace/t; printf safe > /workspace/outside")
	file := func(name string) tar.Header { return tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644} }
	pack := func(hs ...tar.Header) []byte {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for _, h := range hs {
			if err := w.WriteHeader(&h); err != nil {
				t.Fatal(err)
			}
		}
		_ = w.Close()
		return b.Bytes()
	}
	link := tar.Header{Name: "l", Typeflag: tar.TypeSymlink, Linkname: ".."}
	big := file("big")
	big.Size = 10
	many := func() []byte {
		one := pack(tar.Header{Name: "./", Typeflag: tar.TypeDir, Mode: 0o755})[:512]
		return append(bytes.Repeat(one, 1_000_000), make([]byte, 1024)...)
	}
	longName := strings.Repeat("long/", 40) + "../../../" + strings.Repeat("../", 45) + "workspace/outside"
	for _, c := range []struct {
		name    string
		archive []byte
		taken   bool // harmless, so it may be unpacked
	}{
		{"parent", pack(file("../outside")), false},
		{"absolute", pack(file("/workspace/outside")), false},
		{"link then file", pack(link, file("l/outside")), false},
		{"hard link out", pack(tar.Header{Name: "h", Typeflag: tar.TypeLink, Linkname: "../outside"}), false},
		{"device", pack(tar.Header{Name: "d", Typeflag: tar.TypeBlock, Devmajor: 8}), false},
		{"fifo", pack(tar.Header{Name: "p", Typeflag: tar.TypeFifo}), false},
		{"setuid", pack(tar.Header{Name: "su", Typeflag: tar.TypeReg, Mode: 0o4755}), true},
		{"PAX path", pack(tar.Header{Name: "../é/outside", Typeflag: tar.TypeReg, Format: tar.FormatPAX}), false},
		{"GNU long name", pack(tar.Header{Name: longName, Typeflag: tar.TypeReg, Format: tar.FormatGNU}), false},
		{"duplicate", pack(file("a"), file("a"), link, tar.Header{Name: "l", Typeflag: tar.TypeReg, Mode: 0o644}), true},
		{"NUL", rawTar(t, file("abcdef"), func(b []byte) { copy(b, "a\x00../b") }), true},
		{"a million entries", many(), false},
		{"negative size", rawTar(t, file("n"), func(b []byte) { copy(b[124:136], bytes.Repeat([]byte{0xff}, 12)) }), false},
		{"sparse", rawTar(t, big, func(b []byte) { b[156] = tar.TypeGNUSparse }), false},
		{"xattr", pack(tar.Header{Name: "x", Typeflag: tar.TypeReg, PAXRecords: map[string]string{"SCHILY.xattr.security.capability": "\x01\x00\x00\x02"}}), true},
		{"uid 0", pack(tar.Header{Name: "u", Typeflag: tar.TypeReg, Uid: 0, Uname: "root", Mode: 0o644}), true},
		{"5 GiB size lie", rawTar(t, big, func(b []byte) { copy(b[124:136], "50000000000\x00") }), false},
		{"directory as file", pack(tar.Header{Name: "d/", Typeflag: tar.TypeDir, Mode: 0o755}, file("d")), false},
		{"dot", pack(tar.Header{Name: ".", Typeflag: tar.TypeSymlink, Linkname: "/"}), false},
		{"empty name", rawTar(t, file("e"), func(b []byte) { b[0] = 0 }), false},
	} {
		err := s.PutArchive(t.Context(), "/workspace/t", bytes.NewReader(c.archive), client.UnpackOptions{})
		if (err == nil) != c.taken || err != nil && !errdefs.IsInvalidArgument(err) && !errdefs.IsResourceExhausted(err) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	if got, err := readFile(s, "/workspace/outside", client.ReadOptions{}); err != nil || got != "safe" {
		t.Errorf("a file outside of the target reads %q, %v", got, err)
	}
	res := box.Exec(sandbox.Command{Shell: "cd /workspace; find . ! -type f ! -type d ! -type l; find . -perm /7000 ; find t -user root; getcap -r t 2>/dev/null; ls -A | grep -v -x -e t -e outside", User: "root"}, nil)
	if len(res.Stdout) != 0 {
		t.Errorf("there are %q", res.Stdout)
	}
}

// TestFS08: ten gigabytes in ten megabytes end at the limit, quickly, and cost
// the host no memory.
func TestFS08(t *testing.T) {
	const disk = 256 * sandbox.MiB
	box := NewBox(t, sandbox.Limits{Disk: disk})
	s := box.Session()
	head := rawTar(t, tar.Header{Name: "bomb", Typeflag: tar.TypeReg, Mode: 0o644}, func(b []byte) { copy(b[124:136], fmt.Sprintf("%011o\x00", int64(10<<30))) })[:512]
	member := gz(t, make([]byte, 64<<20))
	bomb := append(gz(t, head), bytes.Repeat(member, 160)...)
	if len(bomb) > 16<<20 {
		t.Fatalf("the bomb has %d bytes", len(bomb))
	}
	free := freeBytes(t)
	for name, o := range map[string]client.UnpackOptions{
		"by the limit": {Format: client.TarGz, MaxBytes: 64 << 20}, "by the disk": {Format: client.TarGz},
	} {
		before, began := status("VmRSS"), time.Now()
		err := s.PutArchive(t.Context(), "/workspace", bytes.NewReader(bomb), o)
		if !errdefs.IsResourceExhausted(err) {
			t.Errorf("%s: %v", name, err)
		}
		Within(t, began, 10*time.Second)
		if grown := status("VmRSS") - before; grown > 64<<20 {
			t.Errorf("%s: this process grew by %d MiB", name, grown>>20)
		}
	}
	if took := free - freeBytes(t); took > disk*3/2 { // others write, too
		t.Errorf("the host has %d MiB less", took>>20)
	}
	box.Want("", "ls /workspace")
	if err := s.PutArchive(t.Context(), "/workspace", bytes.NewReader(bomb), client.UnpackOptions{Format: "tar.zst"}); !errdefs.IsInvalidArgument(err) {
		t.Errorf("a format that is not offered: %v", err)
	}
}

// TestFS10: what is collected from a hostile directory are regular files only.
func TestFS10(t *testing.T) {
	t.Parallel()
	box := NewBox(t, sandbox.Limits{})
	canary, text, check := hostCanary(t)
	const many, most = 20_000, 5_000
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
	r, err := box.Session().GetArchive(t.Context(), "/workspace", client.ArchiveOptions{MaxBytes: 100 << 20, MaxEntries: most})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	dst := t.TempDir()
	links, err := transfer.Unpack(r, dst, transfer.Bounds{})
	if err != nil {
		t.Fatal(err)
	}
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
		size := int64(2 << 20)
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

func gz(t testing.TB, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}
