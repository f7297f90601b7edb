//go:build linux

package pid1

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func tables(t *testing.T, passwd, group string) *users {
	t.Helper()
	u := newUsers()
	for _, f := range []struct {
		table   *table
		name    string
		content string
	}{{&u.passwd, "passwd", passwd}, {&u.group, "group", group}} {
		f.table.path = filepath.Join(t.TempDir(), f.name)
		if f.content == "" {
			continue
		}
		if err := os.WriteFile(f.table.path, []byte(f.content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return u
}

func TestLookup(t *testing.T) {
	u := tables(t, "root:x:0:0:root:/root:/bin/bash\nrubbish\nuser:x:1000:1001::/home/user:/bin/sh\nneg:x:-1:0::/:\n77:x:5:5::/five:\n",
		"root:x:0:\nusers:x:100:user,other\nsudo:x:27:user\n")
	for _, c := range []struct {
		in       string
		uid, gid uint32
		groups   []uint32
		name     string
		home     string
	}{
		{"root", 0, 0, []uint32{0}, "root", "/root"},
		{"user", 1000, 1001, []uint32{1001, 100, 27}, "user", "/home/user"},
		{"1000", 1000, 1001, []uint32{1001, 100, 27}, "user", "/home/user"},
		{"1000:users", 1000, 100, []uint32{100, 27}, "user", "/home/user"},
		{"1234", 1234, 0, []uint32{0}, "", "/"},
		{"1234:5", 1234, 5, []uint32{5}, "", "/"},
		{"77", 5, 5, []uint32{5}, "77", "/five"}, // names come first
	} {
		got, err := u.lookup(c.in)
		if err != nil || got.uid != c.uid || got.gid != c.gid || got.name != c.name || got.home != c.home || !slices.Equal(got.groups, c.groups) {
			t.Errorf("lookup(%q) = %+v, %v", c.in, got, err)
		}
	}
	for _, bad := range []string{"", "nobody", "-1", "4294967295", "4294967296", "1000:nogroup", "neg", "0x0", ":0"} {
		if got, err := u.lookup(bad); err == nil {
			t.Errorf("lookup(%q) = %+v", bad, got)
		}
	}
}

func TestLookupWithoutFiles(t *testing.T) {
	u := tables(t, "", "")
	if got, err := u.lookup("0:0"); err != nil || got.uid != 0 || got.home != "/" {
		t.Errorf("got %+v, %v", got, err)
	}
	if _, err := u.lookup("root"); err == nil {
		t.Error("an image without passwd has no root by name")
	}
}

// The image owns the files: large ones, and those that are none, are no harm.
func TestLookupHostileFiles(t *testing.T) {
	u := tables(t, strings.Repeat("x:x:1:1::/:\n", 500_000)+"late:x:7:7::/:\n", strings.Repeat("a", 3<<20))
	if _, err := u.lookup("late"); err == nil {
		t.Error("passwd is read without bound")
	}
	u.passwd.path = "/dev/zero"
	if _, err := u.lookup("0"); err != nil {
		t.Error(err)
	}
}

func FuzzPasswd(f *testing.F) {
	f.Add([]byte("root:x:0:0:root:/root:/bin/bash\nuser:x:1000:1000::/home/user:/bin/sh"))
	f.Add([]byte("sudo:x:27:user,"))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, e := range append(parsePasswd(b), parseGroup(b)...) {
			if e.name == "" || e.id == ^uint32(0) || strings.ContainsAny(e.name, ":\n") {
				t.Errorf("got %+v", e)
			}
		}
	})
}

func TestEnvironmentLastWins(t *testing.T) {
	got := lastWins([]string{"A=1", "B=2", "A=3", "C", "A=4"})
	if want := []string{"A=4", "B=2", "C"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
