package cli

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"agentbox/internal/local"
	"agentbox/internal/owner"
)

func (a *App) purgeCommand() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "purge",
		Short: "Remove everything that agentbox keeps on this machine",
		Long: `Remove what agentbox keeps: sandboxes whose process is gone or whose server is stopped,
volumes with all that is in them, images, the engine, the data directory, and its
cgroups. The storage of tenants stays. It refuses while sandboxes are in use.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, dir, err := a.local(cmd)
			if err != nil {
				return err
			}
			live, err := owner.Live(dir)
			if err != nil {
				return err
			}
			if len(live) > 0 {
				return fmt.Errorf("sandboxes are in use by %d running agentbox processes; end them first", len(live))
			}
			if err := l.DaemonRuns(dir); err != nil {
				return err
			}
			store, err := l.Images(dir)
			if err != nil {
				return err
			}
			if err := store.Idle(cmd.Context()); err != nil { // it may hold mounts of the host
				return err
			}
			if !yes {
				if err := a.confirm(fmt.Sprintf("Remove %s with all images, sandboxes and volumes?", dir)); err != nil {
					return err
				}
			}
			gone, err := local.Reclaim(cmd.Context(), dir, l.Backend(dir))
			if err != nil {
				return err
			}
			if err := l.ReclaimDaemon(cmd.Context(), dir); err != nil {
				return err
			}
			if err := errors.Join(os.RemoveAll(dir), l.PurgeHost(cmd.Context())); err != nil {
				return err
			}
			fmt.Fprintf(a.Stdout, "removed %s", dir)
			if len(gone) > 0 {
				fmt.Fprintf(a.Stdout, " and what %d ended processes left", len(gone))
			}
			fmt.Fprintln(a.Stdout)
			return nil
		},
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "don't ask")
	return cmd
}

// confirm asks on the terminal.
func (a *App) confirm(question string) error {
	fmt.Fprintf(a.Stderr, "%s [y/N] ", question)
	line, _ := bufio.NewReader(a.Stdin).ReadString('\n') // end-of-file is a no
	if s := strings.ToLower(strings.TrimSpace(line)); s == "y" || s == "yes" {
		return nil
	}
	return errors.New("nothing was removed; --yes skips the question")
}
