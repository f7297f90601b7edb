package runtimetest

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/containerd/errdefs"

	"agentbox/internal/guest/client"
)

var fileCases = []guestCase{
	{"ReadWrite", testReadWrite},
	{"Big", testBigFile},
	{"Stat", testStat},
	{"Tree", testTree},
	{"List", testList},
	{"Rights", testRights},
	{"Links", testLinks},
	{"NotUTF8", testNotUTF8Names},
	{"Tar", testTar},
	{"HostileTar", testHostileTar},
	{"ArchiveFormats", testArchiveFormats},
	{"ArchiveOptions", testArchiveOptions},
	{"ArchiveSkips", testArchiveSkips},
	{"ArchiveBomb", testArchiveBomb},
	{"Full", testFull},
}

func (g *guest) write(name, body string, o client.WriteOptions) {
	g.Helper()
	g.ok(g.s.WriteFile(g.ctx, name, strings.NewReader(body), o))
}

func (g *guest) read(name string, o client.ReadOptions) string {
	g.Helper()
	b, err := g.tryRead(name, o)
	g.ok(err)
	return b
}

func (g *guest) tryRead(name string, o client.ReadOptions) (string, error) {
	r, err := g.s.ReadFile(g.ctx, name, o)
	if err != nil {
		return "", err
	}
	defer r.Close()
	b, err := io.ReadAll(r)
	return string(b), err
}

func testReadWrite(g *guest) {
	g.write("/tmp/f", "0123456789", client.WriteOptions{})
	if got := g.sh("cat /tmp/f"); got != "0123456789" {
		g.Errorf("a command reads %q", got)
	}
	for _, c := range []struct {
		o    client.ReadOptions
		want string
	}{
		{client.ReadOptions{}, "0123456789"}, {client.ReadOptions{Offset: 4}, "456789"}, {client.ReadOptions{Offset: 4, Length: 3}, "456"},
		{client.ReadOptions{Offset: 8, Length: 100}, "89"}, {client.ReadOptions{Offset: 10}, ""},
	} {
		if got := g.read("/tmp/f", c.o); got != c.want {
			g.Errorf("%+v: read %q, want %q", c.o, got, c.want)
		}
	}
	g.write("/tmp/f", "ab", client.WriteOptions{Append: true})
	g.write("f", "c", client.WriteOptions{Append: true}) // relative to the working directory
	if got := g.read("/tmp/f", client.ReadOptions{}); got != "0123456789abc" {
		g.Errorf("appended: read %q", got)
	}
	g.write("/tmp/f", "short", client.WriteOptions{})
	g.write("/tmp/new/dir/f", "", client.WriteOptions{Parents: true, Mode: 0o600})
	if got := g.read("/tmp/f", client.ReadOptions{}) + g.read("/tmp/new/dir/f", client.ReadOptions{}); got != "short" {
		g.Errorf("written over: read %q", got)
	}
	for name, is := range map[string]func(error) bool{
		"/tmp/none": errdefs.IsNotFound, "/tmp/none/f": errdefs.IsNotFound, "/tmp": errdefs.IsInvalidArgument, "/tmp/f/x": errdefs.IsInvalidArgument, "": errdefs.IsInvalidArgument,
		"/tmp/a\x00b": errdefs.IsInvalidArgument, "/tmp/" + strings.Repeat("n", 300): errdefs.IsInvalidArgument,
	} {
		_, err := g.tryRead(name, client.ReadOptions{})
		g.want(fmt.Sprintf("read %.20q", name), err, is)
	}
	g.want("write without a directory", g.s.WriteFile(g.ctx, "/tmp/none/f", strings.NewReader("x"), client.WriteOptions{}), errdefs.IsNotFound)
	g.want("write a directory", g.s.WriteFile(g.ctx, "/tmp/new", strings.NewReader("x"), client.WriteOptions{}), errdefs.IsInvalidArgument)
}

// brokenReader gives some bytes and then an error.
type brokenReader struct{ n int }

var errBroken = errors.New("the source broke")

func (r *brokenReader) Read(p []byte) (int, error) {
	if r.n <= 0 {
		return 0, errBroken
	}
	n := min(len(p), r.n)
	r.n -= n
	return n, nil
}

