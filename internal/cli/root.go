// Package cli is the command line. Each command parses its arguments, calls one
// thing and prints what came of it; the parts of this machine's back end are
// wired in cmd/agentbox and come in through [App].
package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"agentbox/internal/nearest"
	"agentbox/internal/sandbox"
)

// ExitFailure is the exit status when agentbox itself could not do its work, so
// that it can be told from a program's own 1.
const ExitFailure = 125

// App is what the commands act on.
type App struct {
	Stdin          *os.File
	Stdout, Stderr io.Writer
	// Local makes sandboxes on this machine; nil in a client-only build.
	Local *Local
}

// Main runs the command line and returns the exit status.
func (a *App) Main(ctx context.Context, args []string) int {
	root := a.root()
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	var status exitStatus
	switch {
	case err == nil:
		return 0
	case errors.As(err, &status):
		return int(status)
	default:
		fmt.Fprintf(a.Stderr, "agentbox: %s\n", visibleLines(words(cmd, err)))
		return ExitFailure
	}
}

// words are an error's, without the kind that it ends in for programs. Cobra finds
// what is missing itself and does not point to the help.
func words(cmd *cobra.Command, err error) string {
	text := err.Error()
	if strings.HasPrefix(text, "required flag(s) ") {
		return text + "; see " + cmd.CommandPath() + " --help"
	}
	for _, kind := range []error{errdefs.ErrNotFound, errdefs.ErrInvalidArgument, errdefs.ErrFailedPrecondition, errdefs.ErrAlreadyExists} {
		if rest, ok := strings.CutSuffix(text, ": "+kind.Error()); ok && errors.Is(err, kind) {
			return rest
		}
	}
	return text
}

// Command is the command line, for what is made of it: pages of the manual, completions.
func (a *App) Command() *cobra.Command { return a.root() }

// exitStatus ends the program with a status and no message: everything was said.
type exitStatus int

func (e exitStatus) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

func (a *App) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "agentbox",
		Short: "A computer for your agent, in one binary",
		Long: `agentbox runs untrusted code and shell commands in isolated, limited Linux
sandboxes. gVisor is compiled in: no Docker, no KVM, no daemon is needed.

  agentbox run -- python3 -c 'print(6*7)'     one command in a fresh sandbox
  agentbox run -it                            a shell in a fresh sandbox
  agentbox doctor                             what this machine can do

Sandboxes that stay are those of a server:

  agentbox serve                              runs one, for this machine and others
  agentbox create --name dev                  a sandbox of it
  agentbox exec dev -- make test              a command in that
  agentbox shell dev                          a shell

What "run" makes is in "agentbox ps", what the server has in "agentbox ls".`,
		Version:       version,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.NoArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetVersionTemplate("agentbox {{.Version}}\n")       // agentbox version tells more
	root.Flags().Bool("version", false, "print the version") // without the -v that it would get else, for which others mean verbose
	root.SetOut(a.Stdout)
	root.SetErr(a.Stderr)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		err = explainFlag(err)
		var unknown *pflag.NotExistError
		isUnknown := errors.As(err, &unknown)
		// A flag after an argument may be one of the command's, before which no -- stands.
		if isUnknown && cmd.Flags().NArg() > 0 && strings.Contains(cmd.Use, "-- COMMAND") {
			return fmt.Errorf("%w; flags of a COMMAND stand with it behind a --: %s; see %s --help", err, cmd.UseLine(), cmd.CommandPath())
		}
		if isUnknown {
			if like := likeFlag(cmd, unknown.GetSpecifiedName()); like != "" {
				return fmt.Errorf("%w; did you mean --%s?", err, like)
			}
		}
		return fmt.Errorf("%w; see %s --help", err, cmd.CommandPath())
	})
	root.PersistentFlags().String("data-dir", os.Getenv("AGENTBOX_DATA_DIR"),
		"where images and sandboxes are kept (AGENTBOX_DATA_DIR; default /var/lib/agentbox, or $XDG_DATA_HOME/agentbox for an ordinary user)")
	root.PersistentFlags().Lookup("data-dir").DefValue = "" // the text above tells it
	addGroup(root, "Sandboxes for one command, without a server", a.runCommand(), a.psCommand())
	ofServer := append(a.sandboxCommands(), a.cpCommand(), a.volumeCommand(), a.installCommand(), a.egressCommand(), a.secretCommand(), a.keyCommand())
	for _, c := range ofServer {
		serverFlags(c)
	}
	addGroup(root, "Sandboxes of a server", append(ofServer, a.profileCommand())...)
	addGroup(root, "The server and this machine", a.serveCommand(), a.configCommand(), a.imagesCommand(), a.doctorCommand(), a.purgeCommand())
	root.AddCommand(a.engineCommand(), a.versionCommand())
	pointToHelp(root)
	return root
}

// addGroup adds commands under a heading of the help.
func addGroup(root *cobra.Command, heading string, commands ...*cobra.Command) {
	root.AddGroup(&cobra.Group{ID: heading, Title: heading + ":"})
	for _, c := range commands {
		c.GroupID = heading
	}
	root.AddCommand(commands...)
}

// likeFlag is the flag that was meant by one that is not there: a similar name, or
// one that has further words before it, since a setting of the server may be called
// --egress-ca-bundle where agentbox run has --ca-bundle. "": none.
func likeFlag(cmd *cobra.Command, name string) (like string) {
	if len(name) < 2 { // a letter resembles all
		return ""
	}
	var known []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		known = append(known, f.Name)
		if strings.HasSuffix(f.Name, "-"+name) || strings.HasSuffix(name, "-"+f.Name) {
			like = f.Name
		}
	})
	return cmp.Or(nearest.Name(name, known), like)
}

// explainFlag tells what a flag takes in place of how its value was parsed.
func explainFlag(err error) error {
	var bad *pflag.InvalidValueError
	if !errors.As(err, &bad) {
		return err
	}
	allowed, ok := map[string]string{
		"float64": "a number, such as 0.5 or 2", "int64": "a whole number", "bool": "true or false",
		"duration": "a time with its unit, such as 90s, 5m or 1h30m",
	}[bad.GetFlag().Value.Type()]
	if !ok {
		return err
	}
	return &sandbox.InvalidError{Field: bad.GetFlag().Name, Value: bad.GetValue(), Allowed: allowed}
}

// pointToHelp makes complaints about arguments name the command that was meant, or
// say what the arguments are, and end as those about flags do.
func pointToHelp(cmd *cobra.Command) {
	if check := cmd.Args; check != nil {
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			err := check(cmd, args)
			switch {
			case err == nil:
				return nil
			case len(args) == 0 || !cmd.HasSubCommands():
				return fmt.Errorf("%w: %s; see %s --help", err, cmd.UseLine(), cmd.CommandPath())
			}
			var known []string
			like := ""
			for _, c := range cmd.Commands() {
				known = append(known, c.Name())
				if slices.Contains(c.SuggestFor, args[0]) {
					like = c.Name()
				}
			}
			if like = cmp.Or(like, nearest.Name(args[0], known)); like != "" {
				return fmt.Errorf("%w; did you mean %s?", err, like)
			}
			return fmt.Errorf("%w; see %s --help", err, cmd.CommandPath())
		}
	}
	for _, c := range cmd.Commands() {
		pointToHelp(c)
	}
}
