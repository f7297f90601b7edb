package cli

import (
	"fmt"

	"github.com/spf13/cobra"
)

func (a *App) engineCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "engine [ARG...]",
		Short: "Pass arguments to the engine's own command line, for debugging",
		Long: `Run the embedded engine (gVisor's runsc) with the given arguments. The state of
this machine's sandboxes lies below <data-dir>/owners/<owner>/run:

  agentbox engine --root /var/lib/agentbox/owners/OWNER/run list`,
		DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 && (args[0] == "-h" || args[0] == "--help") {
				return cmd.Help()
			}
			l, dir, err := a.local(cmd)
			if err != nil {
				return err
			}
			if err := l.Engine(dir, args); err != nil {
				return fmt.Errorf("run the engine: %w", err)
			}
			return nil
		},
	}
}
