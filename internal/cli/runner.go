package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"
	"time"
	"unicode/utf8"

	"agentbox/internal/guest/client"
	"agentbox/internal/local"
	"agentbox/internal/sandbox"
	"agentbox/internal/transfer"
)

// outputsDir is where a sandbox leaves what its user should get.
const outputsDir = "/mnt/user-data/outputs"

// runner is one agentbox run.
type runner struct {
	app    *App
	flags  *runFlags
	engine *local.Engine
	copies []copySpec
	// stopSignal asks the image's program to end; 0: it is not asked.
	stopSignal int
	public     *publishing
	image      string // as it was asked for
}

// copySpec is one --copy.
type copySpec struct{ src, dst string }

func parseCopies(args []string) ([]copySpec, error) {
	var out []copySpec
	for _, s := range args {
		i := strings.LastIndexByte(s, ':')
		if i <= 0 || i == len(s)-1 {
			return nil, &sandbox.InvalidError{Field: "copy", Value: s, Allowed: "SRC:DST, such as ./data:/workspace/data"}
		}
		c := copySpec{s[:i], s[i+1:]}
		if _, err := os.Lstat(c.src); err != nil { // before a sandbox is made for nothing
			return nil, fmt.Errorf("read the source of --copy %s: %w", s, err)
		}
		out = append(out, c)
	}
	return out, nil
}

func (r *runner) run(ctx context.Context, req local.Request, cmd sandbox.Command) (err error) {
	began := time.Now()
	sb, err := r.engine.Create(ctx, req)
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
		defer cancel()
		err = errors.Join(err, sb.Destroy(ctx))
	}()
	if err := r.public.start(r.app, r.engine, newBox(sb, r.flags.name, r.image)); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.public.close()) }()
	for _, c := range r.copies {
		if err := r.copyIn(ctx, sb, c); err != nil {
			return err
		}
	}
	ready := time.Since(began)
	res, err := r.exec(ctx, sb, cmd)
	if err != nil {
		return err
	}
	if r.flags.outputDir != "" && res.Outcome != sandbox.OOM && res.Outcome != sandbox.Lost {
		if err := r.collect(ctx, sb); err != nil {
			return err
		}
	}
	return r.report(sb, res, ready)
}

// copyIn sends one tree. A destination that ends in / is a directory to put
// the source into; else it is the new name.
func (r *runner) copyIn(ctx context.Context, sb *local.Sandbox, c copySpec) error {
	dir, name := path.Split(c.dst)
	if name == "" {
		name = path.Base(strings.TrimRight(path.Clean(strings.ReplaceAll(c.src, "\\", "/")), "/"))
	}
	if dir == "" {
		dir = "."
	}
	pr, pw := io.Pipe()
	go func() { pw.CloseWithError(transfer.Pack(pw, c.src, name)) }()
	defer pr.Close()
	progress := r.app.progress("copying " + c.src)
	defer progress.done()
	if err := sb.PutTree(ctx, dir, progress.reader(pr)); err != nil {
		return fmt.Errorf("copy %s to %s: %w", c.src, c.dst, err)
	}
	return nil
}

// why is a reason for a person to read. It comes from inside the sandbox.
func why(r client.SkipReason) string {
	const only = "; only regular files and directories are collected"
	if s, ok := map[client.SkipReason]string{
		client.SkipFIFO: "a FIFO" + only, client.SkipSocket: "a socket" + only, client.SkipDevice: "a device" + only,
		client.SkipDenied: "the sandbox's user may not read it", client.SkipSize: "it is too large", client.SkipCount: "there are too many files", client.SkipDepth: "it lies too deep",
	}[r]; ok {
		return s
	}
	return "it was not sent"
}

