package gvisor_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"agentbox/internal/cgroup"
	"agentbox/internal/image"
	"agentbox/internal/programs"
	"agentbox/internal/runtime"
	"agentbox/internal/runtime/gvisor"
	"agentbox/internal/runtime/runtimetest"
)

func TestMain(m *testing.M) {
	remove, err := setUp()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		remove()
		os.Exit(code)
	}))
}

// Programs and image that the tests share.
var shared struct {
	engine, guest string
	image         runtime.Image
	missing       string // why there are none
}

// programsDir names the directory with the laid out programs to the processes
// that tests start from this binary and kill.
const programsDir = "AGENTBOX_TEST_PROGRAMS"

// setUp makes what the tests share, and returns what removes it.
func setUp() (remove func(), err error) {
	remove = func() {}
	dir := os.Getenv(programsDir)
	if dir == "" {
		if dir, err = os.MkdirTemp("", "gv"); err != nil {
			return nil, err
		}
		remove = func() { os.RemoveAll(dir) }
		os.Setenv(programsDir, dir)
	}
	if err := prepare(dir); err != nil {
		shared.missing = err.Error()
	}
	runtimetest.Child(factory())
	return remove, nil
}

// prepare lays the built programs out and finds an image: the file that
// AGENTBOX_TEST_IMAGE names, or "small" in the data directory
// AGENTBOX_TEST_DIR.
func prepare(dir string) (err error) {
	for name, env := range map[string]string{"agentbox-engine": "AGENTBOX_ENGINE", "agentbox-guest": "AGENTBOX_GUEST"} {
		if os.Getenv(env) == "" {
			os.Setenv(env, filepath.Join("..", "..", "..", "bin", name))
		}
	}
	if shared.engine, err = programs.Engine(dir); err != nil {
		return err
	}
	var build string
	if shared.guest, build, err = programs.Guest(dir); err != nil {
		return err
	}
	if path := os.Getenv("AGENTBOX_TEST_IMAGE"); path != "" {
		shared.image = runtime.Image{Path: path, Digest: "test"}
		_, err = os.Stat(path)
		return err
	}
	data := os.Getenv("AGENTBOX_TEST_DIR")
	if data == "" {
		return errors.New("neither AGENTBOX_TEST_IMAGE nor AGENTBOX_TEST_DIR is set; make test does")
	}
	store, err := image.Open(filepath.Join(data, "images"), image.Agent{Path: shared.guest, Build: build})
	if err != nil {
		return err
	}
	img, err := store.Resolve(context.Background(), "small")
	shared.image = runtime.Image{Path: img.Path, Digest: img.Digest}
	return err
}

// need ends a test that needs real sandboxes where there can be none.
func need(t testing.TB) {
	t.Helper()
	reason := shared.missing
	switch {
	case reason == "":
	case os.Getenv("CI") != "" || os.Getenv("AGENTBOX_TEST_STRICT") != "":
		t.Fatal("no sandboxes can be made: " + reason)
	default:
		t.Skip("no sandboxes can be made: " + reason)
	}
}

func open(dir string) (runtime.Runtime, error) {
	return gvisor.New(options(dir))
}

func options(dir string) gvisor.Options {
	return gvisor.Options{
		Dir: dir, EnginePath: shared.engine, GuestPath: shared.guest,
		Cgroups: cgroup.Detect(cgroup.Options{Owner: filepath.Base(dir)}),
	}
}

func factory() runtimetest.Factory {
	return runtimetest.Factory{
		Name:  "gvisor",
		Open:  open,
		Image: func() (runtime.Image, error) { return shared.image, nil },
		Keeps: []string{"crashes"},
	}
}

func TestSeam(t *testing.T) {
	need(t)
	runtimetest.RunSeam(t, factory())
}

func TestGuest(t *testing.T) {
	need(t)
	runtimetest.RunGuest(t, factory())
}
