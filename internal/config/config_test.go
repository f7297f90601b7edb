package config_test

import (
	"flag"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"agentbox/internal/config"
)

var update = flag.Bool("update", false, "write docs/CONFIG.md anew")

func env(vars map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) { v, ok := vars[name]; return v, ok }
}

func file(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.toml")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func setting(t *testing.T, l *config.Loaded, key string) config.Setting {
	t.Helper()
	i := slices.IndexFunc(l.Settings, func(s config.Setting) bool { return s.Key == key })
	if i < 0 {
		t.Fatalf("no setting %q", key)
	}
	return l.Settings[i]
}

// TestPrecedence takes one source after the other away.
func TestPrecedence(t *testing.T) {
	path := file(t, "metrics_listen = \"127.0.0.1:3\"\n")
	vars := map[string]string{"AGENTBOX_METRICS_LISTEN": "127.0.0.1:2", "METRICS_PORT": "4"}
	src := config.Sources{File: path, Env: env(vars), Flags: map[string]string{"metrics-listen": "127.0.0.1:1"}}
	for _, step := range []struct {
		want, source string
		then         func()
	}{
		{"127.0.0.1:1", "flag --metrics-listen", func() { src.Flags = nil }},
		{"127.0.0.1:2", "env AGENTBOX_METRICS_LISTEN", func() { vars["AGENTBOX_METRICS_LISTEN"] = "" }},
		{"127.0.0.1:3", "file " + path, func() { src.File = "" }},
		{"127.0.0.1:4", "env METRICS_PORT", func() { delete(vars, "METRICS_PORT") }},
		{"", "default", func() {}},
	} {
		l, err := config.Load(src)
		if err != nil {
			t.Fatal(err)
		}
		if s := setting(t, l, "metrics_listen"); l.MetricsListen != step.want || s.Value != step.want || s.Source != step.source {
			t.Errorf("metrics_listen is %q, shown as %+v; want %q of %s", l.MetricsListen, s, step.want, step.source)
		}
		step.then()
	}
}

func TestFile(t *testing.T) {
	l, err := config.Load(config.Sources{File: file(t, `
data_dir = "/tmp/x"
no_auth = true
allow_origin = ["https://a.example", "https://b.example"]
[http]
header_timeout = 2.5
body_timeout = "1m30s"
[rate_limit]
per_key = 7
[sandbox]
memory = "1.5g"
disk = 1048576
cpus = 0.5
[limits]
sandboxes = 3
`)})
	if err != nil {
		t.Fatal(err)
	}
	switch {
	case l.DataDir != "/tmp/x", l.Socket != "/tmp/x/agentbox.sock", !l.NoAuth, len(l.AllowOrigin) != 2,
		l.HTTP.HeaderTimeout != 2500*time.Millisecond, l.HTTP.BodyTimeout != 90*time.Second, l.RateLimit.PerKey != 7,
		l.Sandbox.Memory != 3<<29, l.Sandbox.Disk != 1<<20, l.Sandbox.CPUs != 0.5, l.Limits.Sandboxes != 3:
		t.Errorf("read as %+v", l.Config)
	}
	if s := setting(t, l, "socket"); s.Value != l.Socket || s.Source != "default" {
		t.Errorf("the socket is shown as %+v", s)
	}
}

