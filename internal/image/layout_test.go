package image_test

import (
	"os"
	"strings"
	"testing"

	"agentbox/internal/image"
	"agentbox/internal/image/erofs/erofstest"

	"github.com/containerd/errdefs"
)

// read returns what is in the EROFS file of an image.
func read(t *testing.T, img image.Image) map[string]erofstest.Node {
	t.Helper()
	b, err := os.ReadFile(img.Path)
	if err != nil {
		t.Fatal(err)
	}
	nodes, err := erofstest.Read(b)
	if err != nil {
		t.Fatal(err)
	}
	return nodes
}

// Every image has what a sandbox needs, whatever it came with.
func TestFurniture(t *testing.T) {
	for name, data := range map[string][]byte{
		"empty": rootTar(t),
		"full": rootTar(t, [2]string{"etc/", ""}, [2]string{"etc/hosts", "10.0.0.1 host-of-the-builder"}, [2]string{"etc/resolv.conf", "->../run/resolv.conf"},
			[2]string{"etc/passwd", "kept"}, [2]string{"dev/", ""}, [2]string{"dev/planted", "x"}, [2]string{"run/planted", "x"}, [2]string{"proc/planted", "x"},
			[2]string{".agentbox/guest", "planted"}, [2]string{".agentbox/more", "planted"}, [2]string{"workspace/kept", "x"}),
		"hostile links": rootTar(t, [2]string{"dev", "->etc"}, [2]string{"etc/passwd", "kept"}, [2]string{"run", "->/"}, [2]string{"workspace", "->/etc"}, [2]string{".agentbox", "->/usr"},
			[2]string{"tmp", "a file"}, [2]string{"proc", "->proc"}, [2]string{"var", "->srv"}, [2]string{"etc/hosts", "->passwd"}),
	} {
		t.Run(name, func(t *testing.T) {
			nodes := read(t, importTar(t, open(t, t.TempDir(), agent(t, "1")), "x", data))
			for p, want := range map[string]struct {
				mode  uint16
				owner uint32
			}{
				"/.agentbox": {0o040755, 0}, "/.agentbox/guest": {0o100555, 0},
				"/proc": {0o040555, 0}, "/sys": {0o040555, 0}, "/sys/fs/cgroup": {0o040755, 0},
				"/dev": {0o040755, 0}, "/dev/shm": {0o041777, 0}, "/dev/pts": {0o040755, 0}, "/run": {0o040755, 0}, "/tmp": {0o041777, 0},
				"/workspace": {0o040755, 1000}, "/mnt/user-data/outputs": {0o040755, 1000},
				"/etc/hosts": {0o100644, 0}, "/etc/hostname": {0o100644, 0}, "/etc/resolv.conf": {0o100644, 0},
			} {
				if n, ok := nodes[p]; !ok || n.Mode != want.mode || n.UID != want.owner || n.GID != want.owner {
					t.Errorf("%s is %o, %d:%d, want %o, %d", p, n.Mode, n.UID, n.GID, want.mode, want.owner)
				}
			}
			for p, want := range map[string]string{"/.agentbox/guest": "agent 1", "/etc/resolv.conf": "", "/etc/hostname": "sandbox\n"} {
				if got := string(nodes[p].Data); got != want {
					t.Errorf("%s holds %q, want %q", p, got, want)
				}
			}
			if got := string(nodes["/etc/passwd"].Data); name != "empty" && got != "kept" {
				t.Errorf("/etc/passwd holds %q", got)
			}
			if _, ok := nodes["/workspace/kept"]; ok != (name == "full") {
				t.Errorf("/workspace/kept is there: %v", ok)
			}
			for p, n := range nodes {
				if strings.Contains(p, "planted") || strings.Contains(string(n.Data), "planted") || strings.Contains(string(n.Data), "host-of-the-builder") {
					t.Errorf("%s is still there", p)
				}
			}
			if n, ok := nodes["/var/tmp"]; name != "hostile links" && (!ok || n.Mode != 0o041777) {
				t.Errorf("/var/tmp is %o", n.Mode)
			}
		})
	}
}

// Times are the same on each day and can be written to a ZIP file.
func TestImageIsTheSameEachTime(t *testing.T) {
	data := rootTar(t, [2]string{"f", "1"})
	a, b := agent(t, "1"), agent(t, "1")
	one := importTar(t, open(t, t.TempDir(), a), "x", data)
	two := importTar(t, open(t, t.TempDir(), b), "y", data)
	x, err := os.ReadFile(one.Path)
	if err != nil {
		t.Fatal(err)
	}
	y, err := os.ReadFile(two.Path)
	if err != nil {
		t.Fatal(err)
	}
	if string(x) != string(y) {
		t.Error("the files differ")
	}
	for p, n := range read(t, one) {
		if p != "/" && n.Mtime < 315532800 { // 1980
			t.Errorf("%s is from %d", p, n.Mtime)
		}
	}
}

func TestAgentIsMissing(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, image.Agent{Path: dir + "/none", Build: "1"})
	if _, err := s.ImportTar(t.Context(), "x", strings.NewReader(string(rootTar(t))), image.Config{}); err == nil || !strings.Contains(err.Error(), "guest agent") || errdefs.IsInvalidArgument(err) {
		t.Errorf("got error %v", err)
	}
	if left := files(t, dir); len(left) > 1 { // the tar, until the next one cleans up
		t.Errorf("left are %v", left)
	}
}
