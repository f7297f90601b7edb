package client

import (
	"context"
	"fmt"
	"io/fs"

	guestv1 "agentbox/internal/gen/guest/v1"
)

// Calls about whole trees take as long as the context allows, one minute if it
// has no deadline.

// Skipped says what a call left out of a tree. It comes from inside the sandbox.
type Skipped struct {
	Total int           // how many entries
	First []SkippedFile // the first of them, 100 at most
}

// SkippedFile is one entry that was left out. Its path is relative to the tree.
type SkippedFile struct {
	Path   string
	Reason SkipReason
}

// SkipReason tells why an entry was left out.
type SkipReason string

// Reasons.
const (
	SkipFIFO   SkipReason = "fifo"
	SkipSocket SkipReason = "socket"
	SkipDevice SkipReason = "device"
	SkipDenied SkipReason = "denied" // the user may not read it
	SkipSize   SkipReason = "size"   // it did not fit
	SkipCount  SkipReason = "count"  // there were too many before it
	SkipDepth  SkipReason = "depth"  // it is a directory or file more than 256 levels deep
)

func skipped(m *guestv1.SkippedList) Skipped {
	s := Skipped{Total: int(min(m.GetTotal(), 1<<53))}
	for _, f := range m.GetFirst() {
		s.First = append(s.First, SkippedFile{string(f.GetPath()), SkipReason(f.GetReason())})
	}
	return s
}

// CopyOptions govern Copy.
type CopyOptions struct {
	User      string
	Recursive bool // a directory with what is in it; else one is an error
	Overwrite bool // replace files and add to directories; else what is there is an error
}

// Copy copies a file, a link or a tree inside the sandbox; to is the copy's own
// name. Contents, permissions (without setuid, setgid and sticky), modification
// times, links and hard links within the tree are kept; blocks of zeros become
// holes. The copy belongs to the user. A file is replaced at once when its copy
// is whole; a tree that could not be copied to its end stays in part. Special
// files and what the user may not read are left out of a tree and returned.
func (s *Session) Copy(ctx context.Context, from, to string, o CopyOptions) (entries int, left Skipped, err error) {
	a := new(guestv1.CopyResponse)
	q := &guestv1.CopyRequest{From: []byte(from), To: []byte(to), User: o.User, Recursive: o.Recursive, Overwrite: o.Overwrite}
	if err := s.call(ctx, "Copy", q, a); err != nil {
		return 0, Skipped{}, fmt.Errorf("copy %q to %q: %w", from, to, err)
	}
	return int(a.GetEntries()), skipped(a.GetSkipped()), nil
}

// ChangeOptions govern Chmod and Chown.
type ChangeOptions struct {
	User      string
	Recursive bool // what is below, too; links are not followed
}

// Chmod sets the permissions of a file, with setuid, setgid and sticky, and
// returns how many files changed. Links in a tree are left alone.
func (s *Session) Chmod(ctx context.Context, name string, mode fs.FileMode, o ChangeOptions) (changed int, err error) {
	a := new(guestv1.ChmodResponse)
	q := &guestv1.ChmodRequest{Path: []byte(name), User: o.User, Mode: modeBits(mode), Recursive: o.Recursive}
	if err := s.call(ctx, "Chmod", q, a); err != nil {
		return 0, fmt.Errorf("change the mode of %q: %w", name, err)
	}
	return int(a.GetChanged()), nil
}

// Chown sets the owner, "user", "user:group" or ":group", each a name or a
// number of the sandbox, and returns how many files changed. A link changes
// itself. The sandbox's kernel allows it to its root, so User is mostly "root".
func (s *Session) Chown(ctx context.Context, name, owner string, o ChangeOptions) (changed int, err error) {
	a := new(guestv1.ChownResponse)
	q := &guestv1.ChownRequest{Path: []byte(name), User: o.User, Owner: owner, Recursive: o.Recursive}
	if err := s.call(ctx, "Chown", q, a); err != nil {
		return 0, fmt.Errorf("change the owner of %q: %w", name, err)
	}
	return int(a.GetChanged()), nil
}

// SymlinkOptions govern Symlink.
type SymlinkOptions struct {
	User      string
	Overwrite bool // replace a file or link that is there
}

// Symlink makes a link called name that leads to target. The target is stored
// as it is, need not exist, and means what it means inside the sandbox.
func (s *Session) Symlink(ctx context.Context, target, name string, o SymlinkOptions) error {
	q := &guestv1.SymlinkRequest{Target: []byte(target), Path: []byte(name), User: o.User, Overwrite: o.Overwrite}
	if err := s.call(ctx, "Symlink", q, new(guestv1.SymlinkResponse)); err != nil {
		return fmt.Errorf("link %q to %q: %w", name, target, err)
	}
	return nil
}

// Readlink returns where a link leads. What is no link is InvalidArgument.
func (s *Session) Readlink(ctx context.Context, name, user string) (string, error) {
	a := new(guestv1.ReadlinkResponse)
	if err := s.call(ctx, "Readlink", &guestv1.ReadlinkRequest{Path: []byte(name), User: user}, a); err != nil {
		return "", fmt.Errorf("read link %q: %w", name, err)
	}
	return string(a.GetTarget()), nil
}

// modeBits is the reverse of fileMode, without the type.
func modeBits(m fs.FileMode) uint32 {
	bits := uint32(m.Perm())
	for mode, bit := range map[fs.FileMode]uint32{fs.ModeSetuid: 0o4000, fs.ModeSetgid: 0o2000, fs.ModeSticky: 0o1000} {
		if m&mode != 0 {
			bits |= bit
		}
	}
	return bits
}
