//go:build linux

package pid1

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	guestv1 "agentbox/internal/gen/guest/v1"
	"agentbox/internal/guest"
	"agentbox/internal/guest/agent"
	"agentbox/internal/guest/client"
	"agentbox/internal/sandbox"
)

// These tests run the launcher and the files on the machine itself, as whoever
// runs them: what they touch lies in temporary directories.

// native is the only launcher of the test process: it reaps all children.
var native = sync.OnceValues(func() (*launcher, error) { return newLauncher(newUsers(), nil) })

func dial(t *testing.T) *client.Session {
	t.Helper()
	l, err := native()
	if err != nil {
		t.Skipf("this user may not confine children: %v", err)
	}
	u := l.users
	a := agent.New(agent.Options{Launcher: l, Files: &files{u, l.config}})
	t.Cleanup(a.Close)
	host, end := net.Pipe()
	go func() { _ = a.Serve(end, false) }()
	conf := &guestv1.GuestConfig{User: fmt.Sprint(os.Getuid()), Workdir: t.TempDir()}
	s, err := client.New(t.Context(), host, client.Options{Epoch: 1, Config: conf})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func soon(t *testing.T) context.Context {
	c, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return c
}

func run(t *testing.T, s *client.Session, c sandbox.Command, stdin io.Reader) *sandbox.Result {
	t.Helper()
	r, err := s.Run(soon(t), c, stdin)
	if err != nil {
		t.Fatalf("run %q %q: %v", c.Argv, c.Shell, err)
	}
	return r
}

func TestPrograms(t *testing.T) {
	s := dial(t)
	dir := t.TempDir()
	script := filepath.Join(dir, "script")
	if err := os.WriteFile(script, []byte("#!/no/such/interpreter\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	text := filepath.Join(dir, "text")
	if err := os.WriteFile(text, []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		cmd    sandbox.Command
		code   int
		stdout string
		stderr string // a part of it
	}{
		{"argv", sandbox.Command{Argv: []string{"printf", "%s", "a b"}}, 0, "a b", ""},
		{"shell", sandbox.Command{Shell: "echo $((6*7)); exit 3"}, 3, "42\n", ""},
		{"env", sandbox.Command{Shell: "echo $A-$LANG", Env: []string{"A=1", "A=2"}}, 0, "2-C.UTF-8\n", ""},
		{"dir", sandbox.Command{Shell: "pwd", Dir: "/"}, 0, "/\n", ""},
		{"no input", sandbox.Command{Shell: "cat; echo done"}, 0, "done\n", ""},
		{"bytes", sandbox.Command{Shell: `printf '\377\000\200'`}, 0, "\xff\x00\x80", ""},
		{"not found", sandbox.Command{Argv: []string{"no-such-program"}}, 127, "", "no-such-program: command not found"},
		{"no such file", sandbox.Command{Argv: []string{"/no/such/program"}}, 127, "", "No such file"},
		{"directory", sandbox.Command{Argv: []string{"/etc"}}, 126, "", "Is a directory"},
		{"not executable", sandbox.Command{Argv: []string{text}}, 126, "", "Permission denied"},
		{"interpreter", sandbox.Command{Argv: []string{script}}, 127, "", "interpreter"},
		{"no directory", sandbox.Command{Argv: []string{"true"}, Dir: "/no/such/dir"}, 126, "", "working directory /no/such/dir"},
		{"too long", sandbox.Command{Argv: []string{"true", strings.Repeat("x", 200_000)}}, 126, "", "Argument list too long"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := run(t, s, c.cmd, nil)
			if r.Outcome != sandbox.Exited || r.ExitCode != c.code || string(r.Stdout) != c.stdout || !strings.Contains(string(r.Stderr), c.stderr) {
				t.Errorf("got %v %d %q %q", r.Outcome, r.ExitCode, r.Stdout, r.Stderr)
			}
		})
	}
	if _, err := s.Run(soon(t), sandbox.Command{Argv: []string{"true"}, User: "no-such-user"}, nil); !errdefs.IsNotFound(err) {
		t.Errorf("an unknown user gives %v", err)
	}
}

func TestSignalDeath(t *testing.T) {
	r := run(t, dial(t), sandbox.Command{Shell: "kill -TERM $$"}, nil)
	if r.Outcome != sandbox.Signaled || r.Signal != int(syscall.SIGTERM) || r.ShellCode() != 143 {
		t.Errorf("got %+v", r)
	}
}

func TestInput(t *testing.T) {
	in := bytes.Repeat([]byte{0}, 1<<20)
	r := run(t, dial(t), sandbox.Command{Argv: []string{"sha256sum"}}, bytes.NewReader(in))
	if !strings.HasPrefix(string(r.Stdout), "30e14955ebf1352266dc2ff8067e68104607e750abb9d3b36582b8af909fcb58") {
		t.Errorf("got %q", r.Stdout)
	}
	// A command that does not want its input ends all the same.
	if r := run(t, dial(t), sandbox.Command{Argv: []string{"true"}}, bytes.NewReader(in)); r.ExitCode != 0 {
		t.Errorf("got %+v", r)
	}
}

// B008, B010: a child that keeps the output open does not hold up the result,
// and no byte that was written before the end is lost.
func TestB010OutputToTheEnd(t *testing.T) {
	s := dial(t)
	for range 20 {
		r := run(t, s, sandbox.Command{Shell: "sleep 30 & head -c 300000 /dev/zero"}, nil)
		if r.Outcome != sandbox.Exited || len(r.Stdout) != 300_000 || r.Duration > 20*time.Second {
			t.Fatalf("got %v, %d bytes in %v", r.Outcome, len(r.Stdout), r.Duration)
		}
	}
}

func TestTimeLimitKillsTree(t *testing.T) {
	s := dial(t)
	r := run(t, s, sandbox.Command{Shell: "setsid sleep 1234.5 & echo begun; sleep 1234.5", Timeout: 300 * time.Millisecond}, nil)
	if r.Outcome != sandbox.TimedOut || string(r.Stdout) != "begun\n" {
		t.Errorf("got %+v", r)
	}
}

func TestTerminal(t *testing.T) {
	s := dial(t)
	var out bytes.Buffer
	p, err := s.Start(soon(t), "tty", sandbox.Command{Shell: "tty; stty size; read x; stty size; cat", TTY: true, Cols: 90, Rows: 20}, client.Output{Stdout: &out})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Resize(120, 33); err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(p.Stdin(), "x\nlast\n")
	if err := p.Stdin().Close(); err != nil {
		t.Fatal(err)
	}
	r, err := p.Wait(soon(t))
	if err != nil || r.ExitCode != 0 {
		t.Fatalf("got %+v, %v", r, err)
	}
	for _, want := range []string{"/dev/pts/", "33 120\r\n", "last\r\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q lacks %q", out.String(), want)
		}
	}
}

