package image_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"agentbox/internal/image"

	"github.com/containerd/errdefs"
)

// fakeBootstrap puts a program in place of mmdebstrap that writes the tar in
// root.tar, answers the hooks that hand files to the host, and runs script
// before. It returns the directory that the script starts in.
func fakeBootstrap(t *testing.T, script string, root []byte) string {
	t.Helper()
	if _, err := os.Stat("/usr/share/keyrings/debian-archive-keyring.gpg"); err != nil {
		t.Skip("the keys of the Debian archive are not installed (package debian-archive-keyring)")
	}
	if os.Geteuid() != 0 {
		t.Skip("without root, building looks for subordinate ids, which this user may not have")
	}
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write("root.tar", string(root))
	write("mmdebstrap", `#!/bin/sh
cd `+dir+`
cat >sources
printf '%s\n' "$@" >args
env >environment
`+script+`
echo "I: running apt-get update..." >&2
echo "0 upgraded, 2 newly installed, 0 to remove" >&2
for a; do
	case $a in
	*download\ *packages*) eval "f=${a##* }"; printf 'b 2\na 1\n' >"$f" ;;
	*download\ *epoch*) eval "f=${a##* }"; echo 1000 >"$f" ;;
	esac
done
echo "Setting up a (1)" >&2
echo "I: creating tarball..." >&2
cat root.tar
`)
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	return dir
}

func recipe(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "recipe")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestBuild(t *testing.T) {
	root := rootTar(t, [2]string{"dev/", ""}, [2]string{"dev/null", "x"}, [2]string{"./", ""}, [2]string{"./etc/", ""}, [2]string{"./etc/f", "1"}, [2]string{"./l", "->etc"})
	fake := fakeBootstrap(t, "", root)
	t.Setenv("SECRET", "canary")
	t.Setenv("https_proxy", "http://proxy.example:1")
	dir := t.TempDir()
	s := open(t, dir, agent(t, "1"))
	var events []image.Event
	img, err := s.Build(t.Context(), "mine", image.BuildOptions{
		Recipe:   recipe(t, "Suite: trixie\nPackages: a\n b\nEnv: X=1\nSetup:\n echo it's done\n"),
		Mirror:   "http://mirror.example/debian",
		Progress: func(e image.Event) { events = append(events, e) },
	})
	if err != nil {
		t.Fatal(err)
	}
	if img.Config.User != "user" || img.Config.Workdir != "/workspace" || !slices.Equal(img.Config.Env, []string{"X=1"}) {
		t.Errorf("config is %+v", img.Config)
	}
	if p, err := s.Packages("mine"); err != nil || !slices.Equal(p, []string{"b 2", "a 1"}) {
		t.Errorf("packages are %q, %v", p, err)
	}
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(fake, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	if got := read("sources"); !strings.Contains(got, "] http://mirror.example/debian trixie main\n") {
		t.Errorf("sources are %q", got)
	}
	if got := read("args"); !strings.Contains(got, "--include=a,b\n") || !strings.HasSuffix(got, "\ntrixie\n-\n-\n") {
		t.Errorf("arguments are %q", got)
	}
	if got := read("environment"); strings.Contains(got, "canary") || !strings.Contains(got, "https_proxy=http://proxy.example:1") {
		t.Errorf("environment is %q", got)
	}
	last := -1
	for _, e := range events {
		if e.Percent < last {
			t.Errorf("progress goes back: %v", events)
		}
		last = e.Percent
	}
	if len(events) < 3 || !strings.Contains(events[len(events)-1].String(), "pack 95%") {
		t.Errorf("events are %v", events)
	}
	if left, err := os.ReadDir(filepath.Join(dir, "tmp")); err != nil || len(left) > 0 {
		t.Errorf("left are %v, %v", left, err)
	}
}

// Two builds of the same packages give the same digest, whatever the time.
func TestBuildIsDeterministic(t *testing.T) {
	digests := map[string]bool{}
	for range 2 {
		// The second file is younger than the epoch, at another time each time.
		root := rootTar(t, [2]string{"./f", "1"})
		copy(root[136:147], "17777777777")
		sum := 0
		copy(root[148:156], "        ")
		for _, c := range root[:512] {
			sum += int(c)
		}
		copy(root[148:156], []byte{'0', byte('0' + sum>>12&7), byte('0' + sum>>9&7), byte('0' + sum>>6&7), byte('0' + sum>>3&7), byte('0' + sum&7), 0, ' '})
		fakeBootstrap(t, "", root)
		s := open(t, t.TempDir(), agent(t, "1"))
		img, err := s.Build(t.Context(), "small", image.BuildOptions{Mirror: "http://mirror.example/debian"})
		if err != nil {
			t.Fatal(err)
		}
		digests[img.Digest] = true
	}
	if len(digests) != 1 {
		t.Errorf("digests are %v", digests)
	}
}

func TestBuildFailures(t *testing.T) {
	for name, c := range map[string]struct{ script, says string }{
		"it says why":      {"echo 'E: no such package' >&2; exit 7", "E: no such package"},
		"unknown key":      {"echo 'W: NO_PUBKEY 1234' >&2; exit 7", "--only-upgrade debian-archive-keyring"},
		"no network":       {"echo 'E: Temporary failure resolving' >&2; exit 7", "--mirror"},
		"it dies":          {"kill -9 $$", "killed"},
		"it writes no tar": {"exit 0", "root file system"},
		"half a tar":       {"cat() { head -c 700 root.tar; }", "root file system"},
	} {
		t.Run(name, func(t *testing.T) {
			fakeBootstrap(t, c.script, rootTar(t, [2]string{"./f", strings.Repeat("x", 5000)}))
			dir := t.TempDir()
			s := open(t, dir, agent(t, "1"))
			_, err := s.Build(t.Context(), "small", image.BuildOptions{Mirror: "http://mirror.example/debian"})
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got error %v", err)
			}
			if left := files(t, dir); len(left) > 0 {
				t.Errorf("left are %v", left)
			}
		})
	}
	t.Run("mmdebstrap is missing", func(t *testing.T) {
		t.Setenv("PATH", t.TempDir())
		s := open(t, t.TempDir(), agent(t, "1"))
		_, err := s.Build(t.Context(), "small", image.BuildOptions{Mirror: "http://mirror.example/debian"})
		if !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), "apt-get install -y mmdebstrap") {
			t.Errorf("got error %v", err)
		}
	})
}

