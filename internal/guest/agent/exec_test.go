package agent

import (
	"bytes"
	"io"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	guestv1 "agentbox/internal/gen/guest/v1"
	"agentbox/internal/guest"
	"agentbox/internal/sandbox"
)

// scripted starts processes that do what the test tells them.
type scripted struct {
	started chan *scriptedProcess
	hold    chan struct{} // nil, or Start returns when it is closed
}

func (*scripted) Configure(*guestv1.GuestConfig) error { return nil }
func (*scripted) KillAll() (int, error)                { return 0, nil }

func (l *scripted) Start(_ ProcessSpec, stdout, stderr io.Writer) (Process, error) {
	p := &scriptedProcess{stdout: stdout, stderr: stderr, end: make(chan ExitStatus, 1)}
	l.started <- p
	if l.hold != nil {
		<-l.hold
	}
	return p, nil
}

type scriptedProcess struct {
	stdout, stderr io.Writer
	once           sync.Once
	end            chan ExitStatus
	drained        chan struct{} // nil, or Drain returns when it is closed
}

func (p *scriptedProcess) exit(st ExitStatus)          { p.once.Do(func() { p.end <- st }) }
func (p *scriptedProcess) Pid() int                    { return 2 }
func (p *scriptedProcess) Stdin() io.WriteCloser       { return nil }
func (p *scriptedProcess) Resize(uint16, uint16) error { return nil }
func (p *scriptedProcess) Wait() ExitStatus            { return <-p.end }
func (p *scriptedProcess) Drain() {
	if p.drained != nil {
		<-p.drained
	}
}
func (p *scriptedProcess) Signal(sig int, _ bool) error {
	p.exit(ExitStatus{Signal: sig})
	return nil
}

func newScripted(t *testing.T) (*execs, func(q *guestv1.ExecRequest) (*exec, *reader, *scriptedProcess)) {
	l := &scripted{started: make(chan *scriptedProcess, 100)}
	m := newExecs(l, nil)
	return m, func(q *guestv1.ExecRequest) (*exec, *reader, *scriptedProcess) {
		t.Helper()
		q.Argv = [][]byte{[]byte("x")}
		e, rd, err := m.start(q, true)
		if err != nil {
			t.Fatal(err)
		}
		return e, rd, <-l.started
	}
}

// A command whose client is gone ends after the grace, unless it is to be kept,
// or the client comes back, said that it leaves, or was lost with its session.
func TestDisconnect(t *testing.T) {
	for name, c := range map[string]struct {
		keep, meant, lost, back bool
		want                    guestv1.Outcome
	}{
		"left":    {want: guestv1.Outcome_OUTCOME_CANCELED},
		"keep":    {keep: true},
		"meant":   {meant: true},
		"lost":    {lost: true},
		"is back": {back: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, start := newScripted(t)
				defer m.close()
				e, rd, _ := start(&guestv1.ExecRequest{ExecId: "x", Keep: c.keep})
				rd.leave(c.meant)
				rd.detach(c.lost)
				time.Sleep(sandbox.DisconnectGrace - time.Second)
				if c.back {
					e.attach([2]int64{}, false)
				}
				if e.info().GetResult().GetOutcome() != guestv1.Outcome_OUTCOME_RUNNING {
					t.Error("the command ended before the grace was over")
				}
				time.Sleep(2 * time.Second)
				synctest.Wait()
				if got := e.info().GetResult().GetOutcome(); got != c.want {
					t.Errorf("the command is %v, want %v", got, c.want)
				}
			})
		})
	}
}

// Clients read no output before they know that the command runs, also of a program
// that is quicker than its start.
func TestStartIsToldFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &scripted{started: make(chan *scriptedProcess, 1), hold: make(chan struct{})}
		m := newExecs(l, nil)
		defer m.close()
		_, rd, err := m.start(&guestv1.ExecRequest{ExecId: "quick", Argv: [][]byte{[]byte("x")}}, true)
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			p := <-l.started
			_, _ = p.stdout.Write([]byte("text"))
			time.Sleep(time.Second)
			close(l.hold)
			p.exit(ExitStatus{})
		}()
		var got []guest.FrameType
		for more := true; more; {
			var buf []byte
			buf, more = rd.fill(nil, 1<<20)
			for in := guest.NewFrameReader(bytes.NewReader(buf)); ; {
				kind, _, err := in.Next()
				if err != nil {
					break
				}
				got = append(got, kind)
			}
		}
		if want := []guest.FrameType{guest.FrameStarted, guest.FrameStdout, guest.FrameExit}; !slices.Equal(got, want) {
			t.Errorf("frames %v, want %v", got, want)
		}
	})
}

func TestResultsExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, start := newScripted(t)
		defer m.close()
		_, _, p := start(&guestv1.ExecRequest{ExecId: "old"})
		_, _ = p.stdout.Write([]byte("text"))
		p.exit(ExitStatus{})
		time.Sleep(sandbox.KeepResult / 2)
		_, _, p = start(&guestv1.ExecRequest{ExecId: "newer"})
		p.exit(ExitStatus{})
		time.Sleep(sandbox.KeepResult/2 + time.Minute)
		synctest.Wait()
		if _, err := m.get("old"); err == nil {
			t.Error("an old result is kept")
		}
		if _, err := m.get("newer"); err != nil {
			t.Error(err)
		}
		if n := m.held.Load(); n != 0 {
			t.Errorf("%d bytes are held for nothing", n)
		}
	})
}

