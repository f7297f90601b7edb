// Package telemetry counts what the core of the service does, for Prometheus.
// Labels have a closed list of values: never an id, a name or an owner.
package telemetry

import (
	"context"
	"errors"
	"time"

	"github.com/containerd/errdefs"
	"github.com/prometheus/client_golang/prometheus"

	"agentbox/internal/sandbox"
)

// Core counts sandboxes and commands. The manager tells it what happens.
type Core struct {
	counts func() map[sandbox.State]int
	lost   func() int64

	sandboxes *prometheus.Desc
	creates   *prometheus.CounterVec
	creating  prometheus.Histogram
	execs     *prometheus.CounterVec
	running   prometheus.Histogram
	ooms      prometheus.Counter
	ends      *prometheus.CounterVec
	conns     *prometheus.CounterVec
	bytes     *prometheus.CounterVec
	omitted   *prometheus.Desc
	tokens    prometheus.Counter
}

// Results of calls that made nothing.
const (
	resultOK       = "ok"
	resultRefused  = "refused"  // the caller's fault, or a limit
	resultCanceled = "canceled" // the client went away, or the sandbox
	resultFailed   = "failed"   // agentbox's fault
)

// New returns counters at zero.
func New() *Core {
	// Making a sandbox takes a tenth of a second, pulling its image minutes.
	creating := []float64{.025, .05, .075, .1, .15, .2, .3, .5, 1, 2.5, 5, 10, 30, 60, 300}
	running := []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600}
	return &Core{
		sandboxes: prometheus.NewDesc("agentbox_sandboxes", "Sandboxes that there are, by state.", []string{"state"}, nil),
		creates: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "agentbox_creates_total", Help: "Requests to make a sandbox, by what became of them.",
		}, []string{"result"}),
		creating: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "agentbox_create_duration_seconds", Help: "Time until commands can run in a new sandbox.", Buckets: creating,
		}),
		execs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "agentbox_execs_total", Help: "Commands, by how they ended.",
		}, []string{"result"}),
		running: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "agentbox_exec_duration_seconds", Help: "Time that commands ran in their sandbox.", Buckets: running,
		}),
		ooms: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "agentbox_oom_kills_total", Help: "Commands and sandboxes that reached their limit of memory.",
		}),
		ends: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "agentbox_sandbox_ends_total", Help: "Sandboxes that are gone, by why.",
		}, []string{"reason"}),
		conns: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "agentbox_egress_connections_total", Help: "Connections of sandboxes to the network that have ended, by what became of them.",
		}, []string{"verdict"}),
		bytes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "agentbox_egress_bytes_total", Help: "Bytes of such connections.",
		}, []string{"direction"}),
		omitted: prometheus.NewDesc("agentbox_egress_records_lost_total", "Connections that the log of connections does not have, since there were too many or it could not be written.", nil, nil),
		tokens: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "agentbox_egress_tokens_refused_total", Help: "Requests to the proxy that had no good token, or came from an address that is no sandbox's.",
		}),
	}
}

// WatchConnections lets the records that the log of connections does not have be
// counted.
func (c *Core) WatchConnections(lost func() int64) { c.lost = lost }

// Watch lets the sandboxes by state be counted.
func (c *Core) Watch(counts func() map[sandbox.State]int) { c.counts = counts }

// Created counts a request to make a sandbox that took so long.
func (c *Core) Created(err error, took time.Duration) {
	c.creates.WithLabelValues(resultOf(err)).Inc()
	if err == nil {
		c.creating.Observe(took.Seconds())
	}
}

// Executed counts a command: its result, or why there is none.
func (c *Core) Executed(r *sandbox.Result, err error) {
	switch {
	case err != nil || r == nil:
		c.execs.WithLabelValues(resultOf(err)).Inc()
		return
	case r.Outcome == sandbox.OOM:
		c.ooms.Inc()
	}
	c.execs.WithLabelValues(r.Outcome.String()).Inc()
	c.running.Observe(r.Duration.Seconds())
}

// Ended counts a sandbox that is gone.
func (c *Core) Ended(why sandbox.Reason) {
	if why == sandbox.ReasonOOM {
		c.ooms.Inc()
	}
	c.ends.WithLabelValues(string(why)).Inc()
}

// Connected counts a connection of a sandbox to the network that has ended.
func (c *Core) Connected(verdict string, sent, received int64) {
	c.conns.WithLabelValues(verdict).Inc()
	c.bytes.WithLabelValues("out").Add(float64(sent))
	c.bytes.WithLabelValues("in").Add(float64(received))
}

// TokenRefused counts a request to the proxy that had no good token.
func (c *Core) TokenRefused() { c.tokens.Inc() }

func resultOf(err error) string {
	switch {
	case err == nil:
		return resultOK
	case errors.Is(err, context.Canceled):
		return resultCanceled
	case errdefs.IsInvalidArgument(err), errdefs.IsNotFound(err), errdefs.IsAlreadyExists(err), errdefs.IsConflict(err),
		errdefs.IsFailedPrecondition(err), errdefs.IsNotImplemented(err), errdefs.IsResourceExhausted(err):
		return resultRefused
	default:
		return resultFailed
	}
}

// states are those that are shown, with zero if nothing is in them.
var states = []sandbox.State{
	sandbox.Creating, sandbox.Live, sandbox.Stopping, sandbox.Stopped, sandbox.Starting, sandbox.Failed, sandbox.Destroying,
}

func (c *Core) all() []prometheus.Collector {
	return []prometheus.Collector{c.creates, c.creating, c.execs, c.running, c.ooms, c.ends, c.conns, c.bytes, c.tokens}
}

// Describe implements prometheus.Collector.
func (c *Core) Describe(to chan<- *prometheus.Desc) {
	to <- c.sandboxes
	to <- c.omitted
	for _, one := range c.all() {
		one.Describe(to)
	}
}

// Collect implements prometheus.Collector.
func (c *Core) Collect(to chan<- prometheus.Metric) {
	if c.counts != nil {
		n := c.counts()
		for _, s := range states {
			to <- prometheus.MustNewConstMetric(c.sandboxes, prometheus.GaugeValue, float64(n[s]), string(s))
		}
	}
	if c.lost != nil {
		to <- prometheus.MustNewConstMetric(c.omitted, prometheus.CounterValue, float64(c.lost()))
	}
	for _, one := range c.all() {
		one.Collect(to)
	}
}