func testBigFile(g *guest) {
	body := strings.Repeat("0123456789abcdef", 1<<19) // 8 MiB
	g.write("/tmp/big", body, client.WriteOptions{})
	if got := g.read("/tmp/big", client.ReadOptions{}); got != body {
		g.Errorf("%d bytes came back as %d", len(body), len(got))
	}
	// An atomic write that breaks off changes nothing and leaves nothing.
	err := g.s.WriteFile(g.ctx, "/tmp/big", &brokenReader{n: 1 << 20}, client.WriteOptions{Atomic: true})
	if err == nil {
		g.Error("a write from a source that broke succeeded")
	}
	if got := g.read("/tmp/big", client.ReadOptions{}); got != body {
		g.Errorf("the file has %d bytes now", len(got))
	}
	g.write("/tmp/big", "small", client.WriteOptions{Atomic: true})
	g.eventually("only the file is there", func() bool {
		names := g.names("/tmp", client.ListOptions{})
		return !slices.ContainsFunc(names, func(n string) bool { return n != "big" && strings.Contains(n, "big") })
	})
	if got := g.read("/tmp/big", client.ReadOptions{}); got != "small" {
		g.Errorf("read %q", got)
	}
	// A reader that leaves early costs only its stream.
	g.write("/tmp/big", body, client.WriteOptions{})
	for range 20 {
		r, err := g.s.ReadFile(g.ctx, "/tmp/big", client.ReadOptions{})
		g.ok(err)
		_, err = io.ReadFull(r, make([]byte, 100))
		g.ok(err)
		r.Close()
	}
	if _, err := g.s.Ping(g.ctx); err != nil {
		g.Error(err)
	}
	g.ok(g.s.Remove(g.ctx, "/tmp/big", client.RemoveOptions{}))
}

func testStat(g *guest) {
	start := time.Now()
	g.write("/tmp/st", "12345", client.WriteOptions{Mode: 0o640})
	i, err := g.s.Stat(g.ctx, "/tmp/st", client.StatOptions{})
	g.ok(err)
	if i.Path != "/tmp/st" || i.Name != "st" || i.Size != 5 || i.Mode != 0o640 || i.UID != 1000 || i.User != "user" || i.Nlink != 1 || i.Ino == 0 {
		g.Errorf("got %+v", i)
	}
	if d := i.Mtime.Sub(start); d < -time.Minute || d > time.Minute {
		g.Errorf("it was written at %v", i.Mtime)
	}
	d, err := g.s.Stat(g.ctx, "/tmp", client.StatOptions{})
	g.ok(err)
	if d.Mode != fs.ModeDir|fs.ModeSticky|0o777 || d.UID != 0 {
		g.Errorf("/tmp is %+v", d)
	}
	_, err = g.s.Stat(g.ctx, "/tmp/none", client.StatOptions{})
	if !errdefs.IsNotFound(err) || !errors.Is(err, fs.ErrNotExist) {
		g.Errorf("stat of nothing: %v", err)
	}
}

