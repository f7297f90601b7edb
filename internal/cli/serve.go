package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"agentbox/internal/config"
	"agentbox/internal/image"
)

// DaemonHooks are what a daemon wants of the command line that starts it.
type DaemonHooks struct {
	Version string
	Log     *slog.Logger
	// EnsureImage makes an image that is not there yet, and shows how far it is.
	EnsureImage func(ctx context.Context, images *image.Store, name string) error
	// Pull has the operator's settings for registries.
	Pull image.PullOptions
	// FirstKey lets a start without any key make one, to be shown by Up.
	FirstKey bool
	// Up is called once, when the daemon can be reached.
	Up func(DaemonUp)
	// Left is called when the daemon ends, with how many sandboxes go on without it.
	Left func(sandboxes int)
}

// DaemonUp tells where a daemon can be reached.
type DaemonUp struct {
	Address  string // of the main port
	TLS      bool
	Socket   string
	NoAuth   bool
	FirstKey string // made by this start; empty: there were keys
}

// configFlags are the options of commands that read the daemon's configuration.
type configFlags struct {
	file      string
	compatEnv bool
}

func (f *configFlags) add(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringVar(&f.file, "config", "", "configuration file (AGENTBOX_CONFIG; default /etc/agentbox/config.toml, or $XDG_CONFIG_HOME/agentbox/config.toml for an ordinary user)")
	fl.BoolVar(&f.compatEnv, "compat-env", false, "let variables with general names act, such as LOG_LEVEL")
	config.AddFlags(fl)
}

// load gives the effective configuration.
func (f *configFlags) load(cmd *cobra.Command) (*config.Loaded, error) {
	file := f.file
	if file == "" {
		file = config.DefaultFile(os.LookupEnv)
	}
	return config.Load(config.Sources{
		File: file, Env: os.LookupEnv, EnvNames: environmentNames(), Flags: config.FlagValues(cmd.Flags()), CompatEnv: f.compatEnv,
	})
}

func environmentNames() []string {
	var names []string
	for _, v := range os.Environ() {
		name, _, _ := strings.Cut(v, "=")
		names = append(names, name)
	}
	return names
}

func (a *App) serveCommand() *cobra.Command {
	var f configFlags
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the server: sandboxes by HTTP, for many clients, that outlive it",
		Long: `Run the server in the foreground. It makes the default image if there is none,
takes over the sandboxes that an earlier server left, and says where it listens.
The first start makes an API key and shows it once; as a unit of systemd it makes
none, because the key would stand in the journal: agentbox key create --admin.

A signal ends it: what runs has some seconds to end, sandboxes and background
commands go on without it and are there at its next start. With --ephemeral they
are destroyed. Settings come from a file, variables and flags: docs/CONFIG.md.`,
		Example: `  agentbox serve
  agentbox serve --listen 127.0.0.1:9000 --no-auth
  agentbox serve --config ./agentbox.toml --ephemeral`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if a.Local == nil {
				return errClientOnly
			}
			loaded, err := f.load(cmd)
			if err != nil {
				return err
			}
			ctx, stop := untilSignal(cmd.Context())
			defer stop()
			told := make(chan struct{})
			silence := context.AfterFunc(ctx, func() {
				defer close(told)
				tellSystemd(daemon.SdNotifyStopping)
			})
			defer func() {
				if !silence() {
					<-told // a server with nothing to end is faster than that
				}
			}()
			return a.serve(ctx, loaded)
		},
	}
	f.add(cmd)
	return cmd
}

// journalVariable names the stream to the journal, by its device and inode, that
// systemd gave a unit as its output; see systemd.exec(5). What the unit starts has
// the variable also when its output goes elsewhere.
const journalVariable = "JOURNAL_STREAM"

// toJournal reports whether w is the journal, which is no place for a key.
func toJournal(w io.Writer) bool {
	f, ok := w.(*os.File)
	var st unix.Stat_t
	if !ok || unix.Fstat(int(f.Fd()), &st) != nil {
		return false
	}
	return os.Getenv(journalVariable) == fmt.Sprintf("%d:%d", st.Dev, st.Ino)
}

