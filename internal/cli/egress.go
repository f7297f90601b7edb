package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"agentbox/internal/sandbox"
)

// networkWish is what a sandbox is to reach.
type networkWish struct {
	Mode      string   `json:"mode,omitempty"`
	Allow     []string `json:"allow,omitempty"`
	Intercept []string `json:"intercept,omitempty"`
	Resolver  bool     `json:"resolver"`
	Cut       bool     `json:"cut,omitempty"`
}

// networkRow is what a sandbox may reach, as the server shows it.
type networkRow struct {
	networkWish
	Requests []deniedRow `json:"requests"`
}

// deniedRow is a host that a sandbox was denied.
type deniedRow struct {
	ID    string    `json:"id"`
	Host  string    `json:"host"`
	Port  int       `json:"port"`
	Last  time.Time `json:"last_at"`
	Count int       `json:"count"`
}

// ownedDeniedRow is one with the sandbox that asked.
type ownedDeniedRow struct {
	deniedRow
	Owner   string `json:"owner"`
	Sandbox string `json:"sandbox"`
}

func (d *ownedDeniedRow) cells() []string {
	return []string{d.ID, d.Owner, d.Sandbox, net.JoinHostPort(d.Host, strconv.Itoa(d.Port)), strconv.Itoa(d.Count), span(time.Since(d.Last)) + " ago"}
}

// connectionRow is one connection of a sandbox.
type connectionRow struct {
	Time     time.Time `json:"time"`
	Host     string    `json:"host"`
	Address  string    `json:"address"`
	Port     int       `json:"port"`
	Verdict  string    `json:"verdict"`
	Rule     string    `json:"rule"`
	Code     string    `json:"code"`
	Reason   string    `json:"reason"`
	Method   string    `json:"method"`
	Path     string    `json:"path"`
	Sent     int64     `json:"sent"`
	Received int64     `json:"received"`
	Duration float64   `json:"duration"`
	Omitted  int64     `json:"omitted"`
}

func (c *connectionRow) cells() []string {
	at := c.Time.Local().Format(time.DateTime)
	if c.Omitted > 0 {
		return []string{at, fmt.Sprintf("%d more", c.Omitted), "", "", "", "", "too many at once to be kept"}
	}
	host := net.JoinHostPort(cmp.Or(c.Host, c.Address), strconv.Itoa(c.Port))
	took := time.Duration(c.Duration * float64(time.Second))
	why := cmp.Or(c.Reason, c.Rule)
	if c.Path != "" { // else no request was seen, or CONNECT alone
		why += "; " + c.Method + " " + c.Path
	}
	return []string{at, c.Verdict, host, size(c.Sent), size(c.Received), span(took), clip(why, maxDetails)}
}

func (a *App) egressCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "egress",
		Short: "Say what sandboxes of the server may reach, and see what they did",
		Long: `Say what a sandbox of the server may reach of the network, also while it runs, and see
what it reached and was denied. A sandbox has no network unless it is made with
agentbox create --allow HOST or gets one here.

A HOST is a name (api.example.com), all names below one ('*.example.com'), either with a
port (api.example.com:8443; else 80 and 443), an address or a range (192.0.2.0/24),
requests ('GET api.example.com/v1/*'), or a preset such as python, node, git or default.

For a host that is named with --intercept, and one of which only some requests are
allowed, the server ends TLS itself: so it sees the requests, and records method and
path. Programs in the sandbox trust it by an authority of the sandbox's own; those that
trust certain certificates only, and clients of HTTP/2 alone, are refused.`,
		Example: `  agentbox create --name dev --allow python --allow api.example.com
  agentbox egress log dev
  agentbox egress allow dev api.example.org`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.egressPolicy(), a.egressAllow(), a.egressDeny(), a.egressRequests(), a.egressLog(), a.secretCommand())
	return cmd
}

