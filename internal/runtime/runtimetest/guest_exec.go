package runtimetest

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/containerd/errdefs"

	"agentbox/internal/guest/client"
	"agentbox/internal/ids"
	"agentbox/internal/sandbox"
)

var execCases = []guestCase{
	{"Forms", testForms},
	{"ExitCodes", testExitCodes},
	{"Signals", testSignals},
	{"Environment", testEnvironment},
	{"Users", testUsers},
	{"InvalidRequests", testInvalidRequests},
	{"NotUTF8", testNotUTF8},
	{"NoInput", testNoInput},
	{"Input", testInput},
	{"InputUnread", testInputUnread},
	{"HalfClosed", testHalfClosed},
	{"Timeout", testTimeout},
	{"CanceledRun", testCanceledRun},
	{"KillTree", testKillTree},
	{"BackgroundChildHoldsOutput", testHeldOutput},
	{"LongArguments", testLongArguments},
}

func testForms(g *guest) {
	for _, c := range []struct {
		cmd            sandbox.Command
		stdout, stderr string
	}{
		{sandbox.Command{Argv: []string{"echo", "a  b", "$HOME", ";", "*"}}, "a  b $HOME ; *\n", ""},
		{sandbox.Command{Argv: []string{"/bin/echo", "with a path"}}, "with a path\n", ""},
		{sandbox.Command{Shell: `echo out; echo err >&2; x=1; echo $((x+1))`}, "out\n2\n", "err\n"},
		{sandbox.Command{Shell: "echo one\necho two"}, "one\ntwo\n", ""},
		{sandbox.Command{Argv: []string{"pwd"}, Dir: "/etc"}, "/etc\n", ""},
		{sandbox.Command{Argv: []string{"pwd"}}, "/tmp\n", ""},
	} {
		r := g.do(c.cmd)
		if r.Outcome != sandbox.Exited || r.ExitCode != 0 || string(r.Stdout) != c.stdout || string(r.Stderr) != c.stderr {
			g.Errorf("%+v: got %v %d %q %q", c.cmd, r.Outcome, r.ExitCode, r.Stdout, r.Stderr)
		}
		if r.Duration <= 0 || r.StdoutTruncated || r.StderrTruncated {
			g.Errorf("%+v: got %+v", c.cmd, r)
		}
	}
}

func testExitCodes(g *guest) {
	for _, code := range []int{0, 1, 2, 125, 126, 127, 128, 255} {
		r := g.do(sandbox.Command{Argv: []string{"sh", "-c", "exit $0", itoa(code)}})
		if r.Outcome != sandbox.Exited || r.ExitCode != code {
			g.Errorf("exit %d: got %v %d", code, r.Outcome, r.ExitCode)
		}
	}
	g.sh("mkdir -p /tmp/exec; echo 'exit 5' > /tmp/exec/plain; chmod 644 /tmp/exec/plain")
	for _, c := range []struct {
		cmd  sandbox.Command
		code int
	}{
		{sandbox.Command{Argv: []string{"no-such-program"}}, sandbox.ExitNotFound},
		{sandbox.Command{Argv: []string{"/no/such/program"}}, sandbox.ExitNotFound},
		{sandbox.Command{Argv: []string{"/tmp/exec/plain"}}, sandbox.ExitNotExecutable},
		{sandbox.Command{Argv: []string{"/tmp/exec"}}, sandbox.ExitNotExecutable},
		{sandbox.Command{Shell: "no-such-program"}, sandbox.ExitNotFound},
	} {
		r := g.do(c.cmd)
		if r.Outcome != sandbox.Exited || r.ExitCode != c.code || len(r.Stderr) == 0 {
			g.Errorf("%+v: got %v %d %q, want %d with a reason", c.cmd, r.Outcome, r.ExitCode, r.Stderr, c.code)
		}
	}
}

func testSignals(g *guest) {
	for _, signal := range []int{2, 9, 15, 11} {
		r := g.do(sandbox.Command{Shell: "kill -" + itoa(signal) + " $$; sleep 100"})
		if r.Outcome != sandbox.Signaled || r.Signal != signal || r.ShellCode() != 128+signal {
			g.Errorf("signal %d: got %v %d", signal, r.Outcome, r.Signal)
		}
	}
	// By a caller, to the first process only.
	p := g.background("trap '' TERM; echo ready; sleep 1000")
	g.eventually("it runs", func() bool { return string(g.seen(p)) == "ready\n" })
	g.ok(p.Signal(g.ctx, 15))
	if i, err := g.s.WaitExec(g.ctx, p.ID(), 100*time.Millisecond, false); err != nil || i.Result.Outcome != sandbox.Running {
		g.Errorf("a signal that is ignored: got %+v, %v", i.Result, err)
	}
	g.ok(p.Signal(g.ctx, 9))
	if r := g.result(p); r.Outcome != sandbox.Signaled || r.Signal != 9 {
		g.Errorf("SIGKILL to the first process: got %v %d", r.Outcome, r.Signal)
	}
	if err := p.Signal(g.ctx, 15); !errdefs.IsFailedPrecondition(err) {
		g.Errorf("a signal to a command that ended: %v", err)
	}
}

