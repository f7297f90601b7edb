package cli

import (
	"errors"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"agentbox/internal/sandbox"
)

// updateWish is what to change of a sandbox. What is empty stays.
type updateWish struct {
	Labels      map[string]*string `json:"labels,omitempty"`
	IdleTimeout string             `json:"idle_timeout,omitempty"`
	Lifetime    string             `json:"lifetime,omitempty"`
	Memory      string             `json:"memory,omitempty"`
	CPUs        float64            `json:"cpus,omitempty"`
	Disk        string             `json:"disk,omitempty"`
	Pids        int64              `json:"pids,omitempty"`
}

func (a *App) updateCommand() *cobra.Command {
	var w updateWish
	var labels []string
	cmd := &cobra.Command{
		Use:   "update SANDBOX...",
		Short: "Change labels, times and limits of sandboxes of the server",
		Long: `Change sandboxes of the server while they run. Times begin anew: --lifetime 2h ends a
sandbox in two hours. Limits are those that the server can change.`,
		Example: `  agentbox update dev --label stage=test --label old-
  agentbox update dev --idle-timeout 2h --lifetime 0`,
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: a.completeSandboxes(0),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !changesSomething(cmd) {
				return errors.New("nothing to change; see agentbox update --help")
			}
			var err error
			if w.Labels, err = labelChanges(labels); err != nil {
				return err
			}
			return a.each(cmd, args, func(r *remote, id string) error {
				return r.call(cmd.Context(), http.MethodPatch, inSandbox(id), w, nil)
			})
		},
	}
	fl := cmd.Flags()
	fl.SortFlags = false
	fl.StringArrayVarP(&labels, "label", "l", nil, "set a label, `NAME=VALUE`, or remove one, NAME- (repeatable)")
	fl.StringVar(&w.IdleTimeout, "idle-timeout", "", "time without use until it ends, such as 30m; 0: never")
	fl.StringVar(&w.Lifetime, "lifetime", "", "time from now until it is destroyed, such as 24h; 0: never")
	fl.StringVarP(&w.Memory, "memory", "m", "", "memory limit, such as 256m or 2g")
	fl.Float64Var(&w.CPUs, "cpus", 0, "CPU limit in cores, such as 0.5")
	fl.StringVar(&w.Disk, "disk", "", "limit of written files, such as 1g")
	fl.Int64Var(&w.Pids, "pids", 0, "limit of processes and threads")
	return cmd
}

// changesSomething reports whether a flag of update was given.
func changesSomething(cmd *cobra.Command) bool {
	for _, name := range []string{"label", "idle-timeout", "lifetime", "memory", "cpus", "disk", "pids"} {
		if cmd.Flags().Changed(name) {
			return true
		}
	}
	return false
}

// labelChanges reads NAME=VALUE and NAME-; nil removes a label.
func labelChanges(given []string) (map[string]*string, error) {
	changes := map[string]*string{}
	for _, s := range given {
		name, value, set := strings.Cut(s, "=")
		removed, remove := strings.CutSuffix(s, "-")
		switch {
		case set && name != "":
			changes[name] = &value
		case !set && remove && removed != "":
			changes[removed] = nil
		default:
			return nil, &sandbox.InvalidError{Field: "label", Value: s, Allowed: "NAME=VALUE to set a label, NAME- to remove it"}
		}
	}
	return changes, nil
}
