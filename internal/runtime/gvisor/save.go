package gvisor

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/sentry/state/checkpointfiles"
	"gvisor.dev/gvisor/pkg/unet"
	"gvisor.dev/gvisor/pkg/urpc"
	"gvisor.dev/gvisor/runsc/boot"

	"agentbox/internal/failpoint"
	"agentbox/internal/sandbox"
)

// save is the writable layer of a stopped sandbox: a directory of files that is
// complete when the record names it, and as the record describes it or damaged.
// The files are gVisor's own save of a file system, which other versions of it
// and other agents can read, and what that leaves out (package attrs).
type save struct {
	Number int // names the directory
	Time   time.Time
	Files  map[string]savedFile
}

type savedFile struct {
	Size   int64
	SHA256 string
}

// Files of a save.
const (
	manifestFile = checkpointfiles.FSCheckpointManifestFileName
	treeFile     = checkpointfiles.FSCheckpointMultiTarFileName // names, owners, modes
	rangesFile   = checkpointfiles.PagesMetadataFileName        // of the pages
	pagesFile    = checkpointfiles.PagesFileName                // contents
	attrsFile    = "attrs.bin"
)

const saveStem = "save-"

func saveDir(dir string, number int) string {
	return filepath.Join(dir, fmt.Sprint(saveStem, number))
}

// The sizes of a save follow from the sandbox's limits.
const (
	maxManifest = 64 << 10
	// maxRange is what a run of pages takes in rangesFile; each page may be one.
	maxRange = 64
	pageSize = 4096
	// layerSlack is for pages that the size of the layer does not count.
	layerSlack = 16 << 20
	// A start takes about five times the tree's file from the sandbox's memory, as
	// was measured, and the engine needs some for itself. A tree that is larger
	// could be saved and never be started again. A file takes 1 KiB of it, more if
	// its path is long: 5,000 files in 64 MiB of memory, 80,000 in 512 MiB.
	treeShare   = 6
	engineShare = 32 << 20
	minTree     = 1 << 20
)

// maxTree is how large the tree of a save may be.
func maxTree(l sandbox.Limits) int64 { return max(minTree, (l.Memory-engineShare)/treeShare) }

func bounds(l sandbox.Limits) map[string]int64 {
	return map[string]int64{
		manifestFile: maxManifest,
		treeFile:     maxTree(l),
		rangesFile:   (l.Disk + layerSlack) / pageSize * maxRange,
		pagesFile:    l.Disk + layerSlack,
		attrsFile:    maxTree(l),
	}
}

