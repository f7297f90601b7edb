package agentbox_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	agentbox "agentbox/sdk/go"
)

func TestExec(t *testing.T) {
	b, ctx := box(t, agentbox.CreateOptions{}), within(t)
	r, err := b.Exec(ctx, agentbox.Command{Line: "cat; echo $A >&2; pwd; exit 3", Stdin: []byte("in\xff\x00"), Env: map[string]string{"A": "b"}, Workdir: "/tmp"})
	if err != nil {
		t.Fatal(err)
	}
	if r.ExitCode != 3 || r.Stdout != "in\xff\x00/tmp\n" || r.Stderr != "b\n" || r.Duration <= 0 {
		t.Errorf("%+v", r)
	}
	var failed *agentbox.ExitError
	if !errors.As(r.Err(), &failed) || failed.Result != r {
		t.Errorf("Err is %v", r.Err())
	}
	r, err = b.Exec(ctx, agentbox.Program("printf", "%s.", "a b", "$HOME"))
	if err != nil || r.Stdout != "a b.$HOME." || r.Err() != nil {
		t.Errorf("%+v %v", r, err)
	}
	r, err = b.Exec(ctx, agentbox.Command{Line: "echo early; sleep 60", Timeout: time.Second})
	if err != nil || !r.TimedOut || r.ExitCode != -1 || r.Stdout != "early\n" {
		t.Errorf("%+v %v", r, err)
	}
	if _, err := b.Exec(ctx, agentbox.Command{}); !errors.Is(err, agentbox.ErrInvalidArgument) {
		t.Errorf("nothing to run is %v", err)
	}
}

// TestExecOnce: the same key runs a command once, whoever sends it.
func TestExecOnce(t *testing.T) {
	b, ctx := box(t, agentbox.CreateOptions{}), within(t)
	key := unique(t)
	for range 2 {
		r, err := b.Exec(ctx, agentbox.Command{Line: "echo x >>count; cat count", IdempotencyKey: key})
		if err != nil || r.Stdout != "x\n" {
			t.Errorf("%+v %v", r, err)
		}
	}
	_, err := b.Exec(ctx, agentbox.Command{Line: "true", IdempotencyKey: key})
	if !errors.Is(err, agentbox.ErrConflict) {
		t.Errorf("another command with the key is %v", err)
	}
}

// TestExecEndsWithItsContext: a command does not outlive its caller.
func TestExecEndsWithItsContext(t *testing.T) {
	b, ctx := box(t, agentbox.CreateOptions{}), within(t)
	short, cancel := context.WithCancel(ctx)
	ended := make(chan error)
	go func() {
		_, err := b.Exec(short, agentbox.Sh("echo $$ >pid; exec sleep 300"))
		ended <- err
	}()
	waitUntil(ctx, t, b, "test -s pid")
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("it is %v", err)
	}
	waitUntil(ctx, t, b, "! kill -0 $(cat pid)")
}

// waitUntil waits until a command line is true.
func waitUntil(ctx context.Context, t *testing.T, b *agentbox.Box, line string) {
	t.Helper()
	for {
		r, err := b.Exec(ctx, agentbox.Sh(line))
		if err != nil {
			t.Fatal(err)
		}
		if r.ExitCode == 0 {
			return
		}
	}
}

// TestStream: output comes while the command runs.
func TestStream(t *testing.T) {
	b, ctx := box(t, agentbox.CreateOptions{}), within(t)
	var kinds []string
	var text strings.Builder
	waits := "echo one; while ! [ -e gate ]; do sleep 0.05; done; echo two >&2; exit 5"
	for e, err := range b.Stream(ctx, agentbox.Sh(waits)) {
		if err != nil {
			t.Fatal(err)
		}
		kinds = append(kinds, string(e.Kind))
		text.Write(e.Data)
		switch e.Kind {
		case agentbox.Started:
			if e.ExecID == "" {
				t.Error("no exec id")
			}
		case agentbox.Stdout:
			if err := b.Files.Write(ctx, "gate", nil, agentbox.WriteOptions{}); err != nil {
				t.Fatal(err)
			}
		case agentbox.Exited:
			if e.Result.ExitCode != 5 {
				t.Errorf("%+v", e.Result)
			}
		}
	}
	if got := strings.Join(kinds, " "); got != "start stdout stderr exit" || text.String() != "one\ntwo\n" {
		t.Errorf("%s: %q", got, text.String())
	}
}

