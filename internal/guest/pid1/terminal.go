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
func openTerminal(cols, rows uint16, id identity) (master *os.File, slave int, err error) {
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, -1, fmt.Errorf("open a terminal: %w", err)
	}
	master = os.NewFile(uintptr(fd), "/dev/ptmx")
	defer func() {
		if slave < 0 {
			master.Close()
		}
	}()
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		return nil, -1, fmt.Errorf("unlock a terminal: %w", err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		return nil, -1, fmt.Errorf("find a terminal: %w", err)
	}
	slave, err = unix.Open(fmt.Sprintf("/dev/pts/%d", n), unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, -1, fmt.Errorf("open a terminal: %w", err)
	}
	// A kernel that does not keep owners of terminals opens them to all anyway.
	_ = unix.Fchown(slave, int(id.uid), -1)
	_ = unix.Fchmod(slave, ttyMode)
	if err := setSize(master, cols, rows); err != nil {
		unix.Close(slave)
		return nil, -1, err
	}
	return master, slave, nil
}

func setSize(tty *os.File, cols, rows uint16) error {
	return onTerminal(tty, "resize", func(fd int) error {
		return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Col: cols, Row: rows})
	})
}

func sizeOf(tty *os.File) (size unix.Winsize, err error) {
	err = onTerminal(tty, "measure", func(fd int) error {
		s, err := unix.IoctlGetWinsize(fd, unix.TIOCGWINSZ)
		if err == nil {
			size = *s
		}
		return err
	})
	return size, err
}

// onTerminal calls f with the descriptor, which stays open meanwhile.
func onTerminal(tty *os.File, what string, f func(fd int) error) error {
	raw, err := tty.SyscallConn()
	if err != nil {
		return fmt.Errorf("%s the terminal: %w", what, err)
	}
	var failed error
	if err = raw.Control(func(fd uintptr) { failed = f(int(fd)) }); err == nil {
		err = failed
	}
	if err != nil {
		return fmt.Errorf("%s the terminal: %w", what, err)
	}
	return nil
}
