package cli

import (
	"strings"
	"time"

	"github.com/spf13/cobra"

	"agentbox/internal/control"
	"agentbox/internal/ids"
)

func (a *App) psCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "ps",
		Short: "List the sandboxes that agentbox run processes of this user have",
		Long: `List the sandboxes that agentbox run processes of this user have. They are gone when those
end. Sandboxes of the server are in agentbox ls.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, dataDir, err := a.local(cmd)
			if err != nil {
				return err
			}
			all, err := control.List(cmd.Context(), dataDir)
			if err != nil {
				return err
			}
			rows := []control.Info{}
			for _, r := range all {
				r.Close()
				rows = append(rows, r.Info)
			}
			if asJSON {
				return a.printJSON(rows)
			}
			t := a.table("ID", "NAME", "IMAGE", "AGE", "PORTS")
			for _, i := range rows {
				t.row(ids.Short(i.ID), i.Name, i.Image, span(time.Since(i.Created)), strings.Join(i.Ports, " "))
			}
			return t.flush()
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
