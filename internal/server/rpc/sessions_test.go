package rpc_test

import (
	"slices"
	"strings"
	"sync"
	"testing"

	"connectrpc.com/connect/v2"

	sandboxv1 "agentbox/internal/gen/sandbox/v1"
	"agentbox/internal/sandbox"
)

func ptr[T any](v T) *T { return &v }

// TestSessions: each protocol makes, shows, uses and ends the same kind of session.
func TestSessions(t *testing.T) {
	w := start(t)
	for name := range protocols {
		t.Run(name, func(t *testing.T) {
			c := w.by(name, w.acme)
			sb := w.session(c)
			if len(sb.GetContainerId()) != 12 || strings.Count(sb.GetSessionId(), "-") != 4 || sb.GetStatus() != "running" || sb.TenantId != nil {
				t.Errorf("a new session is %v", sb)
			}
			if got := w.exec(c, sb.GetSessionId(), "echo hello"); got.GetStdout() != "hello\n" || got.GetExitCode() != 0 || got.GetTimedOut() {
				t.Errorf("echo gives %v", got)
			}
			all, err := c.ListSessions(t.Context(), &sandboxv1.ListSessionsRequest{})
			if err != nil || !slices.ContainsFunc(all.GetSessions(), func(s *sandboxv1.SessionInfo) bool { return s.GetSessionId() == sb.GetSessionId() }) {
				t.Errorf("the list is %v, %v", all, err)
			}
			got, err := c.GetSession(t.Context(), &sandboxv1.GetSessionRequest{SessionId: sb.GetSessionId()})
			if err != nil || got.GetSession().GetContainerId() != sb.GetContainerId() || got.GetSession().GetLastActivity() < sb.GetCreatedAt() {
				t.Errorf("get gives %v, %v", got, err)
			}
			for _, want := range []bool{true, false} {
				if gone, err := c.DestroySession(t.Context(), &sandboxv1.DestroySessionRequest{SessionId: sb.GetSessionId()}); err != nil || gone.GetSuccess() != want {
					t.Errorf("destroy gives %v, %v; want %v", gone, err, want)
				}
			}
			if _, err := c.GetSession(t.Context(), &sandboxv1.GetSessionRequest{SessionId: sb.GetSessionId()}); connect.CodeOf(err) != connect.CodeNotFound || !strings.HasSuffix(err.Error(), "Session not found") {
				t.Errorf("get of a destroyed one: %v", err)
			}
		})
	}
}

// TestCreateIsIdempotent: who comes second gets what the first one made, also while
// it is being made; what else is asked for counts not. Another owner's is another.
func TestCreateIsIdempotent(t *testing.T) {
	w := start(t)
	c := w.client(w.acme)
	var wg sync.WaitGroup
	ids := make([]string, 8)
	for i := range ids {
		wg.Go(func() {
			a, err := c.CreateSession(t.Context(), &sandboxv1.CreateSessionRequest{SessionId: ptr("same"), AllowedHosts: []string{"h" + string(rune('a'+i)) + ".example"}})
			if err != nil {
				t.Error(err)
			}
			ids[i] = a.GetSession().GetContainerId()
		})
	}
	wg.Wait()
	if slices.Sort(ids); ids[0] == "" || ids[0] != ids[7] {
		t.Errorf("one id gave sandboxes %v", ids)
	}
	a, err := w.client(w.other).CreateSession(t.Context(), &sandboxv1.CreateSessionRequest{SessionId: ptr("same")})
	if err != nil || a.GetSession().GetContainerId() == ids[0] {
		t.Errorf("another owner's is %v, %v", a, err)
	}
}

// TestAllowedHosts: what is asked for is what is answered, and what the core gets
// means the same.
func TestAllowedHosts(t *testing.T) {
	w := start(t)
	c := w.client(w.acme)
	for _, one := range []struct {
		asked, core []string
	}{
		{nil, []string{"index.example", "files.example"}},
		{[]string{"example.com"}, []string{"example.com"}},
		{[]string{"localhost"}, []string{"localhost"}},
		{[]string{"*.example.org", "b.example"}, []string{"*.example.org", "example.org", "b.example"}},
		{[]string{"*.example.org", "example.org"}, []string{"*.example.org", "example.org", "example.org"}},
		{[]string{"python"}, []string{"python."}}, // a host, and no preset
	} {
		a, err := c.CreateSession(t.Context(), &sandboxv1.CreateSessionRequest{AllowedHosts: one.asked})
		if err != nil {
			t.Errorf("%q: %v", one.asked, err)
			continue
		}
		sb, err := w.boxes.Get(t.Context(), sandbox.Caller{Owner: "acme"}, a.GetSession().GetSessionId())
		if err != nil || !slices.Equal(sb.Network.Allow, one.core) {
			t.Errorf("%q is %q in the core, %v", one.asked, sb.Network.Allow, err)
		}
		want := one.asked
		if want == nil {
			want = one.core
		}
		if got := a.GetSession().GetAllowedHosts(); !slices.Equal(got, want) {
			t.Errorf("%q is answered with %q", one.asked, got)
		}
		if err := w.boxes.Destroy(t.Context(), sandbox.Caller{Owner: "acme"}, sb.UID); err != nil {
			t.Error(err)
		}
	}
	_, err := c.CreateSession(t.Context(), &sandboxv1.CreateSessionRequest{AllowedHosts: []string{"https://a.example/x"}})
	if connect.CodeOf(err) != connect.CodeInvalidArgument || !strings.Contains(err.Error(), "allowed_hosts") {
		t.Errorf("a URL: %v", err)
	}
}