func TestFiles(t *testing.T) {
	s, dir := dial(t), t.TempDir()
	at := func(p string) string { return filepath.Join(dir, p) }
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(s.WriteFile(soon(t), at("a/b/f"), strings.NewReader("hello"), client.WriteOptions{Parents: true, Mode: 0o640}))
	must(s.WriteFile(soon(t), at("a/b/f"), strings.NewReader(" world"), client.WriteOptions{Append: true}))
	if got := read(t, s, at("a/b/f"), client.ReadOptions{Offset: 3, Length: 5}); got != "lo wo" {
		t.Errorf("got %q", got)
	}
	i, err := s.Stat(soon(t), at("a/b/f"), client.StatOptions{})
	if err != nil || i.Size != 11 || i.Mode != 0o640 || i.Name != "f" {
		t.Errorf("got %+v, %v", i, err)
	}
	must(s.WriteFile(soon(t), at("bad\xff\nname"), strings.NewReader("x"), client.WriteOptions{}))
	must(s.Mkdir(soon(t), at("a/b/f2"), client.MkdirOptions{}))
	list, _, err := s.List(soon(t), dir, client.ListOptions{})
	if err != nil || len(list) != 2 || list[1].Name != "bad\xff\nname" {
		t.Errorf("got %+v, %v", list, err)
	}
	one, next, err := s.List(soon(t), dir, client.ListOptions{Limit: 1})
	if err != nil || len(one) != 1 || next == "" {
		t.Fatalf("got %v, %q, %v", one, next, err)
	}
	rest, next, err := s.List(soon(t), dir, client.ListOptions{Cursor: next})
	if err != nil || len(rest) != 1 || next != "" {
		t.Errorf("got %v, %q, %v", rest, next, err)
	}
	must(s.Move(soon(t), at("a/b/f"), at("g"), client.MoveOptions{}))
	must(s.WriteFile(soon(t), at("h"), strings.NewReader("h"), client.WriteOptions{}))
	if err := s.Move(soon(t), at("g"), at("h"), client.MoveOptions{}); !errdefs.IsAlreadyExists(err) {
		t.Errorf("move onto a file gives %v", err)
	}
	must(s.Move(soon(t), at("g"), at("h"), client.MoveOptions{Overwrite: true}))
	if err := s.Remove(soon(t), at("a"), client.RemoveOptions{}); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("removing a directory that is not empty gives %v", err)
	}
	must(s.Remove(soon(t), at("a"), client.RemoveOptions{Recursive: true}))
	if _, err := s.ReadFile(soon(t), at("a"), client.ReadOptions{}); !errors.Is(err, fs.ErrNotExist) || !errdefs.IsNotFound(err) {
		t.Errorf("a missing file gives %v", err)
	}
	if got := read(t, s, "/proc/version", client.ReadOptions{}); !strings.Contains(got, "Linux") {
		t.Errorf("/proc/version is %q", got)
	}
	for _, p := range []string{"/proc/self/mem", "/proc/self/environ", "/proc/thread-self/status", fmt.Sprintf("/proc/%d/maps", os.Getpid())} {
		if _, err := s.ReadFile(soon(t), p, client.ReadOptions{}); !errdefs.IsPermissionDenied(err) {
			t.Errorf("the agent's own %s: %v", p, err)
		}
	}
}

