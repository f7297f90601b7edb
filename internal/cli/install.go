package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	"github.com/spf13/cobra"

	"agentbox/internal/packages"
	"agentbox/internal/sandbox"
)

func (a *App) installCommand() *cobra.Command {
	var with string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "install SANDBOX PACKAGE...",
		Short: "Install packages in a sandbox of the server",
		Long: `Install packages in a sandbox of the server: those of Python with pip, or with another
package manager, npm or apt. The sandbox must be allowed to reach the package index:
agentbox create --allow python, --allow node or --allow debian. A package is a name, with
a version if need be; options, URLs and paths are refused. The exit status is the package
manager's own.`,
		Example: `  agentbox create --name dev --allow python --allow debian
  agentbox install dev requests 'numpy>=2,<3'
  agentbox install --with apt dev jq`,
		Args:              cobra.MinimumNArgs(2),
		ValidArgsFunction: a.completeSandboxes(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, ok := packages.Find(with); !ok {
				return &sandbox.InvalidError{Field: "with", Value: with, Allowed: "pip, npm or apt"}
			}
			r, err := a.remote(cmd)
			if err != nil {
				return err
			}
			ctx, stop := untilSignal(cmd.Context())
			defer stop()
			in := map[string][]string{"packages": args[1:]}
			var answer json.RawMessage
			q := request{method: http.MethodPost, path: inSandbox(args[0], "packages", with), in: in, most: mostOf(""), look: "agentbox execs " + args[0]}
			if err := r.callWith(ctx, q, &answer); err != nil {
				return a.orInterrupted(ctx, err)
			}
			return a.installed(r, args[0], answer, asJSON)
		},
	}
	cmd.Flags().StringVar(&with, "with", "pip", "the package `MANAGER`: pip, npm, or apt, which runs as root")
	completeWords(cmd, "with", "pip", "npm", "apt")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the result with the output as JSON")
	return cmd
}

// installed shows what came of an installation in the sandbox box.
func (a *App) installed(r *remote, box string, answer json.RawMessage, asJSON bool) error {
	var e struct {
		execEnd
		Stdout, Stderr string
	}
	if err := json.Unmarshal(answer, &e); err != nil {
		return fmt.Errorf("read the answer of %s: %w", r.where, err)
	}
	if asJSON {
		if err := a.printJSON(answer); err != nil {
			return err
		}
		return e.status()
	}
	if _, err := io.WriteString(a.Stdout, e.Stdout); err != nil {
		return err
	}
	if _, err := io.WriteString(a.Stderr, e.Stderr); err != nil {
		return err
	}
	err := a.ended(&e.execEnd)
	if err != nil {
		// Package managers seldom show what the way out answered.
		fmt.Fprintf(a.Stderr, "agentbox: what it reached and what it could not, and why: agentbox egress log %s\n", box)
	}
	return err
}
