package agent

import (
	"context"
	"errors"
	"net"
	"testing"

	guestv1 "agentbox/internal/gen/guest/v1"
	"agentbox/internal/sandbox"
)

// However many commands programs inside run, the results of the host's stay, and
// nothing stays of theirs.
func TestPassingCommandsPushOutNoResult(t *testing.T) {
	l := &scripted{started: make(chan *scriptedProcess, 1)}
	m := newExecs(l, nil)
	defer m.close()
	run := func(id string, passing bool) *exec {
		t.Helper()
		e, rd, err := m.begin(&guestv1.ExecRequest{ExecId: id, Argv: [][]byte{[]byte("x")}}, true, passing)
		if err != nil {
			t.Fatal(err)
		}
		p := <-l.started
		_, _ = p.stdout.Write([]byte("text"))
		p.exit(ExitStatus{})
		<-e.finished
		rd.detach(false)
		return e
	}
	run("host", false)
	held := m.held.Load()
	inside, rd, err := m.begin(&guestv1.ExecRequest{ExecId: passingID(), Argv: [][]byte{[]byte("x")}}, true, true)
	if err != nil {
		t.Fatal(err)
	}
	p := <-l.started
	if _, err := m.get(inside.id); err == nil || len(m.forHost()) != 1 || len(m.list()) != 2 {
		t.Errorf("while it runs the host has %d commands and finds it: %v", len(m.forHost()), err)
	}
	p.exit(ExitStatus{})
	<-inside.finished
	rd.detach(false)
	m.discard(inside)
	for range keepExecs + 10 {
		m.discard(run(passingID(), true))
	}
	if _, err := m.get("host"); err != nil {
		t.Error(err)
	}
	if n := len(m.list()); n != 1 || m.held.Load() != held {
		t.Errorf("%d commands and %d bytes are kept, want 1 and %d", n, m.held.Load(), held)
	}
}

// Programs inside have half of the memory that output may take, and what they have
// counts for all.
func TestInsideHasHalfOfTheBudget(t *testing.T) {
	m := newExecs(&scripted{}, nil)
	defer m.close()
	s := newInside(m, nil, 1)
	half := m.budget.Load() / 2
	if !s.Reserve(half) || s.Reserve(1) {
		t.Errorf("it has more or less than %d bytes", half)
	}
	if m.held.Load() != half {
		t.Errorf("%d bytes count, want %d", m.held.Load(), half)
	}
	s.Release(half)
	if m.held.Load() != 0 || !s.Reserve(sandbox.MiB) {
		t.Error("what was given back is not there")
	}
}

// pipes is a listener whose connections are always there.
type pipes struct{}

type pipeEnd struct{ net.Conn }

func (pipeEnd) CloseWrite() error { return nil }

func (pipes) Accept() (PortConn, error) {
	c, _ := net.Pipe()
	return pipeEnd{c}, nil
}

func (pipes) Close() error { return nil }

// A door has so many connections at once, and takes the next one when one has ended.
func TestDoorHasPlaces(t *testing.T) {
	d := &door{visitors: make(slots, 2)}
	var cancel context.CancelFunc
	d.ctx, cancel = context.WithCancel(context.Background())
	defer cancel()
	var open []*visitor
	for range 2 {
		c, err := d.accept(pipes{}, true)
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, c)
	}
	if _, err := d.accept(pipes{}, false); !errors.Is(err, errFull) {
		t.Errorf("a third one: %v", err)
	}
	_ = open[0].Close()
	_ = open[0].Close() // gives one place back, however often
	c, err := d.accept(pipes{}, false)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.accept(pipes{}, false); !errors.Is(err, errFull) {
		t.Errorf("one more than there are places: %v", err)
	}
	_, _ = c.Close(), open[1].Close()
	cancel()
	d.visitors <- struct{}{}
	d.visitors <- struct{}{}
	if _, err := d.accept(pipes{}, true); !errors.Is(err, context.Canceled) {
		t.Errorf("a door that is closed: %v", err)
	}
}
