//go:build linux

package pid1

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// ttyMode is the mode of a terminal, as grantpt(3) sets it.
const ttyMode = 0o620

// openTerminal makes a pseudo-terminal that belongs to the user.
func openTerminal(cols, rows uint16, id identity) (master, slave *os.File, err error) {
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("open a terminal: %w", err)
	}
	master = os.NewFile(uintptr(fd), "/dev/ptmx")
	defer func() {
		if err != nil {
			master.Close()
		}
	}()
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		return nil, nil, fmt.Errorf("unlock a terminal: %w", err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		return nil, nil, fmt.Errorf("find a terminal: %w", err)
	}
	slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("open a terminal: %w", err)
	}
	// A kernel that does not keep owners of terminals opens them to all anyway.
	_ = unix.Fchown(int(slave.Fd()), int(id.uid), -1)
	_ = unix.Fchmod(int(slave.Fd()), ttyMode)
	return master, slave, setSize(master, cols, rows)
}

func setSize(tty *os.File, cols, rows uint16) error {
	raw, err := tty.SyscallConn()
	if err != nil {
		return fmt.Errorf("resize the terminal: %w", err)
	}
	var set error
	err = raw.Control(func(fd uintptr) {
		set = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Col: cols, Row: rows})
	})
	if err == nil {
		err = set
	}
	if err != nil {
		return fmt.Errorf("resize the terminal: %w", err)
	}
	return nil
}
