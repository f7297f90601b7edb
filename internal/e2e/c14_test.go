package e2e

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	"agentbox/internal/guest/client"
	"agentbox/internal/sandbox"
	"agentbox/internal/transfer"
)

// TestB105: a link in the workspace does not lead to the host.
func TestB105(t *testing.T) {
	t.Parallel()
	BothDoorsAnew(t, sandbox.Limits{}, func(t *testing.T, box *Box) {
		canary, _, check := hostCanary(t)
		box.Want("", "ln -s "+canary+" /workspace/leak; ln -s / /workspace/r")
		for _, name := range []string{"/workspace/leak", "/workspace/r" + canary} {
			if got, err := readFile(box.Files(), name, client.ReadOptions{User: "root"}); !errdefs.IsNotFound(err) {
				t.Errorf("%s: %q, %v", name, got, err)
			}
		}
		r, _, err := box.Files().Archive(t.Context(), "/workspace", client.Tar)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		dst := t.TempDir()
		if _, err := transfer.Unpack(r, dst, transfer.Options{}); err != nil {
			t.Fatal(err)
		}
		if names, _ := os.ReadDir(dst); len(names) != 0 {
			t.Errorf("collected %v", names)
		}
		check()
	})
}

// TestB108: an archive that was made in the sandbox writes nowhere on the host.
func TestB108(t *testing.T) {
	t.Parallel()
	BothDoorsAnew(t, sandbox.Limits{}, func(t *testing.T, box *Box) {
		canary, _, check := hostCanary(t)
		res := box.Exec(sandbox.Command{Argv: []string{"python3", "-c", `
import io, sys, tarfile
t = tarfile.open("/workspace/evil.tar", "w")
def add(name, kind=tarfile.REGTYPE, link=""):
    h = tarfile.TarInfo(name); h.type = kind; h.linkname = link
    if kind == tarfile.REGTYPE: h.size = 3
    t.addfile(h, io.BytesIO(b"pwn"))
add("../../pwn"); add(sys.argv[1]); add("l", tarfile.SYMTYPE, sys.argv[2]); add("l/canary"); add("h", tarfile.LNKTYPE, sys.argv[1]); add("h")
t.close()
`, canary, filepath.Dir(canary)}}, nil)
		WantExit(t, res, 0, "", "")
		evil, err := readFile(box.Files(), "/workspace/evil.tar", client.ReadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		outer := t.TempDir()
		if _, err := transfer.Unpack(strings.NewReader(evil), filepath.Join(outer, "a", "dst"), transfer.Options{}); err != nil {
			t.Logf("unpack on the host: %v", err)
		}
		err = filepath.WalkDir(outer, func(p string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() && !strings.HasPrefix(p, filepath.Join(outer, "a", "dst")+"/") || d.Type()&^fs.ModeDir != 0 {
				t.Errorf("on the host is %s, %v", p, d.Type())
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
		if err := box.Files().PutArchive(t.Context(), "/workspace", strings.NewReader(evil), client.UnpackOptions{}); !errdefs.IsInvalidArgument(err) {
			t.Errorf("into the sandbox: %v", err)
		}
		check()
	})
}

// TestB110: odd paths are the sandbox's own files, or the caller's mistake.
func TestB110(t *testing.T) {
	t.Parallel()
	BothDoorsAnew(t, sandbox.Limits{}, func(t *testing.T, box *Box) {
		s := box.Files()
		own, err := readFile(s, "/etc/hostname", client.ReadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"../etc/hostname", "/workspace/../etc/hostname", "a/./../../etc", "//etc//hostname", "%2e%2e/etc", `..\etc`, "a\x00b", "", "/"} {
			got, err := readFile(s, name, client.ReadOptions{})
			if err == nil && got != own || err != nil && !refusal(err) {
				t.Errorf("read %q: %q, %v", name, got, err)
			}
			if (name == "" || strings.Contains(name, "\x00")) && !errdefs.IsInvalidArgument(err) {
				t.Errorf("read %q: %v", name, err)
			}
			if err := s.WriteFile(t.Context(), name, strings.NewReader("x"), client.WriteOptions{}); err != nil && !refusal(err) {
				t.Errorf("write %q: %v", name, err)
			}
			if _, _, err := s.List(t.Context(), name, client.ListOptions{}); err != nil && !refusal(err) {
				t.Errorf("list %q: %v", name, err)
			}
		}
	})
}

// TestB111: links in an upload stay links, of the sandbox.
func TestB111(t *testing.T) {
	t.Parallel()
	BothDoorsAnew(t, sandbox.Limits{}, func(t *testing.T, box *Box) {
		s := box.Files()
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for name, to := range map[string]string{"l": "/etc/passwd", "d": "../../.."} {
			if err := w.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeSymlink, Linkname: to}); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if err := s.PutArchive(t.Context(), "/workspace/up", &b, client.UnpackOptions{Parents: true}); err != nil {
			t.Fatal(err)
		}
		own := box.Sh("cat /etc/passwd")
		wantFile(t, s, "/workspace/up/l", string(own.Stdout))
		wantFile(t, s, "/workspace/up/d/etc/passwd", string(own.Stdout))
	})
}

// TestB112: a FIFO stops no call.
func TestB112(t *testing.T) {
	t.Parallel()
	BothDoorsAnew(t, sandbox.Limits{}, func(t *testing.T, box *Box) {
		s := box.Files()
		box.Want("", "mkfifo /workspace/p; printf x > /workspace/f")
		began := time.Now()
		entries, _, err := s.List(t.Context(), "/workspace", client.ListOptions{Depth: 3})
		if err != nil || len(entries) != 2 || entries[1].Mode.Type() != fs.ModeNamedPipe {
			t.Errorf("got %+v, %v", entries, err)
		}
		if _, err := readFile(s, "/workspace/p", client.ReadOptions{}); !errdefs.IsInvalidArgument(err) {
			t.Errorf("read: %v", err)
		}
		if r, err := s.Search(t.Context(), "/workspace", "x", client.SearchOptions{}); err != nil || len(r.Matches) != 1 {
			t.Errorf("search: %+v, %v", r, err)
		}
		ar, skipped, err := s.Archive(t.Context(), "/workspace", client.Tar)
		if err != nil {
			t.Fatal(err)
		}
		defer ar.Close()
		if _, err := transfer.Unpack(ar, t.TempDir(), transfer.Options{}); err != nil {
			t.Error(err)
		}
		if left := skipped(); left != 1 {
			t.Errorf("left out: %d", left)
		}
		Within(t, began, time.Second)
	})
}

// TestB114: a hard link gives no rights, and reaches no other sandbox.
func TestB114(t *testing.T) {
	t.Parallel()
	t.Run("engine", func(t *testing.T) { hardLink(t, NewBox(t, sandbox.Limits{}), NewBox(t, sandbox.Limits{})) })
	t.Run("rest", func(t *testing.T) { hardLink(t, NewRemote(t, sandbox.Limits{}), NewRemote(t, sandbox.Limits{})) })
}

func hardLink(t *testing.T, box, other *Box) {
	box.Exec(sandbox.Command{Shell: "printf secret > /etc/shadow-b114; chmod 600 /etc/shadow-b114; ln /etc/shadow-b114 /workspace/h", User: "root"}, nil)
	if got, err := readFile(box.Files(), "/workspace/h", client.ReadOptions{}); !errdefs.IsPermissionDenied(err) {
		t.Errorf("the user read %q, %v", got, err)
	}
	if got, err := readFile(box.Files(), "/workspace/h", client.ReadOptions{User: "root"}); err != nil || got != "secret" {
		t.Errorf("its root read %q, %v", got, err)
	}
	for _, name := range []string{"/workspace/h", "/etc/shadow-b114"} {
		if _, err := readFile(other.Files(), name, client.ReadOptions{User: "root"}); !errdefs.IsNotFound(err) {
			t.Errorf("another sandbox: %v", err)
		}
	}
}

// TestB116: directories that are made on the way belong to the user.
func TestB116(t *testing.T) {
	t.Parallel()
	BothDoorsAnew(t, sandbox.Limits{}, func(t *testing.T, box *Box) {
		writeFile(t, box.Files(), "/workspace/a/b/c.txt", "x", client.WriteOptions{Parents: true})
		box.Want("ok\n", "rm -r /workspace/a && echo ok")
		writeFile(t, box.Files(), "/workspace/a/b/c.txt", "x", client.WriteOptions{Parents: true, User: "root", Owner: "1000:1000", Atomic: true})
		box.Want("ok\n", "rm -r /workspace/a && echo ok")
	})
}

// TestB118: the workspace and the directory of outputs are the user's.
func TestB118(t *testing.T) {
	t.Parallel()
	BothDoorsAnew(t, sandbox.Limits{}, func(t *testing.T, box *Box) {
		for _, dir := range []string{"/workspace", "/mnt/user-data/outputs"} {
			box.Want("1000\nx\n", "id -u; echo x > "+dir+"/t && cat "+dir+"/t && rm "+dir+"/t")
			i, err := box.Files().Stat(t.Context(), dir, client.StatOptions{})
			if err != nil || i.UID != 1000 || !i.Mode.IsDir() || i.Mode.Perm()&0o700 != 0o700 {
				t.Errorf("%s: got %+v, %v", dir, i, err)
			}
			writeFile(t, box.Files(), dir+"/by-api", "y", client.WriteOptions{})
			box.Want("y", "cat "+dir+"/by-api && rm "+dir+"/by-api")
		}
	})
}

// TestB122: no directory is without a quota.
func TestB122(t *testing.T) {
	BothDoorsAnew(t, sandbox.Limits{Disk: 100 * sandbox.MiB, Memory: 512 * sandbox.MiB}, func(t *testing.T, box *Box) {
		dirs := []string{"/", "/root", "/tmp", "/var/tmp", "/workspace", "/run", "/dev/shm", "/mnt/user-data/outputs"}
		if box.remote != nil && !Soak() {
			dirs = []string{"/", "/dev/shm"} // the others are the same sandbox, whatever door asks
		}
		for _, d := range dirs {
			res := box.Exec(sandbox.Command{Shell: "mkdir -p " + d + " && head -c 300000000 /dev/zero > " + d + "/f; echo rc=$?", User: "root"}, nil)
			if !strings.Contains(string(res.Stderr), "No space left") || strings.Contains(string(res.Stdout), "rc=0") {
				t.Errorf("%s: %s", d, Describe(res))
			}
			took := diskOf(t, box.UID())
			if d == "/" && took < 50*sandbox.MiB {
				t.Errorf("a full disk is seen as %d MiB on the host: the test does not measure it", took/sandbox.MiB)
			}
			if took > 120*sandbox.MiB {
				t.Errorf("%s: the host has %d MiB more of it", d, took/sandbox.MiB)
			}
			box.Exec(sandbox.Command{Argv: []string{"rm", d + "/f"}, User: "root"}, nil)
		}
		box.Want("alive\n", "echo alive")
	})
}

// TestB124: what a chatty command writes stays bounded, on disk as in memory.
func TestB124(t *testing.T) {
	t.Parallel()
	box := NewBox(t, sandbox.Limits{})
	before := treeSize(t, SharedDir(t))
	long := time.Duration(Sized(10, 60)) * time.Second
	ctx, cancel := context.WithTimeout(t.Context(), long+time.Minute)
	defer cancel()
	p, err := box.Start(ctx, sandbox.Command{Argv: []string{"yes"}, Background: true, Timeout: long}, client.Output{})
	if err != nil {
		t.Fatal(err)
	}
	res, err := box.Wait(ctx, p)
	if err != nil || res.Outcome != sandbox.TimedOut {
		t.Errorf("got %+v, %v", res, err)
	}
	if grown := treeSize(t, SharedDir(t)) - before; grown > 64*sandbox.MiB {
		t.Errorf("the data directory grew by %d MiB", grown/sandbox.MiB)
	}
	health, err := box.Session().Ping(t.Context())
	if err != nil || health.Buffered > 64*sandbox.MiB {
		t.Errorf("the agent holds %+v, %v", health, err)
	}
}

// treeSize is how many bytes of the disk a directory takes, apart from images.
func treeSize(t testing.TB, dir string) int64 {
	t.Helper()
	out, err := exec.Command("du", "-sk", "--exclude=images", dir).Output() // what vanishes meanwhile is no matter
	var kib int64
	if _, scan := fmt.Sscan(string(out), &kib); scan != nil {
		t.Fatal(err, scan)
	}
	return kib << 10
}

// diskOf is how many bytes of the host's disk the files take that a sandbox's
// processes hold open.
func diskOf(t testing.TB, id string) (total int64) {
	t.Helper()
	seen := map[uint64]bool{}
	for _, pid := range SandboxPids(t, id) {
		fds, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
		for _, fd := range fds {
			i, err := os.Stat(fd)
			if err != nil || !i.Mode().IsRegular() {
				continue
			}
			// The image is shared and read-only, memory is no disk.
			st, at := i.Sys().(*syscall.Stat_t), ""
			if at, err = os.Readlink(fd); err != nil || seen[st.Ino] || strings.HasPrefix(at, "/memfd:") || strings.Contains(at, "/images/") {
				continue
			}
			seen[st.Ino] = true
			total += st.Blocks * 512
		}
	}
	return total
}
