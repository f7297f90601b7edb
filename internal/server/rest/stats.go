package rest

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"agentbox/internal/runtime"
	"agentbox/internal/sandbox"
	"agentbox/internal/server"
)

// Stats are measured on the host, so that nothing in the sandbox can lie about
// them.
type Stats struct {
	Time       time.Time `json:"time"`
	CPU        float64   `json:"cpu" doc:"Seconds of CPU time since its start."`
	Memory     int64     `json:"memory" doc:"Bytes; 0: this server can't tell."`
	PeakMemory int64     `json:"peak_memory" doc:"Most bytes at one time; 0: this server can't tell."`
	OOMKills   int64     `json:"oom_kills" doc:"How often the memory limit was reached."`
	Disk       int64     `json:"disk" doc:"Bytes that its files take on the host's disk."`
	Processes  int64     `json:"processes" doc:"Tasks on the host; the isolation itself has some."`
	NetworkIn  int64     `json:"network_in" doc:"Bytes."`
	NetworkOut int64     `json:"network_out" doc:"Bytes."`
}

type statsInput struct {
	SandboxID
	Stream Bool `query:"stream" doc:"Events of the name stats, one each second."`
}

// statsEvery is how often a stream of stats has some.
const statsEvery = time.Second

func (a *API) addStats() {
	op := huma.Operation{
		OperationID: "get-sandbox-stats", Method: http.MethodGet, Path: "/sandboxes/{id}/stats", Summary: "What a sandbox uses", Tags: []string{"Sandboxes"},
		Description: "Looking at it does not keep it from being idle.",
	}
	routeStreamed[Stats](a, op, "Events stats, with the same data.", a.getStats)
}

func (a *API) getStats(ctx context.Context, c sandbox.Caller, in *statsInput) (*streamed, error) {
	st, err := a.Sandboxes.Stats(ctx, c, in.ID)
	if err != nil {
		return nil, err
	}
	if !in.Stream.Value {
		return answer(statsOf(st)), nil
	}
	return stream(func(ctx context.Context, s *eventStream) {
		wait := time.Duration(0) // the first comes at once
		s.fail(ctx, a.each(ctx, s, func(ctx context.Context) (func() error, error) {
			select {
			case <-time.After(wait):
				wait = statsEvery
			case <-ctx.Done():
				return nil, ctx.Err()
			}
			st, err := a.Sandboxes.Stats(ctx, c, in.ID)
			return func() error { return s.send("", "stats", statsOf(st)) }, err
		}))
	}), nil
}

func statsOf(st runtime.Stats) Stats {
	return Stats{
		Time: time.Now().UTC(), CPU: st.CPUTime.Seconds(), Memory: st.Memory, PeakMemory: st.PeakMemory, OOMKills: st.OOMKills,
		Disk: st.DiskUsed, Processes: st.Pids, NetworkIn: st.BytesIn, NetworkOut: st.BytesOut,
	}
}

// Isolation is what keeps a sandbox from the host.
type Isolation struct {
	Backend      string   `json:"backend" example:"gvisor"`
	Version      string   `json:"version" doc:"Of what isolates."`
	Mode         string   `json:"mode" doc:"How it works on this host, in words."`
	HostUser     int64    `json:"host_user" doc:"Who root of the sandbox is on the host; no other process has this user."`
	Capabilities []string `json:"host_capabilities" nullable:"false" doc:"Capabilities on the host."`
	Seccomp      bool     `json:"seccomp" doc:"Whether a filter bounds the system calls that reach the host."`
	Network      Network  `json:"network"`
	Limits       Limits   `json:"limits"`
	Enforced     []string `json:"enforced" nullable:"false" doc:"Limits that hold whatever the sandbox does."`
	NotEnforced  []string `json:"not_enforced" nullable:"false" doc:"Limits that this server can't enforce."`
}

type isolationOutput struct{ Body Isolation }

func (a *API) addIsolation() {
	route(a, huma.Operation{
		OperationID: "get-sandbox-isolation", Method: http.MethodGet, Path: "/sandboxes/{id}/isolation", Summary: "What isolates a sandbox", Tags: []string{"Sandboxes"},
	}, server.Route{}, a.getIsolation)
}

func (a *API) getIsolation(ctx context.Context, c sandbox.Caller, in *SandboxID) (*isolationOutput, error) {
	sb, err := a.Sandboxes.Get(ctx, c, in.ID)
	if err != nil {
		return nil, err
	}
	caps, shown := a.Sandboxes.Capabilities(), sandboxOf(&sb)
	out := Isolation{
		Backend: caps.Name, Version: caps.Version, Mode: caps.Mode, HostUser: int64(caps.HostUser), Capabilities: append([]string{}, caps.HostCapabilities...), Seccomp: caps.Seccomp,
		Network: shown.Network, Limits: shown.Limits, Enforced: []string{}, NotEnforced: shown.NotEnforced,
	}
	for _, l := range []string{sandbox.LimitMemory, sandbox.LimitCPUs, sandbox.LimitPids, sandbox.LimitDisk} {
		if !slices.Contains(out.NotEnforced, l) {
			out.Enforced = append(out.Enforced, l)
		}
	}
	return &isolationOutput{out}, nil
}
