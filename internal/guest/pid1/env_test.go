//go:build linux

package pid1

import (
	"strings"
	"testing"

	guestv1 "agentbox/internal/gen/guest/v1"
	"agentbox/internal/guest/agent"
)

// Programs that a user installs come first for that user, and never for root.
func TestSearchPath(t *testing.T) {
	for _, c := range []struct {
		id   identity
		env  []string
		want string
	}{
		{id: identity{uid: 1000, home: "/home/user"}, want: "/home/user/.local/bin:" + systemPath},
		{id: identity{uid: 0, home: "/root"}, want: systemPath},
		{id: identity{uid: 0, home: "/home/user"}, want: systemPath},
		{id: identity{uid: 0, home: "/root"}, env: []string{"PATH=/x"}, want: "/x"},
	} {
		if got := valueOf(environment(agent.ProcessSpec{Env: c.env}, c.id, nil, new(trust)), "PATH"); got != c.want {
			t.Errorf("user %d has the path %q, not %q", c.id.uid, got, c.want)
		}
	}
}

// A command finds the proxy of a sandbox with a network; what it was given counts,
// in either spelling.
func TestProxyEnv(t *testing.T) {
	id := identity{uid: 1000, home: "/home/user"}
	const url = "http://127.0.0.1:3128"
	for _, c := range []struct {
		name string
		env  []string
		conf *guestv1.Network
		want map[string]string
	}{
		{"no network", nil, nil, map[string]string{"HTTP_PROXY": "", "https_proxy": "", "NO_PROXY": "", "JAVA_TOOL_OPTIONS": ""}},
		{"network", nil, &guestv1.Network{}, map[string]string{
			"HTTP_PROXY": url, "http_proxy": url, "HTTPS_PROXY": url, "https_proxy": url, "ALL_PROXY": url, "all_proxy": url, "NODE_USE_ENV_PROXY": "1",
			"JAVA_TOOL_OPTIONS": "-Dhttp.proxyHost=127.0.0.1 -Dhttp.proxyPort=3128 -Dhttps.proxyHost=127.0.0.1 -Dhttps.proxyPort=3128 -Dhttp.nonProxyHosts=localhost|127.*|[::1]",
		}},
		{"lower", []string{"https_proxy=mine"}, &guestv1.Network{}, map[string]string{"https_proxy": "mine", "HTTPS_PROXY": "", "http_proxy": url}},
		{"upper", []string{"NO_PROXY=mine"}, &guestv1.Network{}, map[string]string{"NO_PROXY": "mine", "no_proxy": ""}},
		{"empty", []string{"HTTP_PROXY="}, &guestv1.Network{}, map[string]string{"HTTP_PROXY": "", "http_proxy": ""}},
		{"other", []string{"JAVA_TOOL_OPTIONS=-Dx"}, &guestv1.Network{}, map[string]string{"JAVA_TOOL_OPTIONS": "-Dx"}},
	} {
		env := environment(agent.ProcessSpec{Env: c.env}, id, c.conf, new(trust))
		for name, want := range c.want {
			if got := valueOf(env, name); got != want {
				t.Errorf("%s: %s is %q, not %q", c.name, name, got, want)
			}
		}
		if no := valueOf(env, "no_proxy"); strings.Contains(no, "[") {
			t.Errorf("%s: no_proxy is %q; httpx does not start with a bracket in it", c.name, no)
		}
	}
}
