// Package volume is the host's side of storage that outlives sandboxes: named
// volumes of an owner, and the storage of a tenant.
//
// # Two kinds of storage
//
// A named volume is made, listed, backed up and removed by its owner. One
// sandbox uses it to write, or any number to read ([Volumes.Acquire]). Its size
// is limited where the host allows: as root each volume is an ext4 file system
// in a sparse file; else it is a directory under a project quota; else it is a
// plain directory, and NotEnforced says so. A directory also has no bound on the
// number of files.
//
// A tenant's storage is a pair of directories that all of the tenant's sandboxes
// write at once ([Volumes.AcquireTenant]). It is under a project quota where
// there is one.
//
// Whoever makes sandboxes acquires before it makes one and releases after it has
// destroyed it, and keeps in the sandbox's own record what was acquired: that is
// what [Open] is given after a restart.
//
// Nothing here removes a volume because of its age or because nobody uses it.
//
// # What a guest can do to the host
//
// Nothing in a tree is to be trusted: links may lead anywhere, names hold any
// bytes, owners and modes are the guest's, all changes while it is read. So the
// host goes through a tree by file descriptors only, never follows a link,
// never leaves the file system, opens nothing but regular files and directories
// and never waits for one. Images are mounted nosuid and nodev. All trees lie below
// a directory that only the daemon's user and the group of the guests' root can
// go through, so that no other user of the host can reach a program with a
// set-user-id bit.
//
// The guests' root must be able to go through, from the top of the host on: the
// process that serves a directory to a sandbox opens it by itself. Where it can
// not, gVisor's library opens the directory for it on a thread of the daemon
// that never ends, and that keeps the file system in use after it was unmounted.
// So what is above Dir and Storage must let others go through (mode 0711).
//
// # On disk
//
//	<dir>/<id>/image      the file system
//	<dir>/<id>/mnt        where it is mounted, while somebody uses it
//	<dir>/<id>/mnt/data   what sandboxes see
//	<dir>/<id>/data       what sandboxes see, without an image
//
//	<storage>/<tenant>/{workspace,outputs}                    of the owner "default"
//	<storage>/.owners/<owner>/<tenant>/{workspace,outputs}    of any other
//	<storage>/.removed/                                       on its way out
//
// # Being killed
//
// A record in the state "creating" precedes a volume's files, one in the state
// "removing" their end, so [Open] knows what is half made and finishes it. Loop
// devices clear themselves when their last user goes, and carry a mark besides.
// A mount outlives the daemon, as the sandboxes do that use it: Open is told who
// still holds what, and releases the rest. Whatever does not have the place,
// the file and the mark of ours stays untouched. A directory without a record is
// left alone, too: it may be data whose record was lost.
//
// Two processes must not open the same directory; the lock of the data directory
// sees to that.
//
// A loop image is as sparse as its contents: a full disk of the host shows as an
// input/output error in the volume. What a guest deletes is given back to the
// host at once.
//
// # Errors
//
// Of the classes of containerd/errdefs. A volume of another owner is NotFound,
// like one that never was. A volume in use is a [sandbox.VolumeHeldError].
package volume
