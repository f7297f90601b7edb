package runtimetest

import (
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/containerd/errdefs"

	"agentbox/internal/guest/client"
)

var treeCases = []guestCase{
	{"CopyFile", testCopyFile},
	{"CopyTree", testCopyTree},
	{"Attributes", testAttributes},
	{"SymlinkReadlink", testSymlinkReadlink},
	{"ListDepth", testListDepth},
	{"SpecialFiles", testSpecialFiles},
	{"Ranges", testRanges},
	{"WriteOwner", testWriteOwner},
}

func (g *guest) stat(name string) client.FileInfo {
	g.Helper()
	i, err := g.s.Stat(g.ctx, name, client.StatOptions{})
	g.ok(err)
	return i
}

func (g *guest) copy(from, to string, o client.CopyOptions) (int, client.Skipped) {
	g.Helper()
	n, left, err := g.s.Copy(g.ctx, from, to, o)
	g.ok(err)
	return n, left
}

func testCopyFile(g *guest) {
	g.sh("mkdir -p /tmp/c; cd /tmp/c; printf old > f; chmod 640 f; ln -s f l")
	g.copy("/tmp/c/f", "/tmp/c/copy", client.CopyOptions{})
	old, made := g.stat("/tmp/c/f"), g.stat("/tmp/c/copy")
	if made.Mode != 0o640 || !made.Mtime.Equal(old.Mtime) || made.Ino == old.Ino || g.read("/tmp/c/copy", client.ReadOptions{}) != "old" {
		g.Errorf("%+v was copied as %+v", old, made)
	}
	g.copy("/tmp/c/l", "/tmp/c/l2", client.CopyOptions{})
	if i := g.stat("/tmp/c/l2"); i.Target != "f" {
		g.Errorf("a link was copied as %+v", i)
	}
	try := func(from, to string, o client.CopyOptions) error {
		_, _, err := g.s.Copy(g.ctx, from, to, o)
		return err
	}
	g.want("copy onto a file", try("/tmp/c/f", "/tmp/c/copy", client.CopyOptions{}), errdefs.IsAlreadyExists)
	g.write("/tmp/c/f", "new", client.WriteOptions{})
	g.copy("/tmp/c/f", "/tmp/c/copy", client.CopyOptions{Overwrite: true})
	g.copy("/tmp/c/f", "/tmp/c/f", client.CopyOptions{Overwrite: true})
	if got := g.read("/tmp/c/copy", client.ReadOptions{}) + g.read("/tmp/c/f", client.ReadOptions{}); got != "newnew" {
		g.Errorf("written over: %q", got)
	}
	g.want("copy nothing", try("/tmp/c/none", "/tmp/c/x", client.CopyOptions{}), errdefs.IsNotFound)
	g.want("copy a directory", try("/tmp/c", "/tmp/c2", client.CopyOptions{}), errdefs.IsInvalidArgument)
	g.want("copy into itself", try("/tmp/c", "/tmp/c/in", client.CopyOptions{Recursive: true}), errdefs.IsInvalidArgument)
	g.sh("ln -s /tmp/c /tmp/way")
	g.want("copy into itself by a link", try("/tmp/c", "/tmp/way/in", client.CopyOptions{Recursive: true}), errdefs.IsInvalidArgument)
	g.want("copy to where nothing may be", try("/tmp/c/f", "/etc/x", client.CopyOptions{}), errdefs.IsPermissionDenied)
}

