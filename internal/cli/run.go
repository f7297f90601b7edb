package cli

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"agentbox/internal/cabundle"
	"agentbox/internal/image"
	"agentbox/internal/local"
	"agentbox/internal/ports"
	"agentbox/internal/sandbox"
)

// runFlags are the options of agentbox run.
type runFlags struct {
	stdin, tty        bool
	env               []string
	workdir, user     string
	memory, disk, shm string
	cpus              float64
	pids              int64
	timeout           time.Duration
	copies            []string
	outputDir         string
	json              bool
	maxOutput         string
	useEntrypoint     bool
	pull              string
	name              string
	publish           []string
	portRange         string
	network           networkFlags
	caBundle          string
}

func (a *App) runCommand() *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use:   "run [flags] [IMAGE] [-- COMMAND [ARG...]]",
		Short: "Run a command in a fresh sandbox that is gone afterwards",
		Long: `Run a command in a fresh sandbox. The sandbox is removed when the command ends,
and also when agentbox is interrupted or killed (after a kill -9: at its next start).

IMAGE is a name from "agentbox images ls", or an alias from "agentbox images
aliases"; without it, "default". A built-in image is made on first use; any other
that is not there is pulled from its registry. COMMAND is run exactly as it stands,
without the image's entrypoint. Without a COMMAND the image's own runs, or with -t,
in an image that has none, a shell.

The exit status is the command's own; 124 after --timeout, 137 when the memory
limit was reached, 128+n when signal n ended the command, 125 when agentbox itself
failed, 126 and 127 when the command can't be executed or isn't found.

There is no network unless --allow or --network gives one, through a proxy that programs
find by their environment. What was denied is said at the end.`,
		Example: `  agentbox run -- python3 -c 'print(6*7)'
  echo hi | agentbox run -i -- cat
  agentbox run -it small -- bash
  agentbox run python:3.13-slim -- python3 -V
  agentbox run --copy ./src:/workspace/src --output-dir ./out --timeout 5m -- make -C src
  agentbox run -p 8000 -- python3 -m http.server
  agentbox run --allow python -- sh -c 'pip install -q requests && python3 app.py'
  agentbox run --json --memory 256m -- python3 -c 'b = bytearray(10**9)'`,
		RunE: func(cmd *cobra.Command, args []string) error {
			name, argv, err := splitArgs(cmd, args)
			if err != nil {
				return err
			}
			return a.run(cmd, &f, name, argv)
		},
		ValidArgsFunction: a.completeImages,
	}
	fl := cmd.Flags()
	fl.SortFlags = false
	fl.BoolVarP(&f.stdin, "interactive", "i", false, "pass standard input to the command")
	fl.BoolVarP(&f.tty, "tty", "t", false, "give the command a terminal")
	fl.StringArrayVarP(&f.env, "env", "e", nil, "set an environment variable, `NAME=VALUE`, or NAME to pass on this one's value (repeatable)")
	fl.StringVarP(&f.workdir, "workdir", "w", "", "working directory (default: the image's)")
	fl.StringVarP(&f.user, "user", "u", "", "user name or uid, optionally :group (default: the image's)")
	fl.StringVarP(&f.memory, "memory", "m", "", "memory limit, such as 256m or 2g (default 512m)")
	fl.Float64Var(&f.cpus, "cpus", 0, "CPU limit in cores, such as 0.5 (default 1)")
	fl.StringVar(&f.disk, "disk", "", "size of the writable file system (default 4g)")
	fl.StringVar(&f.shm, "shm", "", "size of /dev/shm (default half of the memory)")
	fl.Int64Var(&f.pids, "pids", 0, "limit of processes and threads (default 256)")
	fl.DurationVar(&f.timeout, "timeout", 0, "end the command after this time, such as 30s or 5m (default 1h)")
	fl.StringArrayVar(&f.copies, "copy", nil, "copy a file or directory into the sandbox first, `SRC:DST` (repeatable)")
	fl.StringVar(&f.outputDir, "output-dir", "", "afterwards, copy the sandbox's "+outputsDir+" into this directory")
	fl.BoolVar(&f.useEntrypoint, "use-entrypoint", false, "put the image's entrypoint before COMMAND")
	fl.StringVar(&f.pull, "pull", pullMissing, "fetch the image: "+pullMissing+", "+pullAlways+" or "+pullNever)
	completeWords(cmd, "pull", pullMissing, pullAlways, pullNever)
	fl.StringVar(&f.name, "name", "", "name of the sandbox, for agentbox cp and ps")
	fl.StringArrayVarP(&f.publish, "publish", "p", nil, "make a port of the sandbox reachable here, [HOST_IP:][HOST:]GUEST (repeatable; default HOST_IP 127.0.0.1)")
	fl.StringVar(&f.portRange, "port-range", os.Getenv("AGENTBOX_PORT_RANGE"), "host ports that -p may use (AGENTBOX_PORT_RANGE; default "+ports.DefaultRange.String()+")")
	f.network.add(cmd)
	fl.StringVar(&f.caBundle, "ca-bundle", os.Getenv("AGENTBOX_EGRESS_CA_BUNDLE"), "certificates that programs trust besides the image's: a PEM `FILE`, or "+cabundle.System+" for this machine's own (AGENTBOX_EGRESS_CA_BUNDLE)")
	fl.BoolVar(&f.json, "json", false, "print one JSON object with output and verdict instead of the output itself; a peak_memory of 0 is not known")
	fl.StringVar(&f.maxOutput, "max-output", "", "with --json: bytes kept per stream (default 10000000)")
	return cmd
}

