package volume

import (
	"cmp"
	"errors"

	"agentbox/internal/sandbox"
	"agentbox/internal/transfer"
)

// Sizes of volumes in bytes, and how many volumes and tenants an owner may have.
const (
	// MinSize leaves something for files beside ext4's own tables and journal.
	MinSize int64 = 16 << 20
	// DefaultSize is that of a sandbox's own disk.
	DefaultSize int64 = 4 << 30
	// DefaultMaxSize is the operator's maximum for a sandbox's disk, too.
	DefaultMaxSize int64 = 64 << 30
	// DefaultPerOwner is as many volumes as an owner may have, DefaultOwnerBytes
	// what their sizes may add up to.
	DefaultPerOwner         = 100
	DefaultOwnerBytes int64 = 256 << 30
	// DefaultTenants is as many tenants with storage as an owner may have: more than
	// have a sandbox at once, because storage stays.
	DefaultTenants = 1000
)

// Hold is one use of a volume or of a tenant's storage.
type Hold struct {
	Owner    string
	Volume   string // name of a volume, or empty
	Tenant   string // id of a tenant if Volume is empty
	Holder   string // who uses it: a sandbox's id
	ReadOnly bool   // of a volume
}

// Mount is a tree that a sandbox may use.
type Mount struct {
	// Path is the tree on the host. Only a sandbox may go there by name.
	Path     string
	ReadOnly bool
	// NotEnforced is what the host can't hold the tree to.
	NotEnforced []string
}

// Storage is what a tenant's sandboxes share.
type Storage struct {
	Workspace, Outputs string // paths on the host; only a sandbox may go there by name
	NotEnforced        []string
}

// Info is what can be seen of a volume from outside.
type Info struct {
	sandbox.Volume
	// Used is how many bytes of the host's disk the volume takes. An image's own
	// tables count; two names of one file in a plain directory count twice.
	Used int64
	// Holders are the ids of the sandboxes that use it, sorted.
	Holders []string
}

// ErrArchive is what Restore could not read.
var ErrArchive = errors.New("the archive can't be read")

// Bounds limit an archive that is written or read.
type Bounds struct {
	Bytes   int64 // of file content, at most. 0: transfer.DefaultBytes
	Entries int   // at most. 0: transfer.DefaultEntries
}

func (b Bounds) orDefault() Bounds {
	return Bounds{Bytes: cmp.Or(b.Bytes, transfer.DefaultBytes), Entries: cmp.Or(b.Entries, transfer.DefaultEntries)}
}
