package config_test

import (
	"strings"
	"testing"

	"agentbox/internal/config"
)

// TestAliases: a variable of another product sets one of our options, says so,
// and loses against each of our own names. A value that is wrong is an error.
func TestAliases(t *testing.T) {
	for _, c := range []struct {
		name, value, key, want string
		generic                bool
		wrong                  []string
	}{
		{"STORAGE_PATH", "/srv/agents", "storage", "/srv/agents", false, []string{"agents", "./x"}},
		{"METRICS_PORT", "8000", "metrics_listen", "127.0.0.1:8000", false, []string{"0", "65536", "http", "-1", "tcp://10.0.0.1:80"}},
		{"PROXY_HOST", "host.docker.internal", "egress.proxy_host", "host.docker.internal", false, []string{"http://proxy", "proxy:15004", "a b", "0.0.0.0", "::"}},
		{"PROXY_HOST", "172.17.0.1", "egress.proxy_host", "172.17.0.1", false, nil},
		{"PROXY_PORT", "15005", "egress.proxy_port", "15005", false, []string{"0", "65536", "x", "-1"}},
		{"SIGNING_KEY", "test-signing-key", "egress.signing_key", "(hidden)", false, []string{"fifteen-bytes-1"}},
		{"API_PORT", "8000", "listen", "127.0.0.1:8000", true, []string{"x", "0"}},
		{"API_HOST", "0.0.0.0", "listen", "0.0.0.0:8700", true, nil},
		{"LOG_LEVEL", "INFO", "log.level", "info", true, []string{"loud"}},
		{"LOG_LEVEL", "WARNING", "log.level", "warn", true, nil},
		{"LOG_LEVEL", "CRITICAL", "log.level", "error", true, nil},
		{"REQUEST_TIMEOUT_SECONDS", "45", "http.body_timeout", "45s", true, []string{"-1", "soon"}},
		{"RATE_LIMIT_ENABLED", "true", "rate_limit.per_key", "2", true, []string{"perhaps"}},
		{"RATE_LIMIT_ENABLED", "true", "rate_limit.per_address", "1", true, nil},
		{"RATE_LIMIT_ENABLED", "No", "rate_limit.per_key", "0", true, nil},
		{"RATE_LIMIT_USE_IP", "YES", "rate_limit.per_address", "1", true, []string{"2"}},
		{"RATE_LIMIT_USE_SIGNATURE", "0", "rate_limit.per_key", "0", true, []string{"x"}},
		{"RATE_LIMIT_DEFAULT_RPM", "120", "rate_limit.per_address", "2", true, []string{"-1", "many", "1.5"}},
		{"RATE_LIMIT_IDENTITY_RPM", "30", "rate_limit.per_key", "0.5", true, []string{"-1"}},
		{"AUTOCODER_ALLOW_REMOTE", "0", "autocoder.local_only", "true", false, []string{"maybe"}},
		{"AUTOCODER_ALLOW_REMOTE", "Yes", "autocoder.local_only", "false", false, nil},
		{"AUTOCODER_AUTH_ENABLED", "1", "autocoder.auth_enabled", "true", false, []string{"2"}},
		{"AUTOCODER_AUTH_TYPE", "token", "autocoder.auth_type", "token", false, []string{"oauth", "Basic", "none"}},
		{"AUTOCODER_AUTH_USER", "u", "autocoder.auth_user", "u", false, nil},
		{"AUTOCODER_AUTH_PASS", "secret", "autocoder.auth_pass", "(hidden)", false, nil},
		{"AUTOCODER_ROOT_USER", "admin", "autocoder.root_user", "admin", false, nil},
		{"AUTOCODER_ROOT_PASS", "secret", "autocoder.root_pass", "(hidden)", false, nil},
		{"AUTOCODER_API_KEY", "secret", "autocoder.api_key", "(hidden)", false, nil},
		{"AUTOCODER_ENABLE_METRICS", "true", "autocoder.enable_metrics", "true", false, []string{"loud"}},
		{"RATE_LIMIT_WHITELIST_IPS", "10.0.0.0/8, ::1", "rate_limit.exempt", "10.0.0.0/8,::1", true, []string{"localhost"}},
	} {
		t.Run(c.name+"="+c.value, func(t *testing.T) {
			load := func(value string, compat bool, more ...string) (*config.Loaded, error) {
				vars := map[string]string{c.name: value}
				for i := 0; i < len(more); i += 2 {
					vars[more[i]] = more[i+1]
				}
				return config.Load(config.Sources{Env: env(vars), CompatEnv: compat})
			}
			l, err := load(c.value, c.generic)
			if err != nil {
				t.Fatal(err)
			}
			if s := setting(t, l, c.key); s.Value != c.want || s.Source != "env "+c.name || len(l.Warnings) > 0 {
				t.Errorf("%+v, warnings %q; want %q", s, l.Warnings, c.want)
			}
			own := "AGENTBOX_" + strings.ToUpper(strings.ReplaceAll(c.key, ".", "_"))
			if l, err = load(c.value, c.generic, own, ownValue(c.key)); err != nil {
				t.Fatal(err)
			}
			if s := setting(t, l, c.key); s.Source != "env "+own {
				t.Errorf("beside %s: %+v", own, s)
			}
			if l, err = load("", c.generic); err != nil || setting(t, l, c.key).Source != "default" {
				t.Errorf("set to nothing: %v", err)
			}
			if c.generic {
				if l, err = load(c.value, false); err != nil || setting(t, l, c.key).Source != "default" {
					t.Errorf("it acts without --compat-env: %v", err)
				}
			}
			for _, wrong := range c.wrong {
				if _, err := load(wrong, c.generic); err == nil || !strings.Contains(err.Error(), c.name) {
					t.Errorf("%s=%s: %v", c.name, wrong, err)
				}
			}
		})
	}
}

