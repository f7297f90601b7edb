package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/containerd/errdefs"

	"agentbox/internal/image"
	"agentbox/internal/wire"
)

// promises are what the name of an image stands for: programs, and lines of
// shell with what they print.
var promises = map[string]struct {
	user     string
	programs string
	lines    [][2]string
}{
	"qagi/agent-sandbox:latest": {"agent", "curl git python3 pip bash", [][2]string{
		{"echo $HOME", "/home/agent"},
	}},
	"agentbox-sandbox:latest": {"root", "ls grep sed gawk find curl wget git jq tree vim.tiny less ps pip python3", [][2]string{
		{"python3 -c 'import sys; print(sys.version_info[:2])'", "(3, 13)"},
		{"ls -d /mnt/user-data/uploads /mnt/user-data/outputs", "/mnt/user-data/outputs\n/mnt/user-data/uploads"},
	}},
	"autocoder-sandbox:latest": {"sandbox", "gcc make cmake git curl node npm pnpm python3 pip wget vim nano jq unzip netstat ping nc htop ps", [][2]string{
		{"node --version | cut -d. -f1", "v20"},
		{"python3 -m venv /tmp/v && /tmp/v/bin/python -c 'print(1)'", "1"},
		{"getent passwd sandbox | cut -d: -f6,7", "/home/sandbox:/bin/bash"},
	}},
	"vana-agent-sandbox": {"appuser", "curl git bash ps python3 make g++ jq node npm", [][2]string{
		{"node --version | cut -d. -f1", "v20"},
		{"id -u", "1001"},
		{"echo $HOME $USER $CI $NO_COLOR $NPM_CONFIG_UPDATE_NOTIFIER $LANG", "/home/appuser appuser 1 1 false en_US.UTF-8"},
		{"locale 2>&1 >/dev/null; locale charmap", "UTF-8"},
		{"ls /etc/ssl/certs/ca-certificates.crt", "/etc/ssl/certs/ca-certificates.crt"},
	}},
}

// TestAliases makes the images behind the aliases, if they are not there, and
// holds them to what the names promise.
func TestAliases(t *testing.T) {
	if !Soak() {
		t.Skip("images take minutes to make: scripts/soak.sh makes them")
	}
	needImage(t, "default")
	needImage(t, "workbench")
	for name, want := range promises {
		t.Run(strings.ReplaceAll(name, "/", "_"), func(t *testing.T) {
			box := NewBoxOf(t, name)
			for _, p := range strings.Fields(want.programs) {
				if r := box.Sh("command -v " + p); r.ExitCode != 0 {
					t.Errorf("there is no %s", p)
				}
			}
			common := [][2]string{
				{"id -un; pwd; stat -c %U . /mnt/user-data/outputs", fmt.Sprintf("%[1]s\n/workspace\n%[1]s\n%[1]s", want.user)},
				{"git init -q r && cd r && git status --short && touch x && git status --short", "?? x"},
				{"pip --version >/dev/null && echo fine", "fine"},
			}
			for _, l := range append(common, want.lines...) {
				if r := box.Sh(l[0]); r.ExitCode != 0 || strings.TrimSpace(string(r.Stdout)) != l[1] || len(r.Stderr) > 0 {
					t.Errorf("%s: %s, want %q", l[0], Describe(r), l[1])
				}
			}
		})
	}
	if len(promises) != len(image.Aliases()) {
		t.Errorf("%d aliases, %d of them are looked at", len(image.Aliases()), len(promises))
	}
}

// needImage skips the test where a built-in image is not there; the soak run
// makes it.
func needImage(t *testing.T, name string) {
	t.Helper()
	store, err := wire.Images(SharedDir(t))
	if err != nil {
		t.Fatal(err)
	}
	_, err = store.Resolve(t.Context(), name)
	if errdefs.IsNotFound(err) {
		if !Soak() {
			t.Skipf("image %s is not there and takes minutes to make: scripts/soak.sh makes it", name)
		}
		_, err = store.Build(t.Context(), name, image.BuildOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
}
