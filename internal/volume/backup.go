//go:build linux

package volume

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"time"

	"golang.org/x/sys/unix"

	"agentbox/internal/ids"
	"agentbox/internal/transfer"
)

// maxName bounds the bytes of a path in an archive: what one system call takes.
const maxName = 4095

// Backup writes a volume as a tar stream that Restore takes: directories,
// regular files, links, permission bits, times, and owners as the guest sees
// them. skipped names what is left out: devices, FIFOs, sockets, what lies too
// deep, files that would pass the bound of bytes. More entries than allowed end
// it with [transfer.ErrBounds]. The names of a file come as links to the first one;
// where there are more such files than can be remembered, as files of their own.
// Sandboxes may use the volume meanwhile; what they change may be in the archive or
// not. A few archives are written and read at once; more wait.
func (v *Volumes) Backup(ctx context.Context, owner, name string, w io.Writer, b Bounds) (skipped []string, err error) {
	err = v.with(ctx, owner, name, looks, func(tree string) error {
		skipped, err = v.pack(ctx, tree, w, b.orDefault())
		return err
	})
	if err != nil {
		return skipped, fmt.Errorf("back up volume %.128q: %w", name, err)
	}
	return skipped, nil
}

// archiver begins the name of who holds a volume while it is backed up or
// restored, in the place of a sandbox's id.
const archiver = "archive "

// maxArchives is how many archives are written and read at once, a quarter of them of
// one owner; more wait: each may take maxLinked of memory.
const maxArchives = 8

// with calls f while a volume's tree is open.
func (v *Volumes) with(ctx context.Context, owner, name string, m mode, f func(tree string) error) (err error) {
	leave, err := v.archives.take(ctx, owner)
	if err != nil {
		return err
	}
	defer leave()
	holder := archiver + ids.Hex(idBytes)
	vol, tree, err := v.take(ctx, owner, name, holder, m)
	if err != nil {
		return err
	}
	defer func() {
		u := v.lock(vol.ID)
		defer v.unlock(vol.ID, u)
		err = errors.Join(err, v.drop(vol, u, holder))
		// Nobody would release it another time. What stays mounted is used as it is.
		delete(u.by, holder)
	}()
	return f(tree)
}

