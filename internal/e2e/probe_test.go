package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"agentbox/internal/local"
	"agentbox/internal/sandbox"
)

// envProbe names the probe that this test binary runs instead of its tests.
const envProbe = "AGENTBOX_E2E_PROBE"

// probes run as hosts of sandboxes in processes of their own, so that what they
// measure of themselves is theirs alone.
var probes = map[string]func(e *local.Engine) (any, error){
	"output-memory": probeOutputMemory,
	"output-cap":    probeOutputCap,
	"stalled":       probeStalled,
	"transfer":      probeTransfer,
	"transfers":     probeTransfers,
}

func runProbe(name string) int {
	err := func() error {
		dir := os.Getenv(envTestDir)
		world.mu.Lock()
		e, err := engine(dir)
		world.mu.Unlock()
		if err != nil {
			return err
		}
		report, err := probes[name](e)
		if err := errors.Join(err, CloseEngine()); err != nil {
			return err
		}
		return json.NewEncoder(os.Stdout).Encode(report)
	}()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// probe runs a probe and decodes its report.
func probe[T any](t *testing.T, name string) T {
	t.Helper()
	SharedDir(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), envProbe+"="+name)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("probe %s: %v\n%s", name, err, stderr.String())
	}
	var report T
	if err := json.Unmarshal(stdout.Bytes(), &report); err != nil {
		t.Fatalf("probe %s: %v\n%s", name, err, stdout.String())
	}
	return report
}

// status reads a size of this process from /proc/self/status, such as VmHWM.
func status(field string) int64 {
	b, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, field+":"); ok {
			kb, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			return kb << 10
		}
	}
	return 0
}

// probeBox is a Box outside of a test: what fails there ends the probe.
func probeBox(e *local.Engine) (*Box, error) {
	sb, err := create(e, sandbox.Limits{})
	return &Box{Sandbox: sb}, err
}
