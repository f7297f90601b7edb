package e2e

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	"agentbox/internal/guest/client"
	"agentbox/internal/sandbox"
)

// swapProgram exchanges a directory for a link to the canary and back, until it
// is told to stop, with pauses of so many seconds. It tells how often it has.
const swapProgram = `
import os, sys, time
pause = float(sys.argv[1])
os.chdir("/workspace/tree")
os.symlink("/canary/sub", "link")
n = 0
while not (n % 64 == 0 and os.path.exists("/workspace/stop")):
    try:
        os.rename("sub", "away"); os.rename("link", "sub"); os.rename("sub", "link"); os.rename("away", "sub")
    except OSError: # a call removed or made something: begin anew
        for undo in (lambda: os.unlink("sub"), lambda: os.unlink("link"), lambda: os.rename("away", "sub"), lambda: os.mkdir("sub"), lambda: os.symlink("/canary/sub", "link")):
            try: undo()
            except OSError: pass
    n += 1
    time.sleep(pause)
    if n % 64 == 0:
        with open("/workspace/count", "w") as f: f.write(str(n))
`

// swapped is a sandbox in which swapProgram runs.
type swapped struct {
	*Box
	t *testing.T
}

func newSwapped(t *testing.T, pause string) swapped {
	box := swapped{NewBox(t, sandbox.Limits{}), t}
	const fill = `mkdir -p $D/sub/deep; for i in 1 2 3 4 5 6 7 8; do echo "$T" >$D/sub/$i; echo "$T" >$D/sub/deep/$i; done`
	box.asRoot("D=/canary; T='the canary sings'; " + fill + "; chmod 600 /canary/sub/[1-8]; mkdir /out")
	box.asRoot("D=/plain; T=plain; " + fill)
	box.Want("", "D=/workspace/tree; T=plain; "+fill)
	if _, err := box.Start(t.Context(), sandbox.Command{Argv: []string{"python3", "-c", swapProgram, pause}, Background: true, Timeout: -1}, client.Output{}); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(30*time.Second + Slack()); box.count() == 0; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("nothing is exchanged")
		}
	}
	return box
}

func (b swapped) asRoot(line string) string {
	b.t.Helper()
	res := b.Exec(sandbox.Command{Shell: line, User: "root"}, nil)
	if res.ExitCode != 0 {
		b.t.Fatalf("%s: %s", line, Describe(res))
	}
	return string(res.Stdout)
}

// count is how often something was exchanged.
func (b swapped) count() (n int) {
	_, _ = fmt.Sscan(string(b.Sh("cat /workspace/count").Stdout), &n)
	return n
}

// canary is all that can be seen of it.
func (b swapped) canary() string {
	return b.asRoot(`find /canary -printf '%p %M %U %G %s %T@ %n\n' | sort; cat /canary/sub/[1-8] /canary/sub/deep/[1-8]`)
}

// TestFS04_Race: a process that exchanges a directory for a link leads no call of
// root through a tree out of it. TestFS04_SwappedDirectories of the agent has the
// control, and each moment of each call.
func TestFS04_Race(t *testing.T) {
	t.Parallel()
	box := newSwapped(t, "0")
	before, began := box.canary(), box.count()
	if strings.Count(before, "sings") != 16 {
		t.Fatalf("the canary is %q", before)
	}
	for round := range 25 {
		for name, call := range raceCalls {
			told, err := call(t, box.Session(), round)
			switch {
			case errdefs.IsUnknown(err) || errdefs.IsInternal(err) || errdefs.IsUnavailable(err):
				t.Errorf("%s: %v", name, err)
			case strings.Contains(told, "sings"):
				t.Errorf("%s told what the canary holds", name)
			}
		}
	}
	if after := box.canary(); after != before {
		t.Errorf("the canary was\n%s\nand is\n%s", before, after)
	}
	if sung := box.asRoot("grep -rl sings /out || true"); sung != "" {
		t.Errorf("copies have what the canary holds: %s", sung)
	}
	if n := box.count() - began; n < 64 {
		t.Errorf("only %d exchanges happened meanwhile", n)
	}
}

// TestFS04_Watch: a watch of root tells nothing of what a link leads to that takes
// a directory's place, and goes on.
func TestFS04_Watch(t *testing.T) {
	t.Parallel()
	box := newSwapped(t, "0.005") // each exchange is some events, which take the agent longer than they take to make
	w, err := box.Session().Watch(t.Context(), "/workspace/tree", client.WatchOptions{User: "root", Recursive: true, Info: true})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	done, last := make(chan error, 1), "/workspace/tree/the-last"
	go func() {
		for {
			events, err := w.Next()
			end := err != nil
			for _, e := range events {
				if strings.Contains(e.Path, "secret") {
					err = fmt.Errorf("it told of %q", e.Path)
				}
				end = end || e.Path == last
			}
			if end || err != nil {
				done <- err
				return
			}
		}
	}()
	for round := range 15 {
		box.asRoot(fmt.Sprintf("echo x >/canary/sub/secret%d; mkdir /canary/sub/deep/secret%d; mkdir /workspace/tree/new%d", round, round, round))
	}
	box.Want("", "touch /workspace/stop") // else there is no end of events
	// One event may be lost among so many; the watch goes on, so a later one comes.
	for deadline := time.Now().Add(time.Minute + Slack()); ; {
		writeFile(t, box.Files(), last, "x", client.WriteOptions{})
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
			return
		case <-time.After(100 * time.Millisecond):
			if time.Now().After(deadline) {
				t.Fatal("the watch tells nothing of the last change")
			}
		}
	}
}

