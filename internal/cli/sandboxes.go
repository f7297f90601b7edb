package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"agentbox/internal/ids"
)

// sandboxRow is what tables show of a server's sandbox.
type sandboxRow struct {
	ID        string          `json:"id"`
	ShortID   string          `json:"short_id"`
	Name      *string         `json:"name"`
	Status    string          `json:"status"`
	Image     string          `json:"image"`
	Limits    json.RawMessage `json:"limits"`
	CreatedAt time.Time       `json:"created_at"`
	StartedAt *time.Time      `json:"started_at"`
	ExpiresAt *time.Time      `json:"expires_at"`
}

// called is the word for it: its name, if it has one.
func (b *sandboxRow) called() string {
	if b.Name != nil && *b.Name != "" {
		return *b.Name
	}
	return b.ShortID
}

// sandboxWish is the request for one. What is empty is left to the server.
type sandboxWish struct {
	Image       string            `json:"image,omitempty"`
	Name        string            `json:"name,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	Env         map[string]string `json:"env,omitempty"`
	User        string            `json:"user,omitempty"`
	Workdir     string            `json:"workdir,omitempty"`
	Memory      string            `json:"memory,omitempty"`
	CPUs        float64           `json:"cpus,omitempty"`
	Disk        string            `json:"disk,omitempty"`
	Pids        int64             `json:"pids,omitempty"`
	IdleTimeout string            `json:"idle_timeout,omitempty"`
	Lifetime    string            `json:"lifetime,omitempty"`
	OnIdle      string            `json:"on_idle,omitempty"`
	ProcessAPI  bool              `json:"process_api,omitempty"`
	Volumes     []volumeWish      `json:"volumes,omitempty"`
	Secrets     []string          `json:"secrets,omitempty"`
	TenantID    string            `json:"tenant_id,omitempty"`
	Network     *networkWish      `json:"network,omitempty"`
}

// sandboxCommands act on the sandboxes of a server.
func (a *App) sandboxCommands() []*cobra.Command {
	change := func(use, short, long, method, suffix string) *cobra.Command {
		return &cobra.Command{
			Use: use + " SANDBOX...", Short: short, Long: long, Example: "  agentbox " + use + " dev", Args: cobra.MinimumNArgs(1),
			ValidArgsFunction: a.completeSandboxes(0),
			RunE: func(cmd *cobra.Command, ids []string) error {
				return a.each(cmd, ids, func(r *remote, id string) error {
					return r.call(cmd.Context(), method, inSandbox(id)+suffix, nil, nil)
				})
			},
		}
	}
	rm := change("rm", "Destroy sandboxes of the server, with their files", "Destroy sandboxes of the server, with their files and all that runs in them.", http.MethodDelete, "")
	rm.SuggestFor = []string{"delete", "remove", "destroy"}
	return []*cobra.Command{
		a.createCommand(), a.lsCommand(), a.getCommand(), a.updateCommand(), a.execCommand(), a.shellCommand(),
		a.filesCommand(), a.execsCommand(), a.logsCommand(), a.killCommand(), a.sessionsCommand(), a.portsCommand(), a.forwardCommand(),
		a.statsCommand(), a.topCommand(), a.eventsCommand(), a.auditCommand(),
		change("stop", "Stop sandboxes of the server and keep their files",
			"Stop sandboxes of the server: all in them is killed, their files are kept.\nagentbox start runs them again.", http.MethodPost, "/stop"),
		change("start", "Run stopped sandboxes of the server again", "Run stopped sandboxes of the server again, with their files.", http.MethodPost, "/start"),
		rm,
	}
}

func (a *App) createCommand() *cobra.Command {
	var n sandboxWish
	var env, volumes []string
	var out networkWish
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "create [IMAGE]",
		Short: "Make a sandbox on the server and print its id",
		Long: `Make a sandbox on the server: this machine's, or the one that --url, --profile or
` + urlVariable + ` names. It stays until it is removed, was idle for too long, or its time
is over. A command in a sandbox that is gone afterwards is agentbox run, which needs no
server.`,
		Example: `  agentbox create --name dev --memory 1g
  agentbox create small --label team=a --lifetime 1h
  agentbox create --allow python --allow api.example.com
  agentbox exec "$(agentbox create)" -- uname -a`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: a.completeServerImages,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			n.Image = strings.Join(args, "")
			if n.Env, err = variables(env); err != nil {
				return err
			}
			if n.Volumes, err = volumeWishes(volumes); err != nil {
				return err
			}
			if out.Mode != "" || len(out.Allow) > 0 || len(out.Intercept) > 0 {
				n.Network = &out
			}
			return a.create(cmd, &n, asJSON)
		},
	}
	n.add(cmd.Flags())
	completeWords(cmd, "on-idle", "destroy", "stop")
	fl := cmd.Flags()
	fl.StringArrayVarP(&env, "env", "e", nil, "set an environment variable, `NAME=VALUE`, or NAME to pass on this one's value (repeatable)")
	fl.StringArrayVar(&volumes, "volume", nil, "a volume and where it is to be, `NAME:PATH[:ro]` (repeatable)")
	fl.StringArrayVar(&n.Secrets, "secret", nil, "secret that its requests may have put in, by `NAME` (repeatable; see agentbox secret)")
	_ = cmd.RegisterFlagCompletionFunc("secret", a.completeSecrets) // it is a flag
	fl.StringVar(&out.Mode, "network", "", "none, allowlist or full (default: allowlist with --allow, else none)")
	completeWords(cmd, "network", networkModes...)
	out.addAllow(cmd)
	fl.BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// add adds the options that are fields of the request.
func (n *sandboxWish) add(fl *pflag.FlagSet) {
	fl.SortFlags = false
	fl.StringVar(&n.Name, "name", "", "your name for it")
	fl.StringToStringVarP(&n.Labels, "label", "l", nil, "label, `NAME=VALUE` (repeatable)")
	fl.Lookup("label").DefValue = "" // the help shows none
	fl.StringVar(&n.TenantID, "tenant", "", "whose storage it has on /workspace and /mnt/user-data/outputs")
	fl.StringVarP(&n.Workdir, "workdir", "w", "", "working directory (default: the image's)")
	fl.StringVarP(&n.User, "user", "u", "", "user name or uid (default: the image's)")
	fl.StringVarP(&n.Memory, "memory", "m", "", "memory limit, such as 256m or 2g")
	fl.Float64Var(&n.CPUs, "cpus", 0, "CPU limit in cores, such as 0.5")
	fl.StringVar(&n.Disk, "disk", "", "limit of written files, such as 1g")
	fl.Int64Var(&n.Pids, "pids", 0, "limit of processes and threads")
	fl.StringVar(&n.IdleTimeout, "idle-timeout", "", "time without use until it ends, such as 30m; 0: never")
	fl.StringVar(&n.Lifetime, "lifetime", "", "time until it is destroyed, such as 24h; 0: never")
	fl.StringVar(&n.OnIdle, "on-idle", "", "destroy or stop")
	fl.BoolVar(&n.ProcessAPI, "process-api", false, "let programs in it run commands by HTTP on its 127.0.0.1:2024")
}

// create makes a sandbox and prints its short id, or all about it.
func (a *App) create(cmd *cobra.Command, n *sandboxWish, asJSON bool) error {
	r, err := a.remote(cmd)
	if err != nil {
		return err
	}
	var made json.RawMessage
	// With a key the server makes one sandbox, however often it is asked.
	q := request{method: http.MethodPost, path: "/sandboxes", in: n, header: http.Header{idempotencyKey: {ids.Hex(idempotencyBytes)}}, look: "agentbox ls"}
	if err := r.callWith(cmd.Context(), q, &made); err != nil {
		return err
	}
	if asJSON {
		return a.printJSON(made)
	}
	var b sandboxRow
	if err := json.Unmarshal(made, &b); err != nil {
		return fmt.Errorf("read the answer of %s: %w", r.where, err)
	}
	_, err = fmt.Fprintln(a.Stdout, visible(b.ShortID))
	return err
}

// idempotencyBytes are the random bytes in a key of idempotency.
const idempotencyBytes = 16

// variables are NAME=VALUE entries as the server takes them.
func variables(env []string) (map[string]string, error) {
	list, err := environment(env)
	all := map[string]string{}
	for _, e := range list {
		name, value, _ := strings.Cut(e, "=")
		all[name] = value
	}
	return all, err
}

func (a *App) lsCommand() *cobra.Command {
	var labels, status []string
	var f listFlags
	cmd := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List your sandboxes on the server",
		Long: `List your sandboxes on the server. Those of agentbox run on this machine are no server's:
agentbox ps lists them.`,
		Example: "  agentbox ls --status running --label team=a\n  agentbox rm $(agentbox ls -q --status stopped)",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			query := url.Values{"label": labels, "status": status}
			return listed(a, cmd, &f, "/sandboxes", query, func(b *sandboxRow) string { return b.ShortID },
				[]string{"ID", "NAME", "STATUS", "IMAGE", "AGE", "EXPIRES"}, (*sandboxRow).cells)
		},
	}
	cmd.Flags().StringArrayVarP(&labels, "label", "l", nil, "only those with this label, `NAME=VALUE` (repeatable)")
	cmd.Flags().StringArrayVar(&status, "status", nil, "only those in this state, such as running (repeatable)")
	f.add(cmd)
	return cmd
}

func (b *sandboxRow) cells() []string {
	name, expires := "", "never"
	if b.Name != nil {
		name = *b.Name
	}
	if b.ExpiresAt != nil {
		expires = "in " + span(time.Until(*b.ExpiresAt))
	}
	return []string{b.ShortID, name, b.Status, b.Image, span(time.Since(b.CreatedAt)), expires}
}

func (a *App) getCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "get SANDBOX",
		Short:             "Print all about a sandbox of the server, as JSON",
		Example:           "  agentbox get dev | jq .limits",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeSandboxes(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := a.remote(cmd)
			if err != nil {
				return err
			}
			return a.shown(cmd, r, inSandbox(args[0]), true, nil)
		},
	}
}

// each does f for all ids, prints those that it worked for, and fails if it did
// not for one.
func (a *App) each(cmd *cobra.Command, ids []string, f func(r *remote, id string) error) error {
	r, err := a.remote(cmd)
	if err != nil {
		return err
	}
	var errs error
	for _, id := range ids {
		if err := f(r, id); err != nil {
			errs = errors.Join(errs, fmt.Errorf("%s: %w", id, err))
			continue
		}
		fmt.Fprintln(a.Stdout, id)
	}
	return errs
}
