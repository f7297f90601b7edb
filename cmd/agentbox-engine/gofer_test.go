package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestPrepareGofer: a gofer keeps nothing of its maker's environment, and of its
// maker's files those that it was told of.
func TestPrepareGofer(t *testing.T) {
	if flag.Arg(0) == "gofer" {
		if err := prepareGofer(os.Args); err != nil {
			t.Fatal(err)
		}
		env, err := os.ReadFile("/proc/self/environ")
		if err != nil {
			t.Fatal(err)
		}
		given := func(fd int) bool { // the number may have been used again
			name, err := os.Readlink(fmt.Sprint("/proc/self/fd/", fd))
			return err == nil && name == os.DevNull
		}
		fmt.Printf("%d bytes, %v %v;", len(env), given(3), given(4))
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestPrepareGofer$", "gofer", "--io-fds=4")
	cmd.Env = append(os.Environ(), "SECRET=of the daemon")
	for range 2 {
		f, err := os.Open(os.DevNull)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		cmd.ExtraFiles = append(cmd.ExtraFiles, f)
	}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.HasPrefix(string(out), "0 bytes, false true;") {
		t.Errorf("its environment, and whether 3 and 4 are open: %s, %v", out, err)
	}
}

// TestKeepFilestore: the layer's file has the same number whoever made it.
func TestKeepFilestore(t *testing.T) {
	fd, err := unix.MemfdCreate("layer", 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fdFilestore)
	for _, arg := range []string{fmt.Sprint(filestoreFlag, fd), fmt.Sprint(filestoreFlag, fdFilestore)} { // the second time it is there
		if got, err := keepFilestore(arg); err != nil || got != fmt.Sprint(filestoreFlag, fdFilestore) {
			t.Errorf("%s became %s, %v", arg, got, err)
		}
	}
	if _, err := unix.FcntlInt(fdFilestore, unix.F_GETFD, 0); err != nil {
		t.Errorf("the file is not there: %v", err)
	}
	for _, arg := range []string{"boot", "--io-fds=3"} {
		if got, err := keepFilestore(arg); got != arg || err != nil {
			t.Errorf("%s became %s, %v", arg, got, err)
		}
	}
	if _, err := keepFilestore(filestoreFlag + "x"); err == nil {
		t.Error("a number that is none is taken")
	}
}
