package rest

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/danielgtaylor/huma/v2"

	"agentbox/internal/audit"
	"agentbox/internal/auth"
	"agentbox/internal/egress/journal"
	"agentbox/internal/ids"
	"agentbox/internal/sandbox"
	"agentbox/internal/server"
)

// Networks are what the routes about networks need; manager.Manager has it.
type Networks interface {
	// DefaultNetwork is that of callers who want one and do not say which.
	DefaultNetwork() sandbox.Network
	SetNetwork(ctx context.Context, c sandbox.Caller, id string, n sandbox.Network, cut bool) (sandbox.Sandbox, error)
	ChangeNetwork(ctx context.Context, c sandbox.Caller, id string, add, remove []string, cut bool) (sandbox.Sandbox, error)
	NetworkRequests(ctx context.Context, c sandbox.Caller, id string) ([]sandbox.NetworkRequest, error)
	AllNetworkRequests(ctx context.Context, c sandbox.Caller) ([]sandbox.OwnedNetworkRequest, error)
	Decide(ctx context.Context, c sandbox.Caller, id, request string, allow bool) (sandbox.Sandbox, error)
}

// Connections are the records of sandboxes' connections; journal.Journal has them.
type Connections interface {
	Query(ctx context.Context, q journal.Query) (journal.Page, error)
}

// Network is what a sandbox may reach.
type Network struct {
	Mode      string   `json:"mode" enum:"none,allowlist,full"`
	Allow     []string `json:"allow" nullable:"false" doc:"What it may reach, with the mode allowlist."`
	Intercept []string `json:"intercept" nullable:"false" doc:"Hosts whose TLS the proxy ends itself."`
	Resolver  bool     `json:"resolver" doc:"Programs that take no proxy reach allowed names, too."`
}

func networkOf(n *sandbox.Network) Network {
	return Network{
		Mode: string(cmp.Or(n.Mode, sandbox.NetworkNone)), Allow: append([]string{}, n.Allow...), Intercept: append([]string{}, n.Intercept...), Resolver: n.Resolver,
	}
}

// NewNetwork is what a sandbox is to reach.
type NewNetwork struct {
	Mode      string   `json:"mode,omitempty" enum:"none,allowlist,full" doc:"Default: allowlist if there is anything in allow, else none. The operator may not allow full."`
	Allow     []string `json:"allow,omitempty" maxItems:"1000" doc:"Hosts (api.example.com), all below one (*.example.com), hosts with a port (api.example.com:8443), addresses, ranges (192.0.2.0/24), requests (GET api.example.com/v1/*), and presets such as python, node, git and default. Without a port: 80 and 443."`
	Intercept []string `json:"intercept,omitempty" maxItems:"1000" doc:"Hosts, as in allow but without requests, whose TLS the proxy ends itself with a certificate of the sandbox's own authority, which programs in it trust: so it sees and records method and path of each request. It allows nothing. Hosts of which only some requests over TLS are allowed are intercepted in any case."`
	Resolver  *Bool    `json:"resolver,omitempty" doc:"Let programs that take no proxy reach allowed names, too: default true. Servers in the sandbox that wait on port 80 or 443 of all addresses must then set SO_REUSEADDR, as most do."`
}

func (n *NewNetwork) network() sandbox.Network {
	return sandbox.Network{Mode: sandbox.NetworkMode(n.Mode), Allow: n.Allow, Intercept: n.Intercept, Resolver: n.Resolver == nil || n.Resolver.Value}
}

// network is what a new sandbox is to reach.
func (b *NewSandbox) network(byDefault func() sandbox.Network) (n sandbox.Network, err error) {
	switch {
	case b.Network == nil && b.NetworkEnabled.Value:
		return byDefault(), nil
	case b.Network == nil:
		return n, nil
	}
	n = b.Network.network()
	if b.NetworkEnabled.Value && !n.On() {
		return n, &sandbox.InvalidError{Field: "network_enabled", Value: "true", Allowed: "false with a network that is none"}
	}
	return n, nil
}

// NetworkRequest is a host that a sandbox was denied.
type NetworkRequest struct {
	ID    string    `json:"id"`
	Host  string    `json:"host"`
	Port  int64     `json:"port"`
	First time.Time `json:"first_at"`
	Last  time.Time `json:"last_at"`
	Count int64     `json:"count" doc:"How often it was asked for."`
}

