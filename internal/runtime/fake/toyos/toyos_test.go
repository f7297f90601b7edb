package toyos_test

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"go.uber.org/goleak"

	guestv1 "agentbox/internal/gen/guest/v1"
	"agentbox/internal/guest/agent"
	"agentbox/internal/runtime/fake/toyos"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func boot(t *testing.T) *toyos.System {
	s := toyos.New("toy", toyos.NewDisk(1<<20), 0)
	t.Cleanup(s.Shutdown)
	if err := s.Configure(&guestv1.GuestConfig{User: "user", Env: [][]byte{[]byte("LANG=C")}}); err != nil {
		t.Fatal(err)
	}
	return s
}

// output is a buffer that a test may read while a command writes.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

func (o *output) await(t *testing.T, want string) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !strings.Contains(o.String(), want); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("no %q in %q", want, o.String())
		}
	}
}

func TestShell(t *testing.T) {
	for _, c := range []struct {
		name, script, want string
		code, signal       int
	}{
		{name: "words", script: `echo a  b 'c  d' "e $((1+2*3))" \$x`, want: "a b c  d e 7 $x\n"},
		{name: "variables", script: `x=5; y="$x$x"; echo $y ${x}1 ${none:-def} $#`, want: "55 51 def 0\n"},
		{name: "splitting", script: `x='a  b'; echo $x "$x"`, want: "a b a  b\n"},
		{name: "lists", script: `false && echo no || echo yes; true || echo no; echo $?`, want: "yes\n0\n"},
		{name: "pipes", script: `printf 'b\na\n' | tr a-z A-Z | cat; seq 5 | wc -l`, want: "B\nA\n5\n"},
		{name: "sigpipe", script: `yes | head -n 2`, want: "y\ny\n"},
		{name: "while", script: `i=0; while [ $i -lt 3 ]; do echo $i; i=$((i+1)); done`, want: "0\n1\n2\n"},
		{name: "for and if", script: "for f in a b; do if [ $f = a ]; then echo A; else echo B; fi; done", want: "A\nB\n"},
		{name: "substitution", script: `echo "<$(echo "a b" | cat)>"`, want: "<a b>\n"},
		{name: "subshell", script: `x=1; (x=2; exit 3); echo $? $x`, want: "3 1\n"},
		{name: "redirections", script: `echo one > f; echo two >> f; cat < f; cat none 2>/dev/null || echo gone; { echo e >&2; } 2>&1`, want: "one\ntwo\ngone\ne\n"},
		{name: "background", script: `(exit 4) & wait $!; echo $?`, want: "4\n"},
		{name: "environment", script: `A=1 env | head -n 1; export B=2; sh -c 'echo $B $0 $1' zero one; echo $A.`, want: "A=1\n2 zero one\n.\n"},
		{name: "exit", script: `exit 300`, code: 300 & 0xff},
		{name: "not found", script: `nope`, code: 127},
		{name: "not executable", script: `echo 'exit 9' > s; ./s; echo $?; chmod +x s; ./s`, want: "126\n", code: 9},
		{name: "signal", script: `kill -9 $$; echo no`, signal: 9},
		{name: "ignored signal", script: `trap '' TERM; kill $$; echo alive`, want: "alive\n"},
		{name: "octal", script: `printf '\377\000%s' x`, want: "\xff\x00x"},
		{name: "rights", script: `echo x > /root/f; echo $?; ls /root; id -u; echo $HOME`, want: "2\n1000\n/home/user\n"},
		{name: "syntax error", script: `if true; then`, code: 2},
		{name: "no space", script: `yes > big; echo $?; rm big; echo ok > big; cat big`, want: "1\nok\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out, errs output
			p, err := boot(t).Start(agent.ProcessSpec{Shell: c.script, Dir: "/workspace"}, &out, &errs)
			if err != nil {
				t.Fatal(err)
			}
			st := p.Wait()
			p.Drain()
			if out.String() != c.want || st.Code != c.code || st.Signal != c.signal {
				t.Errorf("got %q, code %d, signal %d; want %q, %d, %d; stderr %q", out.String(), st.Code, st.Signal, c.want, c.code, c.signal, errs.String())
			}
		})
	}
}

func TestStartErrors(t *testing.T) {
	for _, c := range []struct {
		name string
		spec agent.ProcessSpec
		code int
	}{
		{"not found", agent.ProcessSpec{Argv: []string{"nope"}}, 127},
		{"directory", agent.ProcessSpec{Argv: []string{"/tmp"}}, 126},
		{"bad working directory", agent.ProcessSpec{Argv: []string{"true"}, Dir: "/nope"}, 126},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := boot(t).Start(c.spec, io.Discard, io.Discard)
			var se *agent.StartError
			if !errors.As(err, &se) || se.Code != c.code {
				t.Errorf("got %v, want code %d", err, c.code)
			}
		})
	}
}

func TestUnknownUser(t *testing.T) {
	_, err := boot(t).Start(agent.ProcessSpec{Argv: []string{"true"}, User: "nobody-here"}, io.Discard, io.Discard)
	if !errdefs.IsNotFound(err) {
		t.Errorf("got %v", err)
	}
}

// A child in the background outlives the first process and is part of its tree.
func TestTree(t *testing.T) {
	var out output
	p, err := boot(t).Start(agent.ProcessSpec{Shell: `sleep infinity & echo started`}, &out, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if st := p.Wait(); st.Code != 0 {
		t.Fatalf("got %+v", st)
	}
	p.Drain()
	if out.String() != "started\n" {
		t.Errorf("got %q", out.String())
	}
	if err := p.Signal(9, false); err == nil {
		t.Error("the first process was signalled after its end")
	}
	if err := p.Signal(9, true); err != nil {
		t.Error(err)
	}
}

func TestProcessLimit(t *testing.T) {
	s := boot(t)
	if err := s.Configure(&guestv1.GuestConfig{MaxPids: 3}); err != nil {
		t.Fatal(err)
	}
	var errs output
	p, err := s.Start(agent.ProcessSpec{Shell: `while true; do sleep infinity & done`}, io.Discard, &errs)
	if err != nil {
		t.Fatal(err)
	}
	st := p.Wait()
	p.Drain()
	if st.Code != 2 || errs.String() != "sh: Cannot fork\n" {
		t.Errorf("got %+v, %q", st, errs.String())
	}
}

func TestTerminal(t *testing.T) {
	var out output
	p, err := boot(t).Start(agent.ProcessSpec{Argv: []string{"sh"}, TTY: true, Cols: 80, Rows: 24, Stdin: true}, &out, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	typed := func(s string) {
		if _, err := io.WriteString(p.Stdin(), s); err != nil {
			t.Fatal(err)
		}
	}
	typed("stty siz\x7fze\r")
	out.await(t, "24 80\r\n")
	if err := p.Resize(100, 30); err != nil {
		t.Fatal(err)
	}
	typed("stty size\r")
	out.await(t, "30 100\r\n")
	typed("test -t 1 && exit 6\r")
	if st := p.Wait(); st.Code != 6 {
		t.Errorf("got %+v", st)
	}
	p.Drain()
}

func FuzzShell(f *testing.F) {
	for _, s := range []string{"echo a", "if a; then b; fi", "x=$(y", `"$((1+`, "a|b&&c", "while", "for x in a b; do :; done >f", "$((-9223372036854775808/-1))"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, script string) {
		s := boot(t)
		p, err := s.Start(agent.ProcessSpec{Argv: []string{"sh", "-c", script}}, io.Discard, io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(50*time.Millisecond, func() { _ = p.Signal(9, true) })
		p.Wait()
	})
}
