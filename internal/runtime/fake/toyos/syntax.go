package toyos

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// The shell's grammar, a small part of POSIX's:
//
//	list     = andor { (";" | "&" | newline) [andor] }
//	andor    = pipeline { ("&&" | "||") pipeline }
//	pipeline = ["!"] command { "|" command }
//	command  = simple | "(" list ")" | "{" list "}" | if | while | until | for
//
// with redirections after each command. There are no functions, no globs and
// no here-documents.

type step struct {
	pipeline []*command
	not      bool
	joint    string // how the next step depends on this one: "&&", "||", ";", "&"
}

type command struct {
	words  []string // of a simple command, not expanded
	kind   string   // "", "(", "{", "if", "while", "until", "for"
	cond   [][]step // of if and elif, while, until
	bodies [][]step // one for each cond; for if perhaps one more, the else
	name   string   // of for
	redirs []redir
}

type redir struct {
	fd   int
	op   string // "<", ">", ">>", ">&"
	word string
}

// token is a word, or an operator or newline (op).
type token struct {
	text string
	op   bool
}

// Operators, longest first.
var operators = []string{"&&", "||", ">>", ">&", ";", "&", "|", "(", ")", "<", ">", "\n"}

var errUnterminated = errors.New("unterminated quoted string")

func lex(src string) ([]token, error) {
	var tokens []token
	for i := 0; i < len(src); {
		switch c := src[i]; {
		case c == ' ' || c == '\t':
			i++
			continue
		case c == '#':
			for i < len(src) && src[i] != '\n' {
				i++
			}
			continue
		case strings.HasPrefix(src[i:], "\\\n"):
			i += 2
			continue
		}
		if op := operatorAt(src[i:]); op != "" {
			tokens = append(tokens, token{op, true})
			i += len(op)
			continue
		}
		n, err := wordLen(src[i:])
		if err != nil {
			return nil, err
		}
		word := src[i : i+n]
		// A number just before a redirection is its descriptor.
		next := i + n
		if len(word) == 1 && word[0] <= '9' && word[0] >= '0' && next < len(src) && (src[next] == '<' || src[next] == '>') {
			op := operatorAt(src[next:])
			tokens = append(tokens, token{word + op, true})
			i = next + len(op)
			continue
		}
		tokens = append(tokens, token{word, false})
		i += n
	}
	return tokens, nil
}

func operatorAt(s string) string {
	for _, op := range operators {
		if strings.HasPrefix(s, op) {
			return op
		}
	}
	return ""
}

// wordLen is the length of the word at the start of s, quotes and substitutions
// included.
func wordLen(s string) (int, error) {
	for i := 0; i < len(s); {
		n, err := pieceLen(s[i:])
		if err != nil {
			return 0, err
		}
		if n == 1 && strings.IndexByte(" \t\n;&|()<>", s[i]) >= 0 {
			return i, nil
		}
		i += n
	}
	return len(s), nil
}

// pieceLen is the length of a quoted string, a substitution or one byte.
func pieceLen(s string) (int, error) {
	closing := func(from int, c byte) (int, error) {
		if end := strings.IndexByte(s[from:], c); end >= 0 {
			return from + end + 1, nil
		}
		return 0, errUnterminated
	}
	switch {
	case s[0] == '\\':
		return min(2, len(s)), nil
	case s[0] == '\'':
		return closing(1, '\'')
	case s[0] == '"':
		return nestedLen(s, 1, func(i int) bool { return s[i] == '"' }, "\\$")
	case strings.HasPrefix(s, "$("):
		depth := 1
		return nestedLen(s, 2, func(i int) bool {
			depth += strings.Count(s[i:i+1], "(") - strings.Count(s[i:i+1], ")")
			return depth == 0
		}, "'\"\\")
	case strings.HasPrefix(s, "${"):
		return closing(2, '}')
	}
	return 1, nil
}

// nestedLen is the length of s up to where ends holds. Pieces that begin with
// one of starts are skipped as a whole.
func nestedLen(s string, from int, ends func(int) bool, starts string) (int, error) {
	for i := from; i < len(s); {
		if ends(i) {
			return i + 1, nil
		}
		n := 1
		if strings.IndexByte(starts, s[i]) >= 0 {
			var err error
			if n, err = pieceLen(s[i:]); err != nil {
				return 0, err
			}
		}
		i += n
	}
	return 0, errUnterminated
}

type parser struct {
	tokens []token
	at     int
	depth  int
}

// maxDepth bounds the nesting of commands.
const maxDepth = 100

func parse(src string) ([]step, error) {
	tokens, err := lex(src)
	if err != nil {
		return nil, err
	}
	p := &parser{tokens: tokens}
	list, err := p.list()
	if err == nil && p.at < len(p.tokens) {
		err = p.unexpected()
	}
	return list, err
}

