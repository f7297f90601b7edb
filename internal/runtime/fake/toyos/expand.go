package toyos

import (
	"context"
	"fmt"
	"strconv"
	"strings"
)

// expand expands words to arguments: unquoted results are split at blanks.
func (p *proc) expand(words []string) ([]string, error) {
	var args []string
	for _, w := range words {
		fields, err := p.fields(w)
		if err != nil {
			return nil, err
		}
		args = append(args, fields...)
	}
	return args, nil
}

// expandOne expands a word without splitting it.
func (p *proc) expandOne(w string) (string, error) {
	var b strings.Builder
	err := p.pieces(w, func(s string, _ bool) { b.WriteString(s) })
	return b.String(), err
}

func (p *proc) fields(w string) ([]string, error) {
	var fields []string
	var cur strings.Builder
	have := false
	flush := func() {
		if have {
			fields = append(fields, cur.String())
		}
		cur.Reset()
		have = false
	}
	err := p.pieces(w, func(s string, split bool) {
		if !split {
			cur.WriteString(s)
			have = true
			return
		}
		for _, c := range []byte(s) {
			if c == ' ' || c == '\t' || c == '\n' {
				flush()
				continue
			}
			cur.WriteByte(c)
			have = true
		}
	})
	flush()
	return fields, err
}

// pieces calls f with each part of w, and whether it may be split.
func (p *proc) pieces(w string, f func(s string, split bool)) error {
	for len(w) > 0 {
		n, err := pieceLen(w)
		if err != nil {
			return err
		}
		switch {
		case w[0] == '\\':
			f(w[1:n], false)
		case w[0] == '\'':
			f(w[1:n-1], false)
		case w[0] == '"':
			s, err := p.quoted(w[1 : n-1])
			if err != nil {
				return err
			}
			f(s, false)
		case w[0] == '$':
			s, used, err := p.dollar(w)
			if err != nil {
				return err
			}
			f(s, used > 1)
			n = used
		default:
			f(w[:n], false)
		}
		w = w[n:]
	}
	return nil
}

// quoted expands what stands between double quotes.
func (p *proc) quoted(s string) (string, error) {
	var b strings.Builder
	for len(s) > 0 {
		switch {
		case s[0] == '\\' && len(s) > 1 && strings.IndexByte("$`\"\\\n", s[1]) >= 0:
			b.WriteByte(s[1])
			s = s[2:]
		case s[0] == '$':
			v, n, err := p.dollar(s)
			if err != nil {
				return "", err
			}
			b.WriteString(v)
			s = s[n:]
		default:
			b.WriteByte(s[0])
			s = s[1:]
		}
	}
	return b.String(), nil
}

// dollar expands the substitution at the start of s and tells its length.
func (p *proc) dollar(s string) (string, int, error) {
	switch {
	case strings.HasPrefix(s, "$(("):
		n, err := pieceLen(s)
		if err != nil {
			return "", 0, err
		}
		expr, err := p.quoted(strings.TrimSuffix(s[3:n-1], ")"))
		if err != nil {
			return "", 0, err
		}
		v, err := p.arithmetic(expr)
		return strconv.FormatInt(v, 10), n, err
	case strings.HasPrefix(s, "$("):
		n, err := pieceLen(s)
		if err != nil {
			return "", 0, err
		}
		v, err := p.capture(s[2 : n-1])
		return v, n, err
	case strings.HasPrefix(s, "${"):
		n, err := pieceLen(s)
		if err != nil {
			return "", 0, err
		}
		name, def, hasDefault := strings.Cut(s[2:n-1], ":-")
		v := p.variable(name)
		if v == "" && hasDefault {
			v = def
		}
		return v, n, nil
	}
	n := 1
	for n < len(s) && isName(s[n]) {
		n++
	}
	if n == 1 && len(s) > 1 && strings.IndexByte("?$!#@*", s[1]) >= 0 {
		n = 2
	} else if n > 1 && s[1] >= '0' && s[1] <= '9' {
		n = 2
	}
	if n == 1 {
		return "$", 1, nil
	}
	return p.variable(s[1:n]), n, nil
}