func read(t *testing.T, s *client.Session, name string, o client.ReadOptions) string {
	t.Helper()
	r, err := s.ReadFile(soon(t), name, o)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// Files that are no regular ones never hold a call up.
func TestOddFiles(t *testing.T) {
	s, dir := dial(t), t.TempDir()
	fifo := filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{fifo, "/dev/zero", dir} {
		if _, err := s.ReadFile(soon(t), p, client.ReadOptions{}); !errdefs.IsInvalidArgument(err) {
			t.Errorf("reading %s gives %v", p, err)
		}
		if err := s.WriteFile(soon(t), p, strings.NewReader("x"), client.WriteOptions{}); !errdefs.IsInvalidArgument(err) {
			t.Errorf("writing %s gives %v", p, err)
		}
		if err := s.WriteFile(soon(t), p, strings.NewReader("x"), client.WriteOptions{Atomic: true}); !errdefs.IsInvalidArgument(err) {
			t.Errorf("replacing %s gives %v", p, err)
		}
	}
	for _, p := range []string{"", "a\x00b"} {
		if _, err := s.Stat(soon(t), p, client.StatOptions{}); !errdefs.IsInvalidArgument(err) {
			t.Errorf("path %q gives %v", p, err)
		}
	}
}

// cutReader breaks in the middle.
type cutReader struct{ left int }

func (r *cutReader) Read(p []byte) (int, error) {
	if r.left == 0 {
		return 0, errors.New("cut")
	}
	n := min(len(p), r.left)
	r.left -= n
	return n, nil
}

// FS-17: a cut upload leaves the old content.
func TestFS17AtomicWrite(t *testing.T) {
	s, dir := dial(t), t.TempDir()
	target, link := filepath.Join(dir, "f"), filepath.Join(dir, "link")
	if err := os.WriteFile(target, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("f", link); err != nil {
		t.Fatal(err)
	}
	if err := s.WriteFile(soon(t), link, &cutReader{500_000}, client.WriteOptions{Atomic: true}); err == nil {
		t.Error("a cut upload succeeds")
	}
	deadline := time.Now().Add(30 * time.Second)
	for {
		names, _ := os.ReadDir(dir)
		if len(names) == 2 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("a cut upload leaves %v", names)
		}
		time.Sleep(5 * time.Millisecond)
	}
	if got := read(t, s, target, client.ReadOptions{}); got != "old" {
		t.Errorf("the file holds %q", got)
	}
	if err := s.WriteFile(soon(t), link, strings.NewReader("new"), client.WriteOptions{Atomic: true}); err != nil {
		t.Fatal(err)
	}
	if i, err := os.Lstat(link); err != nil || i.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link was replaced: %v, %v", i, err)
	}
	if i, err := os.Stat(target); err != nil || i.Mode() != 0o600 || i.Size() != 3 {
		t.Errorf("the file is %v, %v", i, err)
	}
}