func (a *App) serve(ctx context.Context, loaded *config.Loaded) error {
	for _, w := range loaded.Warnings {
		a.warn(errors.New(w))
	}
	registry := environmentRegistry()
	opts, err := registry.options()
	if err != nil {
		return err
	}
	err = a.Local.Serve(ctx, &loaded.Config, DaemonHooks{
		Version: version, Log: a.logger(loaded.Log), Pull: image.PullOptions{Registry: opts},
		Up: func(d DaemonUp) {
			a.up(d, keyCreation(&loaded.Config))
			tellSystemd(daemon.SdNotifyReady)
		},
		Left: func(n int) {
			if n > 0 {
				fmt.Fprintf(a.Stdout, "%s without the server; agentbox serve takes over what it left, with --ephemeral it would have ended all\n", goOn(n))
			}
		},
		FirstKey: !toJournal(a.Stdout),
		EnsureImage: func(ctx context.Context, images *image.Store, name string) error {
			_, err := a.ensureImage(ctx, images, name, pullMissing)
			return err
		},
	})
	if err != nil {
		return a.orInterrupted(ctx, err)
	}
	return nil // it was told to end, and did
}

func goOn(n int) string {
	if n == 1 {
		return "1 sandbox goes on"
	}
	return fmt.Sprintf("%d sandboxes go on", n)
}

// tellSystemd tells who started the server in a unit of the type notify; see
// sd_notify(3). Where nobody listens that is none of the server's business.
func tellSystemd(state string) { _, _ = daemon.SdNotify(false, state) }

func (a *App) logger(l config.Log) *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(l.Level)) // the configuration allows levels only
	opts := &slog.HandlerOptions{Level: level}
	if l.Format == "json" {
		return slog.New(slog.NewJSONHandler(a.Stderr, opts))
	}
	return slog.New(slog.NewTextHandler(a.Stderr, opts))
}

// keyCreation is the command that makes a key of this server.
func keyCreation(c *config.Config) string {
	dir := ""
	if def, err := config.DefaultDataDir(); err != nil || c.DataDir != def {
		dir = "--data-dir " + c.DataDir + " "
	}
	return "agentbox " + dir + "key create --admin"
}

// up says where the server is, and how to begin. newKey is the command for a key.
func (a *App) up(d DaemonUp, newKey string) {
	scheme := "http"
	if d.TLS {
		scheme = "https"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "agentbox serves %s://%s and %s\n", scheme, d.Address, d.Socket)
	header := `-H "Authorization: Bearer $AGENTBOX_API_KEY" `
	switch {
	case d.NoAuth:
		header = ""
		fmt.Fprintf(&b, "without keys: whoever reaches the port is an admin\n")
	case d.FirstKey != "":
		header = `-H "Authorization: Bearer ` + d.FirstKey + `" `
		fmt.Fprintf(&b, "the first API key, an admin's, shown this once: %s\n", d.FirstKey)
	default:
		fmt.Fprintf(&b, "to make an API key: %s\n", newKey)
	}
	where := header + "http://" + reachable(d.Address)
	if d.TLS { // which name the certificate is for is not known here
		where = "--unix-socket " + d.Socket + " http://localhost"
	}
	fmt.Fprintf(&b, "try: curl -sS %s/api/v1/sandboxes --json '{}'\n", where)
	fmt.Fprint(a.Stdout, b.String())
}

// reachable is the address for a client on this machine.
func reachable(address string) string {
	host, port, err := net.SplitHostPort(address)
	if ip := net.ParseIP(host); err == nil && ip != nil && ip.IsUnspecified() {
		return net.JoinHostPort("127.0.0.1", port)
	}
	return address
}

func (a *App) configCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Look at the server's configuration",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	var f configFlags
	var asJSON bool
	show := &cobra.Command{
		Use:   "show",
		Short: "Print the effective settings and where each comes from",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			loaded, err := f.load(cmd)
			if err != nil {
				return err
			}
			for _, w := range loaded.Warnings {
				a.warn(errors.New(w))
			}
			if asJSON {
				return a.printJSON(loaded.Settings)
			}
			w := tabwriter.NewWriter(a.Stdout, 0, 0, 3, ' ', 0)
			fmt.Fprintln(w, "KEY\tVALUE\tSOURCE")
			for _, s := range loaded.Settings {
				fmt.Fprintf(w, "%s\t%s\t%s\n", s.Key, s.Value, s.Source)
			}
			return w.Flush()
		},
	}
	f.add(show)
	show.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.AddCommand(show)
	return cmd
}
