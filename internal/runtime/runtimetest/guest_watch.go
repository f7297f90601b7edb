package runtimetest

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"

	"agentbox/internal/guest/client"
)

var watchCases = []guestCase{
	{"Directory", testWatchDirectory},
	{"Recursive", testWatchRecursive},
	{"Info", testWatchInfo},
	{"Ends", testWatchEnds},
	{"Refused", testWatchRefused},
	{"Overflow", testWatchOverflow},
}

// seen collects what a watch tells.
type seen struct {
	w   *client.Watch
	mu  sync.Mutex
	all []client.WatchEvent
	err error
}

func (g *guest) watch(dir string, o client.WatchOptions) *seen {
	g.Helper()
	w, err := g.s.Watch(g.ctx, dir, o)
	g.ok(err)
	return g.collect(w)
}

// collect reads a watch until the end of the test.
func (g *guest) collect(w *client.Watch) *seen {
	s := &seen{w: w}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			events, err := w.Next()
			s.mu.Lock()
			s.all, s.err = append(s.all, events...), err
			s.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	g.Cleanup(func() {
		_ = w.Close() // ends Next
		<-done
	})
	return s
}

func (s *seen) has(kind client.WatchKind, name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.all {
		if e.Kind == kind && e.Name == name {
			return true
		}
	}
	return false
}

func (s *seen) ended() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

func (g *guest) sees(s *seen, kind client.WatchKind, name string) {
	g.Helper()
	g.eventually(fmt.Sprintf("%s of %q", kind, name), func() bool { return s.has(kind, name) })
}

func testWatchDirectory(g *guest) {
	g.sh("mkdir -p /tmp/wd/sub; printf x > /tmp/wd/old")
	s := g.watch("/tmp/wd", client.WatchOptions{})
	g.sh("cd /tmp/wd; printf x > new; printf y > sub/below")
	g.sees(s, client.WatchCreate, "new")
	g.sees(s, client.WatchWrite, "new")
	g.sh("chmod 600 /tmp/wd/old")
	g.sees(s, client.WatchChmod, "old")
	g.sh("mv /tmp/wd/old /tmp/wd/moved")
	g.sees(s, client.WatchRename, "old")
	g.sees(s, client.WatchCreate, "moved")
	g.sh("rm /tmp/wd/moved")
	g.sees(s, client.WatchRemove, "moved")
	// Changes by this API are seen like others; the temporary file is not.
	g.write("/tmp/wd/"+notUTF8, "x", client.WriteOptions{Atomic: true})
	g.sees(s, client.WatchCreate, notUTF8)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.all {
		if strings.Contains(e.Name, "/") || strings.Contains(e.Name, "agentbox") || e.Path != "/tmp/wd/"+e.Name {
			g.Errorf("got %+v", e)
		}
	}
}

func testWatchRecursive(g *guest) {
	g.sh("mkdir -p /tmp/wr/a/b")
	s := g.watch("/tmp/wr", client.WatchOptions{Recursive: true})
	g.sh("printf x > /tmp/wr/a/b/f")
	g.sees(s, client.WatchWrite, "a/b/f")
	// A new directory is followed, whatever is made in it how soon.
	g.sh("mkdir -p /tmp/wr/n/m/o; printf x > /tmp/wr/n/m/o/f")
	g.sees(s, client.WatchCreate, "n/m/o/f")
	g.sh("printf x > /tmp/wr/n/m/g")
	g.sees(s, client.WatchWrite, "n/m/g")
	// One that moves is followed by its new name.
	g.sh("mv /tmp/wr/n /tmp/wr/a/n2; printf x > /tmp/wr/a/n2/m/h")
	g.sees(s, client.WatchRename, "n")
	g.sees(s, client.WatchCreate, "a/n2")
	g.sees(s, client.WatchCreate, "a/n2/m/h")
	g.sh("rm -r /tmp/wr/a/n2")
	g.sees(s, client.WatchRemove, "a/n2")
	g.sh("mkdir /tmp/wr/a/n2; printf x > /tmp/wr/a/n2/again")
	g.sees(s, client.WatchCreate, "a/n2/again")
	if s.has(client.WatchOverflow, "") {
		g.Error("some events of a few were lost")
	}
}

func testWatchInfo(g *guest) {
	g.sh("mkdir -p /tmp/wi")
	s := g.watch("/tmp/wi", client.WatchOptions{Info: true})
	g.sh("printf 12345 > /tmp/wi/f")
	g.eventually("the size of f", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, e := range s.all {
			if e.Name == "f" && e.Info != nil && e.Info.Size == 5 && e.Info.User == "user" && e.Info.Name == "f" && e.Info.Path == "/tmp/wi/f" {
				return true
			}
		}
		return false
	})
}