// writeSave writes the layer of a sandbox without processes to a new directory.
func (b *box) writeSave(ctx context.Context, number int) (s *save, err error) {
	dir := saveDir(b.dir, number)
	if err := os.RemoveAll(dir); err != nil { // of an attempt that was cut
		return nil, fmt.Errorf("remove an unfinished save: %w", err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the save's directory: %w", err)
	}
	w := &saveWriter{dir: dir, bounds: bounds(b.rec.Limits), sums: map[string]savedFile{}}
	if err := w.layer(ctx, b); err != nil {
		return nil, fmt.Errorf("save the files: %w", err)
	}
	if err := failpoint.StopWritten.Hit(); err != nil {
		return nil, err
	}
	// The pages are read once more while a helper looks at the tree.
	pages := make(chan error, 1)
	go func() { pages <- w.sealPages() }()
	err = w.attrs(ctx, b)
	if err = errors.Join(err, <-pages); err != nil {
		return nil, err
	}
	if err := syncDir(dir); err != nil {
		return nil, err
	}
	return &save{Number: number, Time: time.Now(), Files: w.sums}, nil
}

// saveWriter takes the files of one save.
type saveWriter struct {
	dir    string
	bounds map[string]int64
	sums   map[string]savedFile
}

// layer lets gVisor write its four files.
func (w *saveWriter) layer(ctx context.Context, b *box) (err error) {
	var sinks []*sink
	defer func() { err = w.collect(ctx, err, sinks...) }()
	files := make([]*os.File, 0, len(w.bounds))
	for _, name := range []string{manifestFile, treeFile, rangesFile} {
		s, err := newSink(filepath.Join(w.dir, name), w.bounds[name])
		if err != nil {
			return err
		}
		sinks, files = append(sinks, s), append(files, s.in)
	}
	// Written at offsets, so it can't be a pipe. It has the size of the layer at
	// most, which gVisor limits.
	pages, err := os.OpenFile(filepath.Join(w.dir, pagesFile), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("make a file of the save: %w", err)
	}
	defer pages.Close()
	return b.fsSave(ctx, append(files, pages))
}

// fsSave is gVisor's call. The sandbox runs on after it.
func (b *box) fsSave(ctx context.Context, files []*os.File) error {
	sock, err := unet.Connect(b.c.Sandbox.GetControlSocketPath(), false)
	if err != nil {
		return fmt.Errorf("connect to the sandbox process: %w", err)
	}
	call := urpc.NewClient(sock)
	defer call.Close()
	interrupt := context.AfterFunc(ctx, func() { _ = sock.Shutdown() }) // ends the call
	defer interrupt()
	args := boot.FSSaveArgs{FilePayload: urpc.FilePayload{Files: files}}
	if err := call.Call(boot.ContMgrFSSave, &args, nil); err != nil {
		return errors.Join(ctx.Err(), errors.New(printable(err.Error()))) // it may name the guest's files
	}
	return nil
}

// attrs lets a helper note what is missing in gVisor's files.
func (w *saveWriter) attrs(ctx context.Context, b *box) (err error) {
	tree, err := os.Open(filepath.Join(w.dir, treeFile))
	if err != nil {
		return fmt.Errorf("open the saved tree: %w", err)
	}
	defer tree.Close()
	note, err := newSink(filepath.Join(w.dir, attrsFile), w.bounds[attrsFile])
	if err != nil {
		return err
	}
	defer func() { err = w.collect(ctx, err, note) }()
	h := helper{verb: "read-attrs", caps: attrsCaps, files: []*os.File{tree, note.in}}
	return h.run(ctx, b)
}

// attrsCaps are what a helper needs to see and set the attributes of all files,
// and one that user code lacks.
var attrsCaps = []linux.Capability{
	linux.CAP_WAKE_ALARM, linux.CAP_DAC_OVERRIDE, linux.CAP_DAC_READ_SEARCH, linux.CAP_FOWNER, linux.CAP_SYS_ADMIN, linux.CAP_SETFCAP,
}

// collect waits for what was written to the sinks. When the writing failed it
// waits for nobody who may hold their other ends still, and tells of a bound that
// was reached rather than of what followed from it.
func (w *saveWriter) collect(ctx context.Context, err error, sinks ...*sink) error {
	if err == nil {
		err = ctx.Err()
	}
	for _, s := range sinks {
		if err != nil {
			s.abort()
		}
		sum, sinkErr := s.finish()
		w.sums[filepath.Base(s.path)] = sum
		// What a sink ran into is why the sandbox's write failed.
		if err == nil || sinkErr != nil && !errors.Is(sinkErr, os.ErrDeadlineExceeded) {
			err = sinkErr
		}
	}
	return err
}

// sealPages checks the file of contents and describes it.
func (w *saveWriter) sealPages() error {
	f, err := os.Open(filepath.Join(w.dir, pagesFile))
	if err != nil {
		return fmt.Errorf("seal the saved contents: %w", err)
	}
	defer f.Close()
	sum, err := sumOf(f, w.bounds[pagesFile])
	if err == nil {
		err = f.Sync()
	}
	if err != nil {
		return fmt.Errorf("seal the saved contents: %w", err)
	}
	w.sums[pagesFile] = sum
	return nil
}

// errTooLarge is a file of a save that goes beyond its bound.
var errTooLarge = fmt.Errorf("there are more files than the sandbox with its limits could be started with again: %w", errdefs.ErrResourceExhausted)

// sumOf describes what is left to read of r.
func sumOf(r io.Reader, limit int64) (savedFile, error) {
	h := sha256.New()
	n, err := io.Copy(h, io.LimitReader(r, limit+1))
	if err == nil && n > limit {
		err = errTooLarge
	}
	return savedFile{Size: n, SHA256: hex.EncodeToString(h.Sum(nil))}, err
}

// verify tells whether the files of a save are what they were.
func (s *save) verify(dir string) error {
	for name, want := range s.Files {
		if err := want.verify(filepath.Join(dir, name)); err != nil {
			return fmt.Errorf("the sandbox's saved files are damaged: %s: %w: %w", name, err, errdefs.ErrDataLoss)
		}
	}
	return nil
}

func (want savedFile) verify(path string) error {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	if !st.Mode().IsRegular() || st.Size() != want.Size {
		return fmt.Errorf("it has %d bytes, not %d", st.Size(), want.Size)
	}
	got, err := sumOf(f, want.Size)
	if err == nil && got != want {
		err = errors.New("its checksum is another")
	}
	return err
}

// sweepSaves removes every save but the one that the record names.
func (b *box) sweepSaves() error {
	dirs, err := filepath.Glob(filepath.Join(b.dir, saveStem+"*"))
	if err != nil {
		return fmt.Errorf("list saves: %w", err)
	}
	for _, d := range dirs {
		if b.rec.Saved != nil && d == saveDir(b.dir, b.rec.Saved.Number) {
			continue
		}
		if err := os.RemoveAll(d); err != nil {
			return fmt.Errorf("remove an old save: %w", err)
		}
	}
	return nil
}

// savedBytes is what the save takes on the host's disk.
func (b *box) savedBytes() (n int64) {
	if b.rec.Saved == nil {
		return 0
	}
	for name := range b.rec.Saved.Files {
		if fi, err := os.Lstat(filepath.Join(saveDir(b.dir, b.rec.Saved.Number), name)); err == nil {
			n += blocks(fi)
		}
	}
	return n
}

// blocks is what a file takes on the disk, in bytes.
func blocks(fi os.FileInfo) int64 {
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		return st.Blocks * 512
	}
	return 0
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("sync %s: %w", filepath.Base(dir), err)
	}
	defer d.Close()
	if err := d.Sync(); err != nil {
		return fmt.Errorf("sync %s: %w", filepath.Base(dir), err)
	}
	return nil
}
