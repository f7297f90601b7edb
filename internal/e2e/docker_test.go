package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// dockerEngine starts a Docker engine of the test's own, which touches neither
// the network nor the firewall, and returns what calls it.
func dockerEngine(t *testing.T) func(stdin []byte, args ...string) []byte {
	t.Helper()
	_, noDaemon := exec.LookPath("dockerd")
	_, noClient := exec.LookPath("docker")
	Need(t, errors.Join(noDaemon, noClient) == nil && os.Geteuid() == 0, "Docker (package docker.io) and root")
	dir := ownDir(t)
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { log.Close() })
	socket := "unix://" + filepath.Join(dir, "sock")
	daemon := exec.Command("dockerd", "--data-root", filepath.Join(dir, "data"), "--exec-root", filepath.Join(dir, "run"), "--pidfile", filepath.Join(dir, "pid"),
		"--host", socket, "--storage-driver", "overlay2", "--bridge=none", "--iptables=false", "--ip6tables=false", "--ip-forward=false", "--ip-masq=false", "--log-driver=none")
	daemon.Stdout, daemon.Stderr = log, log
	daemon.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { _ = daemon.Wait(); close(ended) }()
	t.Cleanup(func() {
		_ = daemon.Process.Signal(syscall.SIGTERM)
		select {
		case <-ended:
		case <-time.After(time.Minute):
			_ = daemon.Process.Kill()
			<-ended
		}
	})
	try := func(stdin []byte, args ...string) ([]byte, error) {
		cmd := exec.Command("docker", append([]string{"-H", socket}, args...)...)
		cmd.Env = append(os.Environ(), "DOCKER_BUILDKIT=0", "DOCKER_CONFIG="+dir)
		cmd.Stdin = bytes.NewReader(stdin)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			err = fmt.Errorf("docker %q: %w\n%s%s", args, err, out, stderr.Bytes())
		}
		return out, err
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		_, err := try(nil, "version")
		if err == nil {
			break
		}
		select {
		case <-ended:
		default:
			if time.Now().Before(deadline) {
				continue
			}
		}
		text, _ := os.ReadFile(log.Name()) // for the message
		Need(t, false, fmt.Sprintf("a Docker engine that starts: %v\n%s", err, text[max(0, len(text)-1000):]))
	}
	return func(stdin []byte, args ...string) []byte {
		t.Helper()
		out, err := try(stdin, args...)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
}

// dockerfile makes what layers are known for: whiteouts, opaque directories,
// hard links, links, setuid programs, devices of another owner.
const dockerfile = `FROM small:latest
USER root
RUN mkdir -p /opt/d/sub && echo one >/opt/d/one && echo two >/opt/d/two && echo old >/opt/d/sub/old && echo gone >/opt/gone
RUN rm -r /opt/d/two /opt/gone /opt/d/sub && mkdir /opt/d/sub && echo new >/opt/d/sub/new && ln -s one /opt/d/link && ln /opt/d/one /opt/d/hard && cp /bin/true /opt/d/suid && chmod 4755 /opt/d/suid && chown 1234:5 /opt/d/sub/new
USER user
ENV A=docker
WORKDIR /opt/d
CMD ["sh", "-c", "echo $A; pwd; id -un; find /opt -printf '%p %y %m %U %G %l\\n' | sort; cat link hard sub/new; /opt/d/suid && echo ran"]
`

// An image goes to Docker and back: what Docker builds on it and saves runs as it
// does there.
func TestDockerBuildsSavesAndWeRun(t *testing.T) {
	Binary(t)
	docker := dockerEngine(t)
	shared, dir := SharedDir(t), ownDir(t)
	saved := filepath.Join(dir, "small.tar")
	if out := Run(t, shared, "", "images", "save", "-o", saved, Image); out.Code != 0 {
		t.Fatalf("save: %+v", out)
	}
	docker(nil, "load", "-q", "-i", saved)
	docker([]byte(dockerfile), "build", "-q", "--network", "none", "-t", "example.test/built:1", "-")
	want := docker(nil, "run", "--rm", "--network", "none", "example.test/built:1")
	archive := filepath.Join(dir, "built.tar")
	docker(nil, "save", "-o", archive, "example.test/built:1")

	out := Run(t, dir, "", "images", "load", archive)
	if out.Code != 0 || !strings.HasPrefix(out.Stdout, "example.test/built:1\tsha256:") {
		t.Fatalf("load: %+v", out)
	}
	out = Run(t, dir, "", "run", "example.test/built:1")
	if out.Code != 0 || out.Stdout != string(want) {
		t.Errorf("status %d, in Docker:\n%s\nhere:\n%s%s", out.Code, want, out.Stdout, out.Stderr)
	}
	fsckAll(t, dir)
}

// A request that belongs to Docker is told the way.
func TestDockerfileIsExplained(t *testing.T) {
	Binary(t)
	dir := ownDir(t)
	for _, args := range [][]string{{"build", "."}, {"build", "-t", "mine", "."}, {"build", "-f", "Dockerfile", "mine"}, {"build", "--recipe", "x/Dockerfile", "mine"}, {"build", "./Dockerfile"}, {"build", os.TempDir()}} {
		out := Run(t, dir, "", append([]string{"images"}, args...)...)
		if out.Code != 125 || !strings.Contains(out.Stderr, "docker save") || !strings.Contains(out.Stderr, "images load") {
			t.Errorf("%q: %+v", args, out)
		}
	}
}
