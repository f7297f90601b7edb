//go:build unix

package runtime

import (
	"io/fs"
	"syscall"
)

// mayPass reports whether a user may go through a directory.
func mayPass(fi fs.FileInfo, uid, gid uint32) bool {
	st, ok := fi.Sys().(*syscall.Stat_t)
	switch {
	case ok && st.Uid == uid:
		return fi.Mode()&0o100 != 0
	case ok && st.Gid == gid:
		return fi.Mode()&0o010 != 0
	}
	return fi.Mode()&0o001 != 0
}
