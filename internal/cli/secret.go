package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// secretRow is a secret as the server shows it: never with its value.
type secretRow struct {
	Name      string    `json:"name"`
	Hosts     []string  `json:"hosts"`
	Header    string    `json:"header"`
	Format    string    `json:"format"`
	UpdatedAt time.Time `json:"updated_at"`
}

func (s *secretRow) cells() []string {
	header := s.Header
	if s.Format != "" {
		header += ": " + s.Format
	}
	return []string{s.Name, strings.Join(s.Hosts, ","), header, ago(s.UpdatedAt)}
}

// secretWish is a secret to keep.
type secretWish struct {
	Name   string   `json:"name"`
	Value  string   `json:"value"`
	Hosts  []string `json:"hosts"`
	Header string   `json:"header,omitempty"`
	Format string   `json:"format,omitempty"`
}

func (a *App) secretCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "secret",
		Short: "Keep secrets that sandboxes use and never see",
		Long: `Keep secrets on the server, such as keys of APIs, that sandboxes use without seeing them.
A sandbox that is made with agentbox create --secret NAME has a placeholder in the
variable NAME. Where a request has it in the secret's header, the value takes its place
on the way to the hosts that the secret is for, over TLS; everywhere else the placeholder
goes out. The sandbox must be allowed to reach those hosts: --allow.`,
		Example: `  agentbox secret set API_KEY --host api.example.com --header X-Key < key.txt
  agentbox create --name dev --secret API_KEY --allow api.example.com
  agentbox exec dev -- sh -c 'curl -H "X-Key: $API_KEY" https://api.example.com/'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.secretSet(), a.secretList(), a.secretRemove())
	return cmd
}

func (a *App) secretSet() *cobra.Command {
	var wish secretWish
	var variable, file string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "set NAME",
		Short: "Keep a secret, or give it another value",
		Long: `Keep a secret, or give the one of that name another value, hosts and header: sandboxes
that have it use those from their next request on; connections over TLS that were open
before it was for their host are not looked into. The value is read from standard input,
a file or a variable, without a newline at its end, or typed unseen at a terminal; it is
no argument, since those can be seen by others. Without --format it takes the place of
the placeholder and what stands around that stays, also in the credentials of the Basic
scheme.`,
		Example: `  agentbox secret set API_KEY --host api.example.com < key.txt
  agentbox secret set TOKEN --host '*.example.com' --header X-Api-Key --env MY_TOKEN
  agentbox secret set TOKEN --host api.example.com --format 'Bearer {}' --file token.txt`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeSecrets,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			wish.Name = args[0]
			if wish.Value, err = a.secretValue(variable, file); err != nil {
				return err
			}
			r, err := a.remote(cmd)
			if err != nil {
				return err
			}
			var made map[string]any
			if err := r.callWith(cmd.Context(), request{method: http.MethodPost, path: "/secrets", in: wish, look: "agentbox secret ls"}, &made); err != nil {
				return err
			}
			if asJSON {
				return a.printJSON(made)
			}
			_, err = fmt.Fprintln(a.Stdout, visible(wish.Name))
			return err
		},
	}
	fl := cmd.Flags()
	fl.SortFlags = false
	fl.StringArrayVar(&wish.Hosts, "host", nil, "`HOST` that may have it: a name, *.name or an address, with a port or on 80 and 443 (repeatable)")
	fl.StringVar(&wish.Header, "header", "", "header that it stands in (default: Authorization)")
	fl.StringVar(&wish.Format, "format", "", "what the header becomes, with {} where the value goes")
	fl.StringVar(&variable, "env", "", "read the value from this `VARIABLE`")
	fl.StringVar(&file, "file", "", "read the value from this `FILE`")
	fl.BoolVar(&asJSON, "json", false, "print JSON")
	cmd.MarkFlagsMutuallyExclusive("env", "file")
	_ = cmd.MarkFlagRequired("host") // it is a flag
	return cmd
}

// maxSecret is as much as is read of a value: more than any server keeps.
const maxSecret = 64 << 10

// secretValue reads a value, and says nothing of it when it can't.
func (a *App) secretValue(variable, file string) (string, error) {
	if variable != "" {
		v, ok := os.LookupEnv(variable)
		if !ok {
			return "", fmt.Errorf("the variable %s is not set", variable)
		}
		return v, nil
	}
	b, err := a.secretText(file)
	if err != nil {
		return "", fmt.Errorf("read the value: %w", err)
	}
	b = bytes.TrimSuffix(bytes.TrimSuffix(b, []byte("\n")), []byte("\r"))
	switch {
	case len(b) > maxSecret:
		return "", fmt.Errorf("the value is longer than %d bytes", maxSecret)
	case len(b) == 0:
		return "", errors.New("the value is empty: give it on standard input, or by --file or --env")
	}
	return string(b), nil
}

// secretText reads a file, or without one the terminal or standard input.
func (a *App) secretText(file string) ([]byte, error) {
	if file == "" {
		return a.readHidden("Value", maxSecret+1)
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	return io.ReadAll(io.LimitReader(f, maxSecret+1))
}

func (a *App) secretList() *cobra.Command {
	var f listFlags
	cmd := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List your secrets, without their values",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return listed(a, cmd, &f, "/secrets", url.Values{}, func(s *secretRow) string { return s.Name },
				[]string{"NAME", "HOSTS", "HEADER", "SET"}, (*secretRow).cells)
		},
	}
	f.add(cmd)
	return cmd
}

func (a *App) secretRemove() *cobra.Command {
	return &cobra.Command{
		Use:   "rm NAME...",
		Short: "Remove secrets",
		Long: `Remove secrets. From the next request on they are put in nowhere, also not for sandboxes
that have them. A later secret of the same name is another one, which those do not have.`,
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: a.completeSecrets,
		RunE: func(cmd *cobra.Command, names []string) error {
			return a.each(cmd, names, func(r *remote, name string) error {
				return r.call(cmd.Context(), http.MethodDelete, "/secrets/"+url.PathEscape(name), nil, nil)
			})
		},
	}
}

// completeSecrets offers the names of secrets.
func (a *App) completeSecrets(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	return completeNames(a, cmd, "/secrets", func(s *secretRow) string { return s.Name })
}