func TestTarRoundTrip(t *testing.T) {
	s, from, to := dial(t), t.TempDir(), filepath.Join(t.TempDir(), "to")
	long := strings.Repeat("d", 200)
	if err := os.MkdirAll(filepath.Join(from, "sub", long), 0o750); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"sub/" + long + "/deep": "x", "bad\xff": "y", "empty": ""}
	for name, content := range want {
		if err := os.WriteFile(filepath.Join(from, name), []byte(content), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/somewhere", filepath.Join(from, "link")); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(from, "fifo"), 0o644); err != nil {
		t.Fatal(err)
	}
	r, err := s.GetTar(soon(t), from, client.TarOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := s.PutTar(soon(t), to, r, client.TarOptions{Parents: true}); err != nil {
		t.Fatal(err)
	}
	for name, content := range want {
		b, err := os.ReadFile(filepath.Join(to, name))
		if err != nil || string(b) != content {
			t.Errorf("%q: %q, %v", name, b, err)
		}
	}
	if l, err := os.Readlink(filepath.Join(to, "link")); err != nil || l != "/somewhere" {
		t.Errorf("link: %q, %v", l, err)
	}
	if _, err := os.Lstat(filepath.Join(to, "fifo")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a FIFO was packed: %v", err)
	}
}

func archive(t testing.TB, entries ...tar.Header) []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range entries {
		body := ""
		if h.Typeflag == 0 || h.Typeflag == tar.TypeReg {
			h.Typeflag, body = tar.TypeReg, "body"
			h.Size = int64(len(body))
		}
		if h.Mode == 0 {
			h.Mode = 0o644
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(w, body)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// FS-06: what must not be unpacked is refused with its name.
func TestFS06HostileArchives(t *testing.T) {
	s := dial(t)
	link := func(name, to string) tar.Header {
		return tar.Header{Name: name, Linkname: to, Typeflag: tar.TypeSymlink}
	}
	hard := func(name, to string) tar.Header { return tar.Header{Name: name, Linkname: to, Typeflag: tar.TypeLink} }
	for name, c := range map[string]struct {
		entries []tar.Header
		culprit string
	}{
		"parent":            {[]tar.Header{{Name: "../x"}}, "../x"},
		"parent inside":     {[]tar.Header{{Name: "a/../../x"}}, "a/../../x"},
		"absolute":          {[]tar.Header{{Name: "/x"}}, "/x"},
		"target":            {[]tar.Header{{Name: "."}}, "."},
		"through a link":    {[]tar.Header{link("l", ".."), {Name: "l/x"}}, "l/x"},
		"through a file":    {[]tar.Header{{Name: "f"}, {Name: "f/x"}}, "f/x"},
		"directory is link": {[]tar.Header{link("l", ".."), {Name: "l/", Typeflag: tar.TypeDir}}, "l/"},
		"hard link out":     {[]tar.Header{hard("h", "../canary")}, "h"},
		"hard through link": {[]tar.Header{link("l", ".."), hard("h", "l/canary")}, "h"},
		"hard to link":      {[]tar.Header{link("l", "../canary"), hard("h", "l")}, "h"},
		"device":            {[]tar.Header{{Name: "d", Typeflag: tar.TypeChar}}, "d"},
		"fifo":              {[]tar.Header{{Name: "p", Typeflag: tar.TypeFifo}}, "p"},
		"file on directory": {[]tar.Header{{Name: "d/", Typeflag: tar.TypeDir}, {Name: "d"}}, "d"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			canary := filepath.Join(dir, "canary")
			if err := os.WriteFile(canary, []byte("canary"), 0o600); err != nil {
				t.Fatal(err)
			}
			to := filepath.Join(dir, "to")
			err := s.PutTar(soon(t), to, bytes.NewReader(archive(t, c.entries...)), client.TarOptions{Parents: true})
			if !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), fmt.Sprintf("entry %q", c.culprit)) {
				t.Errorf("got %v", err)
			}
			names, _ := os.ReadDir(dir)
			if b, err := os.ReadFile(canary); err != nil || string(b) != "canary" || len(names) != 2 {
				t.Errorf("something outside changed: %v, %v", names, err)
			}
		})
	}
}

