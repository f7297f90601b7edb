package runtimetest

import (
	"strconv"
	"strings"
	"time"

	"agentbox/internal/sandbox"
)

// linuxCases need programs that really run.
var linuxCases = []guestCase{
	{"Processes", testProcessLimit},
	{"ForkBomb", testForkBomb},
	{"Zombies", testZombies},
	{"AgentIsOutOfReach", testAgentOutOfReach},
	{"NothingInherited", testNothingInherited},
	{"Disk", testDisk},
	{"DeepTree", testDeepTree},
	{"ProcFiles", testProcFiles},
	{"SparseFiles", testSparseFiles},
	{"AnswersUnderLoad", testLoad},
}

func testProcessLimit(g *guest) {
	limit := int(g.spec(g.id).Limits.Pids)
	r := g.do(sandbox.Command{Shell: "i=0; while [ $i -lt " + itoa(2*limit) + " ]; do sleep 1000 & i=$((i+1)); done; echo all"})
	if strings.Contains(string(r.Stdout), "all") && len(r.Stderr) == 0 {
		g.Errorf("%d processes were started; the limit is %d", 2*limit, limit)
	}
	n, err := g.s.KillAll(g.ctx)
	if err != nil || n > limit || n < limit/2 {
		g.Errorf("there were %d processes, %v; the limit is %d", n, err, limit)
	}
	if got := g.sh("echo fine"); got != "fine\n" {
		g.Errorf("got %q", got)
	}
}

func testForkBomb(g *guest) {
	limit := 2 * time.Second
	start := time.Now()
	p := g.background("bomb() { bomb | bomb & }; bomb; sleep 1000")
	for time.Since(start) < limit {
		if _, err := g.s.Ping(g.ctx); err != nil {
			g.Fatal(err)
		}
	}
	g.ok(p.Kill(g.ctx))
	g.result(p)
	g.eventually("a command can run", func() bool {
		r, err := g.s.Run(g.ctx, sandbox.Command{Argv: []string{"true"}}, nil)
		return err == nil && r.Outcome == sandbox.Exited && r.ExitCode == 0
	})
	g.eventually("all bombs are gone", func() bool { return g.count(`[ "$s" != Z ]`) <= 3 })
}

// count counts the processes for which a condition holds; $s is the state. The
// agent and the shell that counts are among them.
func (g *guest) count(condition string) int {
	g.Helper()
	out := g.sh(`n=0; for f in /proc/[0-9]*/stat; do read l < $f || continue; s=${l##*) }; s=${s%% *}; ` + condition + ` && n=$((n+1)); done 2>/dev/null; echo $n`)
	n, err := strconv.Atoi(strings.TrimSpace(out))
	g.ok(err)
	return n
}

func testZombies(g *guest) {
	g.sh("i=0; while [ $i -lt 200 ]; do (true & true &) ; i=$((i+1)); done")
	g.eventually("no zombie is left", func() bool { return g.count(`[ "$s" = Z ]`) == 0 })
}

func testAgentOutOfReach(g *guest) {
	for _, user := range []string{"user", "root"} {
		for _, script := range []string{
			"cat /proc/1/environ", "cat /proc/1/mem", "ls -l /proc/1/fd/", "cat /proc/1/maps", "echo > /proc/1/mem", "readlink /proc/1/exe",
		} {
			r := g.do(sandbox.Command{Shell: script, User: user})
			if r.ExitCode == 0 && len(r.Stdout) > 0 {
				g.Errorf("as %s, %s: got %.200q", user, script, r.Stdout)
			}
		}
	}
	// Guest root may end its own sandbox, with a signal that nobody can catch;
	// nothing else does.
	kills := []string{"HUP 1", "TERM 1", "INT 1", "QUIT 1", "ABRT 1", "SEGV 1", "USR1 1", "TERM -1", "KILL -1"}
	for _, user := range []string{"root", "user"} {
		if user == "user" {
			kills = append(kills, "STOP 1", "KILL 1")
		}
		for _, kill := range kills {
			_, err := g.s.Run(g.ctx, sandbox.Command{Shell: "kill -" + kill, User: user}, nil)
			if err == nil {
				_, err = g.s.Ping(g.ctx)
			}
			if err != nil {
				g.Fatalf("after kill -%s by %s: %v", kill, user, err)
			}
		}
	}
}

func testNothingInherited(g *guest) {
	got := g.sh("cd /proc/self/fd; echo *")
	for _, fd := range strings.Fields(got) {
		if n, err := strconv.Atoi(fd); err != nil || n > 3 && n != 255 { // the shell's own: bash uses 255
			g.Errorf("a command has the descriptors %s", got)
			break
		}
	}
	if got := g.sh("grep NoNewPrivs /proc/self/status | tr -d '\\t NoewPrivs:'"); strings.TrimSpace(got) != "1" && strings.TrimSpace(got) != "" {
		g.Errorf("no_new_privs is %q", got)
	}
	if got := strings.TrimSpace(g.sh("ulimit -n")); got != strconv.FormatInt(g.spec(g.id).Limits.OpenFiles, 10) {
		g.Errorf("ulimit -n is %s", got)
	}
}

func testDisk(g *guest) {
	r := g.do(sandbox.Command{Shell: "dd if=/dev/zero of=/tmp/fill bs=1M count=200; s=$?; ls -ln /tmp/fill | tr -s ' ' | cut -d' ' -f5; rm /tmp/fill; exit $s"})
	if r.ExitCode == 0 || !strings.Contains(string(r.Stderr), "No space left") {
		g.Errorf("200 MiB on a disk of 64: %+v %q", r.Outcome, r.Stderr)
	}
	n, _ := strconv.ParseInt(strings.TrimSpace(string(r.Stdout)), 10, 64)
	if limit := g.spec(g.id).Limits.Disk; n > limit || n < limit/2 {
		g.Errorf("%d bytes were written; the limit is %d", n, limit)
	}
	g.sh("dd if=/dev/zero of=/tmp/again bs=1M count=20 2>/dev/null && rm /tmp/again")
}

// testLoad burns processors while the agent must answer.
func testLoad(g *guest) {
	p := g.background("for i in 1 2 3 4 5 6 7 8; do (while :; do :; done) & done; wait")
	for range 20 {
		start := time.Now()
		if got := g.sh("echo x"); got != "x\n" {
			g.Errorf("got %q", got)
		}
		g.within(start, 5*time.Second)
	}
	g.ok(p.Kill(g.ctx))
}
