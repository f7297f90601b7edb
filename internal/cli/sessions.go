package cli

import (
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/cobra"
)

// sessionRow is a shell session.
type sessionRow struct {
	Name    string    `json:"name"`
	ExecID  string    `json:"exec_id"`
	Started time.Time `json:"started_at"`
}

func (a *App) sessionsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "sessions",
		Short: "Begin, list and end shell sessions in a sandbox of the server",
		Long: `Begin, list and end shell sessions: commands that agentbox exec --session NAME runs in
one share a shell, so that its directory, variables and functions last.`,
		Example: `  agentbox sessions create dev main
  agentbox exec --session main dev -- 'cd /tmp && A=1'
  agentbox exec --session main dev -- 'pwd; echo $A'
  agentbox sessions rm dev main`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	var f listFlags
	ls := &cobra.Command{
		Use: "ls SANDBOX", Aliases: []string{"list"}, Short: "List the shell sessions, oldest first", Args: cobra.ExactArgs(1),
		ValidArgsFunction: a.completeSandboxes(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return listed(a, cmd, &f, inSandbox(args[0], "sessions"), url.Values{}, func(s *sessionRow) string { return s.Name },
				[]string{"NAME", "EXEC", "STARTED"}, func(s *sessionRow) []string { return []string{s.Name, s.ExecID, ago(s.Started)} })
		},
	}
	f.add(ls)
	cmd.AddCommand(ls, &cobra.Command{
		Use: "create SANDBOX NAME...", Short: "Begin shell sessions", Args: cobra.MinimumNArgs(2),
		ValidArgsFunction: a.completeSandboxes(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.each(cmd, args[1:], func(r *remote, name string) error {
				return r.call(cmd.Context(), http.MethodPost, inSandbox(args[0], "sessions"), map[string]string{"name": name}, nil)
			})
		},
	}, &cobra.Command{
		Use: "rm SANDBOX NAME...", Short: "End shell sessions, with all that runs in them", Args: cobra.MinimumNArgs(2),
		ValidArgsFunction: a.completeSandboxes(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.each(cmd, args[1:], func(r *remote, name string) error {
				return r.call(cmd.Context(), http.MethodDelete, inSandbox(args[0], "sessions", name), nil, nil)
			})
		},
	})
	return cmd
}