func testCopyTree(g *guest) {
	g.sh("mkdir -p /tmp/t/d/e /tmp/t/locked; cd /tmp/t; printf a > d/a; printf x > d/x; chmod 755 d/x; ln d/a d/hard; ln -s ../nowhere d/l; mkfifo d/p; chmod 500 d/e; " +
		"printf s > secret; ln secret secret2; chmod 0 secret; chmod 0 locked") // what can't be copied has two names
	n, left := g.copy("/tmp/t", "/tmp/u", client.CopyOptions{Recursive: true})
	names := func(root string) (list []string) {
		entries, _, err := g.s.List(g.ctx, root, client.ListOptions{Depth: 10})
		g.ok(err)
		for _, i := range entries {
			list = append(list, fmt.Sprintf("%s %v %s", strings.TrimPrefix(i.Path, root), i.Mode, i.Target))
		}
		return list
	}
	want := slices.DeleteFunc(names("/tmp/t"), func(s string) bool { return strings.HasPrefix(s, "/d/p ") || strings.HasPrefix(s, "/secret") })
	if got := names("/tmp/u"); !slices.Equal(got, want) {
		g.Errorf("%d entries: got %q, want %q", n, got, want)
	}
	if left.Total != 4 || len(left.First) != 4 || left.First[0] != (client.SkippedFile{Path: "d/p", Reason: client.SkipFIFO}) ||
		slices.ContainsFunc(left.First[1:], func(f client.SkippedFile) bool { return f.Reason != client.SkipDenied }) {
		g.Errorf("left out: %+v", left)
	}
	if a, h := g.stat("/tmp/u/d/a"), g.stat("/tmp/u/d/hard"); a.Ino != h.Ino || a.Nlink != 2 || a.Ino == g.stat("/tmp/t/d/a").Ino {
		g.Errorf("hard links became %+v and %+v", a, h)
	}
	_, _, err := g.s.Copy(g.ctx, "/tmp/t", "/tmp/u", client.CopyOptions{Recursive: true})
	g.want("copy onto a tree", err, errdefs.IsAlreadyExists)
	g.write("/tmp/t/d/x", "changed", client.WriteOptions{})
	g.copy("/tmp/t", "/tmp/u", client.CopyOptions{Recursive: true, Overwrite: true})
	if got := g.read("/tmp/u/d/x", client.ReadOptions{}); got != "changed" {
		g.Errorf("written over: %q", got)
	}
}

func testAttributes(g *guest) {
	g.sh("mkdir -p /tmp/a/d; cd /tmp/a; printf x > d/f; ln -s d/f l")
	change := func(o client.ChangeOptions) {
		if n, err := g.s.Chmod(g.ctx, "/tmp/a", 0o750|fs.ModeSetgid, o); err != nil || n != map[bool]int{false: 1, true: 3}[o.Recursive] {
			g.Errorf("%d files changed, %v", n, err)
		}
	}
	change(client.ChangeOptions{})
	if a, f := g.stat("/tmp/a"), g.stat("/tmp/a/d/f"); a.Mode != fs.ModeDir|fs.ModeSetgid|0o750 || f.Mode != 0o644 {
		g.Errorf("got %v and %v", a.Mode, f.Mode)
	}
	change(client.ChangeOptions{Recursive: true})
	if f := g.stat("/tmp/a/d/f"); f.Mode != fs.ModeSetgid|0o750 {
		g.Errorf("got %v", f.Mode)
	}
	_, err := g.s.Chown(g.ctx, "/tmp/a", "root", client.ChangeOptions{Recursive: true})
	g.want("give files away", err, errdefs.IsPermissionDenied)
	n, err := g.s.Chown(g.ctx, "/tmp/a", "root", client.ChangeOptions{User: "root", Recursive: true})
	if a, l := g.stat("/tmp/a"), g.stat("/tmp/a/l"); err != nil || n != 4 || a.User != "root" || a.GID == 0 || l.UID != 0 {
		g.Errorf("%d files changed, %v: %+v, %+v", n, err, a, l)
	}
	_, err = g.s.Chmod(g.ctx, "/tmp/a", 0o777, client.ChangeOptions{})
	g.want("change root's directory", err, errdefs.IsPermissionDenied)
	_, err = g.s.Chown(g.ctx, "/tmp/a", "1000:1000", client.ChangeOptions{User: "root", Recursive: true})
	g.ok(err)
	if f := g.stat("/tmp/a/d/f"); f.UID != 1000 || f.GID != 1000 || f.User != "user" {
		g.Errorf("got %+v", f)
	}
	for _, bad := range []string{"", ":", "no-such-user", ":no-such-group"} {
		_, err = g.s.Chown(g.ctx, "/tmp/a", bad, client.ChangeOptions{User: "root"})
		g.want("owner "+bad, err, func(err error) bool { return errdefs.IsInvalidArgument(err) || errdefs.IsNotFound(err) })
	}
}