// seen is what a command has written so far.
func (g *guest) seen(p *client.Process) []byte {
	i, err := g.s.WaitExec(g.ctx, p.ID(), time.Nanosecond, true)
	g.ok(err)
	return i.Result.Stdout
}

func testEnvironment(g *guest) {
	r := g.do(sandbox.Command{Argv: []string{"env"}, Env: []string{"A=1", "B=x=y z", "EMPTY=", "SUITE=changed"}})
	got := lines(string(r.Stdout))
	for _, want := range []string{"A=1", "B=x=y z", "EMPTY=", "SUITE=changed"} {
		if !slices.Contains(got, want) {
			g.Errorf("no %q in %q", want, got)
		}
	}
	got = lines(g.sh("env"))
	if !slices.Contains(got, "SUITE=runtimetest") || !slices.Contains(got, "HOME=/home/user") {
		g.Errorf("the environment is %q", got)
	}
	if !slices.ContainsFunc(got, func(s string) bool { return strings.HasPrefix(s, "PATH=") && strings.Contains(s, "/usr/bin") }) {
		g.Errorf("there is no PATH in %q", got)
	}
}

func testUsers(g *guest) {
	for _, c := range []struct{ user, uid, gid string }{
		{"", "1000", "1000"}, {"user", "1000", "1000"}, {"root", "0", "0"}, {"1000", "1000", "1000"}, {"12345", "12345", ""},
		{"1000:0", "1000", "0"}, {"user:root", "1000", "0"}, {"0:1000", "0", "1000"},
	} {
		r := g.do(sandbox.Command{Shell: "id -u; id -g", User: c.user})
		got := lines(string(r.Stdout))
		if len(got) != 2 || got[0] != c.uid || c.gid != "" && got[1] != c.gid {
			g.Errorf("user %q: got %q %q", c.user, r.Stdout, r.Stderr)
		}
	}
	r, err := g.s.Run(g.ctx, sandbox.Command{Argv: []string{"true"}, User: "no-such-user"}, nil)
	if err == nil && r.ExitCode == 0 {
		g.Errorf("a user that does not exist: %+v, %v", r, err)
	}
	if r := g.do(sandbox.Command{Shell: "cat /root/.profile; echo x > /etc/x"}); r.ExitCode == 0 || !strings.Contains(string(r.Stderr), "ermission denied") {
		g.Errorf("the user may read and write as root: %+v", r)
	}
}

func testInvalidRequests(g *guest) {
	yes := []string{"true"}
	for name, c := range map[string]sandbox.Command{
		"nothing to run":       {},
		"two things to run":    {Argv: yes, Shell: "true"},
		"no name":              {Argv: []string{""}},
		"NUL in an argument":   {Argv: []string{"echo", "a\x00b"}},
		"NUL in the directory": {Argv: yes, Dir: "/\x00"},
		"environment":          {Argv: yes, Env: []string{"NOVALUE"}},
		"environment no name":  {Argv: yes, Env: []string{"=x"}},
		"timeout":              {Argv: yes, Timeout: sandbox.MaxTimeout + 1},
		"max output":           {Argv: yes, MaxOutput: sandbox.MaxMaxOutput + 1},
	} {
		if _, err := g.s.Run(g.ctx, c, nil); !errdefs.IsInvalidArgument(err) {
			g.Errorf("%s: got %v", name, err)
		}
	}
	for _, id := range []string{"", "UPPER", "a b", "a/b", strings.Repeat("x", 65)} {
		if _, err := g.s.Start(g.ctx, id, sandbox.Command{Argv: yes}, client.Output{}); !errdefs.IsInvalidArgument(err) {
			g.Errorf("exec id %q: got %v", id, err)
		}
	}
	r, err := g.s.Run(g.ctx, sandbox.Command{Argv: yes, Dir: "/no/such/dir"}, nil)
	if err == nil && r.ExitCode == 0 {
		g.Errorf("a directory that does not exist: %+v", r)
	}
}

const notUTF8 = "\xff\xfe\x80 ok \xc3\x28"

func testNotUTF8(g *guest) {
	r := g.do(sandbox.Command{Argv: []string{"sh", "-c", `printf '%s|%s' "$1" "$VALUE"; printf '%s' "$1" >&2`, "sh", notUTF8}, Env: []string{"VALUE=" + notUTF8}})
	if string(r.Stdout) != notUTF8+"|"+notUTF8 || string(r.Stderr) != notUTF8 {
		g.Errorf("got %q, %q", r.Stdout, r.Stderr)
	}
	if r := g.feed(sandbox.Command{Argv: []string{"cat"}}, notUTF8); string(r.Stdout) != notUTF8 {
		g.Errorf("through standard input: got %q", r.Stdout)
	}
}

func testNoInput(g *guest) {
	start := time.Now()
	if r := g.do(sandbox.Command{Argv: []string{"cat"}}); r.ExitCode != 0 || len(r.Stdout) != 0 {
		g.Errorf("got %+v", r)
	}
	g.within(start, 0)
}

