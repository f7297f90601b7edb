package sandbox

import (
	"fmt"
	"time"
)

// Volume is a tree of files that outlives sandboxes.
type Volume struct {
	// ID is drawn and never changes: 32 hex digits. Names never become paths.
	ID    string
	Owner string
	Name  string // unique among the owner's; [CheckVolumeName] tells its form
	// Size is how many bytes the volume may take, file system included.
	Size int64
	// Kind is how the volume is kept on the host.
	Kind  VolumeKind
	State VolumeState
	// NotEnforced lists the limits that the host can't hold the volume to:
	// LimitDisk or nothing.
	NotEnforced []string
	Created     time.Time
}

// VolumeKind is how a volume is kept on the host.
type VolumeKind string

// The kinds of volumes.
const (
	VolumeImage     VolumeKind = "image"     // a file system in a file
	VolumeQuota     VolumeKind = "quota"     // a directory under a project quota
	VolumeDirectory VolumeKind = "directory" // a directory without a limit
)

// VolumeState says whether a volume can be used. One that is not ready is about
// to go, or was left so by a program that was killed.
type VolumeState string

// The states of volumes.
const (
	VolumeCreating VolumeState = "creating"
	VolumeReady    VolumeState = "ready"
	VolumeRemoving VolumeState = "removing"
)

// What a sandbox's NotEnforced says of what outlives it.
const (
	// LimitVolumes: a volume may grow as large as the host's disk.
	LimitVolumes = "volumes"
	// LimitStorage: so may the tenant's storage.
	LimitStorage = "storage"
)

// A first character of its own keeps such names from being hidden, a way up or
// an option of a program.
var storageName = form(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$`)

// CheckVolumeName reports a name that no volume can have as an [*InvalidError].
func CheckVolumeName(name string) error { return checkStorageName("volume", name) }

// CheckTenantID reports a text that can't name a tenant's storage as an
// [*InvalidError].
func CheckTenantID(id string) error { return checkStorageName("tenant_id", id) }

func checkStorageName(field, name string) error {
	if storageName().MatchString(name) {
		return nil
	}
	return &InvalidError{Field: field, Value: Clip(name, maxShown), Allowed: "1 to 128 of A-Z, a-z, 0-9, _, . and -, beginning with a letter, digit or _"}
}

// VolumeHeldError says that a volume is in use in a way that excludes what was
// asked for: errdefs.IsConflict.
type VolumeHeldError struct {
	Volume string
	Holder string // one of those who hold it, of the same owner
	Write  bool   // Holder may write
}

func (e *VolumeHeldError) Error() string {
	if e.Write {
		return fmt.Sprintf("volume %q is used by %s, which may write to it: a volume is used by one writer or by any number of readers", e.Volume, e.Holder)
	}
	return fmt.Sprintf("volume %q is used by %s", e.Volume, e.Holder)
}

// Conflict marks the error for errdefs.
func (*VolumeHeldError) Conflict() {}