// collect brings the outputs directory to the host.
func (r *runner) collect(ctx context.Context, sb *local.Sandbox) error {
	in, err := sb.Session().GetArchive(ctx, outputsDir, client.ArchiveOptions{
		MaxBytes: transfer.DefaultBytes, MaxEntries: transfer.DefaultEntries,
	})
	if err != nil {
		return fmt.Errorf("collect %s: %w", outputsDir, err)
	}
	defer in.Close()
	progress := r.app.progress("collecting outputs")
	defer progress.done()
	skipped, err := transfer.Unpack(progress.reader(in), r.flags.outputDir, transfer.Options{})
	for _, s := range skipped {
		r.app.warn(fmt.Errorf("left out of the outputs: %s", s))
	}
	left := in.Skipped()
	for _, s := range left.First {
		r.app.warn(fmt.Errorf("left out of the outputs: %q: %s", s.Path, why(s.Reason)))
	}
	if more := left.Total - len(left.First); more > 0 {
		r.app.warn(fmt.Errorf("left out of the outputs: %d more", more))
	}
	if err != nil {
		return fmt.Errorf("collect %s: %w", outputsDir, err)
	}
	return nil
}

// verdict is what --json prints.
type verdict struct {
	ExitCode    int       `json:"exit_code"`
	Outcome     string    `json:"outcome"`
	Signal      int       `json:"signal,omitempty"`
	Reason      string    `json:"reason,omitempty"`
	TimedOut    bool      `json:"timed_out"`
	OOMKilled   bool      `json:"oom_killed"`
	Stdout      string    `json:"stdout"`
	Stderr      string    `json:"stderr"`
	StdoutB64   []byte    `json:"stdout_base64,omitempty"`
	StderrB64   []byte    `json:"stderr_base64,omitempty"`
	Truncated   trunc     `json:"truncated"`
	DurationMS  float64   `json:"duration_ms"`
	CreateMS    float64   `json:"create_ms"`
	CPUTimeMS   float64   `json:"cpu_time_ms"`
	PeakMemory  int64     `json:"peak_memory"`
	Sandbox     string    `json:"sandbox"`
	Name        string    `json:"name,omitempty"`
	Ports       []mapping `json:"ports"`
	Mode        string    `json:"mode"`
	HostUID     uint32    `json:"host_uid"` // of the sandbox's processes, on this host
	NotEnforced []string  `json:"not_enforced"`
}

type trunc struct {
	Stdout bool `json:"stdout"`
	Stderr bool `json:"stderr"`
}

// report says how the command ended, as the exit status and, where the status
// alone would puzzle, as a line on standard error.
func (r *runner) report(sb *local.Sandbox, res *sandbox.Result, ready time.Duration) error {
	if r.flags.json {
		v := verdict{
			ExitCode: res.ShellCode(), Outcome: res.Outcome.String(), Signal: res.Signal, Reason: res.Reason,
			TimedOut: res.Outcome == sandbox.TimedOut, OOMKilled: res.Outcome == sandbox.OOM,
			Truncated:  trunc{res.StdoutTruncated, res.StderrTruncated},
			DurationMS: ms(res.Duration), CreateMS: ms(ready), CPUTimeMS: ms(res.CPUTime), PeakMemory: res.PeakMemory,
			Sandbox: sb.ID, Name: r.flags.name, Ports: r.public.mappings(),
			Mode: r.engine.Capabilities().Mode, HostUID: r.engine.Capabilities().HostUser, NotEnforced: append([]string{}, sb.NotEnforced...),
		}
		v.Stdout, v.StdoutB64 = text(res.Stdout)
		v.Stderr, v.StderrB64 = text(res.Stderr)
		if err := r.app.printJSON(v); err != nil {
			return err
		}
	} else {
		r.explain(res)
	}
	if code := res.ShellCode(); code != 0 {
		return exitStatus(code)
	}
	return nil
}

func (r *runner) explain(res *sandbox.Result) {
	switch res.Outcome {
	case sandbox.TimedOut:
		fmt.Fprintf(r.app.Stderr, "agentbox: the command was ended after %v (--timeout)\n", res.Duration.Round(time.Millisecond))
	case sandbox.OOM:
		fmt.Fprintf(r.app.Stderr, "agentbox: %s (--memory)\n", res.Reason)
	case sandbox.Lost:
		fmt.Fprintf(r.app.Stderr, "agentbox: %s\n", res.Reason)
	}
}

// text returns b as text with U+FFFD for invalid bytes; if there were any, also
// the exact bytes.
func text(b []byte) (string, []byte) {
	if utf8.Valid(b) {
		return string(b), nil
	}
	return strings.ToValidUTF8(string(b), "\uFFFD"), b
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