// ownValue is one that our own variable may have.
func ownValue(key string) string {
	switch key {
	case "storage":
		return "/other"
	case "metrics_listen", "listen":
		return "127.0.0.1:9"
	case "log.level":
		return "debug"
	case "autocoder.local_only", "autocoder.auth_enabled", "autocoder.enable_metrics":
		return "true"
	case "autocoder.auth_type":
		return "token"
	case "rate_limit.exempt":
		return "192.0.2.1"
	case "egress.signing_key":
		return "another-signing-key"
	default:
		return "7"
	}
}

// TestNamesInVain: what this version has nothing for is taken with a warning,
// but a value that is wrong is refused, and never repeated where it is a secret.
func TestNamesInVain(t *testing.T) {
	for _, c := range []struct {
		name, right, wrong string
		generic            bool
	}{
		{"SANDBOX_RUNTIME", "runsc", "docker", false}, {"SANDBOX_RUNTIME", "runc", "RUNC", false},
		{"SANDBOX_WORKSPACE_DIR", "/tmp/x", "", false},
		{"DOCKER_AGENT_MEMORY_LIMIT", "512m", "big", false}, {"DOCKER_AGENT_CPU_LIMIT", "1.0", "-1", false}, {"DOCKER_AGENT_TIMEOUT_SEC", "300", "x", false},
		{"RATE_LIMIT_OPERATIONS_PER_HOUR", "100", "x", true},
	} {
		load := func(value string, compat bool) (*config.Loaded, error) {
			return config.Load(config.Sources{Env: env(map[string]string{c.name: value}), CompatEnv: compat})
		}
		l, err := load(c.right, c.generic)
		if err != nil || len(l.Warnings) != 1 || !strings.Contains(l.Warnings[0], c.name) || strings.Contains(l.Warnings[0], "secret") {
			t.Errorf("%s=%s: %+v %v", c.name, c.right, l, err)
		}
		if c.generic {
			if l, err = load(c.right, false); err != nil || len(l.Warnings) != 0 {
				t.Errorf("%s without --compat-env: %+v %v", c.name, l, err)
			}
		}
		if c.wrong == "" {
			continue
		}
		if _, err = load(c.wrong, c.generic); err == nil || !strings.Contains(err.Error(), c.name) {
			t.Errorf("%s=%s: %v", c.name, c.wrong, err)
		}
	}
}

