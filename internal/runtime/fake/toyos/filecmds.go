package toyos

import (
	"io"
	"path"
	"strconv"
	"strings"
	"syscall"
	"time"

	"agentbox/internal/guest/agent"
)

// options splits leading options off the arguments.
func options(argv []string) (opts string, args []string) {
	args = argv[1:]
	for len(args) > 0 && strings.HasPrefix(args[0], "-") && args[0] != "-" {
		opts += args[0][1:]
		args = args[1:]
	}
	return opts, args
}

// forEach calls f with each argument and reports its errors.
func (p *proc) forEach(argv []string, f func(v *view, opts, name string) error) int {
	opts, args := options(argv)
	code := 0
	for _, a := range args {
		if err := f(p.view(), opts, a); err != nil {
			code = p.fail(1, "%s: %s: %s", argv[0], a, reason(err))
		}
	}
	return code
}

func (p *proc) slurp(name string) ([]byte, error) {
	f, err := p.view().Open(name, nil)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(f)
}

func cmdMkdir(p *proc, argv []string) int {
	return p.forEach(argv, func(v *view, opts, name string) error {
		if !strings.Contains(opts, "p") {
			return v.Mkdir(name, 0o755)
		}
		return v.mkdirAll(p.abs(name))
	})
}

func (v *view) mkdirAll(name string) error {
	if info, err := v.Stat(name, true); err == nil && info.Mode&syscall.S_IFMT == syscall.S_IFDIR {
		return nil
	}
	if parent := path.Dir(name); parent != name {
		if err := v.mkdirAll(parent); err != nil {
			return err
		}
	}
	return v.Mkdir(name, 0o755)
}

func cmdRm(p *proc, argv []string) int {
	return p.forEach(argv, func(v *view, opts, name string) error {
		_, err := v.Stat(name, false)
		if err != nil && strings.Contains(opts, "f") {
			return nil
		}
		if strings.ContainsAny(opts, "rR") {
			return v.removeAll(name)
		}
		if info, serr := v.Stat(name, false); serr == nil && info.Mode&syscall.S_IFMT == syscall.S_IFDIR {
			return syscall.EISDIR
		}
		return v.Remove(name)
	})
}

func (v *view) removeAll(name string) error {
	info, err := v.Stat(name, false)
	if err != nil {
		return err
	}
	if info.Mode&syscall.S_IFMT == syscall.S_IFDIR {
		names, err := v.names(name)
		if err != nil {
			return err
		}
		for _, n := range names {
			if err := v.removeAll(name + "/" + n); err != nil {
				return err
			}
		}
	}
	return v.Remove(name)
}

func cmdTouch(p *proc, argv []string) int {
	return p.forEach(argv, func(v *view, _, name string) error {
		f, err := v.Create(name, 0o644, agent.Append)
		if err != nil {
			return err
		}
		return firstError(f.Close(), v.Chtimes(name, time.Now()))
	})
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func cmdLs(p *proc, argv []string) int {
	if _, args := options(argv); len(args) == 0 {
		argv = append(argv, ".")
	}
	return p.forEach(argv, func(v *view, opts, name string) error {
		info, err := v.Stat(name, true)
		if err != nil {
			return err
		}
		if info.Mode&syscall.S_IFMT != syscall.S_IFDIR || strings.Contains(opts, "d") {
			p.out(name + "\n")
			return nil
		}
		names, err := v.names(name)
		for _, n := range names {
			if strings.ContainsAny(opts, "aA") || !strings.HasPrefix(n, ".") {
				p.out(n + "\n")
			}
		}
		return err
	})
}

func cmdChmod(p *proc, argv []string) int {
	if len(argv) < 3 {
		return p.fail(1, "chmod: a mode and a file are needed")
	}
	mode, err := strconv.ParseUint(argv[1], 8, 32)
	if argv[1] == "+x" {
		mode, err = 0o755, nil
	}
	if err != nil {
		return p.fail(1, "chmod: invalid mode: '%s'", argv[1])
	}
	return p.forEach(argv[1:], func(v *view, _, name string) error { return v.Chmod(name, uint32(mode)) })
}

func cmdLn(p *proc, argv []string) int {
	opts, args := options(argv)
	if len(args) != 2 {
		return p.fail(1, "ln: a target and a name are needed")
	}
	link := p.view().Link
	if strings.Contains(opts, "s") {
		link = p.view().Symlink
	}
	if err := link(args[0], args[1]); err != nil {
		return p.fail(1, "ln: %s: %s", args[1], reason(err))
	}
	return 0
}

func cmdMv(p *proc, argv []string) int {
	_, args := options(argv)
	if len(args) != 2 {
		return p.fail(1, "mv: a source and a destination are needed")
	}
	to := args[1]
	if info, err := p.view().Stat(to, true); err == nil && info.Mode&syscall.S_IFMT == syscall.S_IFDIR {
		to = path.Join(to, path.Base(args[0]))
	}
	if err := p.view().Rename(args[0], to, true); err != nil {
		return p.fail(1, "mv: %s: %s", args[0], reason(err))
	}
	return 0
}

func cmdReadlink(p *proc, argv []string) int {
	return p.forEach(argv, func(v *view, _, name string) error {
		target, err := v.Readlink(name)
		if err == nil {
			p.out(target + "\n")
		}
		return err
	})
}

func cmdMkfifo(p *proc, argv []string) int {
	return p.forEach(argv, func(v *view, _, name string) error {
		return v.do("mkfifo", name, func() error {
			at, err := v.vacant(name)
			if err == nil {
				v.d.link(at.dir, at.name, v.d.newNode(syscall.S_IFIFO|0o644, v.who))
			}
			return err
		})
	})
}
