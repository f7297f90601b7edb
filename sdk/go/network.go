package agentbox

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"time"
)

// BoxNetwork is what a sandbox may reach.
type BoxNetwork struct{ b *Box }

// NetworkState is what a sandbox may reach, and what it tried to.
type NetworkState struct {
	Network
	// Requests are hosts that it was denied and nobody decided on since, the oldest first.
	Requests []NetworkRequest `json:"requests"`
}

// NetworkRequest is a host that a sandbox was denied.
type NetworkRequest struct {
	ID      string    `json:"id"`
	Host    string    `json:"host"`
	Port    int       `json:"port"`
	FirstAt time.Time `json:"first_at"`
	LastAt  time.Time `json:"last_at"`
	Count   int64     `json:"count"` // how often it was asked for
}

// Get is what the sandbox may reach.
func (n *BoxNetwork) Get(ctx context.Context) (NetworkState, error) {
	return ask[NetworkState](ctx, n.b.c, call{method: http.MethodGet, path: n.b.in("network")})
}

// Set changes what the sandbox may reach; it holds at once for new connections. With cut
// those end that are not allowed any more.
func (n *BoxNetwork) Set(ctx context.Context, to Network, cut bool) (NetworkState, error) {
	in := struct {
		Network
		Cut bool `json:"cut,omitempty"`
	}{to, cut}
	return ask[NetworkState](ctx, n.b.c, call{method: http.MethodPut, path: n.b.in("network"), in: in, repeatable: true})
}

// NetworkChange is a change of a list.
type NetworkChange struct {
	Add    []string `json:"add,omitempty"`    // in any form that Network.Allow takes
	Remove []string `json:"remove,omitempty"` // as they stand on the list
	Cut    bool     `json:"cut,omitempty"`    // end connections that are not allowed any more
}

// Change puts hosts on the list and takes others off: all of it holds, or nothing does.
func (n *BoxNetwork) Change(ctx context.Context, c NetworkChange) (NetworkState, error) {
	return ask[NetworkState](ctx, n.b.c, call{method: http.MethodPatch, path: n.b.in("network"), in: c})
}

// Connection is a record of one connection, or of one request where those are seen.
type Connection struct {
	Time        time.Time `json:"time"` // when it began
	Kind        string    `json:"kind"` // connect, http, socks or transparent
	Host        string    `json:"host"` // empty: an address was asked for
	Address     string    `json:"address"`
	Port        int       `json:"port"`
	Verdict     string    `json:"verdict"` // allowed, denied or failed
	Rule        string    `json:"rule"`    // what allowed it
	Code        string    `json:"code"`    // why it was denied or failed, for programs
	Reason      string    `json:"reason"`  // the same in words
	Method      string    `json:"method"`  // of a request that was seen
	Path        string    `json:"path"`    // without the query
	Status      int       `json:"status"`
	Sent        int64     `json:"sent"`     // bytes
	Received    int64     `json:"received"` // bytes
	Duration    float64   `json:"duration"` // seconds
	Intercepted bool      `json:"intercepted"`
	Open        bool      `json:"open"`    // it had not ended when this was written
	Omitted     int64     `json:"omitted"` // not 0: so many more have no entry
}

// Log goes through what the sandbox reached since a time, zero: ever, the newest first.
func (n *BoxNetwork) Log(ctx context.Context, since time.Time) iter.Seq2[Connection, error] {
	q := url.Values{}
	if !since.IsZero() {
		q.Set("since", since.UTC().Format(time.RFC3339Nano))
	}
	return pages[Connection](ctx, n.b.c, n.b.in("network", "log"), q)
}

// OwnedNetworkRequest is a NetworkRequest with the sandbox that asked.
type OwnedNetworkRequest struct {
	Owner   string `json:"owner"`
	Sandbox string `json:"sandbox"` // its id, by which an admin decides
	NetworkRequest
}

// NetworkRequests goes through what sandboxes of all owners were denied, for an admin.
func (c *Client) NetworkRequests(ctx context.Context) iter.Seq2[OwnedNetworkRequest, error] {
	return pages[OwnedNetworkRequest](ctx, c, "/network/requests", nil)
}

// Decide allows or denies a host that a sandbox of any owner asked for, for an admin.
func (c *Client) Decide(ctx context.Context, sandbox, request string, allow bool) (NetworkState, error) {
	in := map[string]string{"decision": "deny"}
	if allow {
		in["decision"] = "allow"
	}
	return ask[NetworkState](ctx, c, call{method: http.MethodPost, path: inSandbox(sandbox, "network", "requests", request), in: in})
}