// OwnedNetworkRequest is one with the sandbox that asked.
type OwnedNetworkRequest struct {
	Owner   string `json:"owner"`
	Sandbox string `json:"sandbox" doc:"Id of the sandbox, by which an admin decides."`
	NetworkRequest
}

func requestOf(r *sandbox.NetworkRequest) NetworkRequest {
	return NetworkRequest{ID: r.ID, Host: r.Host, Port: int64(r.Port), First: r.First.UTC(), Last: r.Last.UTC(), Count: int64(r.Count)}
}

// NetworkState is what a sandbox may reach, and what it tried to.
type NetworkState struct {
	Network
	Requests []NetworkRequest `json:"requests" nullable:"false" doc:"What it was denied and nobody decided on since, the oldest first; at most 64, while it runs."`
}

// Connection is a record of one connection, or of one request where those are
// seen.
type Connection struct {
	Time        time.Time `json:"time" doc:"When it began."`
	Kind        string    `json:"kind" doc:"How the program asked: connect, http, socks, transparent; empty in an entry that only has omitted, or of a connection that nobody read since there were too many."`
	Host        string    `json:"host" doc:"Name that was asked for; empty if it was an address."`
	Address     string    `json:"address" doc:"Address that was dialled, or refused."`
	Port        int64     `json:"port"`
	Verdict     string    `json:"verdict" doc:"allowed, denied or failed."`
	Rule        string    `json:"rule" doc:"What allowed it."`
	Code        string    `json:"code" doc:"Why it was denied or failed, for programs."`
	Reason      string    `json:"reason" doc:"The same in words."`
	Method      string    `json:"method" doc:"Of a request that was seen."`
	Path        string    `json:"path" doc:"Without the query."`
	Status      int64     `json:"status"`
	Sent        int64     `json:"sent" doc:"Bytes."`
	Received    int64     `json:"received" doc:"Bytes."`
	Duration    float64   `json:"duration" doc:"Seconds."`
	Intercepted bool      `json:"intercepted"`
	Open        bool      `json:"open" doc:"It had not ended when this was written. Another entry with the same time comes at its end, or while it stays open."`
	Omitted     int64     `json:"omitted" doc:"Not 0: so many more connections have no entry, since there were too many at once."`
}

type (
	networkOutput struct{ Body NetworkState }
	setNetwork    struct {
		SandboxID
		Body struct {
			NewNetwork
			Cut Bool `json:"cut,omitempty" doc:"End connections that are not allowed any more. Without it only new ones are judged."`
		}
	}
	changeNetwork struct {
		SandboxID
		Body struct {
			Add    []string `json:"add,omitempty" maxItems:"1000" doc:"Hosts to put on the list, in any form that allow takes. Those that are there stay."`
			Remove []string `json:"remove,omitempty" maxItems:"1000" doc:"Hosts to take off the list, as they stand on it."`
			Cut    Bool     `json:"cut,omitempty" doc:"End connections that are not allowed any more."`
		}
	}
	ownedRequestsInput  struct{ Page }
	ownedRequestsOutput struct{ Body List[OwnedNetworkRequest] }
	decideInput         struct {
		SandboxID
		Request string `path:"request" maxLength:"32"`
		Body    struct {
			Decision string `json:"decision" enum:"allow,deny" doc:"allow: the host is on the list from now on, on that port. deny: the request is off the list."`
		}
	}
	connectionsInput struct {
		SandboxID
		Page
		Since time.Time `query:"since" doc:"Only from this time on."`
		Order string    `query:"order" enum:"newest,oldest" default:"newest" doc:"What comes first."`
	}
	connectionsOutput struct{ Body List[Connection] }
)

