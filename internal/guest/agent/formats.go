package agent

import (
	"archive/tar"
	"archive/zip"
	"compress/flate"
	"compress/gzip"
	"errors"
	"io"
	"io/fs"
	"time"

	guestv1 "agentbox/internal/gen/guest/v1"
)

// archiveFormats are the formats of archives that are sent.
var archiveFormats = map[string]func(io.Writer) archiver{
	"":       func(w io.Writer) archiver { return &tarOut{w: tar.NewWriter(w)} },
	"tar":    func(w io.Writer) archiver { return &tarOut{w: tar.NewWriter(w)} },
	"tar.gz": newTarGz,
	"zip":    newZip,
}

type tarOut struct {
	w  *tar.Writer
	gz *gzip.Writer // nil without compression
}

// Fast compression: the stream stays on the machine.
func newTarGz(w io.Writer) archiver {
	gz, _ := gzip.NewWriterLevel(w, gzip.BestSpeed) // fails for a wrong level only
	return &tarOut{w: tar.NewWriter(gz), gz: gz}
}

func (t *tarOut) entry(name string, i *guestv1.FileInfo, size int64) (io.Writer, error) {
	h := &tar.Header{
		Name: name, Typeflag: tar.TypeReg, Mode: int64(i.GetMode() & 0o7777), Uid: int(i.GetUid()), Gid: int(i.GetGid()), Size: size,
		ModTime: time.Unix(0, i.GetMtimeNs()).Truncate(time.Second),
	}
	switch {
	case isDir(i):
		h.Typeflag, h.Name = tar.TypeDir, name+"/"
	case isLink(i):
		h.Typeflag, h.Linkname = tar.TypeSymlink, string(i.GetTarget())
	}
	return t.w, t.w.WriteHeader(h)
}

func (t *tarOut) Close() error {
	err := t.w.Close()
	if t.gz != nil {
		err = errors.Join(err, t.gz.Close())
	}
	return err
}

type zipOut struct{ w *zip.Writer }

func newZip(w io.Writer) archiver {
	z := zip.NewWriter(w)
	z.RegisterCompressor(zip.Deflate, func(w io.Writer) (io.WriteCloser, error) { return flate.NewWriter(w, flate.BestSpeed) })
	return &zipOut{z}
}

// entry stores links as Info-ZIP does: the target is the content.
func (z *zipOut) entry(name string, i *guestv1.FileInfo, _ int64) (io.Writer, error) {
	h := &zip.FileHeader{Name: name, Method: zip.Deflate, Modified: time.Unix(0, i.GetMtimeNs())}
	mode := fs.FileMode(i.GetMode() & permsMask)
	switch {
	case isDir(i):
		h.Name, h.Method, mode = name+"/", zip.Store, mode|fs.ModeDir
	case isLink(i):
		h.Method, mode = zip.Store, mode|fs.ModeSymlink
	}
	h.SetMode(mode)
	w, err := z.w.CreateHeader(h)
	if err == nil && isLink(i) {
		_, err = w.Write(i.GetTarget())
	}
	return w, err
}

func (z *zipOut) Close() error { return z.w.Close() }
