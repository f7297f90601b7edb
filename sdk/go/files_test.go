package agentbox_test

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	agentbox "agentbox/sdk/go"
)

func TestFiles(t *testing.T) {
	b, ctx := box(t, agentbox.CreateOptions{}), within(t)
	f := b.Files
	data := []byte("a\xff\x00b\n")
	if err := f.Write(ctx, "d/ü x", data, agentbox.WriteOptions{Mode: "600"}); err != nil {
		t.Fatal(err)
	}
	if err := f.Write(ctx, "d/ü x", []byte("more"), agentbox.WriteOptions{Append: true}); err != nil {
		t.Fatal(err)
	}
	got, err := f.Read(ctx, "d/ü x")
	if err != nil || string(got) != string(data)+"more" {
		t.Errorf("%q %v", got, err)
	}
	if _, err := f.ReadText(ctx, "d/ü x"); !errors.Is(err, agentbox.ErrInvalidArgument) {
		t.Errorf("reading bytes as a text is %v", err)
	}
	info, err := f.Stat(ctx, "d/ü x")
	if err != nil || info.Size != 9 || info.Mode != "0600" || info.Type != "file" {
		t.Errorf("%+v %v", info, err)
	}
	for path, want := range map[string]bool{"d": true, "e": false} {
		if is, err := f.Exists(ctx, path); is != want || err != nil {
			t.Errorf("%s: %v %v", path, is, err)
		}
	}
	if _, err := f.Read(ctx, "e"); !errors.Is(err, agentbox.ErrNotFound) {
		t.Errorf("no file is %v", err)
	}
	if err := f.Write(ctx, "/etc/x", nil, agentbox.WriteOptions{}); !errors.Is(err, agentbox.ErrPermissionDenied) {
		t.Errorf("a file of root's is %v", err)
	}
	if err := f.As("root").Write(ctx, "/etc/x", nil, agentbox.WriteOptions{}); err != nil {
		t.Error(err)
	}
}

func TestFilesChange(t *testing.T) {
	b, ctx := box(t, agentbox.CreateOptions{}), within(t)
	f := b.Files
	for _, step := range []error{
		f.Mkdir(ctx, "a/b", agentbox.MkdirOptions{}),
		f.Write(ctx, "a/b/one.txt", []byte("first line\nsecond line\n"), agentbox.WriteOptions{}),
		f.Symlink(ctx, "b/one.txt", "a/link", false),
		f.Move(ctx, "a/b/one.txt", "a/b/two.txt", false),
	} {
		if step != nil {
			t.Fatal(step)
		}
	}
	if n, err := f.Chmod(ctx, "a", "700", true); err != nil || n < 3 {
		t.Errorf("%d %v", n, err)
	}
	if c, err := f.Copy(ctx, "a", "c", false); err != nil || c.Entries != 3 {
		t.Errorf("%+v %v", c, err)
	}
	all, err := agentbox.Collect(f.List(ctx, ".", 3))
	if err != nil || len(all) != 8 {
		t.Errorf("%+v %v", all, err)
	}
	found, err := f.Glob(ctx, ".", []string{"**/*.txt"}, agentbox.FindOptions{Exclude: []string{"c"}})
	if err != nil || len(found.Items) != 1 || found.Items[0].Name != "a/b/two.txt" && found.Items[0].Name != "two.txt" {
		t.Errorf("%+v %v", found, err)
	}
	lines, err := f.Search(ctx, "a", "SECOND", agentbox.SearchOptions{IgnoreCase: true, Context: 1})
	if err != nil || len(lines.Items) != 1 || lines.Items[0].Line != 2 || len(lines.Items[0].Before) != 1 {
		t.Errorf("%+v %v", lines, err)
	}
	if err := f.Remove(ctx, "a"); err == nil {
		t.Error("a directory that is not empty is removed")
	}
	if err := f.RemoveAll(ctx, "a"); err != nil {
		t.Error(err)
	}
}

