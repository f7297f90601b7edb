package sandbox_test

import (
	"errors"
	"math"
	"strings"
	"testing"

	"agentbox/internal/sandbox"
)

func TestParseSize(t *testing.T) {
	good := map[string]int64{
		"0": 0, "1": 1, "268435456": 256 << 20, "512m": 512 << 20, "512M": 512 << 20, "512MB": 512 << 20, "512MiB": 512 << 20,
		"2g": 2 << 30, "1.5k": 1536, " 4k ": 4096, "1t": 1 << 40, "8388607t": 8388607 << 40,
	}
	for in, want := range good {
		if got, err := sandbox.ParseSize("memory", in); err != nil || got != want {
			t.Errorf("ParseSize(%q) = %d, %v; want %d", in, got, err, want)
		}
	}
	bad := []string{"", "m", "-1", "+1", "4XB", "1e6", "0x10", "NaN", "inf", "9223372036854775808", "8388608t", "1..5k", "1 2", "1mm", "1_000", "ten"}
	for _, in := range bad {
		got, err := sandbox.ParseSize("memory", in)
		var inv *sandbox.InvalidError
		if !errors.As(err, &inv) || inv.Field != "memory" {
			t.Errorf("ParseSize(%q) = %d, %v; want an InvalidError for memory", in, got, err)
		}
	}
}

func FuzzParseSize(f *testing.F) {
	for _, s := range []string{"1", "512m", "1.5g", "-1", "1e9", "9223372036854775807", "9007199254740993.0k"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		n, err := sandbox.ParseSize("x", s)
		if err != nil {
			return
		}
		if n < 0 {
			t.Fatalf("ParseSize(%q) = %d", s, n)
		}
		if back, err := sandbox.ParseSize("x", sandbox.FormatSize(n)); err != nil || back != n {
			t.Fatalf("%q -> %d -> %q -> %d, %v", s, n, sandbox.FormatSize(n), back, err)
		}
	})
}

func TestLimits(t *testing.T) {
	maximum := sandbox.MaxLimits(8*sandbox.GiB, 2)
	def := sandbox.Limits{}.WithDefaults()
	if err := def.Check(maximum); err != nil {
		t.Errorf("the defaults are refused: %v", err)
	}
	if def.Shm != def.Memory/2 {
		t.Errorf("shm = %d, want half of the memory", def.Shm)
	}
	for name, change := range map[string]func(*sandbox.Limits){
		"memory":     func(l *sandbox.Limits) { l.Memory = 9 * sandbox.GiB },
		"disk":       func(l *sandbox.Limits) { l.Disk = math.MaxInt64 },
		"cpus":       func(l *sandbox.Limits) { l.CPUs = math.NaN() },
		"pids":       func(l *sandbox.Limits) { l.Pids = -1 },
		"open_files": func(l *sandbox.Limits) { l.OpenFiles = 1 },
		"shm":        func(l *sandbox.Limits) { l.Shm = -1 },
	} {
		l := def
		change(&l)
		err := l.Check(maximum)
		var inv *sandbox.InvalidError
		if !errors.As(err, &inv) || inv.Field != name || inv.Allowed == "" {
			t.Errorf("%s: %v; want an InvalidError that says what is allowed", name, err)
		}
	}
	if c := (sandbox.Limits{Memory: 512 * sandbox.GiB, CPUs: 64}).WithDefaults().Clamp(maximum); c.Memory != maximum.Memory || c.CPUs != 2 {
		t.Errorf("clamped to %d bytes, %v cpus", c.Memory, c.CPUs)
	}
}

func TestShellCode(t *testing.T) {
	for _, c := range []struct {
		r    sandbox.Result
		want int
	}{
		{sandbox.Result{Outcome: sandbox.Exited, ExitCode: 7}, 7},
		{sandbox.Result{Outcome: sandbox.Exited, ExitCode: 255}, 255},
		{sandbox.Result{Outcome: sandbox.Signaled, Signal: 9}, 137},
		{sandbox.Result{Outcome: sandbox.Canceled, Signal: 15}, 143},
		{sandbox.Result{Outcome: sandbox.TimedOut, Signal: 9}, 124},
		{sandbox.Result{Outcome: sandbox.OOM, Signal: 9}, 137},
		{sandbox.Result{Outcome: sandbox.Lost}, 125},
	} {
		if got := c.r.ShellCode(); got != c.want {
			t.Errorf("%v: %d, want %d", c.r.Outcome, got, c.want)
		}
		if s := c.r.Outcome.String(); s == "unknown" || strings.ToLower(s) != s {
			t.Errorf("outcome %d is called %q", c.r.Outcome, s)
		}
	}
}
