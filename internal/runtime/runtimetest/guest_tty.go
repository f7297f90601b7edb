package runtimetest

import (
	"io"
	"strings"

	"agentbox/internal/guest/client"
	"agentbox/internal/ids"
	"agentbox/internal/sandbox"
)

var terminalCases = []guestCase{
	{"Terminal", testTerminal},
	{"Interrupt", testInterrupt},
	{"EndOfFile", testTerminalEOF},
	{"NoTerminal", testNoTerminal},
}

// terminal starts a command on a terminal of 100 × 40.
func (g *guest) terminal(out *text, script string) *client.Process {
	g.Helper()
	c := sandbox.Command{Shell: script, TTY: true, Cols: 100, Rows: 40}
	p, err := g.s.Start(g.ctx, ids.Hex(4), c, client.Output{Stdout: out})
	g.ok(err)
	return p
}

func (g *guest) types(p *client.Process, s string) {
	g.Helper()
	_, err := io.WriteString(p.Stdin(), s)
	g.ok(err)
}

func testTerminal(g *guest) {
	var out text
	p := g.terminal(&out, `test -t 0 && test -t 1 && test -t 2 && echo "a terminal"; stty size; read x; stty size; echo "<$x>" >&2; exit 9`)
	g.await(&out, "a terminal\r\n40 100\r\n")
	g.ok(p.Resize(80, 24))
	g.types(p, "hello\r")
	r := g.result(p)
	if got := out.String(); !strings.HasSuffix(got, "hello\r\n24 80\r\n<hello>\r\n") || r.ExitCode != 9 {
		g.Errorf("got %q, %+v", got, r)
	}
	if i := g.job(p.ID()); !i.TTY {
		g.Errorf("it is listed as %+v", i)
	}
}

func testInterrupt(g *guest) {
	var out text
	p := g.terminal(&out, "echo ready; sleep 1000; echo no")
	g.await(&out, "ready\r\n")
	g.types(p, "\x03")
	if r := g.result(p); r.ShellCode() != 130 {
		g.Errorf("got %v %d", r.Outcome, r.ShellCode())
	}
}

func testTerminalEOF(g *guest) {
	var out text
	p := g.terminal(&out, "cat; echo end")
	g.types(p, "x\r")
	g.await(&out, "x\r\nx\r\n")
	g.types(p, "\x04")
	if r := g.result(p); r.ExitCode != 0 || !strings.HasSuffix(out.String(), "end\r\n") {
		g.Errorf("got %q, %+v", out.String(), r)
	}
}

func testNoTerminal(g *guest) {
	if got := g.sh("test -t 0 || test -t 1 || test -t 2 || echo none"); got != "none\n" {
		g.Errorf("got %q", got)
	}
}