// TestTransfer: files of any size, with progress, and parts of them.
func TestTransfer(t *testing.T) {
	b, ctx := box(t, agentbox.CreateOptions{}), within(t)
	dir, data := t.TempDir(), make([]byte, 5<<20+7)
	_, _ = rand.Read(data)
	local, back := filepath.Join(dir, "data"), filepath.Join(dir, "back")
	if err := os.WriteFile(local, data, 0o600); err != nil {
		t.Fatal(err)
	}
	var up, down int64
	progress := func(to *int64) agentbox.Progress {
		return func(done, total int64) {
			if done <= *to || total != int64(len(data)) {
				t.Errorf("%d of %d after %d", done, total, *to)
			}
			*to = done
		}
	}
	if err := b.Files.Upload(ctx, local, "data", agentbox.WriteOptions{Progress: progress(&up)}); err != nil {
		t.Fatal(err)
	}
	if err := b.Files.Download(ctx, "data", back, agentbox.ReadOptions{Progress: progress(&down)}); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(back)
	if err != nil || !bytes.Equal(got, data) || up != int64(len(data)) || down != up {
		t.Errorf("%d bytes came back, %d and %d were told: %v", len(got), up, down, err)
	}
	part, err := b.Files.ReadStream(ctx, "data", agentbox.ReadOptions{Offset: 1 << 20, Length: 10})
	if err != nil {
		t.Fatal(err)
	}
	defer part.Close()
	if got, err := io.ReadAll(part); err != nil || part.Size != 10 || !bytes.Equal(got, data[1<<20:1<<20+10]) {
		t.Errorf("%d bytes: %v", len(got), err)
	}
	if _, err := b.Files.ReadStream(ctx, "data", agentbox.ReadOptions{Offset: 6 << 20}); !errors.Is(err, agentbox.ErrOutOfRange) {
		t.Errorf("behind the end is %v", err)
	}
	if err := b.Files.Download(ctx, "none", filepath.Join(dir, "none"), agentbox.ReadOptions{}); !errors.Is(err, agentbox.ErrNotFound) {
		t.Errorf("it is %v", err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 2 {
		t.Errorf("left are %v", left)
	}
}

// TestUploadBroken: an upload that breaks off leaves the file as it was.
func TestUploadBroken(t *testing.T) {
	b, ctx := box(t, agentbox.CreateOptions{}), within(t)
	if err := b.Files.Write(ctx, "f", []byte("old"), agentbox.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	torn := io.MultiReader(bytes.NewReader(make([]byte, 1<<20)), errReader{})
	if err := b.Files.WriteStream(ctx, "f", torn, agentbox.WriteOptions{}); !errors.Is(err, errTorn) {
		t.Errorf("it is %v", err)
	}
	if got, err := b.Files.ReadText(ctx, "f"); err != nil || got != "old" {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

var errTorn = errors.New("torn")

type errReader struct{}

func (errReader) Read([]byte) (int, error) { return 0, errTorn }

func TestArchive(t *testing.T) {
	b, ctx := box(t, agentbox.CreateOptions{}), within(t)
	var in bytes.Buffer
	w := tar.NewWriter(&in)
	for _, name := range []string{"one", "sub/two", "skip.log"} {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(name))}); err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(w, name)
	}
	_ = w.Close()
	told := int64(0)
	if err := b.Files.WriteArchive(ctx, "tree", &in, agentbox.ArchiveOptions{Size: int64(in.Len()), Progress: func(n, _ int64) { told = n }}); err != nil || told == 0 {
		t.Fatal(err, told)
	}
	for _, packed := range []bool{false, true} {
		var out bytes.Buffer
		skipped, err := b.Files.ReadArchive(ctx, "tree", &out, agentbox.ArchiveOptions{Gzip: packed, Exclude: []string{"*.log"}})
		if err != nil || skipped != 0 {
			t.Fatal(skipped, err)
		}
		if is := bytes.HasPrefix(out.Bytes(), []byte("\x1f\x8b")); is != packed {
			t.Errorf("gzip is %v, want %v", is, packed)
		}
		if !packed && (!bytes.Contains(out.Bytes(), []byte("sub/two")) || bytes.Contains(out.Bytes(), []byte("skip.log"))) {
			t.Error("it has not the right entries")
		}
	}
	if err := b.Files.WriteArchive(ctx, "tree", bytes.NewReader([]byte("no archive at all")), agentbox.ArchiveOptions{}); !errors.Is(err, agentbox.ErrInvalidArgument) {
		t.Errorf("it is %v", err)
	}
}

func TestWatch(t *testing.T) {
	b, ctx := box(t, agentbox.CreateOptions{}), within(t)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for change, err := range b.Files.Watch(ctx, ".", false) {
		switch {
		case err != nil:
			t.Fatal(err)
		case change.Kind == "ready":
			if err := b.Files.Write(ctx, "seen", nil, agentbox.WriteOptions{}); err != nil {
				t.Fatal(err)
			}
		case change.Name == "seen":
			return
		}
	}
	t.Error("it ended")
}
