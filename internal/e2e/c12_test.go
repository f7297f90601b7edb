package e2e

import (
	"bytes"
	"errors"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"time"

	"agentbox/internal/guest/client"
	"agentbox/internal/sandbox"
)

func writeFile(t testing.TB, s Files, name, content string, o client.WriteOptions) {
	t.Helper()
	if err := s.WriteFile(t.Context(), name, strings.NewReader(content), o); err != nil {
		t.Fatal(err)
	}
}

func wantFile(t testing.TB, s Files, name, want string) {
	t.Helper()
	if got, err := readFile(s, name, client.ReadOptions{}); err != nil || got != want {
		t.Errorf("%q reads %d bytes %.40q, %v; want %d bytes %.40q", name, len(got), got, err, len(want), want)
	}
}

// TestB089: bytes stay what they are, in each way.
func TestB089(t *testing.T) {
	t.Parallel()
	BothDoorsAnew(t, sandbox.Limits{}, func(t *testing.T, box *Box) {
		s := box.Files()
		all := make([]byte, 1<<20)
		for i := range all {
			all[i] = byte(i)
		}
		writeFile(t, s, "/workspace/f", string(all), client.WriteOptions{})
		wantFile(t, s, "/workspace/f", string(all))
		for _, format := range []client.ArchiveFormat{client.Tar, client.TarGz} {
			r, _, err := s.Archive(t.Context(), "/workspace/f", format)
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			if err := s.PutArchive(t.Context(), "/workspace/"+string(format), r, client.UnpackOptions{Format: format, Parents: true}); err != nil {
				t.Fatal(err)
			}
			wantFile(t, s, "/workspace/"+string(format)+"/f", string(all))
		}
		if _, _, err := s.Copy(t.Context(), "/workspace/f", "/workspace/g", client.CopyOptions{}); err != nil {
			t.Error(err)
		}
		box.Want("", "cmp /workspace/f /workspace/g")
		if res := box.Exec(sandbox.Command{Shell: "cat /workspace/f"}, nil); !bytes.Equal(res.Stdout, all) {
			t.Errorf("cat gave %d bytes", len(res.Stdout))
		}
	})
}

// TestB091: a character that lies across the border of a buffer stays whole.
func TestB091(t *testing.T) {
	t.Parallel()
	BothDoorsAnew(t, sandbox.Limits{}, func(t *testing.T, box *Box) {
		s := box.Files()
		for _, n := range []int{4096, 8192, 32768, 65536, 256 << 10, 1 << 20} {
			text := strings.Repeat("a", n-1) + "é" + "b"
			writeFile(t, s, "/workspace/f", text, client.WriteOptions{})
			wantFile(t, s, "/workspace/f", text)
		}
	})
}

// TestB093: content is no argument, and a long command line works or says why
// not.
func TestB093(t *testing.T) {
	t.Parallel()
	BothDoorsAnew(t, sandbox.Limits{}, func(t *testing.T, box *Box) {
		for _, n := range []int{200 << 10, 5 << 20} {
			text := strings.Repeat("0123456789abcdef", n/16)
			writeFile(t, box.Files(), "/workspace/f", text, client.WriteOptions{})
			wantFile(t, box.Files(), "/workspace/f", text)
		}
		box.Want("131000\n", "echo -n "+strings.Repeat("a", 131_000)+" | wc -c")
		long := strings.Repeat("a", 150_000)
		for _, c := range []struct {
			cmd  sandbox.Command
			says string
		}{
			{sandbox.Command{Shell: "echo " + long}, "at most are 131071"},
			{sandbox.Command{Argv: []string{"echo", long}}, "at most are 131071"},
			{sandbox.Command{Argv: slices.Repeat([]string{"echo", long[:100_000]}, 30)}, "at most are 2097152"},
		} {
			if res := box.Exec(c.cmd, nil); res.ShellCode() != 126 || !strings.Contains(string(res.Stderr), "Argument list too long") || !strings.Contains(string(res.Stderr), c.says) {
				t.Errorf("got %s", Describe(res))
			}
		}
	})
	// The REST door takes no more than 128 KiB of variables.
	res := NewBox(t, sandbox.Limits{}).Exec(sandbox.Command{Argv: []string{"true"}, Env: []string{"A=" + strings.Repeat("a", 150_000)}}, nil)
	if res.ShellCode() != 126 || !strings.Contains(string(res.Stderr), "one of the variables has 150002 bytes, at most are 131071") {
		t.Errorf("got %s", Describe(res))
	}
}

