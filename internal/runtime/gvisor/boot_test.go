package gvisor_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"agentbox/internal/cgroup"
	"agentbox/internal/runtime/gvisor"
	"agentbox/internal/sandbox"
)

// A sandbox process that can't start says why, and its maker passes that on: its
// last words are all that there is to find the cause by.
func TestReasonOfFailedBoot(t *testing.T) {
	need(t)
	for name, c := range map[string]struct {
		memory  int64
		cgroups string // where they are mounted
		want    string
	}{
		// Without control groups the number comes to the engine, which refuses it.
		"refused": {memory: -5, cgroups: t.TempDir(), want: "-total-memory"},
		"killed":  {memory: 64 << 10, want: "more memory than its limit of 65536 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := shortDir(t)
			o := options(dir)
			o.Cgroups = cgroup.Detect(cgroup.Options{Owner: filepath.Base(dir), Root: c.cgroups})
			if c.cgroups == "" && slices.Contains(o.Cgroups.NotEnforced(), sandbox.LimitMemory) {
				t.Skip("memory is not limited here: " + o.Cgroups.Reason())
			}
			rt, err := gvisor.New(o)
			if err != nil {
				t.Fatal(err)
			}
			defer rt.Close()
			spec := smallSpec()
			spec.Limits.Memory = c.memory
			err = rt.Create(t.Context(), spec)
			if err == nil {
				t.Fatal("a sandbox was made that can't be")
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("the error does not say %q: %v", c.want, err)
			}
			if n := len(err.Error()); n > 3<<10 {
				t.Errorf("the error has %d bytes", n)
			}
		})
	}
}
