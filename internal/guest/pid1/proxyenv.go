//go:build linux

package pid1

import (
	"fmt"
	"os"
	"strings"

	"agentbox/internal/guest/agent"
)

// proxyEnv are the variables by which programs find the agent's proxy. Most
// programs read one of the two spellings of the first four: curl, git, wget, apt,
// pip, Python's libraries, npm, cargo, Go. Node's fetch asks for a mark, yarn
// has settings of its own, Java has [javaProxy]. None names SOCKS, which the proxy speaks too:
// some libraries refuse to work when they see a scheme that they lack. asked is
// what a command was given: a variable whose other spelling is there is left out,
// since which of the two counts depends on the program.
func proxyEnv(asked []string) []string {
	taken := map[string]bool{}
	for _, e := range asked {
		name, _, _ := strings.Cut(e, "=")
		taken[strings.ToUpper(name)] = true
	}
	at := agent.ProxyAddr
	url := "http://" + at.String()
	no := "localhost,127.0.0.1,127.0.0.0/8,::1,[::1]" // Python compares it as it stands in a URL
	if name, err := os.Hostname(); err == nil && name != "" {
		no += "," + name
	}
	env := make([]string, 0, 12)
	for _, v := range []struct{ name, value string }{{"HTTP_PROXY", url}, {"HTTPS_PROXY", url}, {"ALL_PROXY", url}, {"NO_PROXY", no}} {
		if !taken[v.name] {
			env = append(env, v.name+"="+v.value, strings.ToLower(v.name)+"="+v.value)
		}
	}
	return append(env, "NODE_USE_ENV_PROXY=1", "YARN_HTTP_PROXY="+url, "YARN_HTTPS_PROXY="+url)
}

// javaProxy are the options that lead Java's own HTTP client to the proxy.
func javaProxy() string {
	at := agent.ProxyAddr
	var b strings.Builder
	for _, scheme := range []string{"http", "https"} {
		fmt.Fprintf(&b, "-D%s.proxyHost=%s -D%s.proxyPort=%d ", scheme, at.Addr(), scheme, at.Port())
	}
	return b.String() + "-Dhttp.nonProxyHosts=localhost|127.*|[::1]"
}
