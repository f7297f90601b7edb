package main

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"agentbox/internal/image/erofs"
)

// flatten makes a root file system of the image's files: of a tar, as agentbox
// does it, and of the same files in a directory, as mkfs.erofs wants them. Both
// are timed until the file is on the disk.
func (b *bench) flatten(ctx context.Context) (err error) {
	dir, err := os.MkdirTemp("", "agentbox-bench-flatten")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	source, err := b.saveRoot(ctx, filepath.Join(dir, "root.tar"))
	if err != nil {
		return err
	}
	tree, unpacked := filepath.Join(dir, "tree"), samples{}
	mkfs := findMkfs(ctx, b.report)
	if mkfs != "" {
		if err := os.Mkdir(tree, 0o700); err != nil {
			return err
		}
		err := timed(&unpacked, func() error {
			return hostRun(ctx, "tar", "-C", tree, "--numeric-owner", "-xpf", source.path)
		})
		if err != nil {
			return err
		}
	}
	var own, other, ownSize, otherSize samples
	out := filepath.Join(dir, "root.erofs")
	for range b.n(10) {
		if err := makeRoot(&own, &ownSize, out, func() error { return flattenTar(source.path, out) }); err != nil {
			return err
		}
		if mkfs == "" {
			continue
		}
		if err := makeRoot(&other, &otherSize, out, func() error { return hostRun(ctx, mkfs, "--quiet", out, tree) }); err != nil {
			return err
		}
	}
	b.report.addImage(fmt.Sprintf("make it of %d files, %.0f MB", source.files, float64(source.bytes)/1e6), "ms", own, other)
	b.report.addImage("- unpack the tar before", "ms", nil, unpacked)
	b.report.addImage("size", "MB", ownSize, otherSize)
	return nil
}

// makeRoot times one way of making the file out, and measures the file.
func makeRoot(took, size *samples, out string, do func() error) error {
	if err := os.Remove(out); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	pause()
	err := timed(took, func() error { return errors.Join(do(), syncFile(out)) })
	if err != nil {
		return err
	}
	st, err := os.Stat(out)
	if err != nil {
		return err
	}
	*size = append(*size, float64(st.Size())/1e6)
	return nil
}

func syncFile(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// flattenTar is what agentbox does with each layer of an image.
func flattenTar(source, out string) error {
	in, err := os.Open(source)
	if err != nil {
		return err
	}
	defer in.Close()
	f, err := os.Create(out)
	if err != nil {
		return err
	}
	w, err := erofs.New(f, erofs.DefaultLimits)
	if err == nil {
		err = w.AddLayer(in)
	}
	if err == nil {
		_, err = w.Close(time.Unix(0, 0))
	}
	return errors.Join(err, f.Close())
}

// rootTar is the image's files as one tar.
type rootTar struct {
	path  string
	files int
	bytes int64 // of all files
}

func (b *bench) saveRoot(ctx context.Context, path string) (rootTar, error) {
	root := rootTar{path: path}
	f, err := os.Create(path)
	if err != nil {
		return root, err
	}
	defer f.Close()
	sb, _, err := b.own.create(ctx)
	if err != nil {
		return root, err
	}
	if err := errors.Join(sb.stream(ctx, f, packRoot...), b.own.destroy(ctx, sb)); err != nil {
		return root, err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return root, err
	}
	for r := tar.NewReader(f); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return root, nil
		}
		if err != nil {
			return root, err
		}
		root.files++
		root.bytes += h.Size
	}
}

// findMkfs returns the path of mkfs.erofs, and reports its version or that it is
// missing.
func findMkfs(ctx context.Context, r *report) string {
	path, err := exec.LookPath("mkfs.erofs")
	if err != nil {
		r.Mkfs = "missing: apt-get install erofs-utils"
		return ""
	}
	r.Mkfs = "of unknown version"
	text, _ := exec.CommandContext(ctx, path, "--version").CombinedOutput() // old ones print it and complain
	for line := range strings.Lines(string(text)) {
		if v, ok := strings.CutPrefix(line, "mkfs.erofs"); ok && !strings.Contains(v, ":") {
			r.Mkfs = strings.TrimSpace(v)
			break
		}
	}
	return path
}

// hostRun runs a program of the host's; the error has what it said.
func hostRun(ctx context.Context, argv ...string) error {
	if text, err := exec.CommandContext(ctx, argv[0], argv[1:]...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %.500s", argv[0], err, text)
	}
	return nil
}
