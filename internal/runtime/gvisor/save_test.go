package gvisor_test

import (
	"bytes"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"

	"agentbox/internal/runtime"
	"agentbox/internal/sandbox"
)

// saved are the files of the stopped sandbox's save.
func (b *box) saved() []string {
	b.t.Helper()
	files, err := filepath.Glob(filepath.Join(b.dir, "sandboxes", b.spec.ID, "save-*", "*"))
	b.ok(err)
	if len(files) != 5 {
		b.t.Fatalf("a save has %q", files)
	}
	return files
}

// A save that was cut or changed anywhere is refused, and still there to be
// mended. Nobody but its owner can read it.
func TestDamagedSave(t *testing.T) {
	b := newBox(t)
	b.sh("head -c 3000000 /dev/urandom >/root/big; for i in 1 2 3 4 5 6 7 8 9; do echo $i >/root/$i; done; cd /root; sha256sum * >/var/sum")
	b.stop()
	for _, f := range b.saved() {
		fi, err := os.Stat(f)
		b.ok(err)
		if fi.Mode() != 0o600 || fi.Size() == 0 {
			t.Errorf("%s has mode %v and %d bytes", filepath.Base(f), fi.Mode(), fi.Size())
		}
		whole, err := os.ReadFile(f)
		b.ok(err)
		// The ends, the borders of blocks and pages, and anywhere.
		places := []int{0, len(whole) - 1}
		for _, border := range []int{512, 4096, len(whole) / 4096 * 4096} {
			places = append(places, border-1, border)
		}
		for range 12 {
			places = append(places, rand.IntN(len(whole)))
		}
		for _, at := range places {
			if at < 0 || at >= len(whole) {
				continue
			}
			changed := bytes.Clone(whole)
			changed[at] ^= 1 << rand.IntN(8)
			b.refuses(f, changed, "a bit of byte %d changed", at)
			b.refuses(f, whole[:at], "cut at %d", at)
		}
		b.refuses(f, append(bytes.Clone(whole), 0), "a byte more")
		b.ok(os.Remove(f))
		b.refuses(f, nil, "gone, or empty")
		b.ok(os.WriteFile(f, whole, 0o600))
	}
	b.start()
	b.sh("cd /root; sha256sum -c /var/sum")
}

// refuses checks that a sandbox does not start with other contents of a file.
func (b *box) refuses(name string, contents []byte, format string, args ...any) {
	b.t.Helper()
	if contents != nil {
		b.ok(os.WriteFile(name, contents, 0o600))
	}
	err := b.rt.Start(b.ctx, b.spec.ID)
	if !errdefs.IsDataLoss(err) || !strings.Contains(err.Error(), filepath.Base(name)) {
		b.t.Errorf("%s, "+format+": %v", append(append([]any{filepath.Base(name)}, args...), err)...)
	}
	if i := b.info(); i.State != sandbox.Stopped || i.Pid != 0 {
		b.t.Fatalf("the sandbox is %+v", i)
	}
}

// A save that was never completed is removed; the last good one counts.
func TestUnfinishedSave(t *testing.T) {
	b := newBox(t)
	b.sh("echo kept >/root/f")
	b.stop()
	half := filepath.Join(b.dir, "sandboxes", b.spec.ID, "save-2")
	b.ok(os.Mkdir(half, 0o700))
	b.ok(os.WriteFile(filepath.Join(half, "pages.img"), []byte("half"), 0o600))
	b.ok(b.rt.Close())
	b.open()
	b.saved()
	b.start()
	if got := b.sh("cat /root/f"); got != "kept\n" {
		t.Errorf("the file holds %q", got)
	}
	b.stop()
	b.saved()
}

// What could never be started again is not stopped: the sandbox runs on.
func TestTooManyFilesToStop(t *testing.T) {
	b := newBox(t, func(s *runtime.Spec) { s.Limits.Memory, s.Limits.Run = 96*sandbox.MiB, sandbox.MiB })
	b.sh("mkdir /root/d; cd /root/d; echo text >f; python3 -c '\nfor i in range(13000): open(\"%d\" % i, \"w\").close()'")
	err := b.rt.Stop(b.ctx, b.spec.ID)
	if !errdefs.IsResourceExhausted(err) {
		t.Fatalf("stop: %v", err)
	}
	t.Log(err)
	if i := b.info(); i.State != sandbox.Live || !i.Saved.IsZero() {
		t.Fatalf("the sandbox is %+v", i)
	}
	b.connect()
	b.sh("cd /root/d; ls | wc -l; find . -name '*0' -delete; find . -name '*[2468]' -delete; cat f")
	b.stop()
	b.start()
	if got := b.sh("cat /root/d/f; ls /root/d | wc -l"); got != "text\n6501\n" {
		t.Errorf("got %q", got)
	}
}

// otherEngine tells a test process which sandbox to start: DIR:ID.
const otherEngine = "AGENTBOX_TEST_OTHER_ENGINE"

// A sandbox that was stopped is started by another build of the engine, of
// another version of gVisor by its name, and the other way round.
func TestStartByAnotherEngine(t *testing.T) {
	if order := os.Getenv(otherEngine); order != "" {
		startAndStop(t, order)
		return
	}
	b := newBox(t)
	b.sh("echo first >/root/f")
	b.stop()
	b.ok(b.rt.Close())
	self, err := os.Executable()
	b.ok(err)
	cmd := exec.CommandContext(b.ctx, self, "-test.run", "^TestStartByAnotherEngine$", "-test.v")
	cmd.Env = append(os.Environ(), otherEngine+"="+b.dir+":"+b.spec.ID, "AGENTBOX_ENGINE="+anotherEngine(t))
	out, err := cmd.CombinedOutput()
	b.open()
	if err != nil || !strings.Contains(string(out), "started by another engine") {
		t.Fatalf("%v: %s", err, out)
	}
	b.start()
	if got := b.sh("cat /root/f"); got != "first\nsecond\n" {
		t.Errorf("the file holds %q", got)
	}
}

func startAndStop(t *testing.T, order string) {
	need(t)
	dir, id, _ := strings.Cut(order, ":")
	b := &box{t: t, ctx: t.Context(), dir: dir, spec: smallSpec()}
	b.spec.ID = id
	b.open()
	defer func() { b.ok(b.rt.Close()) }()
	b.start()
	b.sh("echo second >>/root/f")
	b.stop()
	t.Log("started by another engine: " + shared.engine)
}

// anotherEngine makes a copy of the engine that says it is another version.
func anotherEngine(t *testing.T) string {
	t.Helper()
	program, err := os.ReadFile(os.Getenv("AGENTBOX_ENGINE"))
	if err != nil {
		t.Fatal(err)
	}
	version := []byte("v0.0.0-20260905035102-160fafc42237")
	if !bytes.Contains(program, version) {
		t.Fatalf("the engine does not name gVisor's version %s", version)
	}
	name := filepath.Join(t.TempDir(), "agentbox-engine")
	other := bytes.ReplaceAll(program, version, []byte("v0.0.0-20991231235959-160fafc42237"))
	if err := os.WriteFile(name, other, 0o755); err != nil {
		t.Fatal(err)
	}
	return name
}
