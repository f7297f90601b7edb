package image

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"time"

	"agentbox/images"

	"github.com/containerd/errdefs"
)

// keyring checks the packages. It is at this place on the host and in the image.
const keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"

// bootstrap is one run of mmdebstrap.
type bootstrap struct {
	recipe Recipe
	mirror mirror
	// dir is for the files of the run. The users that packages are unpacked as
	// must be able to reach it.
	dir string
	// memory is how many bytes the root file system may take in memory. 0: it
	// is made on the disk.
	memory int64
	report func(Event)
}

// errNotInMemory is that the root file system can't be made in memory: there is
// too little of it, or mounting is not allowed.
var errNotInMemory = errors.New("the root file system can't be made in memory")

// excluded are files that a sandbox can do without. dpkg leaves them out, here
// and when a sandbox installs packages.
var excluded = []string{
	"path-exclude=/usr/share/doc/*", "path-include=/usr/share/doc/*/copyright",
	"path-exclude=/usr/share/man/*", "path-exclude=/usr/share/info/*", "path-exclude=/usr/share/groff/*",
	"path-exclude=/usr/share/locale/*", "path-include=/usr/share/locale/locale.alias",
	"path-exclude=/usr/share/lintian/*", "path-exclude=/usr/share/linda/*",
	// 30 MB that look into compilers.
	"path-exclude=/usr/bin/*-lto-dump-*",
	// The mark that makes pip refuse to work outside of virtual environments.
	"path-exclude=/usr/lib/python3*/EXTERNALLY-MANAGED",
	"force-confold", "force-unsafe-io",
}

// run makes the root file system and writes it to w as a tar. It returns the
// names and versions of the packages in it.
func (b *bootstrap) run(ctx context.Context, w io.Writer) ([]string, error) {
	program, err := checkHost()
	if err != nil {
		return nil, err
	}
	args, err := b.prepare(ctx)
	if err != nil {
		return nil, err
	}
	log := &logWriter{progress: progress{report: b.report}}
	cmd := b.command(ctx, program, args)
	cmd.Stderr = log
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("run mmdebstrap: %w", err)
	}
	// The kernel ends mmdebstrap when the thread that started it ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := cmd.Start(); errors.Is(err, fs.ErrPermission) && b.memory > 0 {
		return nil, errNotInMemory
	} else if err != nil {
		return nil, fmt.Errorf("run mmdebstrap: %w", err)
	}
	copyErr := b.copyRoot(w, stdout)
	if copyErr != nil {
		stdout.Close() // mmdebstrap ends when nobody reads
	}
	if err := cmd.Wait(); err != nil {
		return nil, b.explain(ctx, err, copyErr, log)
	}
	if copyErr != nil {
		return nil, copyErr
	}
	packages, err := os.ReadFile(filepath.Join(b.dir, "packages"))
	if err != nil {
		return nil, fmt.Errorf("read list of packages: %w", err)
	}
	return splitLines(string(packages)), nil
}

// inMemory mounts a file system in memory and runs a program in it. Nobody
// else sees the mount. Where it is not allowed, the disk will do.
const inMemory = `mount -t tmpfs -o mode=755,size="$1" agentbox "$TMPDIR" 2>/dev/null; shift; exec "$@"`

// command is the process to start.
func (b *bootstrap) command(ctx context.Context, program string, args []string) *exec.Cmd {
	if b.memory > 0 {
		args = append([]string{"-c", inMemory, "sh", strconv.FormatInt(b.memory, 10), program}, args...)
		program = "/bin/sh"
	}
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = "/"
	cmd.Env = environment(filepath.Join(b.dir, "root"))
	cmd.Stdin = strings.NewReader(b.mirror.sources(b.recipe.Suite, b.recipe.Components))
	// mmdebstrap takes its chroot away when it is told to end.
	cmd.Cancel = func() error { return interrupt(cmd) }
	cmd.WaitDelay = 15 * time.Second
	endWithUs(cmd)
	if b.memory > 0 {
		privateMounts(cmd)
	}
	return cmd
}

// prepare writes the files that mmdebstrap needs and returns its arguments.
func (b *bootstrap) prepare(ctx context.Context) ([]string, error) {
	base, err := images.FS.ReadFile("base.sh")
	if err != nil {
		return nil, fmt.Errorf("read base.sh: %w", err)
	}
	for name, content := range map[string]string{
		"base.sh": string(base), "setup": b.recipe.Setup, "aptopts": aptOptions(ctx), "dpkgopts": strings.Join(excluded, "\n") + "\n",
	} {
		if err := os.WriteFile(filepath.Join(b.dir, name), []byte(content), 0o644); err != nil {
			return nil, fmt.Errorf("write %s: %w", name, err)
		}
	}
	if err := os.Mkdir(filepath.Join(b.dir, "root"), 0o755); err != nil {
		return nil, fmt.Errorf("make directory for the root file system: %w", err)
	}
	file := func(name string) string { return shellQuote(filepath.Join(b.dir, name)) }
	setup := ""
	if strings.TrimSpace(b.recipe.Setup) != "" {
		setup = " " + file("setup")
	}
	mode := "root"
	if os.Geteuid() != 0 {
		mode = "unshare"
	}
	args := []string{
		"--mode=" + mode, "--variant=minbase", "--format=tar", "--verbose",
		"--aptopt=" + filepath.Join(b.dir, "aptopts"), "--dpkgopt=" + filepath.Join(b.dir, "dpkgopts"),
	}
	if len(b.recipe.Packages) > 0 {
		args = append(args, "--include="+strings.Join(b.recipe.Packages, ","))
	}
	const bundle = "/etc/ssl/certs/ca-certificates.crt"
	if _, err := os.Stat(bundle); err == nil && strings.Contains(b.mirror.main+b.mirror.security, "https://") {
		// Until the image has its own, which replaces it.
		args = append(args, fmt.Sprintf(`--essential-hook=mkdir -p "$1/etc/ssl/certs" && cp %s "$1%s"`, bundle, bundle))
	}
	return append(args,
		`--customize-hook=sh `+file("base.sh")+` "$1"`+setup,
		"--customize-hook=download /run/agentbox/packages "+file("packages"),
		"--customize-hook=download /run/agentbox/epoch "+file("epoch"),
		"--", b.recipe.Suite, "-", "-"), nil
}

