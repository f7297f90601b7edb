package cli

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"agentbox/internal/sandbox"
)

func (a *App) profileCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "profile",
		Short: "Give servers names, with their keys",
		Long: `Give servers names. Which server a command talks to is said by, the first that is there:

  1. --url, with the key in ` + keyVariable + `; or --profile; or --data-dir
  2. ` + urlVariable + `, with the key in ` + keyVariable + `
  3. ` + profileVariable + `
  4. the profile in use: agentbox profile use
  5. this machine's server, by its local socket, which needs no key

"` + localProfile + `" is the name of the last. Profiles are in a file of yours that nobody else may
read; keys are never shown.`,
		Example: `  agentbox profile add work --url https://agentbox.example:8700 --cacert ca.pem
  agentbox profile use work
  agentbox ls --profile local`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.profileAdd(), a.profileLs(), a.profileUse(), a.profileRm())
	return cmd
}

func (a *App) profileAdd() *cobra.Command {
	var s server
	var noKey bool
	cmd := &cobra.Command{
		Use:   "add NAME --url URL",
		Short: "Name a server, or change what its name means",
		Long: `Name a server. Its key is read from the terminal, from standard input, or from
` + keyVariable + `; it is no option because others see the options of programs.`,
		Example: `  agentbox profile add work --url https://agentbox.example:8700
  agentbox profile add ci --url http://10.0.0.5:8700 <key.txt`,
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			u, err := checkURL(s.URL)
			if err != nil {
				return err
			}
			if args[0] == localProfile || !boxName().MatchString(args[0]) {
				return &sandbox.InvalidError{Field: "name", Value: args[0], Allowed: "1 to 63 letters, digits and any of _ . -, but not " + localProfile}
			}
			if err := s.keepCACert(); err != nil {
				return err
			}
			p, err := readProfiles()
			if err != nil {
				return err
			}
			if !noKey {
				if s.Key, err = a.readKey(); err != nil {
					return err
				}
			}
			if ip := net.ParseIP(u.Hostname()); u.Scheme == "http" && s.Key != "" && u.Hostname() != "localhost" && (ip == nil || !ip.IsLoopback()) {
				a.warn(errors.New("the key goes over the network as it is: others on the way can read it; https keeps it secret"))
			}
			p.Servers[args[0]] = s
			return p.write()
		},
	}
	fl := cmd.Flags()
	fl.SortFlags = false
	fl.StringVar(&s.URL, "url", "", "the server's `URL`, such as https://agentbox.example:8700")
	fl.StringVar(&s.CACert, "cacert", "", "`FILE` of the authority that signed its certificate")
	fl.BoolVar(&noKey, "no-key", false, "it asks for no key (serve --no-auth)")
	_ = cmd.MarkFlagRequired("url") // it is there
	return cmd
}

// keepCACert makes the path of --cacert one that is right in any directory. A file
// that is no use is told now rather than by every command.
func (s *server) keepCACert() (err error) {
	if s.CACert == "" {
		return nil
	}
	if _, err := authorities(s.CACert); err != nil {
		return err
	}
	if s.CACert, err = filepath.Abs(s.CACert); err != nil {
		return fmt.Errorf("find the certificate of --cacert: %w", err)
	}
	return nil
}

// maxKey bounds what is read of a key, in bytes.
const maxKey = 4096

// readKey reads a key from where nobody sees it.
func (a *App) readKey() (string, error) {
	key := os.Getenv(keyVariable)
	if key == "" {
		b, err := a.readHidden("API key", maxKey)
		if err != nil {
			return "", fmt.Errorf("read the key: %w", err)
		}
		key = string(b)
	}
	key = strings.TrimSpace(key)
	if key == "" || strings.ContainsAny(key, " \t\r\n") {
		return "", errors.New("no key: it is read from the terminal, standard input or " + keyVariable + "; --no-key for a server that asks for none")
	}
	return key, nil
}

// readHidden reads what nobody is to see: at a terminal a line, with a prompt and
// no echo, else all of standard input up to a number of bytes.
func (a *App) readHidden(prompt string, most int64) ([]byte, error) {
	fd := int(a.Stdin.Fd())
	if !term.IsTerminal(fd) {
		return io.ReadAll(io.LimitReader(a.Stdin, most))
	}
	fmt.Fprintf(a.Stderr, "%s: ", prompt)
	b, err := term.ReadPassword(fd)
	fmt.Fprintln(a.Stderr)
	return b, err
}

// profileRow is a profile without its key.
type profileRow struct {
	Name   string `json:"name"`
	URL    string `json:"url"`
	CACert string `json:"cacert,omitempty"`
	HasKey bool   `json:"has_key"`
	InUse  bool   `json:"in_use"`
}

func (a *App) profileLs() *cobra.Command {
	var f listFlags
	cmd := &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List the profiles, without their keys", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			p, err := readProfiles()
			if err != nil {
				return err
			}
			rows := []profileRow{{Name: localProfile, URL: "(local socket)", InUse: p.Current == "" || p.Current == localProfile}}
			for _, name := range p.names() {
				s := p.Servers[name]
				rows = append(rows, profileRow{name, s.URL, s.CACert, s.Key != "", name == p.Current})
			}
			if f.json {
				return a.printJSON(rows)
			}
			t := a.table("NAME", "URL", "KEY", "IN USE")
			mark := map[bool]string{true: "yes"}
			for _, r := range rows {
				t.row(r.Name, r.URL, mark[r.HasKey], mark[r.InUse])
			}
			return t.flush()
		},
	}
	f.addJSON(cmd)
	return cmd
}

func (a *App) profileUse() *cobra.Command {
	return &cobra.Command{
		Use: "use NAME", Short: "Let commands talk to this server unless they are told otherwise", Args: cobra.ExactArgs(1),
		ValidArgsFunction: completeProfiles,
		RunE: func(_ *cobra.Command, args []string) error {
			p, err := readProfiles()
			if err != nil {
				return err
			}
			if p.Current = args[0]; p.Current != localProfile {
				if _, err := p.get(p.Current); err != nil {
					return err
				}
			}
			return p.write()
		},
	}
}

func (a *App) profileRm() *cobra.Command {
	return &cobra.Command{
		Use: "rm NAME...", Short: "Forget servers and their keys", Args: cobra.MinimumNArgs(1),
		ValidArgsFunction: completeProfiles,
		RunE: func(_ *cobra.Command, args []string) error {
			p, err := readProfiles()
			if err != nil {
				return err
			}
			for _, name := range args {
				if _, err := p.get(name); err != nil {
					return err
				}
				delete(p.Servers, name)
				if p.Current == name {
					p.Current = ""
				}
			}
			return p.write()
		},
	}
}

func completeProfiles(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	p, err := readProfiles()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return append(p.names(), localProfile), cobra.ShellCompDirectiveNoFileComp
}
