package e2e

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"agentbox/internal/guest/client"
	"agentbox/internal/local"
	"agentbox/internal/sandbox"
)

// transferReport is what a process of its own saw of large bodies.
type transferReport struct {
	Growth int64 // of its memory at its highest
	Equal  bool
}

// maxGrowth is how much memory of the host transfers may take, whatever their
// size.
const maxGrowth = 64 * sandbox.MiB

// random gives bytes that do not compress.
type random struct {
	src  *rand.ChaCha8
	left int64
}

func newRandom(seed byte, size int64) *random { return &random{rand.NewChaCha8([32]byte{seed}), size} }

func (r *random) Read(p []byte) (int, error) {
	if r.left == 0 {
		return 0, io.EOF
	}
	n := min(int64(len(p)), r.left)
	r.left -= n
	_, _ = r.src.Read(p[:n])
	return int(n), nil
}

// sumOf is the checksum of what newRandom gives.
func sumOf(seed byte, size int64) []byte {
	h := sha256.New()
	_, _ = io.Copy(h, newRandom(seed, size)) // memory does not fail
	return h.Sum(nil)
}

// paced reads at most some bytes in each second.
type paced struct {
	r     io.Reader
	speed float64
	began time.Time
	n     int64
}

func (p *paced) Read(b []byte) (int, error) {
	time.Sleep(time.Until(p.began.Add(time.Duration(float64(p.n) / p.speed * float64(time.Second)))))
	n, err := p.r.Read(b[:min(len(b), 256<<10)])
	p.n += int64(n)
	return n, err
}

// readSum is the checksum of a file that is read through wrap.
func readSum(s *client.Session, name string, wrap func(io.Reader) io.Reader) ([]byte, error) {
	r, err := s.ReadFile(context.Background(), name, client.ReadOptions{})
	if err != nil {
		return nil, err
	}
	defer r.Close()
	h := sha256.New()
	_, err = io.Copy(h, wrap(r))
	return h.Sum(nil), err
}

func probeTransfer(e *local.Engine) (any, error) {
	size := int64(Sized(512<<20, 2<<30))
	sb, err := create(e, sandbox.Limits{Disk: size + sandbox.GiB})
	if err != nil {
		return nil, err
	}
	before := status("VmHWM")
	if err := sb.Session().WriteFile(context.Background(), "/workspace/f", newRandom(1, size), client.WriteOptions{}); err != nil {
		return nil, err
	}
	// A reader that is slow, for some seconds or at full size for minutes: what
	// waits stays with the guest.
	slow := size
	if !Soak() {
		slow = 32 << 20
	}
	got, err := readSum(sb.Session(), "/workspace/f", func(r io.Reader) io.Reader {
		return io.MultiReader(&paced{r: io.LimitReader(r, slow), speed: 10 << 20, began: time.Now()}, r)
	})
	return transferReport{status("VmHWM") - before, bytes.Equal(got, sumOf(1, size))}, err
}

// TestB095: large files pass through the host without staying there.
func TestB095(t *testing.T) {
	r := probe[transferReport](t, "transfer")
	t.Logf("the host grew by %d MiB", r.Growth/sandbox.MiB)
	if !r.Equal || r.Growth >= maxGrowth {
		t.Errorf("got %+v, want an equal file and less than 64 MiB", r)
	}
}

// atOnce is how many transfers run each way in probeTransfers.
const atOnce = 4

func probeTransfers(e *local.Engine) (any, error) {
	size := int64(Sized(64<<20, 1<<30))
	sb, err := create(e, sandbox.Limits{Disk: 2*atOnce*size + sandbox.GiB})
	if err != nil {
		return nil, err
	}
	s, equal := sb.Session(), true
	write := func(i int) error {
		return s.WriteFile(context.Background(), fmt.Sprint("/workspace/", i), newRandom(byte(i), size), client.WriteOptions{})
	}
	for i := range atOnce {
		if err := write(i); err != nil {
			return nil, err
		}
	}
	before := status("VmHWM")
	var mu sync.Mutex
	var all sync.WaitGroup
	for i := range atOnce {
		all.Go(func() {
			e := write(atOnce + i)
			mu.Lock()
			defer mu.Unlock()
			err = errors.Join(err, e)
		})
		all.Go(func() {
			got, e := readSum(s, fmt.Sprint("/workspace/", i), func(r io.Reader) io.Reader { return r })
			same := bytes.Equal(got, sumOf(byte(i), size))
			mu.Lock()
			defer mu.Unlock()
			err, equal = errors.Join(err, e), equal && same
		})
	}
	all.Wait()
	growth := status("VmHWM") - before
	for i := range atOnce {
		got, e := readSum(s, fmt.Sprint("/workspace/", atOnce+i), func(r io.Reader) io.Reader { return r })
		err, equal = errors.Join(err, e), equal && bytes.Equal(got, sumOf(byte(atOnce+i), size))
	}
	return transferReport{growth, equal}, err
}

// TestTransfersAtOnce: nor do several at once in both directions; what they take
// does not grow with their size.
func TestTransfersAtOnce(t *testing.T) {
	r := probe[transferReport](t, "transfers")
	t.Logf("the host grew by %d MiB", r.Growth/sandbox.MiB)
	if !r.Equal || r.Growth >= maxGrowth {
		t.Errorf("got %+v, want equal files and less than 64 MiB", r)
	}
}