func (a *API) addNetwork() {
	tags := []string{"Network"}
	route(a, huma.Operation{
		OperationID: "get-network", Method: http.MethodGet, Path: "/sandboxes/{id}/network", Summary: "What a sandbox may reach", Tags: tags,
	}, server.Route{}, a.getNetwork)
	route(a, huma.Operation{
		OperationID: "set-network", Method: http.MethodPut, Path: "/sandboxes/{id}/network", Summary: "Change what a sandbox may reach", Tags: tags,
		Description: "It holds at once for new connections.",
	}, server.Route{}, a.setNetwork)
	route(a, huma.Operation{
		OperationID: "change-network", Method: http.MethodPatch, Path: "/sandboxes/{id}/network", Summary: "Put hosts on a sandbox's list, or take them off", Tags: tags,
		Description: "All of it holds, or nothing does; of two requests at once none is lost. Without a list there is no network, with one there is.",
	}, server.Route{}, a.changeNetwork)
	route(a, huma.Operation{
		OperationID: "list-network-requests", Method: http.MethodGet, Path: "/network/requests", Summary: "What sandboxes of all owners were denied and nobody decided on", Tags: tags,
	}, server.Route{Access: auth.NeedAdmin}, a.listNetworkRequests)
	route(a, huma.Operation{
		OperationID: "list-connections", Method: http.MethodGet, Path: "/sandboxes/{id}/network/log", Summary: "What a sandbox reached", Tags: tags,
		Description: "A page can be empty and have a next_cursor: each call reads a bounded part of the log.",
	}, server.Route{}, a.listConnections)
	route(a, huma.Operation{
		OperationID: "decide-connection", Method: http.MethodPost, Path: "/sandboxes/{id}/network/requests/{request}", Summary: "Allow or deny a host that was asked for", Tags: tags,
		Description: "An admin decides for sandboxes of all owners, by their ids. Owners who may allow a host themselves put it on the list.",
	}, server.Route{Access: auth.NeedAdmin}, a.decideConnection)
}

func (a *API) getNetwork(ctx context.Context, c sandbox.Caller, in *SandboxID) (*networkOutput, error) {
	sb, err := a.Sandboxes.Get(ctx, c, in.ID)
	if err != nil {
		return nil, err
	}
	return a.networkState(ctx, c, &sb)
}

func (a *API) networkState(ctx context.Context, c sandbox.Caller, sb *sandbox.Sandbox) (*networkOutput, error) {
	all, err := a.Networks.NetworkRequests(ctx, c, sb.UID)
	if err != nil {
		return nil, err
	}
	out := &networkOutput{Body: NetworkState{Network: networkOf(&sb.Network), Requests: []NetworkRequest{}}}
	for i := range all {
		out.Body.Requests = append(out.Body.Requests, requestOf(&all[i]))
	}
	return out, nil
}

func (a *API) setNetwork(ctx context.Context, c sandbox.Caller, in *setNetwork) (*networkOutput, error) {
	n := in.Body.network()
	sb, err := a.Networks.SetNetwork(ctx, c, in.ID, n, in.Body.Cut.Value)
	details := map[string]string{"mode": string(n.Mode), "resolver": strconv.FormatBool(n.Resolver), "cut": strconv.FormatBool(in.Body.Cut.Value)}
	addList(details, "allow", n.Allow)
	addList(details, "intercept", n.Intercept)
	a.recordOn(ctx, c, audit.Policy, a.uid(ctx, c, in.ID, sb), err, details)
	if err != nil {
		return nil, err
	}
	return a.networkState(ctx, c, &sb)
}

func (a *API) changeNetwork(ctx context.Context, c sandbox.Caller, in *changeNetwork) (*networkOutput, error) {
	sb, err := a.Networks.ChangeNetwork(ctx, c, in.ID, in.Body.Add, in.Body.Remove, in.Body.Cut.Value)
	details := map[string]string{"cut": strconv.FormatBool(in.Body.Cut.Value)}
	addList(details, "add", in.Body.Add)
	addList(details, "remove", in.Body.Remove)
	addList(details, "allow", sb.Network.Allow)
	a.recordOn(ctx, c, audit.Policy, a.uid(ctx, c, in.ID, sb), err, details)
	if err != nil {
		return nil, err
	}
	return a.networkState(ctx, c, &sb)
}

