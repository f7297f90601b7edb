package agent

import (
	"bufio"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"math"
	"net/http"
	"strings"
	"syscall"

	"github.com/containerd/errdefs"

	"agentbox/internal/guest"
)

// MaxTarEntries is the most entries that one upload may have: above real trees
// (a large node_modules has 200,000), below what makes a sandbox useless.
const MaxTarEntries = 500_000

// ExtractOptions govern Extract.
type ExtractOptions struct {
	Format     string // "tar", "" is the same, or "tar.gz"
	MaxBytes   int64  // of files; 0: none for tar, 10 GiB for what is compressed
	MaxEntries int64  // 0: MaxTarEntries
	Strip      int    // leading elements of names that are left off; shorter names are left out
}

const (
	// maxExpanded is how much comes out of a compressed archive by default.
	maxExpanded = 10 << 30
	// maxOverhead is what an archive may hold beyond its files' content: half a
	// million headers and more.
	maxOverhead = 1 << 30
	// maxLevels is how many elements a name of an archive may have, in both
	// directions. Deeper trees are legal but
	// slow to walk, and no project has them.
	maxLevels = 256
)

// Extract unpacks an archive below root as tarIn does.
func Extract(ctx context.Context, fsys FS, root string, r io.Reader, o ExtractOptions) error {
	below, err := fsys.Tree(root, true)
	if errors.Is(err, syscall.ENOTDIR) {
		return guest.Errorf(errdefs.ErrInvalidArgument, "unpack into %s: not a directory", root)
	}
	if err != nil {
		return err
	}
	defer below.Close()
	if o.MaxEntries == 0 {
		o.MaxEntries = MaxTarEntries
	}
	r = bufio.NewReaderSize(r, treeBuffer) // headers and small files come together
	switch o.Format {
	case "", "tar":
	case "tar.gz":
		gz, err := gzip.NewReader(r)
		if err != nil {
			return guest.Errorf(errdefs.ErrInvalidArgument, "read the archive: %v", err)
		}
		if o.MaxBytes == 0 {
			o.MaxBytes = maxExpanded
		}
		r = &capped{gz, o.MaxBytes + min(maxOverhead, math.MaxInt64-o.MaxBytes)}
	default:
		return guest.Errorf(errdefs.ErrInvalidArgument, "format is tar or tar.gz")
	}
	t := &tarIn{ctx: ctx, fsys: below, o: o, buf: make([]byte, treeBuffer)}
	return t.extract(r)
}

// capped fails when more than left bytes are read.
type capped struct {
	r    io.Reader
	left int64
}

func (c *capped) Read(p []byte) (int, error) {
	if c.left <= 0 {
		return 0, errTooLarge
	}
	n, err := c.r.Read(p[:min(int64(len(p)), c.left)])
	c.left -= int64(n)
	return n, err
}

var (
	errTooLarge = guest.Errorf(errdefs.ErrResourceExhausted, "the archive holds too many bytes")
	errTooMany  = guest.Errorf(errdefs.ErrResourceExhausted, "the archive has too many entries")
)

// putArchive unpacks a tree into a directory.
func (s *files) putArchive(w http.ResponseWriter, r *http.Request) {
	q := paramsOf(r)
	root := q.v.Get("path")
	o := ExtractOptions{
		Format: q.v.Get("format"), MaxBytes: q.number("max_bytes", math.MaxInt64, 10),
		MaxEntries: q.number("max_entries", MaxTarEntries, 10), Strip: int(q.number("strip", maxLevels, 10)),
	}
	err := q.err
	if err == nil {
		err = s.trees.do(r.Context(), func() error {
			return s.as(q.v.Get("user"), func(fsys FS) error {
				if q.flag("parents") {
					if err := mkdirAll(fsys, root, 0o755, owner{}); err != nil {
						return err
					}
				}
				return Extract(r.Context(), fsys, root, r.Body, o)
			}, root)
		})
	}
	if err != nil {
		guest.WriteError(w, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// clean is an entry's name as path elements below the target. "" is the target
// itself. ok is false for a name that leads outside or is no name.
func clean(name string) (elements []string, ok bool) {
	if strings.HasPrefix(name, "/") || strings.IndexByte(name, 0) >= 0 || name == "" {
		return nil, false
	}
	for _, e := range strings.Split(name, "/") {
		switch {
		case e == "..":
			return nil, false
		case e == "" || e == ".":
		default:
			elements = append(elements, e)
		}
	}
	return elements, true
}
