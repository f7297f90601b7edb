//go:build linux

package volume

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"agentbox/internal/transfer"
)

// Restore unpacks a tar stream, as Backup writes it or any other, into a volume.
// What is there stays unless the archive has the same name. Nobody may use the
// volume meanwhile: a [sandbox.VolumeHeldError].
//
// Regular files, directories and links are taken; links are never followed to
// outside the volume. Modes keep their permission bits, owners that the guest
// can't have become its root. skipped names what was left out. More bytes or
// entries than b allows end it with [transfer.ErrBounds], a full volume with
// ResourceExhausted; what was unpacked until then stays.
func (v *Volumes) Restore(ctx context.Context, owner, name string, r io.Reader, b Bounds) (skipped []string, err error) {
	err = v.with(ctx, owner, name, writes, func(tree string) error {
		root, err := os.OpenRoot(tree)
		if err != nil {
			return err
		}
		defer root.Close()
		u := unpacker{root: root, bounds: b.orDefault(), uid: v.opts.UID, gid: v.opts.GID, ids: v.opts.IDs}
		err = u.all(ctx, r)
		skipped = u.skips.List()
		return err
	})
	if err != nil {
		return skipped, fmt.Errorf("restore volume %.128q: %w", name, classify(err))
	}
	return skipped, nil
}

type unpacker struct {
	root          *os.Root
	bounds        Bounds // what is left
	uid, gid, ids int
	skips         transfer.Skips
}

func (u *unpacker) all(ctx context.Context, r io.Reader) error {
	in := &ending{r: &readUntil{ctx: ctx, r: r}}
	tr := tar.NewReader(in)
	for {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return in.whole()
		}
		if err != nil && !errors.Is(err, tar.ErrInsecurePath) {
			return fmt.Errorf("%w: %w", ErrArchive, err)
		}
		if u.bounds.Entries--; u.bounds.Entries < 0 {
			return fmt.Errorf("%w: too many files and directories", transfer.ErrBounds)
		}
		err = u.entry(h, tr)
		if err != nil && hostFails(err) {
			return err
		}
		if err != nil {
			u.skips.Add(h.Name, transfer.Reason(err))
		}
	}
}

// ending watches for the end of an archive, a block of zeros: the package tar
// takes the end of its input for it, too, in some places even in the middle of
// an entry.
type ending struct {
	r     io.Reader
	zeros int // how many bytes before this one were zero
}

func (e *ending) Read(b []byte) (int, error) {
	n, err := e.r.Read(b)
	last := bytes.TrimRight(b[:n], "\x00")
	if len(last) > 0 {
		e.zeros = 0
	}
	e.zeros += n - len(last)
	return n, err
}

// whole reports an archive that was cut.
func (e *ending) whole() error {
	if e.zeros < tarBlock {
		return fmt.Errorf("%w: %w", ErrArchive, io.ErrUnexpectedEOF)
	}
	return nil
}

const tarBlock = 512

// hostFails reports whether an error concerns more than one entry.
func hostFails(err error) bool {
	for _, e := range []error{transfer.ErrBounds, errBroken, unix.ENOSPC, unix.EDQUOT, unix.EIO, unix.EROFS, unix.EMFILE, unix.ENFILE} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// errBroken marks an archive that ends in the middle of a file.
var errBroken = errors.New("the archive is broken")

func (u *unpacker) entry(h *tar.Header, data io.Reader) error {
	name := path.Clean(strings.TrimPrefix(h.Name, "./"))
	if name == "." && h.Typeflag == tar.TypeDir {
		return nil
	}
	if !filepath.IsLocal(name) || strings.IndexByte(name, 0) >= 0 || len(name) > maxName {
		return errors.New("the name leads out of the volume")
	}
	if strings.Count(name, "/") >= maxDepth {
		return errors.New("lies too deep")
	}
	if h.Typeflag == tar.TypeDir {
		return u.dir(h, name)
	}
	if err := u.parents(name); err != nil {
		return err
	}
	// A new file each time: an entry must not write through an earlier one.
	if err := u.root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	switch h.Typeflag {
	case tar.TypeReg:
		return u.file(h, name, data)
	case tar.TypeSymlink:
		if err := u.root.Symlink(h.Linkname, name); err != nil {
			return err
		}
		return u.own(h, name)
	case tar.TypeLink:
		return u.link(h, name)
	}
	return errors.New("neither a file, a directory nor a link")
}

// link makes another name of a file that is there.
func (u *unpacker) link(h *tar.Header, name string) error {
	target := path.Clean(strings.TrimPrefix(h.Linkname, "./"))
	if !filepath.IsLocal(target) {
		return errors.New("the link leads out of the volume")
	}
	if i, err := u.root.Lstat(target); err != nil {
		return err
	} else if !i.Mode().IsRegular() {
		return errors.New("a link to what is no file")
	}
	return u.root.Link(target, name)
}

// parents makes the directories above name that are missing.
func (u *unpacker) parents(name string) error {
	above := path.Dir(name)
	if _, err := u.root.Lstat(above); above == "." || err == nil {
		return nil
	}
	return u.dir(&tar.Header{Mode: 0o755}, above)
}

func (u *unpacker) dir(h *tar.Header, name string) error {
	if err := u.parents(name); err != nil {
		return err
	}
	err := u.root.Mkdir(name, 0o700)
	if errors.Is(err, fs.ErrExist) {
		var i fs.FileInfo
		if i, err = u.root.Lstat(name); err == nil && !i.IsDir() {
			err = &fs.PathError{Op: "make directory", Path: name, Err: unix.ENOTDIR}
		}
	}
	if err != nil {
		return err
	}
	// Its owner can always enter and write: entries may follow.
	if err := u.root.Chmod(name, fs.FileMode(h.Mode&0o777|0o700)); err != nil {
		return err
	}
	return u.own(h, name)
}

func (u *unpacker) file(h *tar.Header, name string, data io.Reader) error {
	if h.Size > u.bounds.Bytes {
		return fmt.Errorf("%w: too many bytes", transfer.ErrBounds)
	}
	u.bounds.Bytes -= h.Size
	f, err := u.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	if n, err := io.Copy(f, data); err != nil {
		var of *fs.PathError
		if errors.As(err, &of) {
			return fmt.Errorf("write %d of %d bytes: %w", n, h.Size, err)
		}
		return fmt.Errorf("%w: %w", errBroken, err)
	}
	if err := f.Chmod(fs.FileMode(h.Mode & 0o777)); err != nil {
		return err
	}
	if err := u.own(h, name); err != nil {
		return err
	}
	return u.root.Chtimes(name, h.ModTime, h.ModTime)
}

// own gives what was made to the guest's owner.
func (u *unpacker) own(h *tar.Header, name string) error {
	if os.Geteuid() != 0 {
		return nil // all is this user's
	}
	return u.root.Lchown(name, u.hostID(h.Uid, u.uid), u.hostID(h.Gid, u.gid))
}

func (u *unpacker) hostID(guest, base int) int {
	if guest < 0 || guest >= u.ids {
		return base
	}
	return base + guest
}