// TestRefused wants each message to name what is wrong and what would be right.
func TestRefused(t *testing.T) {
	for name, c := range map[string]struct {
		file      string
		env       map[string]string
		flags     map[string]string
		compatEnv bool
		want      []string
	}{
		"unknown key":          {file: "listne = \"x\"", want: []string{`"listne"`, "did you mean listen?"}},
		"unknown key in table": {file: "[limits]\nsandboxs = 3", want: []string{`"limits.sandboxs"`, "limits.sandboxes"}},
		"wrong table name":     {file: "[limit]\nsandboxes = 3", want: []string{"limits.sandboxes"}},
		"key without table":    {file: "sandboxes = 3", want: []string{`"sandboxes"`, "limits.sandboxes"}},
		"deeper table":         {file: "[limits.sandboxes]\nx = 3", want: []string{"limits.sandboxes must be of type: whole number"}},
		"two at once":          {file: "bogus_one = 1\nbogus_two = 2", want: []string{"bogus_one", "bogus_two"}},
		"wrong type":           {file: "no_auth = \"yes\"", want: []string{"no_auth must be of type: true or false"}},
		"list as text":         {file: "allow_origin = \"https://a\"", want: []string{"allow_origin must be of type: list"}},
		"no TOML":              {file: "listen = ", want: []string{"line 1"}},
		"size":                 {file: "[sandbox]\nmemory = \"4XB\"", want: []string{"sandbox.memory", "512m"}},
		"negative size":        {file: "[sandbox]\nmemory = -1", want: []string{"sandbox.memory"}},
		"duration":             {env: map[string]string{"AGENTBOX_HTTP_BODY_TIMEOUT": "soon"}, want: []string{"env AGENTBOX_HTTP_BODY_TIMEOUT", "1m30s"}},
		"negative duration":    {flags: map[string]string{"http-body-timeout": "-1s"}, want: []string{"flag --http-body-timeout"}},
		"not a number":         {flags: map[string]string{"sandbox-cpus": "NaN"}, want: []string{"sandbox.cpus"}},
		"too small":            {flags: map[string]string{"limits-sandboxes": "0"}, want: []string{"at least 1"}},
		"closed list":          {flags: map[string]string{"log-level": "loud"}, want: []string{"debug, info, warn, error"}},
		"half of TLS":          {flags: map[string]string{"tls-cert": "/x"}, want: []string{"tls.cert and tls.key"}},
		"a login for nothing":  {flags: map[string]string{"no-auth": "true"}, env: map[string]string{"AUTOCODER_AUTH_ENABLED": "1"}, want: []string{"no_auth and autocoder.auth_enabled"}},
		"no port":              {flags: map[string]string{"listen": "localhost"}, want: []string{"listen", "127.0.0.1:8700"}},
		"relative path":        {flags: map[string]string{"storage": "here"}, want: []string{"absolute"}},
		"network":              {flags: map[string]string{"rate-limit-exempt": "10.0.0.0/64"}, want: []string{"rate_limit.exempt"}},
		"proxy with a port":    {flags: map[string]string{"egress-proxy-host": "proxy.example:15004"}, want: []string{"flag --egress-proxy-host", "without a port"}},
		"proxy nowhere":        {flags: map[string]string{"egress-proxy-host": "0.0.0.0"}, want: []string{"egress.proxy_host"}},
		"proxy's port":         {flags: map[string]string{"egress-proxy-port": "70000"}, want: []string{"egress.proxy_port", "65535"}},
		"proxy by name":        {flags: map[string]string{"egress-proxy-host": "a", "egress-proxy-listen": "localhost"}, want: []string{"egress.proxy_listen", "172.17.0.1"}},
		"proxy off":            {flags: map[string]string{"egress-proxy-listen": "127.0.0.1"}, want: []string{"egress.proxy_host"}},
		"short key":            {file: "[egress]\nsigning_key = \"fifteen-bytes-1\"", want: []string{"egress.signing_key", "at least 16 bytes", "(hidden)"}},
		"alias":                {env: map[string]string{"METRICS_PORT": "70000"}, want: []string{"METRICS_PORT", "65535"}},
		"mock mode":            {env: map[string]string{"MOCK_MODE": "true"}, compatEnv: true, want: []string{"MOCK_MODE"}},
	} {
		t.Run(name, func(t *testing.T) {
			src := config.Sources{Env: env(c.env), Flags: c.flags, CompatEnv: c.compatEnv}
			if c.file != "" {
				src.File = file(t, c.file)
			}
			_, err := config.Load(src)
			if err == nil {
				t.Fatal("taken")
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%v\nwants %q", err, want)
				}
			}
		})
	}
	if _, err := config.Load(config.Sources{File: "/nonexistent/agentbox.toml"}); err == nil {
		t.Error("a file that isn't there is taken")
	}
}

