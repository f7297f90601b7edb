package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"agentbox/internal/transfer"
)

func (a *App) cpCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "cp SRC DST",
		Short: "Copy files between this machine and a running sandbox",
		Long: `Copy a file or a tree into or out of a running sandbox. One of SRC and DST is
SANDBOX:PATH. SANDBOX is one of a running "agentbox run" (its name, its id or the
beginning of that: "agentbox ps" lists them) or else one of the server (name or id:
"agentbox ls"); with --url, --profile or ` + urlVariable + ` only that server's count. A
name that one of each has is refused: give the id. A relative PATH begins at the
sandbox's working directory. Files in the sandbox are read and written with the rights
of its user.

A DST that is a directory, or ends in /, takes SRC into it; else it is the new
name. A SRC that ends in /. stands for what is in the directory. With - as SRC,
standard input is a tar archive to unpack in DST; with - as DST, one is written to
standard output.

Links in a tree stay links. Out of a sandbox come files, directories and the links
that lead to a place in the copied tree; what is left out is listed. A tree has
1,000,000 entries and 10 GiB at most on its way out.`,
		Example: `  agentbox cp ./project build:/workspace/
  agentbox cp build:/workspace/project/out ./out
  agentbox cp build:/workspace - | tar t`,
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: a.completeCopy,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := untilSignal(cmd.Context())
			defer stop()
			return a.orInterrupted(ctx, a.cp(ctx, cmd, args[0], args[1]))
		},
	}
}

func (a *App) cp(ctx context.Context, cmd *cobra.Command, src, dst string) error {
	fromBox, fromPath, out := splitBox(src)
	toBox, toPath, in := splitBox(dst)
	switch {
	case in == out:
		return fmt.Errorf("exactly one of %q and %q must be SANDBOX:PATH; a local name with a colon is written ./NAME", src, dst)
	case in && toPath == "" || out && fromPath == "":
		return errors.New("no path behind the sandbox: SANDBOX:PATH, such as build:/workspace")
	case in:
		b, err := a.findBox(ctx, cmd, toBox)
		if err != nil {
			return err
		}
		defer b.Close()
		return a.copyToBox(ctx, b, src, toPath)
	}
	b, err := a.findBox(ctx, cmd, fromBox)
	if err != nil {
		return err
	}
	defer b.Close()
	return a.copyFromBox(ctx, b, fromPath, dst)
}

// splitBox cuts SANDBOX:PATH. What begins like a path is one.
func splitBox(s string) (name, path string, ok bool) {
	name, path, ok = strings.Cut(s, ":")
	if !ok || !boxName().MatchString(name) && len(name) != 64 {
		return "", s, false
	}
	return name, path, true
}

func (a *App) copyToBox(ctx context.Context, r boxFiles, src, dst string) error {
	progress := a.progress("copying " + src)
	defer progress.done()
	if src == "-" {
		if err := r.PutTree(ctx, dst, progress.reader(a.Stdin)); err != nil {
			return fmt.Errorf("unpack standard input in %s: %w", dst, err)
		}
		return nil
	}
	from, err := os.Lstat(src)
	if err != nil {
		return fmt.Errorf("read the source: %w", err)
	}
	there, err := r.Stat(ctx, dst)
	if err != nil {
		return fmt.Errorf("look at %s in the sandbox: %w", dst, err)
	}
	if from.IsDir() && there.Exists && !there.Dir {
		return fmt.Errorf("%s is a directory, and %s in the sandbox is none", src, dst)
	}
	dir, name := path.Split(dst)
	if there.Dir || name == "" {
		dir, name = dst, ""
	}
	if dir == "" {
		dir = "."
	}
	contents := strings.HasSuffix(src, "/.")
	if contents {
		dir, name = dst, "."
	}
	if name == "" {
		abs, err := filepath.Abs(src)
		if err != nil {
			return fmt.Errorf("read the source: %w", err)
		}
		name = filepath.Base(abs)
	}
	pr, pw := io.Pipe()
	packed := make(chan error, 1)
	go func() {
		err := transfer.Pack(pw, src, name)
		pw.CloseWithError(err)
		packed <- err
	}()
	err = r.PutTree(ctx, dir, progress.reader(pr))
	pr.Close()
	if local := <-packed; local != nil && !errors.Is(local, io.ErrClosedPipe) {
		err = local // what the sandbox says of it is less clear
	}
	if err != nil {
		return fmt.Errorf("copy %s to %s: %w", src, dst, err)
	}
	return nil
}

// maxCopied is how many entries a tree may have: more than a project with its
// dependencies, which is more than an outputs directory.
const maxCopied = 1_000_000

func (a *App) copyFromBox(ctx context.Context, r boxFiles, src, dst string) error {
	there, err := r.Stat(ctx, src)
	if err != nil {
		return fmt.Errorf("look at %s in the sandbox: %w", src, err)
	}
	if !there.Exists {
		return fmt.Errorf("there is no %s in the sandbox", src)
	}
	in, err := r.GetTree(ctx, src)
	if err != nil {
		return fmt.Errorf("read %s: %w", src, err)
	}
	defer in.Close()
	progress := a.progress("copying " + src)
	defer progress.done()
	if dst == "-" {
		_, err := io.Copy(a.Stdout, progress.reader(in))
		if err != nil {
			return fmt.Errorf("copy %s: %w", src, err)
		}
		a.warnLeftOut(in)
		return nil
	}
	target := localTarget(src, dst)
	if !there.Dir {
		if err := transfer.UnpackFile(progress.reader(in), target, 0); err != nil {
			return fmt.Errorf("copy %s: %w", src, err)
		}
		return nil
	}
	if i, err := os.Stat(target); err == nil && !i.IsDir() {
		return fmt.Errorf("%s in the sandbox is a directory, and %s is none", src, target)
	}
	skipped, err := transfer.Unpack(progress.reader(in), target, transfer.Options{Entries: maxCopied, Links: true})
	for _, s := range skipped {
		a.warn(fmt.Errorf("left out: %s", s))
	}
	if err != nil {
		return fmt.Errorf("copy %s: %w", src, err)
	}
	a.warnLeftOut(in)
	return nil
}

// warnLeftOut tells what the server left out of a tree that was read to its end.
func (a *App) warnLeftOut(in io.ReadCloser) {
	if t, ok := in.(*servedTree); ok && t.leftOut() != "" && t.leftOut() != "0" {
		a.warn(fmt.Errorf("left out in the sandbox: %s special files and files that its user may not read", visible(t.leftOut())))
	}
}

// localTarget is where src goes: its own name in a directory, or dst itself.
func localTarget(src, dst string) string {
	i, err := os.Stat(dst)
	into := err == nil && i.IsDir() || strings.HasSuffix(dst, "/")
	name := path.Base(path.Clean("/" + src))
	if !into || strings.HasSuffix(src, "/.") || name == "/" {
		return dst
	}
	return filepath.Join(dst, name)
}