// TestNET18_EmptyLists: in this door no hosts are the default ones. A word is a host,
// never a mode or a preset; what is no host is refused.
func TestNET18_EmptyLists(t *testing.T) {
	w := start(t)
	c := w.client(w.acme)
	for _, one := range []struct{ asked, core []string }{
		{nil, []string{"index.example", "files.example"}},
		{[]string{}, []string{"index.example", "files.example"}},
		{[]string{"localhost"}, []string{"localhost"}},
		{[]string{"none"}, []string{"none."}},
		{[]string{"full"}, []string{"full."}},
		{[]string{""}, nil}, {[]string{"*"}, nil}, {[]string{"a.example", ""}, nil}, {[]string{"*.com"}, nil}, {[]string{"0.0.0.0/0"}, nil}, {[]string{" "}, nil},
	} {
		a, err := c.CreateSession(t.Context(), &sandboxv1.CreateSessionRequest{AllowedHosts: one.asked})
		if one.core == nil {
			if connect.CodeOf(err) != connect.CodeInvalidArgument || !strings.Contains(err.Error(), "allowed_hosts") {
				t.Errorf("%q: %v", one.asked, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%q: %v", one.asked, err)
			continue
		}
		sb, err := w.boxes.Get(t.Context(), sandbox.Caller{Owner: "acme"}, a.GetSession().GetSessionId())
		if err != nil || sb.Network.Mode != sandbox.NetworkAllowlist || !slices.Equal(sb.Network.Allow, one.core) {
			t.Errorf("%q is %+v in the core, %v", one.asked, sb.Network, err)
		}
	}
}

// TestNetworkAndLimits are the additions to the contract.
func TestNetworkAndLimits(t *testing.T) {
	w := start(t)
	c := w.client(w.acme)
	a, err := c.CreateSession(t.Context(), &sandboxv1.CreateSessionRequest{Network: sandboxv1.Network_NETWORK_NONE, Limits: &sandboxv1.Limits{MemoryBytes: 64 << 20, Pids: 50}})
	if err != nil || len(a.GetSession().GetAllowedHosts()) != 0 {
		t.Fatalf("without a network: %v, %v", a, err)
	}
	sb, err := w.boxes.Get(t.Context(), sandbox.Caller{Owner: "acme"}, a.GetSession().GetContainerId())
	if err != nil || sb.Network.Mode != sandbox.NetworkNone || sb.Limits.Memory != 64<<20 || sb.Limits.Pids != 50 || sb.Workdir != "/workspace" || !sb.Expires.IsZero() {
		t.Errorf("%+v, %v", sb, err)
	}
	for name, q := range map[string]*sandboxv1.CreateSessionRequest{
		"G24 tenant_id":  {TenantId: ptr("../x")},
		"G24 session_id": {SessionId: ptr("a/b")},
		"memory":         {Limits: &sandboxv1.Limits{MemoryBytes: 1 << 50}},
		"cpus":           {Limits: &sandboxv1.Limits{Cpus: -1}},
		"hosts":          {Network: sandboxv1.Network_NETWORK_NONE, AllowedHosts: []string{"a.example"}},
		"network":        {Network: 9},
	} {
		if _, err := c.CreateSession(t.Context(), q); connect.CodeOf(err) != connect.CodeInvalidArgument {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestTenants: storage is a tenant's within its owner, and echoed.
func TestTenants(t *testing.T) {
	w := start(t)
	c := w.client(w.acme)
	var infos []*sandboxv1.SessionInfo
	for _, tenant := range []string{"a", "a", "b"} {
		a, err := c.CreateSession(t.Context(), &sandboxv1.CreateSessionRequest{TenantId: &tenant})
		if err != nil || a.GetSession().GetTenantId() != tenant {
			t.Fatalf("%v, %v", a, err)
		}
		infos = append(infos, a.GetSession())
	}
	w.exec(c, infos[0].GetSessionId(), "echo kept >/workspace/f")
	for i, want := range []string{"kept\n", "kept\n", ""} {
		if got := w.exec(c, infos[i].GetSessionId(), "cat /workspace/f").GetStdout(); got != want {
			t.Errorf("session %d sees %q", i, got)
		}
	}
}

// TestQuota: no more sandboxes than an owner may have, in the text that is known.
func TestQuota(t *testing.T) {
	w := start(t)
	c := w.client(w.acme)
	for range 8 {
		w.session(c)
	}
	_, err := c.CreateSession(t.Context(), &sandboxv1.CreateSessionRequest{})
	if connect.CodeOf(err) != connect.CodeResourceExhausted || !strings.Contains(err.Error(), "Maximum number of sandboxes (8) reached") {
		t.Errorf("the ninth: %v", err)
	}
}

// TestTEN10RetryAfter: who is refused for now learns when to ask again.
func TestTEN10RetryAfter(t *testing.T) {
	w := start(t)
	c := w.client(w.acme)
	for range 8 {
		w.session(c)
	}
	ctx, info := connect.NewClientContext(t.Context())
	_, err := c.CreateSession(ctx, &sandboxv1.CreateSessionRequest{})
	if connect.CodeOf(err) != connect.CodeResourceExhausted || info.ResponseTrailer().Get("Retry-After") != "10" {
		t.Errorf("one too many: %v, %v", err, info.ResponseTrailer())
	}
}
