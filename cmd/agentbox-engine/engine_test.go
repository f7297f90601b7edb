package main

import (
	"debug/elf"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/seccomp"
	"gvisor.dev/gvisor/pkg/sentry/platform"
	_ "gvisor.dev/gvisor/pkg/sentry/platform/platforms"
	"gvisor.dev/gvisor/runsc/boot/filter"
	"gvisor.dev/gvisor/runsc/boot/filter/config"
)

var update = flag.Bool("update", false, "write the list of linked packages anew")

// The compiled filter must be that which gVisor would compile for our sandboxes
// now. When this fails after an update of gVisor: go generate ./cmd/agentbox-engine.
func TestCompiledFilterIsCurrent(t *testing.T) {
	if compiledFilters() == nil {
		t.Skip("no filter was generated for " + runtime.GOARCH)
	}
	systrap, err := platform.Lookup("systrap")
	if err != nil {
		t.Fatal(err)
	}
	opt := config.Options{Platform: systrap.PrecompiledSeccompInfo()[0], HostFilesystem: true, ControllerFD: 13}
	useCompiledFilters()
	compiled, ok := filter.GetPrecompiled(opt.ConfigKey())
	if !ok {
		t.Fatalf("there is no filter for %s", opt.ConfigKey())
	}
	got, err := compiled.RenderInstructions(opt.Vars())
	if err != nil {
		t.Fatal(err)
	}
	rules, deny := config.Rules(opt)
	fresh := &seccomp.Program{
		RuleSets: []seccomp.RuleSet{{Rules: deny}, {Rules: rules, Action: seccomp.Allow}},
		Options:  config.SeccompOptions(opt),
	}
	want, _, err := fresh.Build()
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("the compiled filter has %d instructions, gVisor's rules give %d, or they differ", len(got), len(want))
	}
}

