package main

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

func TestDonated(t *testing.T) {
	got := slices.Sorted(maps.Keys(donated([]string{
		"runsc-sandbox", "--panic-log-fd=3", "--root=/x", "boot", "--io-fds=4", "--stdio-fds=8", "--stdio-fds=9",
		"--dev-io-fd=-1", "--pass-fd=11:1000", "--cpu-num=77", "--total-memory", "99", "id",
	})))
	if want := []int{3, 4, 8, 9, 11}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestCloseInherited hands files to a process that was told of some of them only.
func TestCloseInherited(t *testing.T) {
	if os.Getenv("CLOSE_INHERITED") != "" {
		own, err := os.Open("/dev/null")
		if err == nil {
			err = closeInherited([]string{"--io-fds=3", "--pass-fd=5:1000"})
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, fd := range []int{3, 4, 5, 6, int(own.Fd())} {
			_, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
			fmt.Print(err == nil, " ")
		}
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestCloseInherited$")
	cmd.Env = append(os.Environ(), "CLOSE_INHERITED=1")
	for range 4 {
		f, err := os.Open("/dev/null")
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		cmd.ExtraFiles = append(cmd.ExtraFiles, f)
	}
	out, err := cmd.CombinedOutput()
	const want = "true false true false true "
	if err != nil || len(out) < len(want) || string(out[:len(want)]) != want {
		t.Errorf("open are 3, 4, 5, 6 and a file of its own: %s, want %s, %v", out, want, err)
	}
}