func testTree(g *guest) {
	dir := func(name string, o client.MkdirOptions) error { return g.s.Mkdir(g.ctx, name, o) }
	g.ok(dir("/tmp/t", client.MkdirOptions{Mode: 0o700}))
	g.want("make it again", dir("/tmp/t", client.MkdirOptions{}), errdefs.IsAlreadyExists)
	g.want("make it without its parent", dir("/tmp/t/a/b", client.MkdirOptions{}), errdefs.IsNotFound)
	g.ok(dir("/tmp/t/a/b", client.MkdirOptions{Parents: true}))
	g.ok(dir("/tmp/t/a/b", client.MkdirOptions{Parents: true}))
	g.write("/tmp/t/a/b/f", "f", client.WriteOptions{})
	g.write("/tmp/t/g", "g", client.WriteOptions{})

	move := func(from, to string, over bool) error {
		return g.s.Move(g.ctx, from, to, client.MoveOptions{Overwrite: over})
	}
	g.ok(move("/tmp/t/a", "/tmp/t/c", false))
	g.want("move over a file", move("/tmp/t/g", "/tmp/t/c/b/f", false), errdefs.IsAlreadyExists)
	g.ok(move("/tmp/t/g", "/tmp/t/c/b/f", true))
	g.want("move what is not there", move("/tmp/t/g", "/tmp/t/h", false), errdefs.IsNotFound)
	if err := move("/tmp/t/c", "/tmp/t/c/b/x", false); err == nil {
		g.Error("a directory was moved into itself")
	}
	if got := g.read("/tmp/t/c/b/f", client.ReadOptions{}); got != "g" {
		g.Errorf("read %q", got)
	}
	remove := func(name string, all bool) error {
		return g.s.Remove(g.ctx, name, client.RemoveOptions{Recursive: all})
	}
	g.want("remove a directory that has files", remove("/tmp/t", false), errdefs.IsFailedPrecondition)
	g.ok(remove("/tmp/t", true))
	g.want("remove nothing", remove("/tmp/t", false), errdefs.IsNotFound)
	if got := g.sh("ls -d /tmp/t 2>/dev/null || echo gone"); got != "gone\n" {
		g.Errorf("got %q", got)
	}
}

func (g *guest) names(dir string, o client.ListOptions) []string {
	g.Helper()
	var names []string
	for {
		entries, next, err := g.s.List(g.ctx, dir, o)
		g.ok(err)
		for _, i := range entries {
			names = append(names, i.Name)
		}
		if next == "" {
			return names
		}
		if o.Cursor = next; len(names) > 100_000 {
			g.Fatal("the list has no end")
		}
	}
}

func testList(g *guest) {
	g.sh("mkdir -p /tmp/l/dir; i=100; while [ $i -lt 125 ]; do echo $i > /tmp/l/f$i; i=$((i+1)); done; touch /tmp/l/.hidden")
	all := g.names("/tmp/l", client.ListOptions{})
	if len(all) != 27 || !slices.IsSorted(all) || all[0] != ".hidden" {
		g.Errorf("got %q", all)
	}
	if got := g.names("/tmp/l", client.ListOptions{Limit: 10}); !slices.Equal(got, all) {
		g.Errorf("in pages: got %q", got)
	}
	entries, next, err := g.s.List(g.ctx, "/tmp/l", client.ListOptions{Limit: 2})
	g.ok(err)
	if len(entries) != 2 || next == "" || !entries[1].Mode.IsDir() || entries[1].Path != "/tmp/l/dir" {
		g.Errorf("got %+v, %q", entries, next)
	}
	_, _, err = g.s.List(g.ctx, "/tmp/l/f100", client.ListOptions{})
	g.want("list a file", err, errdefs.IsInvalidArgument)
	_, _, err = g.s.List(g.ctx, "/tmp/none", client.ListOptions{})
	g.want("list nothing", err, errdefs.IsNotFound)
}

// testRights: files are touched with the rights of a user of the sandbox.
func testRights(g *guest) {
	root := client.WriteOptions{User: "root", Mode: 0o600}
	g.write("/tmp/secret", "s", root)
	_, err := g.tryRead("/tmp/secret", client.ReadOptions{})
	g.want("read root's file", err, errdefs.IsPermissionDenied)
	g.want("write it", g.s.WriteFile(g.ctx, "/tmp/secret", strings.NewReader("x"), client.WriteOptions{}), errdefs.IsPermissionDenied)
	g.want("remove it", g.s.Remove(g.ctx, "/tmp/secret", client.RemoveOptions{}), errdefs.IsPermissionDenied)
	g.want("write to /etc", g.s.WriteFile(g.ctx, "/etc/x", strings.NewReader("x"), client.WriteOptions{}), errdefs.IsPermissionDenied)
	g.want("make a directory in /", g.s.Mkdir(g.ctx, "/x", client.MkdirOptions{}), errdefs.IsPermissionDenied)
	_, _, err = g.s.List(g.ctx, "/root", client.ListOptions{})
	g.want("list /root", err, errdefs.IsPermissionDenied)
	if got := g.read("/tmp/secret", client.ReadOptions{User: "root"}); got != "s" {
		g.Errorf("root read %q", got)
	}
	i, err := g.s.Stat(g.ctx, "/tmp/secret", client.StatOptions{})
	if err != nil || i.UID != 0 {
		g.Errorf("got %+v, %v", i, err)
	}
	if _, err := g.tryRead("/tmp/secret", client.ReadOptions{User: "no-such-user"}); err == nil {
		g.Error("a user that does not exist read a file")
	}
	g.ok(g.s.Remove(g.ctx, "/tmp/secret", client.RemoveOptions{User: "root"}))
}