// TestFileOfAnotherProduct: its [sandbox] table is read, and its [daytona] table
// is no error.
func TestFileOfAnotherProduct(t *testing.T) {
	path := file(t, `
[sandbox]
use_sandbox = true
image = "python:3.12-slim"
work_dir = "/workspace"
memory_limit = "1g"
cpu_limit = 2.0
timeout = 300
network_enabled = false
[daytona]
daytona_api_key = "secret"
daytona_server_url = "https://x.example/api"
VNC_password = "secret"
`)
	l, err := config.Load(config.Sources{File: path})
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string][2]string{
		"sandbox.memory": {"1g", " sandbox.memory_limit"}, "sandbox.cpus": {"2", " sandbox.cpu_limit"}, "sandbox.exec_timeout": {"5m0s", " sandbox.timeout"},
		"sandbox.image": {"python:3.12-slim", ""},
	} {
		if s := setting(t, l, key); s.Value != want[0] || s.Source != "file "+path+want[1] {
			t.Errorf("%+v, want %q", s, want)
		}
	}
	all := strings.Join(l.Warnings, "\n")
	if len(l.Warnings) != 5 || !strings.Contains(all, "sandbox.work_dir") || !strings.Contains(all, "daytona.VNC_password") || strings.Contains(all, "secret") {
		t.Errorf("warnings:\n%s", all)
	}
	l, err = config.Load(config.Sources{File: file(t, "[sandbox]\nmemory = \"2g\"\nmemory_limit = \"1g\"\n")})
	if err != nil || l.Sandbox.Memory != 2<<30 {
		t.Errorf("beside its own name: %v", err)
	}
	for content, want := range map[string]string{
		"[sandbox]\nnetwork_enabled = true":  "asks for one",
		"[sandbox]\nuse_sandbox = \"maybe\"": "sandbox.use_sandbox",
		"[sandbox]\nmemory_limit = true":     "sandbox.memory_limit must be of type: size",
		"[sandbox]\ncpu_limit = \"two\"":     "sandbox.cpu_limit",
		"[daytona]\nbogus = 1":               `unknown key "daytona.bogus"`,
		"[sandbox]\nmemory_limt = \"1g\"":    "did you mean",
	} {
		if _, err := config.Load(config.Sources{File: file(t, content)}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", content, err)
		}
	}
}

// TestMisspeltVariables are warned of; other variables of ours are none.
func TestMisspeltVariables(t *testing.T) {
	l, err := config.Load(config.Sources{EnvNames: []string{
		"AGENTBOX_LISTNE", "AGENTBOX_LIMITS_SANDBOXS", "AGENTBOX_LISTEN", "PATH",
		"AGENTBOX_URL", "AGENTBOX_API_KEY", "AGENTBOX_CONFIG", "AGENTBOX_REGISTRY_MIRROR", "AGENTBOX_INSECURE_REGISTRY", "AGENTBOX_CA_FILE", "AGENTBOX_PORT_RANGE",
		"AGENTBOX_BIN", "AGENTBOX_ENGINE", "AGENTBOX_GUEST", "AGENTBOX_TEST_DIR", "AGENTBOX_TEST_STRICT", "AGENTBOX_SOAK", "AGENTBOX_SEED", "AGENTBOX_COMPAT",
	}})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"AGENTBOX_LIMITS_SANDBOXS is set, and there is no such setting; did you mean AGENTBOX_LIMITS_SANDBOXES?",
		"AGENTBOX_LISTNE is set, and there is no such setting; did you mean AGENTBOX_LISTEN?",
	}
	if strings.Join(l.Warnings, "\n") != strings.Join(want, "\n") {
		t.Errorf("%q", l.Warnings)
	}
}