func (p *parser) peek() token {
	if p.at >= len(p.tokens) {
		return token{"", true}
	}
	return p.tokens[p.at]
}

func (p *parser) unexpected() error {
	t := p.peek()
	if t.text == "" {
		return errors.New("syntax error: unexpected end of file")
	}
	return fmt.Errorf("syntax error: %q unexpected", t.text)
}

func (p *parser) op(texts ...string) bool {
	if t := p.peek(); t.op && t.text != "" && slices.Contains(texts, t.text) {
		p.at++
		return true
	}
	return false
}

func (p *parser) word(texts ...string) bool {
	if t := p.peek(); !t.op && slices.Contains(texts, t.text) {
		p.at++
		return true
	}
	return false
}

// closers end a list.
var closers = []string{"then", "else", "elif", "fi", "do", "done", "}"}

func (p *parser) list() ([]step, error) {
	if p.depth++; p.depth > maxDepth {
		return nil, errors.New("syntax error: nested too deeply")
	}
	defer func() { p.depth-- }()
	var list []step
	for {
		for p.op("\n") {
		}
		t := p.peek()
		if t.op && (t.text == "" || t.text == ")") || !t.op && slices.Contains(closers, t.text) {
			return list, nil
		}
		s, err := p.step()
		if err != nil {
			return nil, err
		}
		list = append(list, s)
		if s.joint == "" {
			return list, nil
		}
	}
}

func (p *parser) step() (step, error) {
	s := step{not: p.word("!")}
	for {
		c, err := p.command()
		if err != nil {
			return s, err
		}
		s.pipeline = append(s.pipeline, c)
		if !p.op("|") {
			break
		}
		for p.op("\n") {
		}
	}
	switch t := p.peek(); {
	case p.op("&&", "||", ";", "&"):
		s.joint = t.text
	case p.op("\n"):
		s.joint = ";"
	}
	return s, nil
}

func (p *parser) command() (*command, error) {
	c := &command{}
	var err error
	switch t := p.peek(); {
	case p.op("("):
		c.kind = "("
		err = p.body(c, "op", ")")
	case p.word("{"):
		c.kind = "{"
		err = p.body(c, "word", "}")
	case p.word("if"):
		c.kind = "if"
		err = p.conditional(c)
	case p.word("while", "until"):
		c.kind = t.text
		err = p.loop(c)
	case p.word("for"):
		c.kind = "for"
		err = p.iteration(c)
	}
	if err != nil {
		return nil, err
	}
	return c, p.simple(c)
}

// simple reads words and redirections; after a compound command only the
// latter.
func (p *parser) simple(c *command) error {
	for {
		t := p.peek()
		switch {
		case !t.op && c.kind == "":
			c.words = append(c.words, t.text)
			p.at++
		case t.op && strings.ContainsAny(t.text, "<>"):
			p.at++
			r := redir{fd: 1, op: t.text}
			if t.text[0] <= '9' && t.text[0] >= '0' {
				r.fd, r.op = int(t.text[0]-'0'), t.text[1:]
			} else if t.text == "<" {
				r.fd = 0
			}
			if p.peek().op || r.fd > 2 {
				return p.unexpected()
			}
			r.word = p.peek().text
			p.at++
			c.redirs = append(c.redirs, r)
		case c.kind == "" && len(c.words) == 0 && len(c.redirs) == 0:
			return p.unexpected()
		default:
			return nil
		}
	}
}

func (p *parser) body(c *command, kind, end string) error {
	list, err := p.list()
	if err != nil {
		return err
	}
	if kind == "op" && !p.op(end) || kind == "word" && !p.word(end) {
		return p.unexpected()
	}
	c.bodies = append(c.bodies, list)
	return nil
}

func (p *parser) conditional(c *command) error {
	for {
		cond, err := p.list()
		if err != nil {
			return err
		}
		if !p.word("then") {
			return p.unexpected()
		}
		body, err := p.list()
		if err != nil {
			return err
		}
		c.cond, c.bodies = append(c.cond, cond), append(c.bodies, body)
		switch {
		case p.word("elif"):
		case p.word("else"):
			return p.body(c, "word", "fi")
		case p.word("fi"):
			return nil
		default:
			return p.unexpected()
		}
	}
}

func (p *parser) loop(c *command) error {
	cond, err := p.list()
	if err != nil {
		return err
	}
	if !p.word("do") {
		return p.unexpected()
	}
	c.cond = append(c.cond, cond)
	return p.body(c, "word", "done")
}

func (p *parser) iteration(c *command) error {
	if p.peek().op {
		return p.unexpected()
	}
	c.name = p.peek().text
	p.at++
	if !p.word("in") {
		return p.unexpected()
	}
	for !p.peek().op {
		c.words = append(c.words, p.peek().text)
		p.at++
	}
	p.op(";", "\n")
	if !p.word("do") {
		return p.unexpected()
	}
	return p.body(c, "word", "done")
}