func testSymlinkReadlink(g *guest) {
	const target = "../some where/" + notUTF8
	g.ok(g.s.Symlink(g.ctx, target, "/tmp/sl", client.SymlinkOptions{}))
	if got, err := g.s.Readlink(g.ctx, "/tmp/sl", ""); err != nil || got != target {
		g.Errorf("got %q, %v", got, err)
	}
	g.want("link twice", g.s.Symlink(g.ctx, "x", "/tmp/sl", client.SymlinkOptions{}), errdefs.IsAlreadyExists)
	g.ok(g.s.Symlink(g.ctx, "x", "/tmp/sl", client.SymlinkOptions{Overwrite: true}))
	if got, err := g.s.Readlink(g.ctx, "/tmp/sl", ""); err != nil || got != "x" {
		g.Errorf("got %q, %v", got, err)
	}
	_, err := g.s.Readlink(g.ctx, "/tmp", "")
	g.want("read what is no link", err, errdefs.IsInvalidArgument)
	g.want("link in /etc", g.s.Symlink(g.ctx, "x", "/etc/x", client.SymlinkOptions{}), errdefs.IsPermissionDenied)
	g.want("link to nothing", g.s.Symlink(g.ctx, "", "/tmp/e", client.SymlinkOptions{}), errdefs.IsInvalidArgument)
}

func testListDepth(g *guest) {
	g.sh("mkdir -p /tmp/ld/b/c/d /tmp/ld/b.x /tmp/ld/shut; cd /tmp/ld; touch a b/1 b/c/2 b/c/d/3 b.x/4 shut/5 z; mkfifo b/p; ln -s b l; chmod 0 shut")
	list := func(o client.ListOptions) (paths []string) {
		for {
			entries, next, err := g.s.List(g.ctx, "/tmp/ld/", o)
			g.ok(err)
			for _, i := range entries {
				paths = append(paths, strings.TrimPrefix(i.Path, "/tmp/ld/"))
			}
			if o.Cursor = next; next == "" {
				return paths
			}
		}
	}
	all := []string{"a", "b", "b/1", "b/c", "b/c/2", "b/c/d", "b/c/d/3", "b/p", "b.x", "b.x/4", "l", "shut", "z"}
	for depth, want := range map[int][]string{
		1: {"a", "b", "b.x", "l", "shut", "z"}, 2: {"a", "b", "b/1", "b/c", "b/p", "b.x", "b.x/4", "l", "shut", "z"}, 4: all, 64: all,
	} {
		for _, limit := range []int{1, 2, 3, 5, 0} {
			if got := list(client.ListOptions{Depth: depth, Limit: limit}); !slices.Equal(got, want) {
				g.Errorf("depth %d by %d: got %q, want %q", depth, limit, got, want)
			}
		}
	}
	// What a cursor names may be gone.
	entries, next, err := g.s.List(g.ctx, "/tmp/ld", client.ListOptions{Depth: 9, Limit: 5})
	if err != nil || len(entries) != 5 || next != "b/c/2" {
		g.Fatalf("got %d entries, %q, %v", len(entries), next, err)
	}
	g.sh("rm -r /tmp/ld/b/c")
	if got := list(client.ListOptions{Depth: 9, Cursor: next}); !slices.Equal(got, []string{"b/p", "b.x", "b.x/4", "l", "shut", "z"}) {
		g.Errorf("after the change: got %q", got)
	}
	for _, cursor := range []string{"../x", "/etc", "a/../../x", "a\x00"} {
		_, _, err = g.s.List(g.ctx, "/tmp/ld", client.ListOptions{Depth: 9, Cursor: cursor})
		g.want("a cursor that leads outside", err, errdefs.IsInvalidArgument)
	}
	_, _, err = g.s.List(g.ctx, "/tmp/ld", client.ListOptions{Depth: 1000})
	g.want("a depth of 1000", err, errdefs.IsInvalidArgument)
}