// splitArgs takes IMAGE from before the dashes and the command from behind.
func splitArgs(cmd *cobra.Command, args []string) (name string, argv []string, err error) {
	n := cmd.ArgsLenAtDash()
	if n < 0 {
		n = len(args)
	}
	if n > 1 {
		return "", nil, fmt.Errorf("put -- before the command: agentbox run %s -- %s (without an image: agentbox run -- %s)",
			args[0], strings.Join(args[1:], " "), strings.Join(args, " "))
	}
	name = "default"
	if n == 1 {
		name = args[0]
	}
	return name, args[n:], nil
}

// request turns flags into what the engine takes. Limits that the user named
// are required.
func (f *runFlags) request(cmd *cobra.Command, name string) (local.Request, error) {
	req := local.Request{Image: name, User: f.user, Workdir: f.workdir}
	var l sandbox.Limits
	for _, s := range []struct {
		flag, text string
		to         *int64
		limit      string
	}{
		{"memory", f.memory, &l.Memory, sandbox.LimitMemory},
		{"disk", f.disk, &l.Disk, sandbox.LimitDisk},
		{"shm", f.shm, &l.Shm, ""},
	} {
		if !cmd.Flags().Changed(s.flag) {
			continue
		}
		v, err := sandbox.ParseSize(s.flag, s.text)
		if err != nil {
			return req, err
		}
		*s.to = chosen(v)
		if s.limit != "" {
			req.Require = append(req.Require, s.limit)
		}
	}
	if cmd.Flags().Changed("cpus") {
		l.CPUs = chosen(f.cpus)
		req.Require = append(req.Require, sandbox.LimitCPUs)
	}
	if cmd.Flags().Changed("pids") {
		l.Pids = chosen(f.pids)
		req.Require = append(req.Require, sandbox.LimitPids)
	}
	maximum, err := hostMaximum()
	if err != nil {
		return req, err
	}
	// What the user did not choose gives way to the host; what he did is checked.
	defaults := sandbox.Limits{}.WithDefaults().Clamp(maximum)
	req.Limits = fill(l, defaults).WithDefaults()
	// It counts against the memory, so more of it would be an empty promise.
	maximum.Shm = min(maximum.Shm, req.Limits.Memory)
	return req, inWordsOf(cmd, req.Limits.Check(maximum))
}

// chosen keeps a 0 that the user chose from being taken for the default: nothing
// is below every minimum.
func chosen[N int64 | float64](v N) N {
	if v == 0 {
		return -1
	}
	return v
}

// inWordsOf makes the error show what the user wrote.
func inWordsOf(cmd *cobra.Command, err error) error {
	var bad *sandbox.InvalidError
	if errors.As(err, &bad) && cmd.Flags().Changed(bad.Field) {
		bad.Value = cmd.Flags().Lookup(bad.Field).Value.String()
	}
	return err
}

// fill sets the zero fields of l to those of d, but for the sizes that follow
// from the memory.
func fill(l, d sandbox.Limits) sandbox.Limits {
	if l.Memory == 0 {
		l.Memory = d.Memory
	}
	if l.CPUs == 0 {
		l.CPUs = d.CPUs
	}
	if l.Disk == 0 {
		l.Disk = d.Disk
	}
	if l.Pids == 0 {
		l.Pids = d.Pids
	}
	return l
}

// environment resolves --env.
func environment(given []string) ([]string, error) {
	var env []string
	for _, e := range given {
		name, _, has := strings.Cut(e, "=")
		if name == "" {
			return nil, &sandbox.InvalidError{Field: "env", Value: e, Allowed: "NAME=VALUE or NAME"}
		}
		if !has {
			v, ok := os.LookupEnv(name)
			if !ok {
				continue
			}
			e = name + "=" + v
		}
		env = append(env, e)
	}
	return env, nil
}

// argv is what runs in an image: the command as it was given, or the image's own.
// Without either it is empty.
func (f *runFlags) argv(given []string, c image.Config) []string {
	switch {
	case len(given) == 0:
		return slices.Concat(c.Entrypoint, c.Cmd)
	case f.useEntrypoint:
		return slices.Concat(c.Entrypoint, given)
	default:
		return given
	}
}

