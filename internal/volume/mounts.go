//go:build linux

package volume

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// mountPoints lists where something is mounted in this process's view, the
// latest last. Other users of the host may have chosen the paths.
func mountPoints() ([]string, error) {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("list the mounts: %w", err)
	}
	return parseMountInfo(string(b)), nil
}

func parseMountInfo(s string) []string {
	var all []string
	for line := range strings.Lines(s) {
		const pathField = 4
		if fields := strings.Fields(line); len(fields) > pathField {
			all = append(all, unescape(fields[pathField]))
		}
	}
	return all
}

// unescape resolves the kernel's octal escapes of blanks and backslashes.
func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
