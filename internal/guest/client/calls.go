package client

import (
	"context"
	"fmt"
	"time"

	"github.com/containerd/errdefs"

	guestv1 "agentbox/internal/gen/guest/v1"
	"agentbox/internal/guest"
	"agentbox/internal/sandbox"
)

// Health is what Ping tells of the agent.
type Health struct {
	Uptime          time.Duration
	Running, Queued int
	Buffered        int64 // bytes of output that the agent holds
	RoundTrip       time.Duration
}

// Ping asks whether the agent answers.
func (s *Session) Ping(ctx context.Context) (Health, error) {
	start := time.Now()
	a := new(guestv1.PingResponse)
	if err := s.call(ctx, "Ping", new(guestv1.PingRequest), a); err != nil {
		return Health{}, fmt.Errorf("ping the guest: %w", err)
	}
	return Health{
		Uptime: time.Duration(a.GetUptimeNs()), Running: int(a.GetExecsRunning()), Queued: int(a.GetExecsQueued()),
		Buffered: a.GetBufferedBytes(), RoundTrip: time.Since(start),
	}, nil
}

// ProbeStream lets the guest open a stream to the host, send payload on it and
// return what came back.
func (s *Session) ProbeStream(ctx context.Context, payload []byte) ([]byte, error) {
	a := new(guestv1.ProbeStreamResponse)
	if err := s.call(ctx, "ProbeStream", &guestv1.ProbeStreamRequest{Payload: payload}, a); err != nil {
		return nil, fmt.Errorf("probe a stream of the guest: %w", err)
	}
	return a.GetEchoed(), nil
}

// Configure tells the agent what it must know anew; what runs goes on. An agent
// that was built before there was the call is NotImplemented.
func (s *Session) Configure(ctx context.Context, c *guestv1.GuestConfig) error {
	if err := s.call(ctx, "Configure", &guestv1.ConfigureRequest{Config: c}, new(guestv1.ConfigureResponse)); err != nil {
		return fmt.Errorf("configure the guest: %w", err)
	}
	return nil
}

// KillAll ends every process in the sandbox but the agent and returns how many
// there were.
func (s *Session) KillAll(ctx context.Context) (int, error) {
	a := new(guestv1.KillAllResponse)
	if err := s.call(ctx, "KillAll", new(guestv1.KillAllRequest), a); err != nil {
		return 0, fmt.Errorf("kill all processes of the guest: %w", err)
	}
	return int(a.GetKilled()), nil
}

// ExecInfo describes a command that the guest knows.
type ExecInfo struct {
	ID      string
	Pid     int // in the guest; 0 while it waits for a free place
	Argv    []string
	User    string
	TTY     bool
	Started time.Time // by the guest's clock
	// Result is complete when its Outcome is not Running.
	Result sandbox.Result
	// Offsets of the first byte that the guest still holds, and after the last.
	StdoutFirst, StdoutEnd, StderrFirst, StderrEnd int64
}

// Execs lists the commands that run or ended not long ago, oldest first.
func (s *Session) Execs(ctx context.Context) ([]ExecInfo, error) {
	a := new(guestv1.ListExecsResponse)
	if err := s.call(ctx, "ListExecs", new(guestv1.ListExecsRequest), a); err != nil {
		return nil, fmt.Errorf("list commands: %w", err)
	}
	list := make([]ExecInfo, 0, len(a.GetExecs()))
	for _, i := range a.GetExecs() {
		list = append(list, infoOf(i))
	}
	return list, nil
}

// WaitExec waits until a command has ended, or timeout has passed (0: as long
// as the context lives), and describes it. With output the result has the text
// that the guest still holds.
func (s *Session) WaitExec(ctx context.Context, id string, timeout time.Duration, output bool) (ExecInfo, error) {
	// One call of the protocol is bounded, so a long wait is several.
	const step = 30 * time.Second
	end := time.Now().Add(timeout)
	for {
		q := &guestv1.WaitExecRequest{ExecId: id, TimeoutNs: int64(step), Output: output}
		if timeout > 0 {
			q.TimeoutNs = max(int64(min(time.Until(end), step)), 1)
		}
		a := new(guestv1.WaitExecResponse)
		if err := s.callBounded(ctx, "WaitExec", q, a, maxOutputAnswer); err != nil {
			return ExecInfo{}, fmt.Errorf("wait for exec %s: %w", id, err)
		}
		i := infoOf(a.GetInfo())
		i.Result.Stdout, i.Result.Stderr = a.GetStdout(), a.GetStderr()
		if i.Result.Outcome != sandbox.Running || timeout > 0 && !time.Now().Before(end) {
			return i, nil
		}
	}
}

// SignalExec sends a signal to the first process of a command, or to its whole
// tree of processes. SIGKILL to the tree makes the outcome Canceled.
func (s *Session) SignalExec(ctx context.Context, id string, signal int, tree bool) error {
	q := &guestv1.SignalExecRequest{ExecId: id, Signal: int32(signal), Tree: tree}
	if err := s.call(ctx, "SignalExec", q, new(guestv1.SignalExecResponse)); err != nil {
		return fmt.Errorf("signal exec %s: %w", id, err)
	}
	return nil
}

// RemoveExec forgets a command that ended, with its output.
func (s *Session) RemoveExec(ctx context.Context, id string) error {
	if err := s.call(ctx, "RemoveExec", &guestv1.RemoveExecRequest{ExecId: id}, new(guestv1.RemoveExecResponse)); err != nil {
		return fmt.Errorf("remove exec %s: %w", id, err)
	}
	return nil
}

func infoOf(m *guestv1.ExecInfo) ExecInfo {
	i := ExecInfo{
		ID: m.GetExecId(), Pid: int(m.GetPid()), User: m.GetUser(), TTY: m.GetTty(), Started: time.Unix(0, m.GetStartedNs()),
		StdoutFirst: m.GetStdoutFirst(), StdoutEnd: m.GetStdoutEnd(), StderrFirst: m.GetStderrFirst(), StderrEnd: m.GetStderrEnd(),
	}
	for _, a := range m.GetArgv() {
		i.Argv = append(i.Argv, string(a))
	}
	if r := m.GetResult(); r != nil {
		i.Result = guest.ResultOf(m.GetExecId(), r)
	}
	return i
}

// checkID refuses ids that the guest would refuse, before a stream is opened.
func checkID(id string) error {
	if id == "" || len(id) > 64 {
		return guest.Errorf(errdefs.ErrInvalidArgument, "an exec id has 1 to 64 characters")
	}
	return nil
}
