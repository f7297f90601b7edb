package egress

import (
	"net/netip"
	"time"
)

// Kind is how a program asked.
type Kind string

// Kinds of connections.
const (
	KindConnect     Kind = "connect"     // CONNECT of HTTP
	KindHTTP        Kind = "http"        // absolute-form request
	KindSOCKS       Kind = "socks"       // SOCKS5
	KindTransparent Kind = "transparent" // a connection to an address that stands for a name
)

// Outcome is what became of a connection or request.
type Outcome string

// Outcomes.
const (
	Allowed Outcome = "allowed" // and connected
	Denied  Outcome = "denied"  // by policy, address, limit or form
	Failed  Outcome = "failed"  // allowed, but the server could not be reached or broke off
)

// Record tells of one request where requests are seen, else of one connection.
type Record struct {
	Time           time.Time // when it began
	Sandbox, Owner string
	Kind           Kind // empty: there were too many connections to read this one
	// Name and Port are what was asked for, and Addr what was dialled, or refused.
	// Name is empty if an address was asked for, all are if nothing could be read.
	Name string
	Port uint16
	Addr netip.Addr

	Verdict Outcome
	// Rule is the entry of the policy that allowed it.
	Rule string
	// Code is the machine-readable part of Reason; empty if it was allowed and
	// went well.
	Code   Code
	Reason string
	// Open: this tells of a connection that had not ended; another record with the
	// same Time, sandbox and target comes at its end, or later while it is open.
	Open bool
	// Intercepted: the proxy ended the TLS of the connection itself.
	Intercepted bool

	// BytesUp went to the server, BytesDown came from it.
	BytesUp, BytesDown int64
	Duration           time.Duration
	// Method, Path (escaped, without the query) and Status of a request that was
	// seen. Queries often have secrets in them.
	Method, Path string
	Status       int
}

// Recorder takes records. It must not block, and bound what a flood of them costs.
type Recorder interface{ Record(Record) }

// maxText bounds the texts of a record that come from the sandbox.
const maxText = 1024

func clip(s string) string {
	if len(s) > maxText {
		return s[:maxText]
	}
	return s
}
