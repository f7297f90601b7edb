package cli

import (
	"strings"
	"testing"

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
