package toyos

import (
	"context"
	"io"
	"path"
	"sync"
	"syscall"
	"time"

	"github.com/containerd/errdefs"

	guestv1 "agentbox/internal/gen/guest/v1"
	"agentbox/internal/guest"
	"agentbox/internal/guest/agent"
)

func (v *view) Open(p string, _ *guestv1.FileInfo) (f agent.File, err error) {
	v, in := v.at(p)
	err = v.do("open", p, func() error {
		at, err := v.existing(in, true)
		if err != nil {
			return err
		}
		if err := v.may(at.node, mayRead); err != nil {
			return err
		}
		f, err = v.open(p, at, false, false)
		return err
	})
	if err != nil {
		return nil, err
	}
	return f, nil
}

func (v *view) Create(p string, mode uint32, how agent.CreateMode) (f agent.File, err error) {
	v, in := v.at(p)
	err = v.do("open", p, func() error {
		at, err := v.find(in, how != agent.Exclusive)
		if err != nil {
			return err
		}
		if at.node == nil {
			if err := v.mayChange(at); err != nil {
				return err
			}
			n := v.d.newNode(syscall.S_IFREG|mode&0o7777, v.who)
			v.d.link(at.dir, at.name, n)
			at.node = n
			f, err = v.open(p, at, true, how == agent.Append)
			return err
		}
		if how == agent.Exclusive {
			return syscall.EEXIST
		}
		if err := v.may(at.node, mayWrite); err != nil {
			return err
		}
		if f, err = v.open(p, at, true, how == agent.Append); err == nil && how == agent.Truncate {
			err = v.d.resize(at.node, 0)
			v.d.notify(at.dir, guestv1.WatchKind_WATCH_KIND_WRITE, at.name, at.node)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return f, nil
}

func (v *view) open(p string, at place, write, appends bool) (*openFile, error) {
	n := at.node
	switch {
	case n.is(syscall.S_IFDIR):
		return nil, syscall.EISDIR
	case !n.is(syscall.S_IFREG):
		return nil, guest.Errorf(errdefs.ErrInvalidArgument, "open %s: not a regular file", p)
	}
	n.open++
	return &openFile{d: v.d, who: v.who, path: p, n: n, at: at, writable: write, appends: appends, refs: 1}, nil
}

// openFile is an open regular file, for the agent and for processes.
type openFile struct {
	d                 *disk
	who               cred
	path              string
	at                place // when it was opened
	n                 *node
	writable, appends bool
	closed            sync.Once // of the agent

	// Under d.mu:
	offset int64
	refs   int
}

func (f *openFile) Read(b []byte) (int, error) {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	if f.writable {
		return 0, syscall.EBADF
	}
	if f.offset >= int64(len(f.n.data)) {
		return 0, io.EOF
	}
	n := copy(b, f.n.data[f.offset:])
	f.offset += int64(n)
	return n, nil
}

func (f *openFile) Write(b []byte) (int, error) {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	if !f.writable {
		return 0, syscall.EBADF
	}
	if f.appends {
		f.offset = int64(len(f.n.data))
	}
	if end := f.offset + int64(len(b)); end > int64(len(f.n.data)) {
		if err := f.d.resize(f.n, end); err != nil {
			return 0, err
		}
	}
	n := copy(f.n.data[f.offset:], b)
	f.offset += int64(n)
	f.n.touch()
	f.d.notify(f.at.dir, guestv1.WatchKind_WATCH_KIND_WRITE, f.at.name, f.n)
	return n, nil
}

func (f *openFile) Seek(offset int64, whence int) (int64, error) {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	switch whence {
	case io.SeekCurrent:
		offset += f.offset
	case io.SeekEnd:
		offset += int64(len(f.n.data))
	}
	if offset < 0 {
		return 0, syscall.EINVAL
	}
	f.offset = offset
	return offset, nil
}

func (f *openFile) Stat() (*guestv1.FileInfo, error) {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	return f.d.info(f.path, path.Base(f.path), f.n), nil
}

func (f *openFile) Chmod(mode uint32) error {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	f.n.mode = f.n.mode&syscall.S_IFMT | mode&0o7777
	return nil
}

func (f *openFile) Chown(uid, gid int) error {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	return f.who.chown(f.n, uid, gid)
}

func (f *openFile) Chtimes(mtime time.Time) error {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	f.n.mtime = mtime
	return nil
}

func (f *openFile) Truncate(size int64) error {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	return f.d.resize(f.n, size)
}

func (f *openFile) Close() error {
	f.closed.Do(f.close)
	return nil
}

func (f *openFile) read(_ context.Context, b []byte) (int, error)  { return f.Read(b) }
func (f *openFile) write(_ context.Context, b []byte) (int, error) { return f.Write(b) }

func (f *openFile) ref() file {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	f.refs++
	return f
}

func (f *openFile) close() {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	if f.refs--; f.refs == 0 {
		f.n.open--
		f.d.free(f.n)
	}
}
