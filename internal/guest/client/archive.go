package client

import (
	"context"
	"fmt"
	"io"
	"net/url"

	guestv1 "agentbox/internal/gen/guest/v1"
	"agentbox/internal/guest"
)

// ArchiveFormat is how a tree is sent.
type ArchiveFormat string

// Formats. Tar and TarGz go in both directions, Zip only out of a sandbox.
const (
	Tar   ArchiveFormat = "tar" // the default
	TarGz ArchiveFormat = "tar.gz"
	Zip   ArchiveFormat = "zip"
)

// ArchiveOptions govern GetArchive.
type ArchiveOptions struct {
	User   string
	Format ArchiveFormat // "": Tar
	// Prefix is a relative path that comes before each name, and is an entry of
	// its own; "": names begin below the directory.
	Prefix string
	// Exclude are patterns as those of Search.
	Exclude []string
	// MaxBytes bounds the content of all files together, MaxEntries how many
	// entries there are; 0: no bound. What does not fit is left out.
	MaxBytes, MaxEntries int64
}

// Archive is a tree on its way from the guest.
type Archive struct {
	io.ReadCloser
	answer *answer
}

// Skipped tells what was left out of the archive: special files, what the user
// may not read, what did not fit. It is known when all has been read.
func (a *Archive) Skipped() Skipped {
	m := new(guestv1.SkippedList)
	guest.DecodeHeader(a.answer.Trailer.Get(guest.SkippedTrailer), m)
	return skipped(m)
}

// GetArchive streams a tree as an archive: regular files, directories and links
// with their permissions and times, names relative to the path. A path that is
// no directory is one entry of its own name. Files with several names come once
// for each. A file that shrinks meanwhile is filled with zeros. The archive comes
// from inside the sandbox: the caller trusts no name in it, and bounds what it
// takes.
func (s *Session) GetArchive(ctx context.Context, name string, o ArchiveOptions) (*Archive, error) {
	q := url.Values{"path": {name}, "user": {o.User}, "exclude": o.Exclude}
	setText(q, "format", string(o.Format))
	setText(q, "prefix", o.Prefix)
	setNumber(q, "max_bytes", o.MaxBytes, 10)
	setNumber(q, "max_entries", o.MaxEntries, 10)
	b, err := s.get(ctx, guest.PathTar, q)
	if err != nil {
		return nil, fmt.Errorf("read tree %q: %w", name, err)
	}
	return &Archive{b, b.a}, nil
}

// UnpackOptions govern PutArchive.
type UnpackOptions struct {
	User    string
	Format  ArchiveFormat // "": Tar; not Zip
	Parents bool          // make the target and missing directories above it
	// Strip is how many leading elements of each name are left off; entries that
	// have no more are left out. At most 256.
	Strip      int
	MaxBytes   int64 // of all files together; 0: as the disk allows, 10 GiB for TarGz
	MaxEntries int64 // 0: 500,000, which is also the most
}

// PutArchive unpacks an archive into a directory. Permissions and times are
// kept, owners are not: all belongs to the user, so setuid, setgid and sticky are
// dropped. Later entries replace earlier files and files that are there. Entries
// that lead outside of the directory or through a link, are no files, directories
// and links, or are sparse, are refused: the error is InvalidArgument and its
// Path is the entry's name. An archive that is larger than the limits is
// ResourceExhausted. What came before an error stays.
func (s *Session) PutArchive(ctx context.Context, name string, r io.Reader, o UnpackOptions) error {
	q := url.Values{"path": {name}, "user": {o.User}}
	setText(q, "format", string(o.Format))
	setFlag(q, "parents", o.Parents)
	setNumber(q, "strip", int64(o.Strip), 10)
	setNumber(q, "max_bytes", o.MaxBytes, 10)
	setNumber(q, "max_entries", o.MaxEntries, 10)
	if err := s.put(ctx, guest.PathTar, q, r); err != nil {
		return fmt.Errorf("unpack into %q: %w", name, err)
	}
	return nil
}
