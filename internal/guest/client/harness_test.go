package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	guestv1 "agentbox/internal/gen/guest/v1"
	"agentbox/internal/guest/agent"
	"agentbox/internal/guest/client"
	"agentbox/internal/sandbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// program is a command of the test launcher: argv[0] chooses it.
type program func(p *process, argv []string) int

var programs = map[string]program{
	"echo": func(p *process, argv []string) int {
		for _, a := range argv {
			fmt.Fprintln(p.stdout, a)
		}
		return 0
	},
	"fail": func(p *process, argv []string) int {
		fmt.Fprint(p.stderr, "failed\n")
		n, _ := strconv.Atoi(argv[0])
		return n
	},
	"cat": func(p *process, _ []string) int {
		if p.in != nil {
			_, _ = io.Copy(p.stdout, p.in)
		}
		return 0
	},
	"spam": func(p *process, argv []string) int { // N bytes on each stream
		n, _ := strconv.Atoi(argv[0])
		for i := 0; i < n; i += 1000 {
			line := []byte(fmt.Sprintf("%0999d\n", i))
			_, _ = p.stdout.Write(line)
			_, _ = p.stderr.Write(line)
		}
		return 3
	},
	"hang": func(p *process, argv []string) int {
		fmt.Fprint(p.stdout, "begun\n")
		<-p.killed
		return 0
	},
	"wait": func(p *process, _ []string) int { // for a line of input, then goes on
		b := make([]byte, 100)
		n, _ := p.in.Read(b)
		fmt.Fprintf(p.stdout, "got %s", b[:n])
		return 0
	},
}

// launcher runs the programs above.
type launcher struct{}

func (launcher) Configure(*guestv1.GuestConfig) error { return nil }
func (launcher) KillAll() (int, error)                { return 0, nil }

func (launcher) Start(s agent.ProcessSpec, stdout, stderr io.Writer) (agent.Process, error) {
	if s.Argv[0] == "broken" {
		return nil, errors.New("no more descriptors")
	}
	if len(s.Argv) == 3 && s.Argv[0] == "/bin/sh" {
		s.Argv = strings.Fields(s.Argv[2])
	}
	run, ok := programs[s.Argv[0]]
	if !ok {
		return nil, &agent.StartError{Code: sandbox.ExitNotFound, Message: s.Argv[0] + ": command not found"}
	}
	p := &process{stdout: stdout, stderr: stderr, killed: make(chan struct{}), end: make(chan agent.ExitStatus, 1)}
	if s.Stdin {
		p.in, p.inEnd = io.Pipe()
	}
	go func() {
		code := run(p, s.Argv[1:])
		st := agent.ExitStatus{Code: code, CPUTime: time.Millisecond}
		select {
		case <-p.killed:
			st = agent.ExitStatus{Signal: p.signal}
		default:
		}
		if p.in != nil {
			p.in.CloseWithError(io.ErrClosedPipe)
		}
		p.end <- st
	}()
	return p, nil
}

type process struct {
	stdout, stderr io.Writer
	in             *io.PipeReader
	inEnd          *io.PipeWriter
	once           sync.Once
	killed         chan struct{}
	signal         int
	end            chan agent.ExitStatus
}

func (p *process) Pid() int                    { return 42 }
func (p *process) Resize(uint16, uint16) error { return nil }
func (p *process) Wait() agent.ExitStatus      { return <-p.end }
func (p *process) Drain()                      {}

func (p *process) Stdin() io.WriteCloser {
	if p.in == nil {
		return nil
	}
	return p.inEnd
}

func (p *process) Signal(sig int, _ bool) error {
	if sig == int(syscall.SIGKILL) || sig == int(syscall.SIGTERM) {
		p.once.Do(func() {
			p.signal = sig
			close(p.killed)
			if p.in != nil {
				p.in.CloseWithError(io.ErrClosedPipe)
			}
		})
	}
	return nil
}

// guestBox is an agent and the way to reach it.
type guestBox struct {
	t     *testing.T
	agent *agent.Agent
	epoch uint64
}

func newGuest(t *testing.T) *guestBox {
	a := agent.New(agent.Options{Launcher: launcher{}, Build: "test"})
	t.Cleanup(a.Close)
	return &guestBox{t: t, agent: a}
}

// connect begins a session, with a higher epoch than any before.
func (g *guestBox) connect(conf *guestv1.GuestConfig, h http.Handler) *client.Session {
	g.t.Helper()
	g.epoch++
	s, err := g.dial(client.Options{SandboxID: "test", Epoch: g.epoch, Config: conf, Handler: h}, false)
	if err != nil {
		g.t.Fatal(err)
	}
	return s
}

func (g *guestBox) dial(o client.Options, adopted bool) (*client.Session, error) {
	host, end := net.Pipe()
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = g.agent.Serve(end, adopted)
	}()
	s, err := client.New(ctx(g.t), host, o)
	g.t.Cleanup(func() {
		if s != nil {
			_ = s.Close()
		}
		<-served
	})
	return s, err
}

func ctx(t *testing.T) context.Context {
	c, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return c
}

func argv(a ...string) sandbox.Command { return sandbox.Command{Argv: a} }