func testLinks(g *guest) {
	g.sh("mkdir -p /tmp/k; cd /tmp/k; echo target > t; ln -s t s; ln -s loop loop; ln -s /nowhere n")
	i, err := g.s.Stat(g.ctx, "/tmp/k/s", client.StatOptions{})
	if err != nil || i.Mode.Type() != fs.ModeSymlink || i.Target != "t" {
		g.Errorf("got %+v, %v", i, err)
	}
	i, err = g.s.Stat(g.ctx, "/tmp/k/s", client.StatOptions{Follow: true})
	if err != nil || !i.Mode.IsRegular() || i.Size != 7 {
		g.Errorf("followed: got %+v, %v", i, err)
	}
	if got := g.read("/tmp/k/s", client.ReadOptions{}); got != "target\n" {
		g.Errorf("read %q", got)
	}
	_, err = g.tryRead("/tmp/k/loop", client.ReadOptions{})
	g.want("read a loop", err, errdefs.IsInvalidArgument)
	_, err = g.tryRead("/tmp/k/n", client.ReadOptions{})
	g.want("read a link to nothing", err, errdefs.IsNotFound)
	g.ok(g.s.Remove(g.ctx, "/tmp/k/s", client.RemoveOptions{}))
	if got := g.read("/tmp/k/t", client.ReadOptions{}); got != "target\n" {
		g.Errorf("the target of a removed link reads %q", got)
	}
	g.sh("ln -s /tmp/l /tmp/k/dir; mkdir -p /tmp/l; echo kept > /tmp/l/kept")
	g.ok(g.s.Remove(g.ctx, "/tmp/k", client.RemoveOptions{Recursive: true}))
	if got := g.read("/tmp/l/kept", client.ReadOptions{}); got != "kept\n" {
		g.Errorf("what a removed link led to reads %q", got)
	}
}

func testNotUTF8Names(g *guest) {
	name := "/tmp/n/" + notUTF8
	g.write(name, "x", client.WriteOptions{Parents: true})
	if got := g.names("/tmp/n", client.ListOptions{}); len(got) != 1 || got[0] != notUTF8 {
		g.Errorf("got %q", got)
	}
	i, err := g.s.Stat(g.ctx, name, client.StatOptions{})
	if err != nil || i.Name != notUTF8 {
		g.Errorf("got %+v, %v", i, err)
	}
	if got := g.sh("cat /tmp/n/$(ls /tmp/n | head -n 1 | tr ' ' '?') 2>/dev/null || echo '(a shell splits it)'"); got == "" {
		g.Errorf("got %q", got)
	}
	g.ok(g.s.Move(g.ctx, name, name+"\xff", client.MoveOptions{}))
	if got := g.read(name+"\xff", client.ReadOptions{}); got != "x" {
		g.Errorf("read %q", got)
	}
}

// testFull fills the disk: the writer is told, and all is well when the file is
// gone.
func testFull(g *guest) {
	err := g.s.WriteFile(g.ctx, "/tmp/huge", &brokenReader{n: 256 << 20}, client.WriteOptions{})
	g.want("write 256 MiB to a disk of 64", err, errdefs.IsResourceExhausted)
	if !errors.Is(err, syscall.ENOSPC) {
		g.Errorf("a full disk is told as %v", err)
	}
	g.ok(g.s.Remove(g.ctx, "/tmp/huge", client.RemoveOptions{}))
	g.write("/tmp/small", "ok", client.WriteOptions{})
	if got := g.read("/tmp/small", client.ReadOptions{}); got != "ok" {
		g.Errorf("read %q", got)
	}
}