func shellQuote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// environment is what mmdebstrap gets: nothing of ours but the way to the
// mirror.
func environment(tmp string) []string {
	env := []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8", "HOME=/nonexistent", "TMPDIR=" + tmp}
	for _, name := range []string{"http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"} {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	return env
}

var aptNetworkOption = regexp.MustCompile(`(?i)^Acquire::(Check-(Valid-Until|Date)|https?::(Proxy|CaInfo|Verify-[A-Za-z]+|Timeout)|Retries) `)

// aptOptions is how this host's apt reaches its mirrors. base.sh takes it out of
// the image again.
func aptOptions(ctx context.Context) string {
	out, err := exec.CommandContext(ctx, "apt-config", "dump").Output()
	if err != nil {
		return "" // then without: a mirror needs none of it in most places
	}
	var b strings.Builder
	for line := range strings.Lines(string(out)) {
		if aptNetworkOption.MatchString(line) {
			b.WriteString(line)
		}
	}
	return b.String()
}

// copyRoot copies mmdebstrap's tar to w. The first byte comes when the hooks are
// done, so the epoch is there then.
func (b *bootstrap) copyRoot(w io.Writer, r io.Reader) error {
	in := bufio.NewReaderSize(r, 1<<20)
	if _, err := in.Peek(1); err != nil {
		return fmt.Errorf("read root file system: %w", err)
	}
	text, err := os.ReadFile(filepath.Join(b.dir, "epoch"))
	if err != nil {
		return fmt.Errorf("read epoch: %w", err)
	}
	sec, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return fmt.Errorf("read epoch: %w", err)
	}
	return normalize(w, in, time.Unix(sec, 0))
}

// explain makes an error of what mmdebstrap printed.
func (b *bootstrap) explain(ctx context.Context, err, copyErr error, log *logWriter) error {
	if ctx.Err() != nil {
		return fmt.Errorf("run mmdebstrap: %w", context.Cause(ctx))
	}
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return fmt.Errorf("run mmdebstrap: %w", errors.Join(err, copyErr))
	}
	text := log.tail()
	if b.memory > 0 && strings.Contains(text, "No space left on device") {
		return errNotInMemory
	}
	hint := ""
	switch {
	case strings.Contains(text, "NO_PUBKEY"):
		hint = fmt.Sprintf("\n%s does not know the keys of %s: apt-get install -y --only-upgrade debian-archive-keyring", keyring, b.recipe.Suite)
	case strings.Contains(text, "Temporary failure resolving"), strings.Contains(text, "Could not connect"):
		hint = fmt.Sprintf("\n%s can't be reached: give another mirror with --mirror URL (make: MIRROR=URL)", redact(b.mirror.main))
	}
	return fmt.Errorf("mmdebstrap: %w:\n%s%s", err, text, hint)
}

// redact takes the password out of a URL.
func redact(uri string) string {
	u, err := url.Parse(uri)
	if err != nil {
		return "the mirror"
	}
	return u.Redacted()
}

// logWriter takes mmdebstrap's log: lines become progress, the last are kept.
type logWriter struct {
	progress progress
	part     []byte
	last     []string
}

// Write implements io.Writer.
func (l *logWriter) Write(p []byte) (int, error) {
	l.part = append(l.part, p...)
	for {
		i := bytes.IndexAny(l.part, "\r\n")
		if i < 0 {
			break
		}
		l.line(string(l.part[:i]))
		l.part = l.part[i+1:]
	}
	if len(l.part) > 4096 { // no line: don't collect it
		l.line(string(l.part))
		l.part = nil
	}
	return len(p), nil
}

func (l *logWriter) line(s string) {
	const keep = 12
	// apt lists each call of dpkg that it plans.
	if strings.TrimSpace(s) != "" && !strings.HasPrefix(s, "/usr/bin/dpkg ") {
		if l.last = append(l.last, s); len(l.last) > keep {
			l.last = l.last[1:]
		}
	}
	l.progress.line(s)
}

func (l *logWriter) tail() string { return strings.Join(l.last, "\n") }

// checkHost finds mmdebstrap and what it needs, or says how to get it.
func checkHost() (program string, err error) {
	missing := func(what, cure string) error {
		return fmt.Errorf("%s: %s: %w", what, cure, errdefs.ErrFailedPrecondition)
	}
	program, err = exec.LookPath("mmdebstrap")
	if err != nil {
		return "", missing("building an image needs mmdebstrap", "apt-get install -y mmdebstrap")
	}
	if _, err := os.Stat(keyring); err != nil {
		return "", missing("building an image needs the keys of the Debian archive", "apt-get install -y debian-archive-keyring")
	}
	if os.Geteuid() != 0 {
		return program, checkSubordinateIDs()
	}
	return program, nil
}
