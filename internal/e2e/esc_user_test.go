package e2e

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"agentbox/internal/guest/client"
	"agentbox/internal/sandbox"
)

// TestESC15: a sandbox learns nothing of the host it runs on.
func TestESC15(t *testing.T) {
	c := NewCanaries(t)
	script := `uname -n; hostname; cat /etc/hostname /etc/hosts; echo "--- kernel"; uname -a; cat /proc/version /proc/cmdline /etc/resolv.conf /proc/self/mountinfo /proc/mounts
dmesg; cat /sys/class/dmi/id/* /proc/*/environ /proc/*/cmdline; echo "--- env"; env -0; echo; echo "--- end"`
	dir := DataDir(t)
	for _, user := range []string{"", "root"} {
		args := []string{"--data-dir", dir, "run"}
		if user != "" {
			args = append(args, "--user", user)
		}
		out := Run(t, dir, "", append(args, Image, "--", "sh", "-c", script)...)
		if !strings.HasSuffix(out.Stdout, "--- end\n") {
			t.Fatalf("the probe did not come to its end: %d\n%s\n%s", out.Code, out.Stdout, out.Stderr)
		}
		c.Check(out.Stdout, out.Stderr)
		names, rest, _ := strings.Cut(out.Stdout, "--- kernel\n")
		_, env, _ := strings.Cut(rest, "--- env\n")
		if host, _ := os.Hostname(); regexp.MustCompile(`(?m)(^|\s)` + regexp.QuoteMeta(host) + `(\s|$)`).MatchString(names) {
			t.Errorf("user %q sees the host's name %q in %q", user, host, names)
		}
		for what, text := range hostFacts(t, dir) {
			if strings.Contains(out.Stdout, text) {
				t.Errorf("user %q sees %s: %q", user, what, text)
			}
		}
		if !strings.Contains(rest, "gVisor") {
			t.Errorf("the kernel's messages are not gVisor's:\n%s", rest)
		}
		checkEnv(t, user, strings.TrimSuffix(env, "\n--- end\n"))
	}
}

// hostFacts are texts that identify the host.
func hostFacts(t testing.TB, dataDir string) map[string]string {
	t.Helper()
	facts := map[string]string{"the data directory": dataDir, "the images' directory": SharedDir(t)}
	if b, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		facts["the host's kernel"] = strings.TrimSpace(string(b))
	}
	if b, err := os.ReadFile("/proc/cmdline"); err == nil && len(b) > 16 {
		facts["the host's kernel command line"] = strings.TrimSpace(string(b))
	}
	if b, err := os.ReadFile("/etc/resolv.conf"); err == nil {
		for line := range strings.Lines(string(b)) {
			if f := strings.Fields(line); len(f) == 2 && f[0] == "nameserver" && !strings.HasPrefix(f[1], "127.") {
				facts["the host's resolver"] = f[1]
			}
		}
	}
	dmi, _ := filepath.Glob("/sys/class/dmi/id/*_serial")
	for _, path := range append(dmi, "/sys/class/dmi/id/product_uuid", "/etc/machine-id") {
		if b, err := os.ReadFile(path); err == nil && len(b) > 8 {
			facts[path] = strings.TrimSpace(string(b))
		}
	}
	return facts
}

// checkEnv fails for a variable that neither the image nor agentbox declares.
func checkEnv(t testing.TB, user, env string) {
	t.Helper()
	declared := map[string]bool{}
	for _, name := range strings.Fields("PATH HOME USER LOGNAME SHELL PWD OLDPWD SHLVL _ LANG LC_ALL TERM HOSTNAME " +
		// Of the image's recipe.
		"PIP_ROOT_USER_ACTION PIP_DISABLE_PIP_VERSION_CHECK PIP_BREAK_SYSTEM_PACKAGES PIP_NO_INPUT GIT_TERMINAL_PROMPT npm_config_yes DEBIAN_FRONTEND") {
		declared[name] = true
	}
	for v := range strings.SplitSeq(strings.TrimRight(env, "\x00"), "\x00") {
		name, _, _ := strings.Cut(v, "=")
		if !declared[name] {
			t.Errorf("user %q has the undeclared variable %q", user, v)
		}
	}
}

// TestESC17: a program with the set-user-id bit gives an ordinary user nothing.
func TestESC17(t *testing.T) {
	t.Parallel()
	box := NewBox(t, sandbox.Limits{})
	// As guest root made it: owned by root, executable by all, set-user-id.
	r := box.Exec(sandbox.Command{Shell: `cp /usr/bin/id /usr/local/bin/rid && chown 0:0 /usr/local/bin/rid && chmod 4755 /usr/local/bin/rid &&
cp $(readlink -f /usr/bin/python3) /usr/local/bin/rpy && chmod 4755 /usr/local/bin/rpy && stat -c %u:%a /usr/local/bin/rid`, User: "root"}, nil)
	WantExit(t, r, 0, "0:4755\n", "")
	box.Want("1000\n", "/usr/local/bin/rid -u")
	box.Want("(1000, 1000, 1000)\n", "/usr/local/bin/rpy -c 'import os; print(os.getresuid())'")

	// As it is uploaded: a tar stream whose entry says so.
	elf, err := box.Session().ReadFile(t.Context(), "/usr/bin/id", client.ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer elf.Close()
	program, err := io.ReadAll(elf)
	if err != nil {
		t.Fatal(err)
	}
	if err := box.PutTree(t.Context(), "/workspace", suidTar(t, program)); err != nil {
		t.Logf("the upload was refused: %v", err)
	} else {
		box.Want("1000\n", "chmod +x /workspace/rid; /workspace/rid -u")
		box.Want("1000\n", "stat -c %u /workspace/rid")
	}
	// And by the command line, from a file of the host's root.
	local := filepath.Join(t.TempDir(), "rid")
	if err := os.WriteFile(local, program, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(local, 0o755|fs.ModeSetuid); err != nil {
		t.Fatal(err)
	}
	v := RunJSON(t, []string{"--copy", local + ":/workspace/rid"}, "sh", "-c", "/workspace/rid -u; stat -c %u /workspace/rid")
	if v.Stdout != "1000\n1000\n" || v.ExitCode != 0 {
		t.Errorf("run --copy: %+v", v)
	}
}

// suidTar is a stream with one program that root owns, set-user-id.
func suidTar(t testing.TB, program []byte) io.Reader {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	err := w.WriteHeader(&tar.Header{Name: "rid", Typeflag: tar.TypeReg, Mode: 0o4755, Uid: 0, Gid: 0, Uname: "root", Size: int64(len(program))})
	if err == nil {
		_, err = w.Write(program)
	}
	if err = errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	return &b
}

// TestESC20: sockets that reach into a kernel or out of the sandbox are
// refused, and the host's are not there.
func TestESC20(t *testing.T) {
	t.Parallel()
	c := NewCanaries(t)
	for _, user := range []string{"root", ""} {
		f := NewBox(t, sandbox.Limits{}).RunProbe("esc20", user, c.Socket, c.Port)
		refused := 0
		for what, result := range f.All("") {
			switch {
			case strings.HasPrefix(what, "works "):
				f.Want(what, "OK")
			case strings.HasPrefix(what, "host "):
				if result == "OK" {
					t.Errorf("%s: connected", what)
				}
			default:
				refused++
				f.Want(what, "EAFNOSUPPORT", "EPERM", "EPROTONOSUPPORT")
			}
		}
		if refused < 15 {
			t.Errorf("only %d kinds of sockets were tried", refused)
		}
		f.Get("works INET")
		f.Get("host unix")
		c.Check(f.Text)
	}
}
