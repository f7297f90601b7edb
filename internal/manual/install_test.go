package main

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// installed runs scripts/install.sh for a root directory of the test's own.
func installed(t *testing.T, root, prefix string, args ...string) {
	t.Helper()
	cmd := exec.Command("../../scripts/install.sh", args...)
	cmd.Env = append(os.Environ(), "DESTDIR="+root, "PREFIX="+prefix)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// files are the files below a directory, but for pages of the manual other than the first.
func files(t *testing.T, root string) (names []string) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && !strings.Contains(path, "man1/agentbox-") {
			names = append(names, strings.TrimPrefix(path, root))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// TestInstall: each file is where its reader looks, the units call the program where it
// is, and taking it away leaves nothing.
func TestInstall(t *testing.T) {
	manual, root := t.TempDir(), t.TempDir()
	if err := write(manual); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(manual, "program")
	if err := os.WriteFile(program, []byte("#!/bin/sh\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	installed(t, root, "/opt/ab", program, manual)
	got := files(t, root)
	want := []string{
		"/opt/ab/bin/agentbox", "/opt/ab/lib/systemd/system/agentbox.service", "/opt/ab/lib/systemd/user/agentbox.service",
		"/opt/ab/share/bash-completion/completions/agentbox", "/opt/ab/share/fish/vendor_completions.d/agentbox.fish",
		"/opt/ab/share/man/man1/agentbox.1.gz", "/opt/ab/share/zsh/site-functions/_agentbox",
	}
	if slices.Sort(got); !slices.Equal(got, want) {
		t.Errorf("installed are\n%s", strings.Join(got, "\n"))
	}
	for name, mode := range map[string]fs.FileMode{want[0]: 0o755, want[1]: 0o644, want[5]: 0o644} {
		if info, err := os.Stat(root + name); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v %v", name, info.Mode(), err)
		}
	}
	for _, unit := range want[1:3] {
		text, err := os.ReadFile(root + unit)
		if err != nil || !strings.Contains(string(text), "\nExecStart=/opt/ab/bin/agentbox serve\n") || !strings.Contains(string(text), "\nKillMode=process\n") {
			t.Errorf("%s: %v\n%s", unit, err, text)
		}
	}
	installed(t, root, "/opt/ab", "--remove")
	if got := files(t, root); len(got) != 0 {
		t.Errorf("left are %v", got)
	}
}
