package gvisor

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"unicode"
)

// maxTail is how much of a panic log is read: the head of a Go stack dump and
// some goroutines.
const maxTail = 16 << 10

// maxReason is how much of a panic log an error carries, in bytes: what a
// person reads on a terminal.
const maxReason = 2 << 10

// panicLog is where the sandbox process writes its standard error: why it could
// not start, and how it crashed.
func panicLog(dir string) string { return filepath.Join(dir, "panic.log") }

// logTail is the end of a log file, at most limit bytes of it; empty when there
// is none. What is in it may come from the sandbox: it is made printable.
func logTail(path string, limit int64) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	n, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return ""
	}
	if _, err := f.Seek(max(0, n-limit), io.SeekStart); err != nil {
		return ""
	}
	b, err := io.ReadAll(io.LimitReader(f, limit))
	if err != nil {
		return ""
	}
	return printable(string(b))
}

// printable replaces what could steer a terminal.
func printable(s string) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if r == unicode.ReplacementChar || !unicode.IsGraphic(r) && r != '\n' && r != '\t' {
			return '?'
		}
		return r
	}, s))
}

// explain adds what is known of the end of the sandbox process to an error that
// has no cause in it: gVisor's library says no more than that it is gone.
func (b *box) explain(err error) error {
	if b.group != nil && b.group.OOMKills() > 0 {
		err = fmt.Errorf("%w; the kernel killed it: it needs more memory than its limit of %d bytes", err, b.rec.Limits.Memory)
	}
	if tail := logTail(panicLog(b.dir), maxReason); tail != "" {
		err = fmt.Errorf("%w; the engine says: %s", err, tail)
	}
	return err
}