// TestLargeFiles: files of more than 4 GiB, without and with holes.
func TestLargeFiles(t *testing.T) {
	if !Soak() {
		t.Skip("files of 4 GiB take minutes: scripts/soak.sh makes them")
	}
	const size = 4<<30 + 12345
	box := NewBox(t, sandbox.Limits{Disk: 6 * sandbox.GiB})
	s := box.Session()
	timed := func(what string, f func() error) {
		t.Helper()
		began := time.Now()
		if err := f(); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		t.Logf("%-24s %v", what, time.Since(began).Round(time.Millisecond))
	}
	timed("upload", func() error {
		return s.WriteFile(t.Context(), "/workspace/dense", newRandom(1, size), client.WriteOptions{Atomic: true})
	})
	want := sumOf(1, size)
	timed("sha256sum inside", func() error {
		res := box.Exec(sandbox.Command{Shell: "sha256sum </workspace/dense", Timeout: 5 * time.Minute}, nil)
		if string(res.Stdout) != fmt.Sprintf("%x  -\n", want) {
			return fmt.Errorf("got %s", Describe(res))
		}
		return nil
	})
	timed("download", func() error {
		got, err := readSum(s, "/workspace/dense", func(r io.Reader) io.Reader { return r })
		if err == nil && !bytes.Equal(got, want) {
			err = errors.New("the content differs")
		}
		return err
	})
	box.Want("", "rm /workspace/dense; truncate -s 6G /workspace/sparse; printf end >>/workspace/sparse; printf mid | dd of=/workspace/sparse bs=1M seek=5000 conv=notrunc status=none")
	for offset, want := range map[int64]string{5000 << 20: "mid", 6 << 30: "end"} {
		if got, err := readFile(s, "/workspace/sparse", client.ReadOptions{Offset: offset, Length: 3}); err != nil || got != want {
			t.Errorf("at %d: %q, %v", offset, got, err)
		}
	}
	if got, err := readFile(s, "/workspace/sparse", client.ReadOptions{Suffix: 3}); err != nil || got != "end" {
		t.Errorf("the last bytes: %q, %v", got, err)
	}
	if i, err := s.Stat(t.Context(), "/workspace/sparse", client.StatOptions{}); err != nil || i.Size != 6<<30+3 {
		t.Errorf("got %+v, %v", i, err)
	}
	timed("download with holes", func() error {
		r, err := s.ReadFile(t.Context(), "/workspace/sparse", client.ReadOptions{})
		if err != nil {
			return err
		}
		defer r.Close()
		n, err := io.Copy(io.Discard, r)
		if err == nil && n != 6<<30+3 {
			err = fmt.Errorf("%d bytes", n)
		}
		return err
	})
	// An archive of it comes back whole, too.
	timed("archive with holes", func() error {
		r, err := s.GetArchive(t.Context(), "/workspace/sparse", client.ArchiveOptions{})
		if err != nil {
			return err
		}
		defer r.Close()
		n, err := io.Copy(io.Discard, r)
		if err == nil && n < 6<<30+3 {
			err = fmt.Errorf("%d bytes", n)
		}
		return err
	})
}

// TestManyEntries: a list of a large directory is complete, each entry once.
func TestManyEntries(t *testing.T) {
	many := Sized(20_000, 100_000)
	box := NewBox(t, sandbox.Limits{Memory: sandbox.GiB})
	res := box.Exec(sandbox.Command{Argv: []string{"python3", "-c", `
import os, sys
os.mkdir("/workspace/many")
for i in range(int(sys.argv[1])): os.close(os.open("/workspace/many/%06d" % i, os.O_CREAT | os.O_WRONLY))
`, fmt.Sprint(many)}}, nil)
	WantExit(t, res, 0, "", "")
	began := time.Now()
	n, pages := 0, 0
	for o := (client.ListOptions{}); ; pages++ {
		entries, next, err := box.Session().List(t.Context(), "/workspace/many", o)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if e.Name != fmt.Sprintf("%06d", n) {
				t.Fatalf("entry %d is %s", n, e.Name)
			}
			n++
		}
		if o.Cursor = next; next == "" {
			break
		}
	}
	t.Logf("%d entries in %d pages and %v", n, pages+1, time.Since(began).Round(time.Millisecond))
	if n != many {
		t.Errorf("%d entries of %d", n, many)
	}
}

// TestSlowWatcher: who watches and reads nothing while very many files are made
// in very many directories holds nobody up and loses nothing but events.
func TestSlowWatcher(t *testing.T) {
	if !Soak() {
		t.Skip("300,000 files take a minute: scripts/soak.sh makes them")
	}
	box := NewBox(t, sandbox.Limits{Memory: 3 * sandbox.GiB})
	s := box.Session()
	w, err := s.Watch(t.Context(), "/workspace", client.WatchOptions{Recursive: true, Info: true})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	stop := context.AfterFunc(t.Context(), func() { _ = w.Close() })
	defer stop()
	res := box.Exec(sandbox.Command{Argv: []string{"python3", "-c", `
import os
os.chdir("/workspace")
for d in range(15000):
    os.mkdir("d%d" % d)
    for i in range(20): os.close(os.open("d%d/%s%d" % (d, "n" * 100, i), os.O_CREAT | os.O_WRONLY))
`}, Timeout: 10 * time.Minute}, nil)
	WantExit(t, res, 0, "", "")
	began := time.Now()
	box.Want("alive\n", "echo alive")
	Within(t, began, time.Second)
	n, lost := 0, 0
	for seen := false; !seen; {
		if err := s.WriteFile(t.Context(), "/workspace/after", strings.NewReader("x"), client.WriteOptions{}); err != nil {
			t.Fatal(err)
		}
		events, err := w.Next()
		if err != nil {
			t.Fatalf("after %d events: %v", n, err)
		}
		for _, e := range events {
			n++
			if e.Kind == client.WatchOverflow {
				lost++
			}
			seen = seen || e.Name == "after"
		}
	}
	t.Logf("%d events, %d overflows, caught up after %v", n, lost, time.Since(began).Round(time.Millisecond))
	if lost == 0 {
		t.Error("nothing was told of what was lost")
	}
}