// Every package that is linked runs its init in each sandbox process. A new one
// is a decision: look at size and memory, then run this test with -update.
func TestLinkedPackages(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Fields(string(out))
	slices.Sort(got)
	file := filepath.Join("testdata", "packages-"+runtime.GOARCH+".txt")
	if *update {
		if err := os.WriteFile(file, []byte(strings.Join(got, "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	b, err := os.ReadFile(file)
	if os.IsNotExist(err) {
		t.Skipf("no list was made for %s", runtime.GOARCH)
	}
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Fields(string(b))
	for _, p := range got {
		if !slices.Contains(want, p) {
			t.Errorf("%s is linked and was not before", p)
		}
	}
	for _, p := range want {
		if !slices.Contains(got, p) {
			t.Errorf("%s is no longer linked", p)
		}
	}
}

// maxSize is what the stripped engine may have; it had 35.6 MB when this was
// written.
const maxSize = 40e6

// built returns the engine that was built.
func built(t *testing.T) (string, os.FileInfo) {
	t.Helper()
	path := os.Getenv("AGENTBOX_ENGINE")
	if path == "" {
		path = filepath.Join("..", "..", "bin", "agentbox-engine")
	}
	info, err := os.Stat(path)
	if err != nil {
		if os.Getenv("CI") != "" || os.Getenv("AGENTBOX_TEST_STRICT") != "" {
			t.Fatal(err)
		}
		t.Skipf("no engine was built: %v", err)
	}
	return path, info
}

func TestELF(t *testing.T) {
	path, info := built(t)
	if info.Size() > maxSize {
		t.Errorf("the engine has %d bytes, more than %.0f", info.Size(), maxSize)
	}
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			t.Error("the engine is linked dynamically: it could not run in its empty root")
		}
	}
	if libs, err := f.ImportedLibraries(); err != nil || len(libs) > 0 {
		t.Errorf("the engine imports %q, %v", libs, err)
	}
	if f.Section(".symtab") != nil || f.Section(".debug_info") != nil {
		t.Error("the engine is not stripped")
	}
}

// The engine knows the version of gVisor in it, which checkpoints depend on.
func TestVersion(t *testing.T) {
	path, _ := built(t)
	want, err := exec.Command("go", "list", "-m", "-f", "{{.Version}}", "gvisor.dev/gvisor").Output()
	if err != nil {
		t.Fatal(err)
	}
	got, err := exec.Command(path, "--version").Output()
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(string(got), "runsc version "+string(want)) {
		t.Errorf("the engine says %q, not version %s", got, want)
	}
}

// A sandbox process has no standard error: what stops it before gVisor begins
// must be in the panic log as well.
func TestEarlyFailureIsInThePanicLog(t *testing.T) {
	path, _ := built(t)
	log, err := os.CreateTemp(t.TempDir(), "panic")
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command(path, "--panic-log-fd=3", "boot", "--pass-fd=bad:1001", "id")
	cmd.ExtraFiles = []*os.File{log}
	if err := cmd.Run(); cmd.ProcessState.ExitCode() != 128 {
		t.Errorf("the engine ended with %v", err)
	}
	got, err := os.ReadFile(log.Name())
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(got), "parse --pass-fd=bad:1001") {
		t.Errorf("the panic log holds %q", got)
	}
}

// A sandbox process gets its donated files at fixed numbers and its further
// arguments, in whatever order they come.
func TestBootArgs(t *testing.T) {
	file := func() int {
		fd, err := unix.MemfdCreate("donated", 0)
		if err != nil {
			t.Fatal(err)
		}
		return fd
	}
	extra := func() int {
		fd := file()
		if _, err := unix.Write(fd, []byte("--total-memory=1024\n--cpu-num=3\n")); err != nil {
			t.Fatal(err)
		}
		if _, err := unix.Seek(fd, 0, unix.SEEK_SET); err != nil {
			t.Fatal(err)
		}
		return fd
	}
	pass := func(fd, guest int) string { return fmt.Sprintf("--pass-fd=%d:%d", fd, guest) }
	defer unix.Close(fdChannel)
	defer unix.Close(fdFilestore)

	channel, layer, group := file(), file(), file()
	in := []string{prewarmer, "/x/gvisor_sentry", "runsc-sandbox", "--root=/r", "boot", "--bundle=/b",
		pass(group, passCgroup+1), pass(layer, passFilestore), pass(extra(), passArgs), pass(channel, passChannel), pass(40, 5), "id"}
	got, err := bootArgs(in)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"runsc-sandbox", "--root=/r", "boot", "--bundle=/b",
		"--gofer-filestore-fds=901", "--pass-fd=900:3", "--pass-fd=40:5", "--total-memory=1024", "--cpu-num=3", "id"}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	for _, fd := range []int{channel, layer, group} {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil {
			t.Errorf("file descriptor %d is still open", fd)
		}
	}
	for _, fd := range []int{fdChannel, fdFilestore} {
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || flags != 0 {
			t.Errorf("file descriptor %d: flags %d, %v", fd, flags, err)
		}
	}
	// The second time there is nothing left to do.
	again, err := bootArgs(slices.Clone(got))
	if err != nil || !slices.Equal(again, got) {
		t.Errorf("the second time: %q, %v", again, err)
	}
}

func TestOtherCommandLines(t *testing.T) {
	in := []string{"runsc", "--root=/r", "list"}
	if got, err := bootArgs(slices.Clone(in)); err != nil || !slices.Equal(got, in) {
		t.Errorf("got %q, %v", got, err)
	}
	if _, err := bootArgs([]string{"/x/" + prewarmer}); err == nil {
		t.Error("a prewarmer without a program is no error")
	}
	for _, arg := range []string{"--pass-fd=x:3", "--pass-fd=3:y"} {
		if _, err := bootArgs([]string{"runsc-sandbox", "boot", arg, "id"}); err == nil {
			t.Errorf("%s is no error", arg)
		}
	}
}
