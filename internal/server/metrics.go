package server

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Metrics counts what the server does. Paths are the patterns of routes, never
// what clients sent: those could be any number.
type Metrics struct {
	registry *prometheus.Registry
	requests *prometheus.CounterVec
	latency  *prometheus.HistogramVec
	duration *prometheus.HistogramVec
	inFlight prometheus.Gauge
	received prometheus.Counter
	sent     prometheus.Counter
	streams  *prometheus.GaugeVec
}

// Kinds of streams.
const (
	streamEvents    = "events"
	streamWebSocket = "websocket"
)

// NewMetrics returns metrics with a registry of their own.
func NewMetrics() *Metrics {
	labels := []string{"method", "path"}
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "http_requests_total", Help: "Requests that were answered.",
		}, []string{"method", "path", "status_code", "status"}),
		latency: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "http_request_latency_seconds", Help: "Time from the head of a request to the end of its answer.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300},
		}, labels),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "http_request_duration_seconds", Help: "The same as http_request_latency_seconds, with other buckets.",
			Buckets: []float64{.05, .1, .25, .5, 1, 2, 5, 10},
		}, labels),
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "agentbox_http_requests_in_flight", Help: "Requests that are being served, but for health checks.",
		}),
	}
	m.received = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "agentbox_http_received_bytes_total", Help: "Bytes of requests' bodies, without those of WebSockets.",
	})
	m.sent = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "agentbox_http_sent_bytes_total", Help: "Bytes of answers' bodies, without those of WebSockets.",
	})
	m.streams = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "agentbox_http_streams", Help: "Streams that are open.",
	}, []string{"kind"})
	for _, kind := range []string{streamEvents, streamWebSocket} {
		m.streams.WithLabelValues(kind) // there from the beginning, at zero
	}
	m.registry.MustRegister(m.requests, m.latency, m.duration, m.inFlight, m.received, m.sent, m.streams,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Register adds metrics of others. It panics when a name is taken, which is a
// mistake in the program.
func (m *Metrics) Register(cs ...prometheus.Collector) { m.registry.MustRegister(cs...) }

// Handler serves the metrics in Prometheus' format.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}

// request counts one. The status stands under two labels, because dashboards
// that were made for other servers look for the one or the other.
func (m *Metrics) request(method, path string, status int, took time.Duration) {
	method, code := countedMethod(method), strconv.Itoa(status)
	m.requests.WithLabelValues(method, path, code, code).Inc()
	m.latency.WithLabelValues(method, path).Observe(took.Seconds())
	m.duration.WithLabelValues(method, path).Observe(took.Seconds())
}

// pathOf is a pattern without its method.
func pathOf(pattern string) string {
	if _, path, ok := strings.Cut(pattern, " "); ok {
		return path
	}
	return pattern
}
