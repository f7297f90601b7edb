package sandbox

import (
	"errors"
	"strings"
	"testing"
)

func TestCheckMountPaths(t *testing.T) {
	many := make([]string, MaxMounts+1)
	for i := range many {
		many[i] = "/" + strings.Repeat("d", i+1)
	}
	for _, good := range [][]string{
		nil, {"/data"}, {"/data", "/data2", "/database/x"}, {WorkspacePath, OutputsPath}, {"/root"}, {"/home/user"}, {"/mnt/a", "/mnt/b"},
		{"/usr/share/fonts"}, {"/opt"}, {"/var/cache"}, {"/running"}, {"/ü"}, many[:MaxMounts],
	} {
		if err := CheckMountPaths("volumes", good); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	for _, bad := range [][]string{
		{""}, {"/"}, {"//"}, {"data"}, {"./data"}, {"/data/"}, {"/data//x"}, {"/data/../etc"}, {"/."}, {"/.."},
		{"/proc"}, {"/proc/self"}, {"/sys/fs/cgroup"}, {"/dev"}, {"/dev/shm"}, {"/run"}, {"/run/x"}, {"/var/run/x"}, {"/.agentbox"}, {"/.agentbox/guest"},
		{"/usr"}, {"/bin"}, {"/etc"}, {"/tmp"}, {"/usr/lib"},
		{"/data", "/data"}, {"/data", "/data/in"}, {"/data/in", "/data"}, {WorkspacePath, "/workspace/sub"},
		{"/a\x00b"}, {"/a\nb"}, {"/a\xffb"}, {"/" + strings.Repeat("x", 5000)}, many,
	} {
		var invalid *InvalidError
		if err := CheckMountPaths("volumes", bad); !errors.As(err, &invalid) || invalid.Field != "volumes" {
			t.Errorf("%.80q: %v", bad, err)
		}
	}
}

func FuzzCheckMountPaths(f *testing.F) {
	f.Add("/data", "/data/x")
	f.Add("/proc", "/..")
	f.Fuzz(func(t *testing.T, a, b string) {
		if CheckMountPaths("volumes", []string{a, b}) != nil {
			return
		}
		for _, p := range []string{a, b} {
			if !strings.HasPrefix(p, "/") || strings.Contains(p, "/../") || within(p, "/proc") || within(p, "/dev") || strings.ContainsAny(p, "\x00\n") {
				t.Errorf("%q is allowed", p)
			}
		}
		if within(a, b) || within(b, a) {
			t.Errorf("%q and %q are allowed together", a, b)
		}
	})
}