func TestGeneralNamesActOnRequestOnly(t *testing.T) {
	src := config.Sources{Env: env(map[string]string{
		"API_PORT": "9000", "API_HOST": "::1", "LOG_LEVEL": "WARNING", "RATE_LIMIT_DEFAULT_RPM": "120", "RATE_LIMIT_USE_SIGNATURE": "false", "DOCKER_AGENT_IMAGE": "x",
	})}
	l, err := config.Load(src)
	if err != nil {
		t.Fatal(err)
	}
	if l.Listen != "127.0.0.1:8700" || l.Log.Level != "info" || l.RateLimit.PerAddress != 0 {
		t.Errorf("general names act unasked: %+v", l.Config)
	}
	if len(l.Warnings) != 1 || !strings.Contains(l.Warnings[0], "DOCKER_AGENT_IMAGE") {
		t.Errorf("warnings %q, want one for DOCKER_AGENT_IMAGE", l.Warnings)
	}
	src.CompatEnv = true
	if l, err = config.Load(src); err != nil {
		t.Fatal(err)
	}
	if l.Listen != "[::1]:9000" || l.Log.Level != "warn" || l.RateLimit.PerAddress != 2 || l.RateLimit.PerKey != 0 {
		t.Errorf("with --compat-env: %+v", l.Config)
	}
}

// TestProxyAddress: the listener is there only when it was asked for, and on no
// interface by chance.
func TestProxyAddress(t *testing.T) {
	for _, c := range []struct {
		host, listen, want string
	}{
		{"", "", ""}, {"172.17.0.1", "", "172.17.0.1:15004"}, {"fd00::1", "", "[fd00::1]:15004"}, {"host.docker.internal", "", "127.0.0.1:15004"},
		{"host.docker.internal", "172.17.0.1", "172.17.0.1:15004"}, {"203.0.113.7", "0.0.0.0", "0.0.0.0:15004"},
	} {
		l, err := config.Load(config.Sources{Flags: map[string]string{"egress-proxy-host": c.host, "egress-proxy-listen": c.listen}})
		if err != nil || l.Egress.ProxyAddress() != c.want {
			t.Errorf("called %q, on %q: %q, %v", c.host, c.listen, l.Egress.ProxyAddress(), err)
		}
	}
}

func TestDefaultFile(t *testing.T) {
	named := env(map[string]string{"AGENTBOX_CONFIG": "/named/config.toml"})
	if got := config.DefaultFile(named); got != "/named/config.toml" {
		t.Errorf("with AGENTBOX_CONFIG it is %q", got)
	}
	if os.Geteuid() == 0 {
		return // the file of root is the machine's own
	}
	home := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", home)
	if got := config.DefaultFile(env(nil)); got != "" {
		t.Errorf("without a file it is %q", got)
	}
	path := filepath.Join(home, "agentbox", "config.toml")
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := config.DefaultFile(env(nil)); got != path {
		t.Errorf("it is %q", got)
	}
}

func TestFlags(t *testing.T) {
	fs := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	fs.String("config", "", "not an option")
	config.AddFlags(fs)
	if err := fs.Parse([]string{"--no-auth", "--allow-origin", "https://a", "--allow-origin=https://b", "--limits-sandboxes", "3", "--config", "x"}); err != nil {
		t.Fatal(err)
	}
	given := config.FlagValues(fs)
	if want := []string{"allow-origin", "limits-sandboxes", "no-auth"}; !slices.Equal(slices.Sorted(maps.Keys(given)), want) {
		t.Errorf("given are %v", given)
	}
	l, err := config.Load(config.Sources{Flags: given})
	if err != nil {
		t.Fatal(err)
	}
	if !l.NoAuth || len(l.AllowOrigin) != 2 || l.Limits.Sandboxes != 3 {
		t.Errorf("read as %+v", l.Config)
	}
}

func TestReferenceIsCurrent(t *testing.T) {
	const path = "../../docs/CONFIG.md"
	if *update {
		if err := os.WriteFile(path, []byte(config.Reference()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != config.Reference() {
		t.Errorf("%s is not what the source says (%v): run make reference", path, err)
	}
}