// TestStreamLeft: who leaves the loop ends the command.
func TestStreamLeft(t *testing.T) {
	b, ctx := box(t, agentbox.CreateOptions{}), within(t)
	for e, err := range b.Stream(ctx, agentbox.Sh("echo $$; exec sleep 300")) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Kind == agentbox.Stdout {
			waitUntil(ctx, t, b, "kill -0 "+strings.TrimSpace(string(e.Data)))
			defer waitUntil(ctx, t, b, "! kill -0 "+strings.TrimSpace(string(e.Data)))
			break
		}
	}
}

func TestRun(t *testing.T) {
	b, ctx := box(t, agentbox.CreateOptions{}), within(t)
	var out, errs strings.Builder
	r, err := b.Run(ctx, agentbox.Sh("seq 1 100000; echo done >&2"), &out, &errs)
	if err != nil || r.ExitCode != 0 || strings.Count(out.String(), "\n") != 100000 || errs.String() != "done\n" {
		t.Errorf("%+v %v: %d bytes, %q", r, err, out.Len(), errs.String())
	}
}

// TestBackground: a command that runs by itself is found by its id, its output from any
// position on.
func TestBackground(t *testing.T) {
	b, ctx := box(t, agentbox.CreateOptions{}), within(t)
	p, err := b.Background(ctx, agentbox.Command{Line: "echo hello; cat; exit 4", OpenStdin: true})
	if err != nil {
		t.Fatal(err)
	}
	again := b.Process(p.ID())
	for e, err := range again.Attach(ctx, agentbox.Position{}) { // leaving it leaves the command
		if err != nil {
			t.Fatal(err)
		}
		if e.Kind == agentbox.Stdout {
			if string(e.Data) != "hello\n" || e.At.Stdout != 6 {
				t.Errorf("%q up to %v", e.Data, e.At)
			}
			break
		}
	}
	if info, err := again.Info(ctx); err != nil || info.State != "running" {
		t.Fatalf("%+v %v", info, err)
	}
	if err := again.Write(ctx, strings.NewReader("typed\n")); err != nil {
		t.Fatal(err)
	}
	if err := again.CloseStdin(ctx); err != nil {
		t.Fatal(err)
	}
	r, err := p.Wait(ctx)
	if err != nil || r.ExitCode != 4 || r.Stdout != "hello\ntyped\n" {
		t.Errorf("%+v %v", r, err)
	}
	var rest strings.Builder
	if r, err := p.Copy(ctx, agentbox.Position{Stdout: 6}, &rest, nil); err != nil || r.ExitCode != 4 || rest.String() != "typed\n" {
		t.Errorf("%+v %v %q", r, err, rest.String())
	}
	if _, err := p.Copy(ctx, agentbox.Position{Stdout: 600}, nil, nil); !errors.Is(err, agentbox.ErrOutOfRange) {
		t.Errorf("an offset that is not there is %v", err)
	}
	bytes, err := p.Output(ctx, agentbox.Stdout, 3, true)
	if err != nil {
		t.Fatal(err)
	}
	defer bytes.Close()
	if text, err := io.ReadAll(bytes); err != nil || string(text) != "lo\ntyped\n" {
		t.Errorf("%q %v", text, err)
	}
	all, err := agentbox.Collect(b.Processes(ctx))
	if err != nil || len(all) != 1 || all[0].ExecID != p.ID() {
		t.Errorf("%+v %v", all, err)
	}
	if err := p.Kill(ctx); err != nil {
		t.Errorf("killing what has ended: %v", err)
	}
}

func TestSessions(t *testing.T) {
	b, ctx := box(t, agentbox.CreateOptions{}), within(t)
	if _, err := b.Sessions.Create(ctx, "main"); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Exec(ctx, agentbox.Command{Line: "cd /tmp; A=1", Session: "main"}); err != nil {
		t.Fatal(err)
	}
	r, err := b.Exec(ctx, agentbox.Command{Line: "echo $PWD $A", Session: "main"})
	if err != nil || r.Stdout != "/tmp 1\n" {
		t.Errorf("%+v %v", r, err)
	}
	if all, err := agentbox.Collect(b.Sessions.List(ctx)); err != nil || len(all) != 1 || all[0].Name != "main" {
		t.Errorf("%+v %v", all, err)
	}
	if err := b.Sessions.Remove(ctx, "main"); err != nil {
		t.Error(err)
	}
	if err := b.Sessions.Remove(ctx, "main"); !errors.Is(err, agentbox.ErrNotFound) {
		t.Errorf("it is %v", err)
	}
}
