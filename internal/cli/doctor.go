package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"agentbox/internal/doctor"
	"agentbox/internal/guest/client"
	"agentbox/internal/image"
	"agentbox/internal/local"
	"agentbox/internal/sandbox"
)

func (a *App) doctorCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Tell what this machine can do, by trying it",
		Long: `Check what sandboxes need, start a real one, and say which mode is in force,
which limits are enforced in it and how to get what is missing. The exit status is
1 when sandboxes can't run.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, dir, err := a.local(cmd)
			if err != nil {
				return err
			}
			env := l.Facts(dir)
			env.Probe = func(ctx context.Context) (string, error) { return a.probe(ctx, l, dir) }
			p := a.progress("checking")
			report := doctor.Run(cmd.Context(), env)
			p.done()
			if asJSON {
				err = a.printJSON(report)
			} else {
				a.printReport(report)
			}
			if err == nil && report.Fatal() {
				err = exitStatus(1)
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// probe starts a real sandbox and runs a command in it, with whatever image is
// there; the smallest one is made for it if there is none.
func (a *App) probe(ctx context.Context, l *Local, dir string) (string, error) {
	store, err := l.Images(dir)
	if err != nil {
		return "", err
	}
	name := "small"
	if _, err := store.Resolve(ctx, name); err != nil {
		if all, err := store.List(); err == nil {
			for _, i := range all {
				if image.HasRecipe(i.Name) { // others may lack a shell
					name = i.Name
				}
			}
		}
	}
	if _, err := a.ensureImage(ctx, store, name, pullNever); err != nil {
		return "", err
	}
	engine, err := local.Open(ctx, dir, store, l.Backend(dir), a.warn)
	if err != nil {
		return "", err
	}
	defer func() { _ = engine.Close() }() // what it says concerns the next start
	began := time.Now()
	sb, err := engine.Create(ctx, local.Request{Image: name, Limits: sandbox.Limits{}.WithDefaults()})
	if err != nil {
		return "", err
	}
	defer func() { _ = sb.Destroy(context.WithoutCancel(ctx)) }()
	p, err := sb.Start(ctx, sandbox.Command{Shell: "id -u; uname -v", Timeout: time.Minute}, client.Output{})
	if err != nil {
		return "", err
	}
	res, err := sb.Wait(ctx, p)
	if err != nil {
		return "", err
	}
	took := time.Since(began)
	uid, kernel, _ := strings.Cut(strings.TrimSpace(string(res.Stdout)), "\n")
	if res.ShellCode() != 0 {
		return "", fmt.Errorf("a command in it ended %s with %d: %s", res.Outcome, res.ShellCode(), res.Stderr)
	}
	return fmt.Sprintf("image %s, user code runs as uid %s on %q, %v from nothing to the command's end; %s",
		name, uid, kernel, took.Round(time.Millisecond), engine.Capabilities().Mode), nil
}

func (a *App) printReport(r doctor.Report) {
	marks := map[doctor.Status]string{doctor.OK: "ok  ", doctor.Warn: "warn", doctor.Fail: "FAIL"}
	for _, c := range r.Checks {
		fmt.Fprintf(a.Stdout, "%s  %s: %s\n", marks[c.Status], c.Title, c.Detail)
		if c.Fix != "" && c.Status != doctor.OK {
			fmt.Fprintf(a.Stdout, "      -> %s\n", c.Fix)
		}
	}
	fmt.Fprintf(a.Stdout, "\nmode: %s\n", r.Mode)
	if len(r.NotEnforced) > 0 {
		fmt.Fprintf(a.Stdout, "not enforced in this mode: %s\n", strings.Join(r.NotEnforced, ", "))
	}
}
