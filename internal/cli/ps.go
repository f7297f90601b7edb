package cli

import (
	"fmt"
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
		Short: "List the sandboxes that agentbox processes of this user run",
		Args:  cobra.NoArgs,
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
			w := a.table()
			fmt.Fprintln(w, "ID\tNAME\tIMAGE\tAGE\tPORTS")
			for _, i := range rows {
				age := time.Since(i.Created).Round(time.Second)
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", ids.Short(i.ID), i.Name, i.Image, age, strings.Join(i.Ports, " "))
			}
			return w.Flush()
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
