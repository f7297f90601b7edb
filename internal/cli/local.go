package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"unicode"
	"unicode/utf16"

	"github.com/spf13/cobra"

	"agentbox/internal/config"
	"agentbox/internal/doctor"
	"agentbox/internal/image"
	"agentbox/internal/local"
	"agentbox/internal/sandbox"
)

// Local is the machine's own back end, wired by the program.
type Local struct {
	// Images opens the image store of a data directory.
	Images func(dataDir string) (*image.Store, error)
	// Backend makes the back end of a data directory; laying out the engine
	// happens on the first call of what it returns.
	Backend func(dataDir string) local.Backend
	// Facts tells the doctor about this build and mode.
	Facts func(dataDir string) doctor.Env
	// Programs identifies the engine and the guest agent of this build.
	Programs func() (Programs, error)
	// Engine replaces this process by the engine's own command line.
	Engine func(dataDir string, args []string) error
	// PurgeHost removes what lies outside the data directory (cgroups).
	PurgeHost func(ctx context.Context) error
	// Network opens the way out of a sandbox of this process, with the settings that
	// a server has for it. nil: the network is none.
	Network func(c *config.Egress, n sandbox.Network) (Network, error)
	// Serve runs a daemon until ctx is done.
	Serve func(ctx context.Context, cfg *config.Config, hooks DaemonHooks) error
	// DaemonRuns is an error while a data directory's daemon runs; ReclaimDaemon
	// destroys what one that ended left.
	DaemonRuns    func(dataDir string) error
	ReclaimDaemon func(ctx context.Context, dataDir string) error
}

var errClientOnly = errors.New("this build is a client only; sandboxes run on Linux: use a Linux machine")

// local returns the machine's back end and the data directory of a command.
func (a *App) local(cmd *cobra.Command) (*Local, string, error) {
	if a.Local == nil {
		return nil, "", errClientOnly
	}
	dir, err := cmd.Flags().GetString("data-dir")
	if err != nil {
		return nil, "", err
	}
	if dir == "" {
		if dir, err = config.DefaultDataDir(); err != nil {
			return nil, "", err
		}
	}
	dir, err = filepath.Abs(dir)
	return a.Local, dir, err
}

func (a *App) printJSON(v any) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return err
	}
	_, err := a.Stdout.Write(harmless(b.Bytes()))
	return err
}

// printLine prints JSON that came as one line.
func (a *App) printLine(text []byte) error {
	_, err := a.Stdout.Write(append(harmless(text), '\n'))
	return err
}

// printOne prints a value as one line of JSON.
func (a *App) printOne(v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return a.printLine(text)
}

// harmless is the same JSON without characters that act on a terminal, which
// JSON allows in texts: escapes stand in their places.
func harmless(text []byte) []byte {
	if bytes.IndexFunc(text, acts) < 0 {
		return text
	}
	var b bytes.Buffer
	for _, r := range string(text) {
		if !acts(r) {
			b.WriteRune(r)
			continue
		}
		for _, unit := range utf16.Encode([]rune{r}) {
			fmt.Fprintf(&b, "\\u%04x", unit)
		}
	}
	return b.Bytes()
}

// acts reports whether a terminal may do more than show r, but for the end of a line.
// Results of many megabytes are looked through, most of them ASCII.
func acts(r rune) bool { return (r < ' ' || r > '~') && r != '\n' && !unicode.IsPrint(r) }