// testSpecialFiles: B112. A FIFO that nobody writes to blocks no call.
func testSpecialFiles(g *guest) {
	g.sh("mkdir -p /tmp/sp; mkfifo /tmp/sp/p")
	entries, _, err := g.s.List(g.ctx, "/tmp/sp", client.ListOptions{})
	if err != nil || len(entries) != 1 || entries[0].Mode.Type() != fs.ModeNamedPipe {
		g.Errorf("got %+v, %v", entries, err)
	}
	_, err = g.tryRead("/tmp/sp/p", client.ReadOptions{})
	g.want("read a FIFO", err, errdefs.IsInvalidArgument)
	for _, o := range []client.WriteOptions{{}, {Append: true}, {Atomic: true}} {
		g.want("write a FIFO", g.s.WriteFile(g.ctx, "/tmp/sp/p", strings.NewReader("x"), o), errdefs.IsInvalidArgument)
	}
	_, _, err = g.s.Copy(g.ctx, "/tmp/sp/p", "/tmp/sp/q", client.CopyOptions{})
	g.want("copy a FIFO", err, errdefs.IsInvalidArgument)
	g.ok(g.s.Move(g.ctx, "/tmp/sp/p", "/tmp/sp/q", client.MoveOptions{}))
	if _, err := g.s.Chmod(g.ctx, "/tmp/sp/q", 0o600, client.ChangeOptions{}); err != nil {
		g.Error(err)
	}
	g.ok(g.s.Remove(g.ctx, "/tmp/sp/q", client.RemoveOptions{}))
}

func testRanges(g *guest) {
	g.write("/tmp/r", "0123456789", client.WriteOptions{})
	for n, want := range map[int64]string{1: "9", 4: "6789", 10: "0123456789", 50: "0123456789"} {
		if got := g.read("/tmp/r", client.ReadOptions{Suffix: n}); got != want {
			g.Errorf("the last %d bytes are %q", n, got)
		}
	}
	g.write("/tmp/r0", "", client.WriteOptions{})
	if got := g.read("/tmp/r0", client.ReadOptions{Suffix: 5}) + g.read("/tmp/r", client.ReadOptions{Offset: 50}); got != "" {
		g.Errorf("got %q of nothing", got)
	}
	_, err := g.tryRead("/tmp/r", client.ReadOptions{Suffix: 5, Offset: 1})
	g.want("a suffix with an offset", err, errdefs.IsInvalidArgument)
	c, err := g.s.ReadFile(g.ctx, "/tmp/r", client.ReadOptions{})
	g.ok(err)
	defer c.Close()
	if c.Info.Size != 10 || c.Info.Name != "r" || c.Info.User != "user" || !c.Info.Mode.IsRegular() {
		g.Errorf("got %+v", c.Info)
	}
}

// testWriteOwner: B097, B116.
func testWriteOwner(g *guest) {
	g.write("/tmp/o/a/b", "x", client.WriteOptions{Parents: true})
	if got := g.sh("rm -r /tmp/o && echo ok"); got != "ok\n" {
		g.Errorf("got %q", got)
	}
	for _, atomic := range []bool{false, true} {
		g.write("/tmp/o/a/b", "", client.WriteOptions{Parents: true, User: "root", Owner: "1000:1000", Mode: 0o600, Atomic: atomic})
		if i := g.stat("/tmp/o/a/b"); i.UID != 1000 || i.GID != 1000 || i.Size != 0 || i.Mode != 0o600 {
			g.Errorf("got %+v", i)
		}
		g.write("/tmp/o/a/b", "root", client.WriteOptions{User: "root", Atomic: atomic})
		if i := g.stat("/tmp/o/a/b"); i.UID != 1000 || i.Size != 4 || i.Mode != 0o600 {
			g.Errorf("written over by root: got %+v", i)
		}
		if got := g.sh("rm -r /tmp/o && echo ok"); got != "ok\n" {
			g.Errorf("got %q", got)
		}
	}
	err := g.s.WriteFile(g.ctx, "/tmp/gift", strings.NewReader("x"), client.WriteOptions{Owner: "root"})
	g.want("write for root", err, errdefs.IsPermissionDenied)
	g.ok(g.s.Mkdir(g.ctx, "/tmp/m/n", client.MkdirOptions{User: "root", Owner: "user", Parents: true}))
	if a, b := g.stat("/tmp/m"), g.stat("/tmp/m/n"); a.UID != 1000 || b.UID != 1000 {
		g.Errorf("got %+v and %+v", a, b)
	}
}