// raceCalls are the calls of root through a tree, and what they tell. The paths
// that they are given lead through nothing that is exchanged.
var raceCalls = map[string]func(t *testing.T, s *client.Session, round int) (string, error){
	"chmod": func(t *testing.T, s *client.Session, _ int) (string, error) {
		_, err := s.Chmod(t.Context(), "/workspace/tree", 0o777, client.ChangeOptions{User: "root", Recursive: true})
		return "", err
	},
	"chown": func(t *testing.T, s *client.Session, _ int) (string, error) {
		_, err := s.Chown(t.Context(), "/workspace/tree", "1000:1000", client.ChangeOptions{User: "root", Recursive: true})
		return "", err
	},
	"copy": func(t *testing.T, s *client.Session, round int) (string, error) {
		_, _, err := s.Copy(t.Context(), "/workspace/tree", fmt.Sprint("/out/", round), client.CopyOptions{User: "root", Recursive: true})
		return "", err
	},
	"copy into": func(t *testing.T, s *client.Session, _ int) (string, error) {
		_, _, err := s.Copy(t.Context(), "/plain", "/workspace/tree", client.CopyOptions{User: "root", Recursive: true, Overwrite: true})
		return "", err
	},
	"archive": func(t *testing.T, s *client.Session, _ int) (string, error) {
		r, err := s.GetArchive(t.Context(), "/workspace/tree", client.ArchiveOptions{User: "root"})
		if err != nil {
			return "", err
		}
		defer r.Close()
		b, err := io.ReadAll(r)
		return string(b), err
	},
	"unpack": func(t *testing.T, s *client.Session, _ int) (string, error) {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for _, name := range []string{"sub/1", "sub/deep/1", "sub/new", "sub/2"} {
			if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o666, Size: 4, Typeflag: tar.TypeReg}); err != nil {
				return "", err
			}
			if _, err := w.Write([]byte("evil")); err != nil {
				return "", err
			}
		}
		if err := w.Close(); err != nil {
			return "", err
		}
		return "", s.PutArchive(t.Context(), "/workspace/tree", &b, client.UnpackOptions{User: "root"})
	},
	"mkdir": func(t *testing.T, s *client.Session, round int) (string, error) {
		return "", s.Mkdir(t.Context(), fmt.Sprintf("/workspace/tree/new%d/sub", round), client.MkdirOptions{User: "root", Owner: "1000", Parents: true})
	},
	"remove": func(t *testing.T, s *client.Session, round int) (string, error) {
		if round%5 > 0 { // the tree is needed
			return "", nil
		}
		err := s.Remove(t.Context(), "/workspace/tree/sub", client.RemoveOptions{User: "root", Recursive: true})
		_, _, err2 := s.Copy(t.Context(), "/out/0", "/workspace/tree", client.CopyOptions{Recursive: true, Overwrite: true})
		return fmt.Sprint(err2), err
	},
	"search": func(t *testing.T, s *client.Session, _ int) (string, error) {
		r, err := s.Search(t.Context(), "/workspace/tree", "canary|plain", client.SearchOptions{User: "root"})
		return fmt.Sprint(r), err
	},
}

// Trees that are as deep as user code likes are gone through in a bounded part of
// the agent's memory, and removed.
func TestDeepTree(t *testing.T) {
	t.Parallel()
	box := NewBox(t, sandbox.Limits{})
	const levels = 5_000
	box.Want("", fmt.Sprintf(`python3 -c '
import os
for i in range(%d): os.mkdir("d" * 100); os.chdir("d" * 100)
'`, levels))
	s, began := box.Session(), time.Now()
	res, err := s.Search(t.Context(), "/workspace", "x", client.SearchOptions{Timeout: 30 * time.Second})
	t.Logf("searched in %v: %v", time.Since(began), err)
	if err != nil || len(res.Matches) > 0 {
		t.Errorf("search: %+v, %v", res, err)
	}
	began = time.Now()
	if err := s.Remove(t.Context(), "/workspace/"+strings.Repeat("d", 100), client.RemoveOptions{User: "root", Recursive: true}); err != nil {
		t.Error(err)
	}
	t.Logf("removed in %v", time.Since(began))
	box.Want("", "ls -A /workspace")
	if health, err := s.Ping(t.Context()); err != nil || health.Running > 0 {
		t.Errorf("%+v, %v", health, err)
	}
}