func isName(c byte) bool {
	return c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

func (p *proc) variable(name string) string {
	switch name {
	case "?":
		return strconv.Itoa(p.status)
	case "$":
		return strconv.Itoa(p.pid)
	case "!":
		return strconv.Itoa(p.lastBack)
	case "#":
		return strconv.Itoa(max(0, len(p.args)-1))
	case "@", "*":
		if len(p.args) < 2 {
			return ""
		}
		return strings.Join(p.args[1:], " ")
	case "PWD":
		return p.dir
	}
	if i, err := strconv.Atoi(name); err == nil {
		if i < len(p.args) {
			return p.args[i]
		}
		return ""
	}
	if v, ok := p.local[name]; ok {
		return v
	}
	return p.env[name]
}

// maxCapture bounds what $(…) takes.
const maxCapture = 1 << 20

// capture runs a command and returns its output without the last newlines.
func (p *proc) capture(src string) (string, error) {
	list, err := parse(src)
	if err != nil {
		return "", err
	}
	r, w := newPipe()
	defer r.close()
	c, err := p.fork([3]file{p.fds[0].ref(), w, p.fds[2].ref()}, func(c *proc) int { return c.runList(list) })
	if err != nil {
		return "", fmt.Errorf("cannot fork: %w", err)
	}
	text, err := readAll(p.ctx, r, maxCapture)
	if err != nil {
		return "", err
	}
	p.status = p.wait(c)
	return strings.TrimRight(text, "\n"), nil
}

func readAll(ctx context.Context, f file, limit int) (string, error) {
	var b strings.Builder
	buf := make([]byte, 4096)
	for b.Len() < limit {
		n, err := f.read(ctx, buf)
		b.Write(buf[:n])
		if err != nil {
			return b.String(), context.Cause(ctx)
		}
	}
	return b.String(), nil
}

// arithmetic reads +, -, *, /, %, comparisons and parentheses.
func (p *proc) arithmetic(s string) (int64, error) {
	a := &arith{p: p, s: s}
	v := a.level(0)
	a.blank()
	if a.err == nil && a.s != "" {
		a.err = fmt.Errorf("arithmetic: %q unexpected", a.s)
	}
	return v, a.err
}

type arith struct {
	p   *proc
	s   string
	err error
}

// Operators from the weakest to the strongest.
var arithLevels = [][]string{{"==", "!=", "<=", ">=", "<", ">"}, {"+", "-"}, {"*", "/", "%"}}

func (a *arith) blank() { a.s = strings.TrimLeft(a.s, " \t\n") }

func (a *arith) take(ops ...string) string {
	a.blank()
	for _, op := range ops {
		if strings.HasPrefix(a.s, op) {
			a.s = a.s[len(op):]
			return op
		}
	}
	return ""
}

func (a *arith) level(l int) int64 {
	if l == len(arithLevels) {
		return a.operand()
	}
	v := a.level(l + 1)
	for a.err == nil {
		op := a.take(arithLevels[l]...)
		if op == "" {
			break
		}
		v = a.apply(op, v, a.level(l+1))
	}
	return v
}

func (a *arith) apply(op string, x, y int64) int64 {
	truth := func(b bool) int64 {
		if b {
			return 1
		}
		return 0
	}
	if y == 0 && (op == "/" || op == "%") {
		a.err = fmt.Errorf("arithmetic: division by zero")
		return 0
	}
	switch op {
	case "+":
		return x + y
	case "-":
		return x - y
	case "*":
		return x * y
	case "/":
		return x / y
	case "%":
		return x % y
	case "==":
		return truth(x == y)
	case "!=":
		return truth(x != y)
	case "<=":
		return truth(x <= y)
	case ">=":
		return truth(x >= y)
	case "<":
		return truth(x < y)
	default:
		return truth(x > y)
	}
}

func (a *arith) operand() int64 {
	if a.take("(") != "" {
		v := a.level(0)
		if a.take(")") == "" && a.err == nil {
			a.err = fmt.Errorf("arithmetic: missing )")
		}
		return v
	}
	if a.take("-") != "" {
		return -a.operand()
	}
	n := 0
	for n < len(a.s) && isName(a.s[n]) {
		n++
	}
	word := a.s[:n]
	a.s = a.s[n:]
	if word != "" && (word[0] < '0' || word[0] > '9') {
		if word = a.p.variable(word); word == "" {
			return 0
		}
	}
	v, err := strconv.ParseInt(word, 0, 64)
	if err != nil && a.err == nil {
		a.err = fmt.Errorf("arithmetic: %q is not a number", word)
	}
	return v
}