// addList puts a list of hosts into the details of an audit record, which cuts long
// texts: how many there are and their SHA-256, each with a newline behind it, keep
// provable what a long one was.
func addList(details map[string]string, name string, hosts []string) {
	details[name] = strings.Join(hosts, " ")
	if len(hosts) == 0 {
		return
	}
	sum := sha256.New()
	for _, h := range hosts {
		_, _ = io.WriteString(sum, h+"\n") // a hash takes all
	}
	details[name+"_count"], details[name+"_sha256"] = strconv.Itoa(len(hosts)), hex.EncodeToString(sum.Sum(nil))
}

func (a *API) listNetworkRequests(ctx context.Context, c sandbox.Caller, in *ownedRequestsInput) (*ownedRequestsOutput, error) {
	all, err := a.Networks.AllNetworkRequests(ctx, c)
	if err != nil {
		return nil, err
	}
	var items []OwnedNetworkRequest
	for i := range all {
		items = append(items, OwnedNetworkRequest{all[i].Owner, all[i].Sandbox, requestOf(&all[i].NetworkRequest)})
	}
	page, next := pageByName(items, in.Page, func(r *OwnedNetworkRequest) string { return r.Sandbox + "." + r.ID })
	return &ownedRequestsOutput{list(page, next)}, nil
}

func (a *API) decideConnection(ctx context.Context, c sandbox.Caller, in *decideInput) (*networkOutput, error) {
	host := a.requested(ctx, c, in.ID, in.Request)
	sb, err := a.Networks.Decide(ctx, c, in.ID, in.Request, in.Body.Decision == "allow")
	a.recordOn(ctx, c, audit.Policy, a.uid(ctx, c, in.ID, sb), err, map[string]string{"request": in.Request, "host": host, "decision": in.Body.Decision, "owner": sb.Owner})
	if err != nil {
		return nil, err
	}
	return a.networkState(ctx, c, &sb)
}

// requested is what a request is for; empty: there is no such request.
func (a *API) requested(ctx context.Context, c sandbox.Caller, id, request string) string {
	all, _ := a.Networks.NetworkRequests(ctx, c, id) // who decides is told the error
	for _, r := range all {
		if r.ID == request {
			return net.JoinHostPort(r.Host, strconv.Itoa(int(r.Port)))
		}
	}
	return ""
}

func (a *API) listConnections(ctx context.Context, c sandbox.Caller, in *connectionsInput) (*connectionsOutput, error) {
	uid, unknown := a.everSandbox(ctx, c, in.ID)
	if uid == "" {
		return nil, unknown
	}
	page, err := a.Connections.Query(ctx, journal.Query{
		Owner: c.Owner, Sandbox: uid, Since: in.Since, OldestFirst: in.Order == "oldest", Cursor: in.Cursor, Limit: in.Limit,
	})
	if err != nil {
		return nil, err
	}
	if unknown != nil && len(page.Entries) == 0 && page.Next == "" {
		return nil, unknown // there never was one, or not of this owner
	}
	var items []Connection
	for i := range page.Entries {
		items = append(items, connectionOf(&page.Entries[i]))
	}
	return &connectionsOutput{list(items, page.Next)}, nil
}

// everSandbox is the full id of a sandbox of the caller's, which may be gone: by any
// form of its id as long as that is remembered, by the full one ever after, since
// the log has the owner beside it. With such an id the error tells that nobody
// remembers it.
func (a *API) everSandbox(ctx context.Context, c sandbox.Caller, id string) (string, error) {
	sb, err := a.Sandboxes.Get(ctx, c, id)
	var gone *sandbox.GoneError
	switch {
	case errors.As(err, &gone):
		return gone.Tombstone.UID, nil
	case errdefs.IsNotFound(err) && ids.IsUID(id):
		return id, err
	}
	return sb.UID, err
}

func connectionOf(e *journal.Entry) Connection {
	shown := Connection{
		Time: e.Time.UTC(), Kind: string(e.Kind), Host: e.Name, Port: int64(e.Port), Verdict: string(e.Verdict), Rule: e.Rule, Code: string(e.Code), Reason: e.Reason,
		Method: e.Method, Path: e.Path, Status: int64(e.Status), Sent: e.BytesUp, Received: e.BytesDown, Duration: e.Duration.Seconds(), Intercepted: e.Intercepted, Open: e.Open, Omitted: int64(e.Omitted),
	}
	if e.Addr.IsValid() {
		shown.Address = e.Addr.String()
	}
	return shown
}
