package e2e

import (
	"context"
	"net/http"
	"slices"
	"testing"
	"time"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connecthttp"

	"agentbox/internal/egress/policy"
	sandboxv1 "agentbox/internal/gen/sandbox/v1"
	"agentbox/internal/gen/sandbox/v1/sandboxv1connect"
)

// rpcs is a client of the door.
type rpcs struct {
	sandboxv1connect.SandboxServiceClient
	raw *connect.Client
	t   testing.TB
}

type withKey struct {
	*http.Transport
	key string
}

func (w withKey) Do(r *http.Request) (*http.Response, error) {
	if w.key != "" {
		r.Header.Set("Authorization", "Bearer "+w.key)
	}
	return w.RoundTrip(r)
}

// GRPC is a client with the same key at the same daemon.
func (c *Client) GRPC() *rpcs { return c.RPC("gRPC") }

// RPC is one of a protocol.
func (c *Client) RPC(protocol string) *rpcs { return c.rpc(protocol, connecthttp.WithReadMaxBytes(0)) }

// stock takes messages of at most 4 MiB, as most clients do.
func (c *Client) stock(protocol string) *rpcs {
	return c.rpc(protocol, connecthttp.WithReadMaxBytes(4<<20))
}

// rpc is a client of a protocol. Only gRPC needs HTTP/2.
func (c *Client) rpc(protocol string, more ...connecthttp.Option) *rpcs {
	t := &http.Transport{Protocols: new(http.Protocols)}
	t.Protocols.SetUnencryptedHTTP2(protocol == "gRPC")
	t.Protocols.SetHTTP1(protocol != "gRPC")
	c.t.Cleanup(t.CloseIdleConnections)
	client := connect.NewClient(connecthttp.NewTransport(withKey{t, c.Key}, c.d.URL, slices.Concat(protocols[protocol], more)...))
	return &rpcs{SandboxServiceClient: sandboxv1connect.NewSandboxServiceClient(client), raw: client, t: c.t}
}

// sharedRPCs is a client of the shared daemon, for a test that runs beside others.
func sharedRPCs(t *testing.T) *rpcs {
	t.Helper()
	t.Parallel()
	return SharedDaemon(t).Admin().GRPC()
}

// session makes one, which ends with the test.
func (c *rpcs) session(q *sandboxv1.CreateSessionRequest) *sandboxv1.SessionInfo {
	c.t.Helper()
	a, err := c.CreateSession(c.t.Context(), q)
	if err != nil {
		c.t.Fatal(err)
	}
	sb := a.GetSession()
	c.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(c.t.Context()), time.Minute)
		defer cancel()
		_, _ = c.DestroySession(ctx, &sandboxv1.DestroySessionRequest{SessionId: sb.GetSessionId()}) // it, or its daemon, may be gone
	})
	return sb
}

func (c *rpcs) plain() string {
	c.t.Helper()
	return c.session(&sandboxv1.CreateSessionRequest{}).GetSessionId()
}

func (c *rpcs) exec(id, line string) *sandboxv1.ExecResponse {
	c.t.Helper()
	a, err := c.Exec(c.t.Context(), &sandboxv1.ExecRequest{SessionId: id, Command: line, Timeout: 30, Workdir: "/workspace"})
	if err != nil {
		c.t.Fatalf("%s: %v", line, err)
	}
	return a
}

// want runs a command that must succeed with this output.
func (c *rpcs) want(id, output, line string) {
	c.t.Helper()
	if a := c.exec(id, line); a.GetExitCode() != 0 || a.GetStdout() != output {
		c.t.Errorf("%s gives %v, want %q", line, a, output)
	}
}

func (c *rpcs) write(id, path, content, mode string) {
	c.t.Helper()
	a, err := c.WriteFile(c.t.Context(), &sandboxv1.WriteFileRequest{SessionId: id, Path: path, Content: content, Mode: mode})
	if err != nil || !a.GetSuccess() || a.Error != nil {
		c.t.Fatalf("write %s: %v, %v", path, a, err)
	}
}

func (c *rpcs) read(id, path string) *sandboxv1.ReadFileResponse {
	c.t.Helper()
	a, err := c.ReadFile(c.t.Context(), &sandboxv1.ReadFileRequest{SessionId: id, Path: path})
	if err != nil {
		c.t.Fatalf("read %s: %v", path, err)
	}
	return a
}

// defaultHosts are those of a session that names none.
func defaultHosts(t testing.TB) []string {
	t.Helper()
	hosts, ok := policy.Preset("default")
	if !ok || len(hosts) != 8 {
		t.Fatalf("the default hosts are %q", hosts)
	}
	return hosts
}