func (v *Volumes) pack(ctx context.Context, tree string, w io.Writer, b Bounds) ([]string, error) {
	top, err := os.OpenFile(tree, unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	defer top.Close()
	out := &recorder{w: w}
	p := packer{ctx: ctx, out: out, tw: tar.NewWriter(out), bounds: b, uid: v.opts.UID, gid: v.opts.GID, ids: v.opts.IDs, links: newLinks(maxLinked)}
	if err = p.dir(top, "", 1); err == nil {
		err = p.tw.Close()
	}
	return p.skips.List(), err
}

type packer struct {
	ctx           context.Context
	out           *recorder
	tw            *tar.Writer
	bounds        Bounds // what is left
	uid, gid, ids int
	links         links
	skips         transfer.Skips
}

// dir writes what is in d, which is called name and lies depth deep.
func (p *packer) dir(d *os.File, name string, depth int) error {
	return eachName(d, func(base string) error {
		if err := p.ctx.Err(); err != nil {
			return err
		}
		full := path.Join(name, base)
		if depth >= maxDepth || len(full) > maxName {
			p.skips.Add(full, "lies too deep")
			return nil
		}
		if p.bounds.Entries--; p.bounds.Entries < 0 {
			return fmt.Errorf("%w: too many files and directories", transfer.ErrBounds)
		}
		st, err := statAt(d, base)
		if err != nil {
			p.skips.Add(full, transfer.Reason(err))
			return nil
		}
		return p.entry(d, base, full, depth, st)
	})
}

func (p *packer) entry(d *os.File, base, full string, depth int, st unix.Stat_t) error {
	h := &tar.Header{
		Name: full, Mode: int64(st.Mode & 0o777), Format: tar.FormatPAX,
		Uid: p.guestID(st.Uid, p.uid), Gid: p.guestID(st.Gid, p.gid),
		ModTime: time.Unix(st.Mtim.Unix()),
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		h.Typeflag, h.Name = tar.TypeDir, full+"/"
		return p.subdir(d, base, full, depth, h)
	case unix.S_IFREG:
		return p.file(d, base, h, st)
	case unix.S_IFLNK:
		buf := make([]byte, maxName+1)
		n, err := unix.Readlinkat(int(d.Fd()), base, buf)
		if err != nil {
			p.skips.Add(full, transfer.Reason(err))
			return nil
		}
		h.Typeflag, h.Linkname = tar.TypeSymlink, string(buf[:n])
		return unlessSkipped(p.header(h))
	}
	p.skips.Add(full, "neither a file, a directory nor a link")
	return nil
}

// guestID is the number that a guest knows a host's owner by: its root if the
// owner is none of the guest's.
func (p *packer) guestID(host uint32, base int) int {
	if n := int(host) - base; n >= 0 && n < p.ids {
		return n
	}
	return 0
}

// header writes an entry's header. Names that tar can't hold are left out.
func (p *packer) header(h *tar.Header) error {
	err := p.tw.WriteHeader(h)
	if err != nil && p.out.err == nil {
		p.skips.Add(h.Name, "can't be put into an archive")
		return errSkipped
	}
	return err
}

// errSkipped ends the work on one entry.
var errSkipped = errors.New("skipped")

func (p *packer) subdir(d *os.File, base, full string, depth int, h *tar.Header) error {
	sub, err := openDir(d, base)
	if err != nil {
		p.skips.Add(full, transfer.Reason(err))
		return nil
	}
	defer sub.Close()
	if err := p.header(h); err != nil {
		return unlessSkipped(err)
	}
	return p.dir(sub, full, depth+1)
}

func unlessSkipped(err error) error {
	if errors.Is(err, errSkipped) {
		return nil
	}
	return err
}

func (p *packer) file(d *os.File, base string, h *tar.Header, st unix.Stat_t) error {
	id := inode{st.Dev, st.Ino}
	if first, ok := p.links.next(id); ok {
		h.Typeflag, h.Linkname = tar.TypeLink, first
		return unlessSkipped(p.header(h))
	}
	// Not waiting: it may have become a FIFO since it was looked at.
	fd, err := unix.Openat(int(d.Fd()), base, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		p.skips.Add(h.Name, transfer.Reason(&fs.PathError{Err: err}))
		return nil
	}
	f := os.NewFile(uintptr(fd), base)
	defer f.Close()
	var now unix.Stat_t
	if err := unix.Fstat(fd, &now); err != nil || now.Dev != st.Dev || now.Ino != st.Ino {
		p.skips.Add(h.Name, "was replaced while it was read")
		return nil
	}
	if now.Size > p.bounds.Bytes {
		p.skips.Add(h.Name, fmt.Sprintf("its %d bytes are more than an archive may still take", now.Size))
		return nil
	}
	p.bounds.Bytes -= now.Size
	h.Typeflag, h.Size = tar.TypeReg, now.Size
	if err := p.header(h); err != nil {
		return unlessSkipped(err)
	}
	p.links.first(id, h.Name, uint64(st.Nlink)) //nolint:unconvert // other processors have fewer bits
	return p.content(f, h)
}

// content writes exactly h.Size bytes: zeros for what was cut off meanwhile.
func (p *packer) content(f *os.File, h *tar.Header) error {
	in := &readUntil{ctx: p.ctx, r: io.LimitReader(f, h.Size)}
	n, err := io.Copy(p.tw, in)
	if in.err != nil {
		p.skips.Add(h.Name, "has zeros where it can't be read: "+transfer.Reason(in.err))
	} else if err == nil && n < h.Size {
		p.skips.Add(h.Name, "became shorter while it was read")
	}
	if err != nil && in.err == nil {
		return err
	}
	if err := p.ctx.Err(); err != nil {
		return err
	}
	_, err = io.CopyN(p.tw, zeros{}, h.Size-n)
	return err
}

// readUntil reads until a context ends, and keeps r's own error apart from the
// writer's.
type readUntil struct {
	ctx context.Context
	r   io.Reader
	err error
}

func (c *readUntil) Read(b []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := c.r.Read(b)
	if err != nil && !errors.Is(err, io.EOF) {
		c.err = err
	}
	return n, err
}

// recorder remembers that writing failed.
type recorder struct {
	w   io.Writer
	err error
}

func (r *recorder) Write(b []byte) (int, error) {
	n, err := r.w.Write(b)
	if err != nil {
		r.err = err
	}
	return n, err
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}