// TestB097: nothing is a content.
func TestB097(t *testing.T) {
	t.Parallel()
	BothDoorsAnew(t, sandbox.Limits{}, func(t *testing.T, box *Box) {
		s := box.Files()
		for _, o := range []client.WriteOptions{{}, {Atomic: true}, {Append: true}, {Mode: 0o600}} {
			writeFile(t, s, "/workspace/e", "", o)
			wantFile(t, s, "/workspace/e", "")
		}
		writeFile(t, s, "/workspace/e", "full", client.WriteOptions{})
		writeFile(t, s, "/workspace/e", "", client.WriteOptions{})
		if entries, _, err := s.List(t.Context(), "/workspace", client.ListOptions{}); err != nil || len(entries) != 1 || entries[0].Size != 0 {
			t.Errorf("got %+v, %v", entries, err)
		}
	})
}

// TestB099: a list tells sizes, types, modes and times.
func TestB099(t *testing.T) {
	t.Parallel()
	BothDoorsAnew(t, sandbox.Limits{}, func(t *testing.T, box *Box) {
		s, began := box.Files(), time.Now()
		writeFile(t, s, "/workspace/f", "hello", client.WriteOptions{Mode: 0o640})
		box.Want("", "cd /workspace; mkdir d; ln -s f l; touch -d 2001-02-03T04:05:06Z d/old")
		entries, _, err := s.List(t.Context(), "/workspace", client.ListOptions{Depth: 2})
		if err != nil || len(entries) != 4 {
			t.Fatalf("got %+v, %v", entries, err)
		}
		d, old, f, l := entries[0], entries[1], entries[2], entries[3]
		if !d.Mode.IsDir() || f.Size != 5 || f.Mode != 0o640 || f.User == "" || l.Mode.Type() != fs.ModeSymlink || l.Target != "f" {
			t.Errorf("got %+v", entries)
		}
		if !old.Mtime.Equal(time.Date(2001, 2, 3, 4, 5, 6, 0, time.UTC)) || f.Mtime.Before(began.Add(-time.Minute)) || f.Mtime.After(time.Now().Add(time.Minute)) {
			t.Errorf("times: %v, %v", old.Mtime, f.Mtime)
		}
		r, err := s.Glob(t.Context(), "/workspace", []string{"f"}, client.GlobOptions{})
		if err != nil || len(r.Entries) != 1 || r.Entries[0].Size != 5 {
			t.Errorf("glob: %+v, %v", r, err)
		}
	})
}

// TestB103: blanks at the ends of names are part of them.
func TestB103(t *testing.T) {
	t.Parallel()
	BothDoorsAnew(t, sandbox.Limits{}, func(t *testing.T, box *Box) {
		box.Want("", "printf x > '/workspace/notes.txt '; printf y > '/workspace/ lead'")
		entries, _, err := box.Files().List(t.Context(), "/workspace", client.ListOptions{})
		if err != nil || len(entries) != 2 || entries[0].Name != " lead" || entries[1].Name != "notes.txt " {
			t.Fatalf("got %+v, %v", entries, err)
		}
		wantFile(t, box.Files(), entries[0].Path, "y")
		wantFile(t, box.Files(), entries[1].Path, "x")
	})
}

// TestB120: who reads while others replace a file sees one of the contents,
// whole.
func TestB120(t *testing.T) {
	t.Parallel()
	BothDoorsAnew(t, sandbox.Limits{}, func(t *testing.T, box *Box) {
		s := box.Files()
		const size = 1 << 20
		write := func(c string) error {
			return s.WriteFile(t.Context(), "/workspace/f", strings.NewReader(strings.Repeat(c, size)), client.WriteOptions{Atomic: true})
		}
		if err := write("a"); err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 4)
		stop := make(chan struct{})
		for i := range 4 {
			go func() {
				for {
					select {
					case <-stop:
						done <- nil
						return
					default:
					}
					if err := write(string("ab"[i%2])); err != nil {
						done <- err
						return
					}
				}
			}()
		}
		for range box.Times(Sized(300, 3000)) {
			got, err := readFile(s, "/workspace/f", client.ReadOptions{})
			if err != nil || len(got) != size || strings.Count(got, got[:1]) != size {
				t.Fatalf("read %d bytes, %v", len(got), err)
			}
		}
		close(stop)
		var errs error
		for range 4 {
			errs = errors.Join(errs, <-done)
		}
		if errs != nil {
			t.Error(errs)
		}
	})
}
