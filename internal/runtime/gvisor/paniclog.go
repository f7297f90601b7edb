package gvisor

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"unicode"
)

// maxCrashLog is how much of a panic log is kept of a crash: the head of a Go
// stack dump, some goroutines, and the last words.
const maxCrashLog = 16 << 10

// maxReason is how much of a panic log an error carries, in bytes: what a
// person reads on a terminal.
const maxReason = 2 << 10

// panicLog is where the sandbox process writes its standard error: why it could
// not start, and how it crashed.
func panicLog(dir string) string { return filepath.Join(dir, "panic.log") }

// logEnds is a log file, or the beginning and the end of one that has more than
// limit bytes: a crash tells its cause first, and then, as the sandbox has hundreds
// of goroutines, much else; what can't start tells it last. It is empty when there is
// no log. What is in it may come from the sandbox: it is made printable.
func logEnds(path string, limit int64) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	n, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return ""
	}
	part := func(from, n int64) string {
		b, err := io.ReadAll(io.NewSectionReader(f, from, n))
		if err != nil {
			return ""
		}
		return printable(string(b))
	}
	if n <= limit {
		return part(0, n)
	}
	half := limit / 2
	return part(0, half) + "\n[...]\n" + part(n-half, half)
}

// endNote begins the line that the engine writes last, when the sandbox's first
// process ended; see cmd/agentbox-engine.
const endNote = "agentbox-engine: the first process ended with "

// exitNote is the exit code of the sandbox's first process, if the panic log says
// that it ended. A crash ends the log with other words.
func exitNote(path string) (code int, ended bool) {
	lines := strings.Split(logEnds(path, maxReason), "\n")
	text, ended := strings.CutPrefix(lines[len(lines)-1], endNote)
	if !ended {
		return 0, false
	}
	code, err := strconv.Atoi(text)
	return code, err == nil
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
	if said := logEnds(panicLog(b.dir), maxReason); said != "" {
		err = fmt.Errorf("%w; the engine says: %s", err, said)
	}
	return err
}
