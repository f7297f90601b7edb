package runtimetest

import (
	"io"
	"path"
	"strings"

	"github.com/containerd/errdefs"

	"agentbox/internal/guest/client"
)

// testDeepTree: a tree that is deeper than one path of the kernel can name.
func testDeepTree(g *guest) {
	deep := "/tmp/deep/" + strings.Repeat(strings.Repeat("n", 50)+"/", 100)
	g.ok(g.s.Mkdir(g.ctx, deep, client.MkdirOptions{Parents: true}))
	g.write(deep+"f", "bottom", client.WriteOptions{Atomic: true})
	if got := g.read(deep+"f", client.ReadOptions{}); got != "bottom" {
		g.Errorf("read %q", got)
	}
	g.ok(g.s.Move(g.ctx, deep+"f", deep+"g", client.MoveOptions{}))
	entries, _, err := g.s.List(g.ctx, deep, client.ListOptions{})
	if err != nil || len(entries) != 1 || entries[0].Name != "g" || entries[0].UID != 1000 {
		g.Errorf("got %+v, %v", entries, err)
	}
	_, err = g.tryRead("/"+strings.Repeat("x/", 20_000), client.ReadOptions{})
	g.want("a path of 40,000 bytes", err, errdefs.IsInvalidArgument)
	g.ok(g.s.Remove(g.ctx, "/tmp/deep", client.RemoveOptions{Recursive: true}))
}

// testProcFiles: files whose size is said to be 0 are read to their end.
func testProcFiles(g *guest) {
	whole := g.read("/proc/cpuinfo", client.ReadOptions{})
	if !strings.Contains(whole, "processor") {
		g.Fatalf("read %q", whole)
	}
	status := g.read("/proc/version", client.ReadOptions{})
	if got := g.read("/proc/version", client.ReadOptions{Suffix: 5}); got == "" || !strings.HasSuffix(status, got) {
		g.Errorf("the end of %q is %q", status, got)
	}
	g.copy("/proc/version", "/tmp/version", client.CopyOptions{})
	if got := g.read("/tmp/version", client.ReadOptions{}); got != status {
		g.Errorf("the copy is %q, not %q", got, status)
	}
	for _, name := range []string{"/dev/zero", "/dev/null", "/dev/tty", "/dev/random", "/proc/1/mem", "/proc/self/mem", "/proc/1/environ"} {
		if got, err := g.tryRead(name, client.ReadOptions{Length: 10}); err == nil {
			g.Errorf("%s gave %q", name, got)
		}
	}
}

// testSparseFiles: a file may be larger than 4 GiB and than the disk.
func testSparseFiles(g *guest) {
	g.sh("cd /tmp; printf begin > sparse; printf end | dd of=sparse bs=1 seek=5G conv=notrunc 2>/dev/null")
	const size = 5<<30 + 3
	if i := g.stat("/tmp/sparse"); i.Size != size {
		g.Errorf("the size is %d", i.Size)
	}
	if got := g.read("/tmp/sparse", client.ReadOptions{Suffix: 5}); got != "\x00\x00end" {
		g.Errorf("the end is %q", got)
	}
	if got := g.read("/tmp/sparse", client.ReadOptions{Offset: 5<<30 - 1, Length: 3}); got != "\x00en" {
		g.Errorf("behind 5 GiB is %q", got)
	}
	// It is read to its end, without taking memory for it.
	g.sh("cd /tmp; rm sparse; printf begin > sparse; printf end | dd of=sparse bs=1 seek=200M conv=notrunc 2>/dev/null")
	r, err := g.s.ReadFile(g.ctx, "/tmp/sparse", client.ReadOptions{})
	g.ok(err)
	defer r.Close()
	if n, err := io.Copy(io.Discard, r); n != 200<<20+3 || err != nil {
		g.Errorf("%d bytes were read, %v", n, err)
	}
	// A copy of it fits on a disk of 64 MiB.
	g.copy("/tmp/sparse", "/tmp/copy", client.CopyOptions{})
	if got := g.read("/tmp/copy", client.ReadOptions{Offset: 200<<20 - 1}) + path.Base(g.stat("/tmp/copy").Path); got != "\x00endcopy" {
		g.Errorf("the copy ends in %q", got)
	}
}
