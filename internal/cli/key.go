package cli

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"agentbox/internal/ids"
)

// apiKey is a key as the server shows it; Secret only when it is new.
type apiKey struct {
	ID        string     `json:"id"`
	Owner     string     `json:"owner"`
	Name      string     `json:"name"`
	Admin     bool       `json:"admin"`
	CreatedAt time.Time  `json:"created_at"`
	RevokedAt *time.Time `json:"revoked_at"`
	Secret    string     `json:"key,omitempty"`
}

func (a *App) keyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "key",
		Short: "Make, list and revoke the server's API keys",
		Long: `Make, list and revoke the API keys of the server. This machine's asks its own user and
root for none; others want an admin's key. A key reaches the sandboxes of one owner.`,
		Example: "  agentbox key create --owner team-a --name ci\n  agentbox key revoke key_0123456789ab",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.keyCreate(), a.keyList(), a.keyRevoke())
	return cmd
}

func (a *App) keyCreate() *cobra.Command {
	var k struct {
		Owner string `json:"owner"`
		Name  string `json:"name"`
		Admin bool   `json:"admin"`
	}
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "create",
		Short:   "Make an API key and print it, this once",
		Example: `  agentbox key create --owner team-a --name ci`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, err := a.remote(cmd)
			if err != nil {
				return err
			}
			var made apiKey
			q := request{method: http.MethodPost, path: "/keys", in: k, header: http.Header{idempotencyKey: {ids.Hex(idempotencyBytes)}}, look: "agentbox key ls"}
			if err := r.callWith(cmd.Context(), q, &made); err != nil {
				return err
			}
			if asJSON {
				return a.printJSON(made)
			}
			fmt.Fprintf(a.Stderr, "key %s of %s, shown this once:\n", visible(made.ID), visible(made.Owner))
			_, err = fmt.Fprintln(a.Stdout, visible(made.Secret))
			return err
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&k.Owner, "owner", "default", "whose sandboxes the key reaches")
	fl.StringVar(&k.Name, "name", "", "your word for it")
	fl.BoolVar(&k.Admin, "admin", false, "whether it may do what concerns the whole server")
	fl.BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func (a *App) keyList() *cobra.Command {
	var f listFlags
	cmd := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List the API keys, without their secrets",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return listed(a, cmd, &f, "/keys", url.Values{}, func(k *apiKey) string { return k.ID },
				[]string{"ID", "OWNER", "NAME", "ADMIN", "CREATED", "REVOKED"}, func(k *apiKey) []string {
					revoked := ""
					if k.RevokedAt != nil {
						revoked = ago(*k.RevokedAt)
					}
					return []string{k.ID, k.Owner, k.Name, strconv.FormatBool(k.Admin), ago(k.CreatedAt), revoked}
				})
		},
	}
	f.add(cmd)
	return cmd
}

func (a *App) keyRevoke() *cobra.Command {
	return &cobra.Command{
		Use:   "revoke ID...",
		Short: "Make API keys let nobody in any more",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, keys []string) error {
			return a.each(cmd, keys, func(r *remote, id string) error {
				return r.call(cmd.Context(), http.MethodDelete, "/keys/"+url.PathEscape(id), nil, nil)
			})
		},
	}
}
