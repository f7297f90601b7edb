package toyos

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

func cmdEcho(p *proc, argv []string) int {
	words, end := argv[1:], "\n"
	if len(words) > 0 && words[0] == "-n" {
		words, end = words[1:], ""
	}
	return p.out(strings.Join(words, " ") + end)
}

func cmdPrintf(p *proc, argv []string) int {
	if len(argv) < 2 {
		return p.fail(2, "printf: usage: printf format [arguments]")
	}
	args := argv[2:]
	var b strings.Builder
	for {
		used := formatInto(&b, argv[1], args)
		args = args[min(used, len(args)):]
		if used == 0 || len(args) == 0 {
			return p.out(b.String())
		}
	}
}

// formatInto writes one round of a printf(1) format and returns how many
// arguments it took.
func formatInto(b *strings.Builder, format string, args []string) int {
	used := 0
	for i := 0; i < len(format); i++ {
		switch c := format[i]; {
		case c == '\\' && i+1 < len(format):
			i++
			i += escape(b, format[i:]) - 1
		case c == '%' && i+1 < len(format):
			i++
			if format[i] == '%' {
				b.WriteByte('%')
				continue
			}
			for i < len(format)-1 && format[i] >= '0' && format[i] <= '9' { // widths are not kept
				i++
			}
			arg := ""
			if used < len(args) {
				arg = args[used]
			}
			used++
			if format[i] == 'd' && arg == "" {
				arg = "0"
			}
			b.WriteString(arg)
		default:
			b.WriteByte(c)
		}
	}
	return used
}

// escape writes what the escape at the start of s, behind its backslash, stands
// for and returns its length.
func escape(b *strings.Builder, s string) int {
	if i := strings.IndexByte("abfnrtv\\\"", s[0]); i >= 0 {
		b.WriteByte("\a\b\f\n\r\t\v\\\""[i])
		return 1
	}
	n := 0
	for n < 3 && n < len(s) && s[n] >= '0' && s[n] <= '7' {
		n++
	}
	if v, err := strconv.ParseUint(s[:n], 8, 16); err == nil {
		b.WriteByte(byte(v))
		return n
	}
	b.WriteByte('\\')
	b.WriteByte(s[0])
	return 1
}

// each calls f with standard input, or with each of the named files.
func (p *proc) each(names []string, f func(file) error) int {
	if len(names) == 0 {
		names = []string{"-"}
	}
	code := 0
	for _, name := range names {
		src := p.fds[0].ref()
		if name != "-" {
			src.close()
			opened, err := p.openFor("<", name)
			if err != nil {
				code = p.fail(1, "%s: %s", name, reason(err))
				continue
			}
			src = opened
		}
		err := f(src)
		src.close()
		if err != nil && !errors.Is(err, io.EOF) {
			code = 1
		}
	}
	return code
}

// copyOut passes src on to standard output, changed by f.
func (p *proc) copyOut(src file, f func([]byte) ([]byte, bool)) error {
	b := make([]byte, 32<<10)
	for {
		n, err := src.read(p.ctx, b)
		if n > 0 {
			out, more := f(b[:n])
			if !p.put(1, string(out)) || !more {
				return io.EOF
			}
		}
		if err != nil {
			return err
		}
	}
}

func cmdCat(p *proc, argv []string) int {
	return p.each(argv[1:], func(src file) error {
		return p.copyOut(src, func(b []byte) ([]byte, bool) { return b, true })
	})
}

func cmdTr(p *proc, argv []string) int {
	if len(argv) != 3 {
		return p.fail(1, "tr: two sets are needed")
	}
	from, to := trSet(argv[1]), trSet(argv[2])
	return p.each(nil, func(src file) error {
		return p.copyOut(src, func(b []byte) ([]byte, bool) {
			for i, c := range b {
				if at := strings.IndexByte(from, c); at >= 0 && to != "" {
					b[i] = to[min(at, len(to)-1)]
				}
			}
			return b, true
		})
	})
}

// trSet expands "a-z".
func trSet(s string) string {
	if len(s) != 3 || s[1] != '-' {
		return s
	}
	var b strings.Builder
	for c := s[0]; c <= s[2]; c++ {
		b.WriteByte(c)
	}
	return b.String()
}

func cmdHead(p *proc, argv []string) int {
	count, byBytes, names := 10, false, argv[1:]
	if len(names) > 1 && (names[0] == "-n" || names[0] == "-c") {
		count, _ = strconv.Atoi(names[1])
		byBytes, names = names[0] == "-c", names[2:]
	}
	return p.each(names, func(src file) error {
		left := count
		return p.copyOut(src, func(b []byte) ([]byte, bool) {
			if byBytes {
				n := min(left, len(b))
				left -= n
				return b[:n], left > 0
			}
			for i, c := range b {
				if c == '\n' {
					if left--; left == 0 {
						return b[:i+1], false
					}
				}
			}
			return b, true
		})
	})
}

func cmdWc(p *proc, argv []string) int {
	if len(argv) < 2 || argv[1] != "-c" && argv[1] != "-l" {
		return p.fail(1, "wc: -c or -l is needed")
	}
	n := 0
	code := p.each(argv[2:], func(src file) error {
		b := make([]byte, 32<<10)
		for {
			k, err := src.read(p.ctx, b)
			if argv[1] == "-c" {
				n += k
			} else {
				n += bytes.Count(b[:k], []byte{'\n'})
			}
			if err != nil {
				return err
			}
		}
	})
	p.out(fmt.Sprintf("%d\n", n))
	return code
}

func cmdSeq(p *proc, argv []string) int {
	nums := []int{1, 1, 0}
	switch args := argv[1:]; len(args) {
	case 1:
		nums[2], _ = strconv.Atoi(args[0])
	case 2:
		nums[0], _ = strconv.Atoi(args[0])
		nums[2], _ = strconv.Atoi(args[1])
	default:
		return p.fail(1, "seq: one or two numbers are needed")
	}
	var b strings.Builder
	for i := nums[0]; i <= nums[2]; i++ {
		fmt.Fprintln(&b, i)
		if b.Len() > 16<<10 {
			if !p.put(1, b.String()) {
				return 1
			}
			b.Reset()
		}
	}
	return p.out(b.String())
}

func cmdYes(p *proc, argv []string) int {
	word := "y"
	if len(argv) > 1 {
		word = strings.Join(argv[1:], " ")
	}
	block := strings.Repeat(word+"\n", 1+8192/(len(word)+1))
	for p.put(1, block) {
	}
	return 1
}