// command is what the flags ask to run, but for the program.
func (f *runFlags) command(cmd *cobra.Command) (sandbox.Command, error) {
	c := sandbox.Command{Stdin: f.stdin, TTY: f.tty, Timeout: f.timeout, OnDisconnect: sandbox.Kill, MaxOutput: -1}
	if cmd.Flags().Changed("timeout") && f.timeout < time.Millisecond || f.timeout > sandbox.MaxTimeout {
		return c, &sandbox.InvalidError{Field: "timeout", Value: f.timeout.String(), Allowed: "1ms to " + sandbox.MaxTimeout.String()}
	}
	if f.workdir != "" && !path.IsAbs(f.workdir) {
		return c, &sandbox.InvalidError{Field: "workdir", Value: f.workdir, Allowed: "an absolute path, such as /workspace"}
	}
	if f.maxOutput != "" && !f.json {
		return c, errors.New("--max-output needs --json: without it all output is passed on")
	}
	if f.json {
		if f.tty {
			return c, errors.New("--json and --tty exclude each other")
		}
		c.MaxOutput = sandbox.DefaultMaxOutput
		if f.maxOutput != "" {
			n, err := sandbox.ParseSize("max-output", f.maxOutput)
			if err != nil {
				return c, err
			}
			if n < 1 || n > sandbox.MaxMaxOutput {
				return c, &sandbox.InvalidError{Field: "max-output", Value: f.maxOutput, Allowed: fmt.Sprintf("1 to %d", sandbox.MaxMaxOutput)}
			}
			c.MaxOutput = n
		}
	}
	return c, nil
}

// prepare turns the rest of the flags into what is to be made and copied, as far as
// that needs no sandbox: mistakes are found before anything runs.
func (f *runFlags) prepare(cmd *cobra.Command, name string) (req local.Request, copies []copySpec, err error) {
	if req, err = f.request(cmd, name); err != nil {
		return req, nil, err
	}
	if req.Env, err = environment(f.env); err != nil {
		return req, nil, err
	}
	if req.Trust, err = f.trust(); err != nil {
		return req, nil, err
	}
	req.ApplyAlias()
	if copies, err = parseCopies(f.copies); err != nil {
		return req, nil, err
	}
	if f.outputDir != "" { // before anything runs whose outputs would be lost
		if err := os.MkdirAll(f.outputDir, 0o777); err != nil {
			return req, nil, fmt.Errorf("make the output directory: %w", err)
		}
	}
	return req, copies, nil
}

// trust is the bundle of certificates for the sandbox. A path becomes an absolute
// one.
func (f *runFlags) trust() (_ [][]byte, err error) {
	if f.caBundle != "" && f.caBundle != cabundle.System {
		if f.caBundle, err = filepath.Abs(f.caBundle); err != nil {
			return nil, err
		}
	}
	certs, err := cabundle.Load("ca-bundle", f.caBundle)
	return cabundle.Raw(certs), err
}

// choose sets the program of c: argv as it was given, the image's own, or a shell.
func (f *runFlags) choose(c *sandbox.Command, argv []string, img image.Config) error {
	if c.Argv = f.argv(argv, img); len(c.Argv) > 0 {
		return nil
	}
	if !f.tty {
		return errors.New("no command: agentbox run [IMAGE] -- COMMAND, or -it for a shell")
	}
	c.Shell = "exec ${SHELL:-/bin/sh}"
	return nil
}

func (a *App) run(cmd *cobra.Command, f *runFlags, name string, argv []string) error {
	l, dataDir, err := a.local(cmd)
	if err != nil {
		return err
	}
	command, err := f.command(cmd)
	if err != nil {
		return err
	}
	req, copies, err := f.prepare(cmd, name)
	if err != nil {
		return err
	}
	ctx, stop := untilSignal(cmd.Context())
	defer stop()
	if err := checkName(ctx, dataDir, f.name); err != nil {
		return err
	}
	network, err := f.network.open(l, cmd, f.caBundle)
	if err != nil {
		return err
	}
	defer a.closeNetwork(network)
	f.network.use(network, &req)
	public, err := f.publishPorts(ctx, dataDir)
	if err != nil {
		return err
	}
	defer func() { _ = public.close() }() // of the ways on which no sandbox was made

	store, err := l.Images(dataDir)
	if err != nil {
		return err
	}
	img, err := a.ensureImage(ctx, store, req.Image, f.pull)
	if err != nil {
		return a.orInterrupted(ctx, err)
	}
	req.Image = img.Name // "always" may have fetched one whose full name is another
	if err := f.choose(&command, argv, img.Config); err != nil {
		return err
	}
	engine, err := local.Open(ctx, dataDir, store, l.Backend(dataDir), a.warn)
	if err != nil {
		return err
	}
	defer func() {
		if err := engine.Close(); err != nil {
			a.warn(err)
		}
	}()
	r := &runner{app: a, flags: f, engine: engine, copies: copies, public: public, image: name, stopSignal: stopSignal(img.Config.StopSignal)}
	err = r.run(ctx, req, command)
	return a.orInterrupted(ctx, err)
}

func (a *App) warn(err error) {
	fmt.Fprintf(a.Stderr, "agentbox: warning: %s\n", visibleLines(err.Error()))
}