func testInput(g *guest) {
	big := strings.Repeat("0123456789abcdef", 1<<16) // 1 MiB
	if r := g.feed(sandbox.Command{Argv: []string{"cat"}}, big); string(r.Stdout) != big {
		g.Errorf("%d bytes came back as %d", len(big), len(r.Stdout))
	}
	var out text
	p, err := g.s.Start(g.ctx, ids.Hex(4), sandbox.Command{Shell: "while read x; do echo got $x; done; echo end", Stdin: true}, client.Output{Stdout: &out})
	g.ok(err)
	for _, word := range []string{"one", "two"} {
		_, err := p.Stdin().Write([]byte(word + "\n"))
		g.ok(err)
		g.await(&out, "got "+word+"\n")
	}
	g.ok(p.Stdin().Close())
	g.result(p)
	if out.String() != "got one\ngot two\nend\n" {
		g.Errorf("got %q", out.String())
	}
}

// testInputUnread sends more than pipes hold to commands that do not read it.
func testInputUnread(g *guest) {
	big := strings.Repeat("x", 4<<20)
	for _, c := range []struct {
		script, want string
	}{{"head -c 3", "xxx"}, {"exit 0", ""}, {"echo early; exit 0", "early\n"}} {
		if r := g.feed(sandbox.Command{Shell: c.script}, big); string(r.Stdout) != c.want || r.ExitCode != 0 {
			g.Errorf("%s: got %q, %+v", c.script, r.Stdout, r.Outcome)
		}
	}
}

// testHalfClosed closes the input and wants output long after.
func testHalfClosed(g *guest) {
	r := g.feed(sandbox.Command{Shell: "cat; sleep 3; echo late; sleep 1; echo later"}, "in\n")
	if string(r.Stdout) != "in\nlate\nlater\n" || r.ExitCode != 0 {
		g.Errorf("got %q, %+v", r.Stdout, r)
	}
}

// deepTree starts a child, a grandchild, one whose parent is gone and one in a
// session of its own. It notes their pids and says when all are there.
const deepTree = `sleep 1001 & echo $! >> /tmp/pids; ` +
	`sh -c 'sleep 1002 & echo $! >> /tmp/pids; wait' & echo $! >> /tmp/pids; ` +
	`(sleep 1003 & echo $! >> /tmp/pids); ` +
	`(setsid sleep 1004 & echo $! >> /tmp/pids); ` +
	`while [ $(cat /tmp/pids | wc -l) -lt 5 ]; do sleep 0.01; done; echo ready; `

// treeIsGone checks that all processes of deepTree have ended.
func (g *guest) treeIsGone() {
	g.Helper()
	g.eventually("the whole tree is gone", func() bool {
		return g.sh("while read p; do kill -0 $p 2>/dev/null && echo $p; done < /tmp/pids; true") == ""
	})
	g.sh("rm /tmp/pids")
}

func testTimeout(g *guest) {
	limit := 700 * time.Millisecond
	start := time.Now()
	r := g.do(sandbox.Command{Shell: deepTree + "trap '' TERM HUP; sleep 1000; echo no", Timeout: limit})
	g.within(start, limit)
	if r.Outcome != sandbox.TimedOut || string(r.Stdout) != "ready\n" || r.ShellCode() != 124 || r.Reason == "" {
		g.Errorf("got %v %q, %d, %q", r.Outcome, r.Stdout, r.ShellCode(), r.Reason)
	}
	g.treeIsGone()
}

func testCanceledRun(g *guest) {
	ctx, cancel := context.WithTimeout(g.ctx, 300*time.Millisecond)
	defer cancel()
	start := time.Now()
	if _, err := g.s.Run(ctx, sandbox.Command{Shell: deepTree + "sleep 1000"}, nil); !canceled(err) {
		g.Errorf("got %v", err)
	}
	g.within(start, 300*time.Millisecond)
	g.treeIsGone()
}

func testKillTree(g *guest) {
	p := g.background(deepTree + "wait; sleep 1000")
	g.eventually("it runs", func() bool { return string(g.seen(p)) == "ready\n" })
	g.ok(p.Kill(g.ctx))
	if r := g.result(p); r.Outcome != sandbox.Canceled || string(r.Stdout) != "ready\n" {
		g.Errorf("got %v %q", r.Outcome, r.Stdout)
	}
	g.treeIsGone()
}

func testHeldOutput(g *guest) {
	start := time.Now()
	r := g.do(sandbox.Command{Shell: "sleep 1000 & echo done"})
	g.within(start, 0)
	if r.Outcome != sandbox.Exited || string(r.Stdout) != "done\n" {
		g.Errorf("got %v %q", r.Outcome, r.Stdout)
	}
}

func testLongArguments(g *guest) {
	long := strings.Repeat("y", 100<<10)
	argv := []string{"sh", "-c", `printf %s "$1$2$3" | wc -c`, "sh", long, long, long}
	r := g.do(sandbox.Command{Argv: argv})
	if strings.TrimSpace(string(r.Stdout)) != itoa(3*len(long)) {
		g.Errorf("got %q %q", r.Stdout, r.Stderr)
	}
}
