package cli

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"

	"agentbox/internal/sandbox"
)

// hostMaximum are the limits that no sandbox may pass on this machine.
func hostMaximum() (sandbox.Limits, error) {
	f, err := os.Open("/proc/meminfo")
	if err != nil {
		return sandbox.Limits{}, fmt.Errorf("read the machine's memory: %w", err)
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		rest, ok := strings.CutPrefix(s.Text(), "MemTotal:")
		if !ok {
			continue
		}
		kb, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
		if err != nil {
			return sandbox.Limits{}, fmt.Errorf("read the machine's memory: %w", err)
		}
		return sandbox.MaxLimits(kb<<10, runtime.NumCPU()), nil
	}
	return sandbox.Limits{}, fmt.Errorf("read the machine's memory: no MemTotal in /proc/meminfo")
}
