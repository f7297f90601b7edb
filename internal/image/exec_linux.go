package image

import (
	"os/exec"
	"syscall"
)

// endWithUs lets the command end when this process is killed, and keeps a
// terminal's Ctrl-C from it: it is told to end by us.
func endWithUs(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
}
