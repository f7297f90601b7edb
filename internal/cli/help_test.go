package cli

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/spf13/cobra"
)

// TestHelp: each command says what it is for and shows how it is called, with
// lines that fit a terminal; those that talk to a server can be told to which.
func TestHelp(t *testing.T) {
	a := &App{}
	root := a.root()
	var check func(cmd *cobra.Command)
	check = func(cmd *cobra.Command) {
		for _, c := range cmd.Commands() {
			name := c.CommandPath()
			if c.Hidden {
				continue
			}
			if c.Short == "" || strings.HasSuffix(c.Short, ".") || strings.Contains(c.Short, "\n") {
				t.Errorf("%s is for %q", name, c.Short)
			}
			if c.GroupID == "Sandboxes of a server" && c.Example == "" {
				t.Errorf("%s has no example", name)
			}
			for line := range strings.SplitSeq(c.Long+"\n"+c.Example, "\n") {
				if len(line) > 90 {
					t.Errorf("%s: a line of %d characters: %s", name, len(line), line)
				}
			}
			for _, odd := range []string{"(default [])", "[=true]"} {
				if strings.Contains(c.LocalFlags().FlagUsages(), odd) {
					t.Errorf("%s: a flag's help says %s", name, odd)
				}
			}
			for line := range strings.SplitSeq(c.Example, "\n") {
				if line != "" && !strings.Contains(line, "agentbox ") {
					t.Errorf("%s: an example that calls nothing: %s", name, line)
				}
			}
			if c.GroupID == "Sandboxes of a server" && c.Name() != "profile" && c.PersistentFlags().Lookup("profile") == nil {
				t.Errorf("%s can't be told of a server", name)
			}
			check(c)
		}
	}
	check(root)
}

// TestMisused: who calls a command wrongly is told how it is called, or which was meant.
func TestMisused(t *testing.T) {
	noServer(t)
	for args, want := range map[string]string{
		"crate":                              `unknown command "crate" for "agentbox"; did you mean create?`,
		"volume crate":                       "did you mean create?",
		"delete dev":                         "did you mean rm?",
		"create --memroy 1g":                 "unknown flag: --memroy; did you mean --memory?",
		"egress log --josn":                  "did you mean --json?",
		"run --egress-ca-bundle system":      "did you mean --ca-bundle?",
		"serve --ca-bundle system":           "did you mean --egress-ca-bundle?",
		"serve --egress-allow-range 1.2.3.4": "did you mean --egress-allow-ranges?",
		"zzz":                                `unknown command "zzz" for "agentbox"; see agentbox --help`,
		"logs dev":                           "received 1: agentbox logs SANDBOX EXEC [flags]; see agentbox logs --help",
		"exec":                               "agentbox exec [flags] SANDBOX -- COMMAND [ARG...]; see agentbox exec --help",
		"run python3 -c x":                   "flags of a COMMAND stand with it behind a --: agentbox run [flags] [IMAGE] [-- COMMAND [ARG...]]",
		"exec dev ls --long":                 "unknown flag: --long; flags of a COMMAND stand with it behind a --",
		"run --bogus -- x":                   "unknown flag: --bogus; see agentbox run --help",
		"ls --bogus":                         "unknown flag: --bogus; see agentbox ls --help",
		"run --timeout 5":                    "allowed is a time with its unit",
	} {
		got := call(t, "", strings.Fields(args)...)
		if got.code != ExitFailure || got.stdout != "" {
			t.Errorf("%s: %+v", args, got)
		}
		wantIn(t, got.stderr, want)
	}
}

// TestWords: what an error is to programs is not said to people, and nothing else is cut.
func TestWords(t *testing.T) {
	for want, err := range map[string]error{
		`no image "x"`:     fmt.Errorf("no image %q: %w", "x", errdefs.ErrNotFound),
		"is in use":        fmt.Errorf("is in use: %w", errdefs.ErrAlreadyExists),
		"host: not found":  errors.New("host: not found"),
		"not found":        errdefs.ErrNotFound,
		"x: not found: no": fmt.Errorf("x: %w: no", errdefs.ErrNotFound),
	} {
		if got := words(nil, err); got != want {
			t.Errorf("%q is %q", err, got)
		}
	}
}

// TestVersionFlag: who asks as of most programs is answered.
func TestVersionFlag(t *testing.T) {
	if got := call(t, "", "--version"); got.code != 0 || got.stdout != "agentbox "+version+"\n" || got.stderr != "" {
		t.Errorf("%+v", got)
	}
}