func TestKeptResultsAreBounded(t *testing.T) {
	m, start := newScripted(t)
	defer m.close()
	for i := range keepExecs + 100 {
		e, _, p := start(&guestv1.ExecRequest{ExecId: strconv.Itoa(i)})
		p.exit(ExitStatus{})
		<-e.finished
	}
	m.running.Wait()
	if n := len(m.list()); n > keepExecs {
		t.Errorf("%d results are kept", n)
	}
}

// All rings together stay within the budget: ended commands lose their output
// first, then the largest ring its oldest bytes.
func TestBudget(t *testing.T) {
	m, start := newScripted(t)
	defer m.close()
	m.configure(&guestv1.GuestConfig{MemoryLimit: 1, RingSize: sandbox.MaxRing})
	budget := m.budget.Load()
	if budget != 8*sandbox.MiB {
		t.Fatalf("the budget is %d", budget)
	}
	old, rd, p := start(&guestv1.ExecRequest{ExecId: "old"})
	rd.detach(true)
	mebibyte := make([]byte, sandbox.MiB)
	for range 4 {
		_, _ = p.stdout.Write(mebibyte)
	}
	p.exit(ExitStatus{})
	<-old.finished
	small, rd, p := start(&guestv1.ExecRequest{ExecId: "small"})
	rd.detach(true)
	_, _ = p.stdout.Write([]byte("small"))
	large, rd, q := start(&guestv1.ExecRequest{ExecId: "large"})
	rd.detach(true)
	for range 40 {
		_, _ = q.stderr.Write(mebibyte)
		if n := m.held.Load(); n > budget+2*maxChunk {
			t.Fatalf("%d bytes are held", n)
		}
	}
	if i := old.info(); i.GetStdoutFirst() != i.GetStdoutEnd() {
		t.Error("the output of a command that ended was kept")
	}
	if i := small.info(); i.GetStdoutFirst() != 0 {
		t.Error("the smaller ring lost its output")
	}
	if i := large.info(); i.GetStderrEnd()-i.GetStderrFirst() < 4*sandbox.MiB {
		t.Errorf("the larger ring holds only %d to %d", i.GetStderrFirst(), i.GetStderrEnd())
	}
}

// A lossless reader loses nothing, even when there is no memory for it.
func TestLosslessUnderPressure(t *testing.T) {
	m, start := newScripted(t)
	defer m.close()
	m.configure(&guestv1.GuestConfig{MemoryLimit: 1, RingSize: sandbox.MaxRing})
	_, rd, hog := start(&guestv1.ExecRequest{ExecId: "hog", Lossless: true})
	_ = rd // never reads
	go func() { _, _ = hog.stdout.Write(make([]byte, 64*sandbox.MiB)) }()
	e, rd, p := start(&guestv1.ExecRequest{ExecId: "x", Lossless: true})
	const size = 20_000_000
	go func() {
		for i := 0; i < size; i += 10_000 {
			_, _ = p.stdout.Write(bytes.Repeat([]byte{byte(i / 10_000)}, 10_000))
		}
		p.exit(ExitStatus{})
	}()
	var got int
	for more := true; more; {
		var b []byte
		b, more = rd.fill(nil, batch)
		frames := guest.NewFrameReader(bytes.NewReader(b))
		for {
			typ, payload, err := frames.Next()
			if err != nil {
				break
			}
			if typ == guest.FrameGap {
				t.Fatal("bytes got lost")
			}
			if typ == guest.FrameStdout {
				for _, c := range payload {
					if c != byte(got/10_000) {
						t.Fatalf("wrong byte at %d", got)
					}
					got++
				}
			}
		}
	}
	if got != size {
		t.Errorf("got %d bytes", got)
	}
	if n := m.held.Load(); n > m.budget.Load()+sandbox.MiB {
		t.Errorf("%d bytes are held", n)
	}
	<-e.finished
}

// TestLosslessAtEnd: what is still to come of a command that ended, from its pipe and
// from whoever reads that, pushes out nothing that a lossless reader has not read.
func TestLosslessAtEnd(t *testing.T) {
	m, start := newScripted(t)
	defer m.close()
	const ring, inHand, inPipe = sandbox.MiB, 256 << 10, sandbox.MiB
	m.configure(&guestv1.GuestConfig{RingSize: ring})
	e, rd, p := start(&guestv1.ExecRequest{ExecId: "x", Lossless: true})
	p.drained = make(chan struct{})
	go func() {
		_, _ = p.stdout.Write(make([]byte, ring+inHand)) // waits for the reader, until the command has ended
		_, _ = p.stdout.Write(make([]byte, inPipe))
		close(p.drained)
	}()
	for full := false; !full; time.Sleep(time.Millisecond) {
		e.mu.Lock()
		full = e.out[stdout].end == ring
		e.mu.Unlock()
	}
	p.exit(ExitStatus{})
	<-p.drained
	var got int64
	for more := true; more; {
		var b []byte
		b, more = rd.fill(nil, batch)
		frames := guest.NewFrameReader(bytes.NewReader(b))
		for typ, payload, err := frames.Next(); err == nil; typ, payload, err = frames.Next() {
			switch typ {
			case guest.FrameGap:
				t.Error("bytes got lost")
			case guest.FrameStdout:
				got += int64(len(payload))
			}
		}
	}
	if got != ring+inHand+inPipe {
		t.Errorf("%d bytes of %d came", got, ring+inHand+inPipe)
	}
}