// What is no file, directory or link is named when it is asked for, so that
// nobody misses it in silence.
func TestSpecialFilesOfTree(t *testing.T) {
	s, dir := dial(t), t.TempDir()
	if err := syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", filepath.Join(dir, "socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for special, want := range map[bool]map[string]byte{false: {}, true: {"fifo": tar.TypeFifo, "socket": guest.TarSocket}} {
		r, err := s.GetTar(soon(t), dir, client.TarOptions{Special: special})
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]byte{}
		for a := tar.NewReader(r); ; {
			h, err := a.Next()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			got[h.Name] = h.Typeflag
		}
		r.Close()
		if !maps.Equal(got, want) {
			t.Errorf("special %v: got %v, want %v", special, got, want)
		}
	}
}

func TestArchiveLimits(t *testing.T) {
	s := dial(t)
	b := archive(t, tar.Header{Name: "a"}, tar.Header{Name: "b"}, tar.Header{Name: "c"})
	for name, c := range map[string]struct {
		b []byte
		o client.TarOptions
	}{
		"entries":  {b, client.TarOptions{MaxEntries: 2}},
		"bytes":    {b, client.TarOptions{MaxBytes: 10}},
		"size lie": {b[:515], client.TarOptions{}},
		"rubbish":  {bytes.Repeat([]byte{7}, 2000), client.TarOptions{}},
	} {
		if err := s.PutTar(soon(t), t.TempDir(), bytes.NewReader(c.b), c.o); !errdefs.IsInvalidArgument(err) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// ESC-17: an upload gains no privileges, whatever its archive says.
func TestESC17NoPrivilegeBits(t *testing.T) {
	s, dir := dial(t), t.TempDir()
	h := tar.Header{Name: "su", Mode: 0o6755, Uid: 0, Gid: 0}
	if err := s.PutTar(soon(t), dir, bytes.NewReader(archive(t, h)), client.TarOptions{}); err != nil {
		t.Fatal(err)
	}
	i, err := os.Stat(filepath.Join(dir, "su"))
	if err != nil || i.Mode() != 0o755 || i.Sys().(*syscall.Stat_t).Uid != uint32(os.Getuid()) {
		t.Errorf("got %v, %v", i.Mode(), err)
	}
}

func FuzzTarIntake(f *testing.F) {
	f.Add(archive(f, tar.Header{Name: "a/b"}, tar.Header{Name: "l", Linkname: "..", Typeflag: tar.TypeSymlink}, tar.Header{Name: "l/x"}))
	f.Add(archive(f, tar.Header{Name: "../x"}, tar.Header{Name: "h", Linkname: "a", Typeflag: tar.TypeLink}))
	fsys := &fileSystem{users: newUsers(), dir: "/"}
	f.Fuzz(func(t *testing.T, b []byte) {
		dir := t.TempDir()
		to := filepath.Join(dir, "to")
		if err := os.Mkdir(to, 0o755); err != nil {
			t.Fatal(err)
		}
		_ = agent.Extract(t.Context(), fsys, to, bytes.NewReader(b), 1<<20, 1_000)
		if names, _ := os.ReadDir(dir); len(names) != 1 {
			t.Errorf("something was made outside: %v", names)
		}
		_ = filepath.WalkDir(to, func(_ string, d fs.DirEntry, err error) error {
			if err == nil && !slices.Contains([]fs.FileMode{0, fs.ModeDir, fs.ModeSymlink}, d.Type()) {
				t.Errorf("%s is of type %v", d.Name(), d.Type())
			}
			return nil
		})
	})
}