func (a *App) egressPolicy() *cobra.Command {
	var n networkWish
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "policy SANDBOX",
		Short: "Show what a sandbox may reach and what it was denied, or set it",
		Long: `Show what a sandbox may reach, and which hosts it was denied and nobody decided on since.
With --mode or --allow, set it: what it was before is gone.`,
		Example: `  agentbox egress policy dev
  agentbox egress policy dev --allow python --allow '*.example.com'
  agentbox egress policy dev --allow python --allow 'GET,HEAD api.example.com/v1/*'
  agentbox egress policy dev --allow api.example.com --intercept api.example.com
  agentbox egress policy dev --mode none`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeSandboxes(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := a.remote(cmd)
			if err != nil {
				return err
			}
			fl := cmd.Flags()
			set := fl.Changed("mode") || fl.Changed("allow")
			if !set && (fl.Changed("resolver") || fl.Changed("intercept") || fl.Changed("cut")) {
				return errors.New("--intercept, --resolver and --cut go with --mode or --allow, which say all that it may reach from now on")
			}
			if set {
				if err := r.call(cmd.Context(), http.MethodPut, inSandbox(args[0], "network"), n, nil); err != nil {
					return err
				}
			}
			return a.showNetwork(cmd, r, args[0], asJSON)
		},
	}
	cmd.Flags().StringVar(&n.Mode, "mode", "", "none, allowlist or full (default: allowlist with --allow, else none)")
	completeWords(cmd, "mode", networkModes...)
	n.addAllow(cmd)
	cmd.Flags().BoolVar(&n.Cut, "cut", false, "end connections that are not allowed any more")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// addAllow adds the options that stand for the list.
func (n *networkWish) addAllow(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringArrayVar(&n.Allow, "allow", nil, "`HOST` that it may reach: a name, *.name, name:port, range or preset (repeatable; see agentbox egress)")
	fl.StringArrayVar(&n.Intercept, "intercept", nil, "`HOST` whose TLS the server ends itself, so that it sees the requests (repeatable; it allows nothing)")
	fl.BoolVar(&n.Resolver, "resolver", true, "let programs that take no proxy reach allowed names, too")
	completeWords(cmd, "allow")
	completeWords(cmd, "intercept")
}

// networkModes are what a network may be, for the shell to complete.
var networkModes = []string{string(sandbox.NetworkNone), string(sandbox.NetworkAllowlist), string(sandbox.NetworkFull)}

func (a *App) showNetwork(cmd *cobra.Command, r *remote, id string, asJSON bool) error {
	var n networkRow
	if err := a.shown(cmd, r, inSandbox(id, "network"), asJSON, &n); err != nil || asJSON {
		return err
	}
	fmt.Fprintf(a.Stdout, "network: %s\n", visible(n.Mode))
	for _, e := range n.Allow {
		fmt.Fprintf(a.Stdout, "  %s\n", visible(e))
	}
	if len(n.Intercept) > 0 {
		fmt.Fprintln(a.Stdout, "intercepted:")
	}
	for _, e := range n.Intercept {
		fmt.Fprintf(a.Stdout, "  %s\n", visible(e))
	}
	if len(n.Requests) == 0 {
		return nil
	}
	fmt.Fprintln(a.Stdout, "\ndenied and not decided (agentbox egress allow or deny, by the number):")
	t := a.table("REQUEST", "HOST", "TIMES", "LAST")
	for _, q := range n.Requests {
		t.row(q.ID, net.JoinHostPort(q.Host, strconv.Itoa(q.Port)), strconv.Itoa(q.Count), span(time.Since(q.Last))+" ago")
	}
	return t.flush()
}

func (a *App) egressAllow() *cobra.Command {
	return a.egressChange("allow", "Let a sandbox reach hosts, by name or by the request that was denied",
		`Let a sandbox reach further hosts. HOST may be the number of a request that was denied, as
agentbox egress policy shows it: that needs an admin's key.`,
		func(n *networkChange, hosts []string) { n.Add = hosts })
}

