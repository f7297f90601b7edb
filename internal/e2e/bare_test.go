package e2e

import (
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"agentbox/internal/guest/client"
	"agentbox/internal/ids"
	"agentbox/internal/image"
	"agentbox/internal/sandbox"
	"agentbox/internal/wire"
)

// loadInto gives a data directory an image, as an archive.
func loadInto(t *testing.T, dir, as string, img v1.Image) {
	t.Helper()
	ref, err := name.ParseReference(as)
	if err != nil {
		t.Fatal(err)
	}
	var archive bytes.Buffer
	if err := tarball.Write(ref, img, &archive); err != nil {
		t.Fatal(err)
	}
	images, err := wire.Images(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := images.Load(t.Context(), &archive, image.LoadOptions{}); err != nil {
		t.Fatal(err)
	}
}

// boxOf makes a sandbox of an image that the shared data directory has as long as
// the test runs.
func boxOf(t *testing.T, img v1.Image) *Box {
	t.Helper()
	dir, as := SharedDir(t), "localhost/test/"+ids.Hex(6)+":latest"
	loadInto(t, dir, as, img)
	t.Cleanup(func() { // after the sandbox is gone
		if out := Run(t, dir, "", "images", "rm", as); out.Code != 0 {
			t.Errorf("remove the image: %+v", out)
		}
	})
	return NewBoxOf(t, as)
}

// In a sandbox of an image with nothing but one program, no shell, no list of
// users, not even /tmp, commands, files and archives work.
func TestScratchImageHasCommandsAndFiles(t *testing.T) {
	Binary(t)
	layer := tree(t, map[string][]byte{"prog": inside(t)})
	box := boxOf(t, imageOf(t, v1.Config{Cmd: []string{"/prog"}}, layer))
	r := box.Exec(sandbox.Command{Argv: []string{"/prog", "a b"}, Dir: "/tmp"}, nil)
	WantExit(t, r, 0, `args ["/prog" "a b"]`+"\nuser 0:0\ndir /tmp <nil>\nA \n", "")
	if r := box.Exec(sandbox.Command{Shell: "true"}, nil); r.ExitCode != sandbox.ExitNotFound {
		t.Errorf("a shell that is not there: %s", Describe(r))
	}
	ctx, s := t.Context(), box.Session()
	if err := s.WriteFile(ctx, "/workspace/new/f", strings.NewReader("text"), client.WriteOptions{Parents: true}); err != nil {
		t.Fatal(err)
	}
	content, err := s.ReadFile(ctx, "/workspace/new/f", client.ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(content)
	content.Close()
	if err != nil || string(got) != "text" {
		t.Errorf("read %q, %v", got, err)
	}
	if list, _, err := s.List(ctx, "/workspace/new", client.ListOptions{}); err != nil || len(list) != 1 {
		t.Errorf("listed %+v, %v", list, err)
	}
	if err := box.PutTree(ctx, "/workspace/new", tarOf(t, "g")); err != nil {
		t.Errorf("archive in: %v", err)
	}
	if info, err := s.Stat(ctx, "/workspace/new/g", client.StatOptions{}); err != nil || info.Size != 5 {
		t.Errorf("unpacked %+v, %v", info, err)
	}
}

// agentbox cp goes in and out of such a sandbox.
func TestCopyWithScratchImage(t *testing.T) {
	bin := Binary(t)
	dir := ownDir(t)
	loadInto(t, dir, "bare:latest", imageOf(t, v1.Config{Entrypoint: []string{"/prog", "wait"}, StopSignal: "SIGQUIT"}, tree(t, map[string][]byte{"prog": inside(t)})))
	run := exec.Command(bin, "--data-dir", dir, "run", "--name", "bare", "bare")
	out, err := run.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = run.Process.Signal(os.Interrupt)
		_ = run.Wait() // its status is another test's
	}()
	if _, err := io.ReadFull(out, make([]byte, len("waiting\n"))); err != nil {
		t.Fatalf("the program did not start: %v", err)
	}
	from, back := filepath.Join(dir, "from"), filepath.Join(dir, "back")
	if err := os.MkdirAll(filepath.Join(from, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(from, "sub", "f"), []byte("there and back"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"cp", from, "bare:/data"}, {"cp", "bare:/data", back}} {
		if o := Run(t, dir, "", args...); o.Code != 0 {
			t.Fatalf("%q: %+v", args, o)
		}
	}
	if b, err := os.ReadFile(filepath.Join(back, "sub", "f")); err != nil || string(b) != "there and back" {
		t.Errorf("%q came back, %v", b, err)
	}
}

// debianFiles is a tar of the files of Debian packages, as they are on this
// machine.
func debianFiles(t *testing.T, packages ...string) []byte {
	t.Helper()
	_, err := exec.LookPath("dpkg")
	Need(t, err == nil, "dpkg, whose packages are the image")
	list, err := exec.Command("dpkg", append([]string{"-L"}, packages...)...).Output()
	if err != nil {
		t.Fatalf("list the files of %v: %v", packages, err)
	}
	var names []string
	for n := range strings.FieldsFuncSeq(string(list), func(r rune) bool { return r == '\n' }) {
		if _, err := os.Lstat(n); err == nil && n != "/." { // some are left out of small machines
			names = append(names, n)
		}
	}
	slices.Sort(names)
	cmd := exec.Command("tar", "--no-recursion", "--null", "-T", "-", "-c")
	cmd.Dir = "/"
	cmd.Stdin = strings.NewReader(strings.Join(slices.Compact(names), "\x00"))
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("pack the files of %v: %v", packages, err)
	}
	return out
}

// An image like those that have a C library and no shell runs as its own user, by
// name and by number, in its working directory.
func TestDistrolessImageRuns(t *testing.T) {
	Binary(t)
	debian := debianFiles(t, "base-files", "libc6", "libc-bin", "tzdata", "netbase")
	own := tree(t, map[string][]byte{
		"prog":               inside(t),
		"etc/passwd":         []byte("root:x:0:0:root:/root:/sbin/nologin\nnobody:x:65534:65534:nobody:/nonexistent:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/home/nonroot:/sbin/nologin\n"),
		"etc/group":          []byte("root:x:0:\nnobody:x:65534:\nnonroot:x:65532:\n"),
		"home/nonroot/.keep": nil,
	})
	const want = "\nuser 65532:65532\ndir /home/nonroot <nil>\nA \n"
	for _, user := range []string{"65532:65532", "65532", "nonroot", "nonroot:nonroot"} {
		t.Run(strings.ReplaceAll(user, ":", "_"), func(t *testing.T) {
			img := imageOf(t, v1.Config{User: user, WorkingDir: "/home/nonroot", Entrypoint: []string{"/prog"}, Env: []string{"PATH=/usr/bin:/bin"}}, debian)
			img = appendLayer(t, img, own)
			dir := ownDir(t)
			loadInto(t, dir, "bare:latest", img)
			if out := Run(t, dir, "", "run", "bare"); out.Code != 0 || out.Stdout != `args ["/prog"]`+want {
				t.Errorf("%+v", out)
			}
			box := boxOf(t, img)
			// A program that needs the C library and the files around it.
			WantExit(t, box.Exec(sandbox.Command{Argv: []string{"getent", "passwd", "65532"}}, nil), 0, "nonroot:x:65532:65532:nonroot:/home/nonroot:/sbin/nologin\n", "")
			WantExit(t, box.Exec(sandbox.Command{Argv: []string{"getent", "services", "https"}}, nil), 0, "https                 443/tcp\n", "")
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if err := box.Session().WriteFile(ctx, "/tmp/mine", strings.NewReader("x"), client.WriteOptions{}); err != nil {
				t.Fatal(err)
			}
			if info, err := box.Session().Stat(ctx, "/tmp/mine", client.StatOptions{}); err != nil || info.UID != 65532 || info.GID != 65532 {
				t.Errorf("what its user writes is %+v, %v", info, err)
			}
		})
	}
}

// A user that the image names and does not have is told of as such.
func TestUnknownUserOfTheImage(t *testing.T) {
	Binary(t)
	dir := ownDir(t)
	loadInto(t, dir, "bare:latest", imageOf(t, v1.Config{User: "nosuch", Cmd: []string{"/prog"}}, tree(t, map[string][]byte{"prog": inside(t)})))
	out := Run(t, dir, "", "run", "bare")
	if out.Code != 125 || !strings.Contains(out.Stderr, `no user "nosuch" in its /etc/passwd: it is the image's, --user names another`) {
		t.Errorf("%+v", out)
	}
	if out := Run(t, dir, "", "run", "--user", "7", "bare"); out.Code != 0 || !strings.Contains(out.Stdout, "user 7:0\n") {
		t.Errorf("as another: %+v", out)
	}
}

// The user of an image may be a number: its group is that of the line in passwd,
// without one it is 0, as Docker has it.
func TestNumericUserOfTheImage(t *testing.T) {
	Binary(t)
	layer := tree(t, map[string][]byte{"prog": inside(t), "etc/passwd": []byte("known:x:1234:55::/:/bin/sh\n")})
	for user, want := range map[string]string{"1234": "user 1234:55", "4321": "user 4321:0", "4321:7": "user 4321:7"} {
		box := boxOf(t, imageOf(t, v1.Config{Cmd: []string{"/prog"}, User: user}, layer))
		if r := box.Exec(sandbox.Command{Argv: []string{"/prog"}}, nil); !strings.Contains(string(r.Stdout), want+"\n") {
			t.Errorf("%s: %s", user, Describe(r))
		}
	}
}
