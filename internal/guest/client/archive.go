package client

import (
	"context"
	"fmt"
	"io"
	"net/url"

	"agentbox/internal/guest"
)

// TarOptions govern GetTar and PutTar.
type TarOptions struct {
	User string
	// Only for PutTar:
	Parents    bool  // make the target and missing directories above it
	MaxBytes   int64 // of all files together; 0: as the disk allows
	MaxEntries int64 // 0: 500,000, which is also the most
}

// GetTar streams a tree as a tar archive: regular files, directories and links,
// with names relative to the path. The archive comes from inside the sandbox:
// the caller trusts no name in it, and bounds what it takes.
func (s *Session) GetTar(ctx context.Context, name string, o TarOptions) (io.ReadCloser, error) {
	b, err := s.get(ctx, guest.PathTar, url.Values{"path": {name}, "user": {o.User}})
	if err != nil {
		return nil, fmt.Errorf("read tree %q: %w", name, err)
	}
	return b, nil
}

// PutTar unpacks a tar archive into a directory. Entries that lead outside of
// it, or are no files, directories and links, are refused: the error is
// InvalidArgument and has the entry's name. What came before stays.
func (s *Session) PutTar(ctx context.Context, name string, r io.Reader, o TarOptions) error {
	q := url.Values{"path": {name}, "user": {o.User}}
	setFlag(q, "parents", o.Parents)
	setNumber(q, "max_bytes", o.MaxBytes, 10)
	setNumber(q, "max_entries", o.MaxEntries, 10)
	if err := s.put(ctx, guest.PathTar, q, r); err != nil {
		return fmt.Errorf("unpack into %q: %w", name, err)
	}
	return nil
}