func (a *App) egressDeny() *cobra.Command {
	return a.egressChange("deny", "Take hosts off a sandbox's list, or a request that was denied",
		`Take hosts off what a sandbox may reach, as they stand on the list, or requests that were
denied off theirs: that needs an admin's key. Connections that are open go on unless
--cut is given.`,
		func(n *networkChange, hosts []string) { n.Remove = hosts })
}

// networkChange is what is to be on a sandbox's list, and what no more.
type networkChange struct {
	Add    []string `json:"add,omitempty"`
	Remove []string `json:"remove,omitempty"`
	Cut    bool     `json:"cut,omitempty"`
}

// egressChange is a command that changes the list of a sandbox, or decides on
// requests of the same name.
func (a *App) egressChange(verb, short, long string, change func(*networkChange, []string)) *cobra.Command {
	var n networkChange
	cmd := &cobra.Command{
		Use: verb + " SANDBOX HOST...", Short: short, Long: long, Example: "  agentbox egress " + verb + " dev api.example.com",
		Args: cobra.MinimumNArgs(2), ValidArgsFunction: a.completeHosts(verb == "deny"),
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := a.remote(cmd)
			if err != nil {
				return err
			}
			hosts, err := decide(cmd.Context(), r, args[0], verb, args[1:])
			if err != nil || len(hosts) == 0 {
				return err
			}
			change(&n, hosts)
			return r.call(cmd.Context(), http.MethodPatch, inSandbox(args[0], "network"), n, nil)
		},
	}
	cmd.Flags().BoolVar(&n.Cut, "cut", false, "end connections that are not allowed any more")
	return cmd
}

// requestForm is that of requests' numbers. No entry of a list looks like one.
var requestForm = regexp.MustCompile(`^r[0-9a-f]{16}$`)

// decide answers the requests among what was named, and returns the rest.
func decide(ctx context.Context, r *remote, id, verb string, named []string) (hosts []string, err error) {
	for _, host := range named {
		if !requestForm.MatchString(host) {
			hosts = append(hosts, host)
			continue
		}
		in := map[string]string{"decision": verb}
		if err := r.call(ctx, http.MethodPost, inSandbox(id, "network", "requests", host), in, nil); err != nil {
			return nil, err
		}
	}
	return hosts, nil
}

func (a *App) egressRequests() *cobra.Command {
	var f listFlags
	cmd := &cobra.Command{
		Use:   "requests",
		Short: "Show what sandboxes of all owners were denied and nobody decided on",
		Long: `Show which hosts sandboxes of all owners were denied and nobody decided on since. It takes
an admin's key, as agentbox egress allow and deny do with what is shown here.`,
		Example: "  agentbox egress requests\n  agentbox egress allow SANDBOX REQUEST",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return listed(a, cmd, &f, "/network/requests", url.Values{}, nil,
				[]string{"REQUEST", "OWNER", "SANDBOX", "HOST", "TIMES", "LAST"}, (*ownedDeniedRow).cells)
		},
	}
	f.addJSON(cmd)
	return cmd
}

func (a *App) egressLog() *cobra.Command {
	var f listFlags
	cmd := &cobra.Command{
		Use:               "log SANDBOX",
		Short:             "Show what a sandbox reached and was denied",
		Long:              "Show each connection of a sandbox, or each request where requests are seen; oldest first.",
		Example:           "  agentbox egress log dev\n  agentbox egress log dev --json | jq '.[] | select(.verdict == \"denied\")'",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeSandboxes(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			blocked := false
			cells := func(c *connectionRow) []string {
				blocked = blocked || c.Code == "address_not_allowed"
				return c.cells()
			}
			err := listed(a, cmd, &f, inSandbox(args[0], "network", "log"), url.Values{"order": {"oldest"}}, nil,
				[]string{"TIME", "VERDICT", "HOST", "SENT", "RECEIVED", "TOOK", "WHY"}, cells)
			if blocked {
				fmt.Fprintln(a.Stderr, "agentbox: blocked addresses are opened by the server's operator: agentbox serve --egress-allow-ranges (egress.allow_ranges)")
			}
			return err
		},
	}
	f.addJSON(cmd)
	return cmd
}