// A root file system that does not fit into memory is made on the disk.
func TestBuildTooBigForMemory(t *testing.T) {
	fake := fakeBootstrap(t, `echo run >>runs; [ "$(wc -l <runs)" = 2 ] || { echo "cannot copy: No space left on device" >&2; exit 1; }`, rootTar(t, [2]string{"./f", "1"}))
	s := open(t, t.TempDir(), agent(t, "1"))
	_, err := s.Build(t.Context(), "small", image.BuildOptions{Mirror: "http://mirror.example/debian"})
	runs, readErr := os.ReadFile(filepath.Join(fake, "runs"))
	if readErr != nil {
		t.Fatal(readErr)
	}
	// With too little memory it was on the disk at once, and that is full.
	if n := strings.Count(string(runs), "run"); err != nil && n == 2 || err == nil && n != 2 {
		t.Errorf("%d runs, error %v", n, err)
	}
}

// One of two builders works, the other waits, sees how far it is and takes what
// it made.
func TestTwoBuildersOfOneImage(t *testing.T) {
	fake := fakeBootstrap(t, "echo run >>runs; echo 'I: waiting for the test' >&2; while [ ! -e go ]; do sleep 0.01; done", rootTar(t, [2]string{"./f", "1"}))
	dir := t.TempDir()
	a := agent(t, "1")
	seen := make(chan image.Event, 100)
	images := make([]image.Image, 2)
	var wg sync.WaitGroup
	for i := range images {
		s := open(t, dir, a)
		wg.Go(func() {
			img, err := s.Build(t.Context(), "small", image.BuildOptions{Mirror: "http://mirror.example/debian", Progress: func(e image.Event) {
				if strings.Contains(e.Line, "waiting for the test") {
					seen <- e
				}
			}})
			if err != nil {
				t.Error(err)
			}
			images[i] = img
		})
	}
	for range images { // both know what is going on
		<-seen
	}
	if err := os.WriteFile(filepath.Join(fake, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	if images[0].Digest == "" || images[0].Path != images[1].Path {
		t.Errorf("images are %+v", images)
	}
	if runs, err := os.ReadFile(filepath.Join(fake, "runs")); err != nil || strings.Count(string(runs), "run") != 1 {
		t.Errorf("runs: %q, %v", runs, err)
	}
}

// A canceled build ends mmdebstrap and leaves nothing.
func TestCancelBuild(t *testing.T) {
	fake := fakeBootstrap(t, `trap 'echo interrupted >ended; exit 1' INT; echo 'I: begun' >&2; while :; do sleep 0.01; done`, nil)
	dir := t.TempDir()
	s := open(t, dir, agent(t, "1"))
	ctx, cancel := context.WithCancel(t.Context())
	start := time.Now()
	_, err := s.Build(ctx, "small", image.BuildOptions{Mirror: "http://mirror.example/debian", Progress: func(e image.Event) {
		if strings.Contains(e.Line, "begun") {
			cancel()
		}
	}})
	if !errdefs.IsCanceled(err) || time.Since(start) > 14*time.Second {
		t.Errorf("got error %v after %v", err, time.Since(start))
	}
	if _, err := os.Stat(filepath.Join(fake, "ended")); err != nil {
		t.Errorf("mmdebstrap was not told to end: %v", err)
	}
	if left := files(t, dir); len(left) > 0 {
		t.Errorf("left are %v", left)
	}
}