func testWatchEnds(g *guest) {
	g.sh("mkdir -p /tmp/we/d /tmp/we/e /tmp/we/f")
	gone := g.watch("/tmp/we/d", client.WatchOptions{Recursive: true})
	g.sh("rm -r /tmp/we/d")
	g.eventually("the end of a watch", func() bool { return gone.ended() != nil })
	if !errors.Is(gone.ended(), io.EOF) || !gone.has(client.WatchRemove, "") {
		g.Errorf("ended with %v after %+v", gone.ended(), gone.all)
	}
	closed := g.watch("/tmp/we/e", client.WatchOptions{})
	g.ok(closed.w.Close())
	g.eventually("the end of a watch that was closed", func() bool { return closed.ended() != nil })
	ctx, cancel := context.WithCancel(g.ctx)
	w, err := g.s.Watch(ctx, "/tmp/we/f", client.WatchOptions{})
	g.ok(err)
	defer func() { _ = w.Close() }()
	cancel()
	if _, err := w.Next(); !errors.Is(err, context.Canceled) {
		g.Errorf("canceled: got %v", err)
	}
	// Watches give their place back.
	for range 100 {
		w, err := g.s.Watch(g.ctx, "/tmp/we/f", client.WatchOptions{})
		if errdefs.IsResourceExhausted(err) {
			time.Sleep(10 * time.Millisecond) // the guest has yet to see that the one before is closed
			continue
		}
		g.ok(err)
		g.ok(w.Close())
	}
}

func testWatchRefused(g *guest) {
	g.sh("printf x > /tmp/file; ln -sfn /tmp /tmp/way")
	for name, is := range map[string]func(error) bool{
		"/tmp/none": errdefs.IsNotFound, "/tmp/file": errdefs.IsInvalidArgument, "": errdefs.IsInvalidArgument, "/root": errdefs.IsPermissionDenied,
	} {
		_, err := g.s.Watch(g.ctx, name, client.WatchOptions{Recursive: true})
		g.want("watch "+name, err, is)
	}
	w, err := g.s.Watch(g.ctx, "/tmp/way", client.WatchOptions{})
	g.ok(err)
	g.ok(w.Close())
}

// testWatchOverflow: a client that does not read holds nobody up. It is told that
// it missed something behind what was kept for it, and sees what comes later.
func testWatchOverflow(g *guest) {
	// At least two events each of more than 200 bytes: more than the buffers of a stream
	// (1 MiB) and two queues of the agent (one that is sent, one that waits) hold.
	const files = 15_000
	var headers []tar.Header
	for i := range files {
		headers = append(headers, tar.Header{Name: fmt.Sprintf("%s%d", strings.Repeat("n", 200), i), Typeflag: tar.TypeReg})
	}
	g.sh("mkdir -p /tmp/wo")
	var slow []*client.Watch
	for _, o := range []client.WatchOptions{{}, {Recursive: true, Info: true}} {
		w, err := g.s.Watch(g.ctx, "/tmp/wo", o)
		g.ok(err)
		slow = append(slow, w)
	}
	g.ok(g.s.PutArchive(g.ctx, "/tmp/wo", bytes.NewReader(archive(headers...)), client.UnpackOptions{}))
	g.write("/tmp/wo/f", "x", client.WriteOptions{})
	if got := g.sh("cat /tmp/wo/f"); got != "x" {
		g.Errorf("read %q", got)
	}
	g.ok(slow[0].Close()) // what it never read holds up nobody, either
	n := 0
	for lost := false; !lost; {
		events, err := slow[1].Next()
		g.ok(err)
		n += len(events)
		for _, e := range events {
			lost = lost || e.Kind == client.WatchOverflow && e.Name == ""
		}
	}
	if n < 8<<10 || n >= 3*files {
		g.Errorf("%d events came before the overflow", n)
	}
	s := g.collect(slow[1])
	g.eventually("a change after the overflow", func() bool {
		g.write("/tmp/wo/after", "x", client.WriteOptions{})
		return s.has(client.WatchCreate, "after") || s.has(client.WatchWrite, "after")
	})
	// All places are free but that of the one watch.
	for range 63 {
		g.eventually("a place for a watch", func() bool {
			w, err := g.s.Watch(g.ctx, "/tmp/wo", client.WatchOptions{})
			if err == nil {
				g.Cleanup(func() { _ = w.Close() })
			} else if !errdefs.IsResourceExhausted(err) {
				g.ok(err)
			}
			return err == nil
		})
	}
}
