package guest

import (
	"time"

	guestv1 "agentbox/internal/gen/guest/v1"
	"agentbox/internal/sandbox"
)

var outcomes = map[guestv1.Outcome]sandbox.Outcome{
	guestv1.Outcome_OUTCOME_RUNNING:   sandbox.Running,
	guestv1.Outcome_OUTCOME_EXITED:    sandbox.Exited,
	guestv1.Outcome_OUTCOME_SIGNALED:  sandbox.Signaled,
	guestv1.Outcome_OUTCOME_TIMED_OUT: sandbox.TimedOut,
	guestv1.Outcome_OUTCOME_OOM:       sandbox.OOM,
	guestv1.Outcome_OUTCOME_CANCELED:  sandbox.Canceled,
	guestv1.Outcome_OUTCOME_LOST:      sandbox.Lost,
}

// ResultOf takes over a result of the guest; numbers that can't be are cut.
func ResultOf(id string, r *guestv1.ExecResult) sandbox.Result {
	o, ok := outcomes[r.GetOutcome()]
	if !ok {
		o = sandbox.Lost
	}
	return sandbox.Result{
		ExecID: id, Outcome: o,
		ExitCode: int(r.GetExitCode()) & 0xff, Signal: int(min(max(r.GetSignal(), 0), 64)),
		Reason:          r.GetReason()[:min(len(r.GetReason()), 4<<10)],
		StdoutTruncated: r.GetStdoutTruncated(), StderrTruncated: r.GetStderrTruncated(),
		Duration: time.Duration(max(r.GetDurationNs(), 0)), CPUTime: time.Duration(max(r.GetCpuNs(), 0)),
		PeakMemory: max(r.GetPeakMemory(), 0),
	}
}
