package config

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
)

// alias is a variable of another product that sets one of our options, so that
// a deployment of it can switch without new variables.
type alias struct {
	name string
	key  string
	// generic names are so general that a variable of that name may be meant
	// for anything: they act with --compat-env only.
	generic bool
	// convert turns the variable's value into the option's; nil: as it is. It
	// may look at others.
	convert func(v string, env func(string) (string, bool)) (string, error)
}

func (a *alias) value(v string, env func(string) (string, bool)) (string, error) {
	if a.convert == nil {
		return v, nil
	}
	v, err := a.convert(v, env)
	if err != nil {
		return "", fmt.Errorf("%s is wrong: %w", a.name, err)
	}
	return v, nil
}

// aliases stand in the order in which they are looked at.
var aliases = []alias{
	{name: "STORAGE_PATH", key: "storage"},
	{name: "GRPC_PORT", key: "grpc.listen", convert: loopbackPort},
	{name: "SANDBOX_IMAGE", key: "grpc.image"},
	{name: "SESSION_TIMEOUT", key: "grpc.session_timeout"},
	{name: "METRICS_PORT", key: "metrics_listen", convert: loopbackPort},
	{name: "AUTOCODER_ALLOW_REMOTE", key: "autocoder.local_only", convert: localOnly},
	{name: "AUTOCODER_AUTH_ENABLED", key: "autocoder.auth_enabled"},
	{name: "AUTOCODER_AUTH_TYPE", key: "autocoder.auth_type"},
	{name: "AUTOCODER_AUTH_USER", key: "autocoder.auth_user"},
	{name: "AUTOCODER_AUTH_PASS", key: "autocoder.auth_pass"},
	{name: "AUTOCODER_ROOT_USER", key: "autocoder.root_user"},
	{name: "AUTOCODER_ROOT_PASS", key: "autocoder.root_pass"},
	{name: "AUTOCODER_API_KEY", key: "autocoder.api_key"},
	{name: "AUTOCODER_ENABLE_METRICS", key: "autocoder.enable_metrics"},
	{name: "PROXY_HOST", key: "egress.proxy_host"},
	{name: "PROXY_PORT", key: "egress.proxy_port", convert: proxyPort},
	{name: "SIGNING_KEY", key: "egress.signing_key"},
	{name: "API_PORT", key: "listen", generic: true, convert: apiListen},
	{name: "API_HOST", key: "listen", generic: true, convert: apiHost},
	{name: "LOG_LEVEL", key: "log.level", generic: true, convert: logLevel},
	{name: "REQUEST_TIMEOUT_SECONDS", key: "http.body_timeout", generic: true},
	{name: "RATE_LIMIT_USE_SIGNATURE", key: "rate_limit.per_key", generic: true, convert: perKey},
	{name: "RATE_LIMIT_IDENTITY_RPM", key: "rate_limit.per_key", generic: true, convert: perKey},
	{name: "RATE_LIMIT_USE_IP", key: "rate_limit.per_address", generic: true, convert: perAddress},
	{name: "RATE_LIMIT_DEFAULT_RPM", key: "rate_limit.per_address", generic: true, convert: perAddress},
	{name: "RATE_LIMIT_ENABLED", key: "rate_limit.per_key", generic: true, convert: perKey},
	{name: "RATE_LIMIT_ENABLED", key: "rate_limit.per_address", generic: true, convert: perAddress},
	{name: "RATE_LIMIT_WHITELIST_IPS", key: "rate_limit.exempt", generic: true},
}

// mock refuses a switch that turns checks of signatures off elsewhere.
func mock(src Sources) error {
	if src.Env == nil || !src.CompatEnv {
		return nil
	}
	v, _ := src.Env("MOCK_MODE")
	on := option{key: "MOCK_MODE", kind: boolean}
	yes, err := on.parseBool(v)
	if err == nil && yes {
		err = errors.New("MOCK_MODE is set: agentbox never goes without its checks; unset it")
	}
	return err
}

func port(v string) error {
	if n, err := strconv.ParseUint(v, 10, 16); err != nil || n == 0 {
		return fmt.Errorf("%q is no port: allowed is 1 to 65535", v)
	}
	return nil
}

// localOnly is the opposite of a switch that lets other machines in. Whether they can
// come says listen.
func localOnly(v string, _ func(string) (string, bool)) (string, error) {
	remote, err := (&option{key: "the value", kind: boolean}).parseBool(v)
	return strconv.FormatBool(!remote), err
}

func loopbackPort(v string, _ func(string) (string, bool)) (string, error) {
	return net.JoinHostPort("127.0.0.1", v), port(v)
}

func proxyPort(v string, _ func(string) (string, bool)) (string, error) { return v, port(v) }

// apiListen takes the address from API_HOST, whose default there is 0.0.0.0;
// here nobody is on all interfaces by chance.
func apiListen(v string, env func(string) (string, bool)) (string, error) {
	host, _ := env("API_HOST")
	if host == "" {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, v), port(v)
}

func apiHost(v string, _ func(string) (string, bool)) (string, error) {
	return net.JoinHostPort(v, "8700"), nil
}

func logLevel(v string, _ func(string) (string, bool)) (string, error) {
	switch v = strings.ToLower(v); v {
	case "warning":
		return "warn", nil
	case "critical", "fatal":
		return "error", nil
	default:
		return v, nil
	}
}

func perKey(_ string, env func(string) (string, bool)) (string, error) {
	return perMinute(env, "RATE_LIMIT_USE_SIGNATURE", "RATE_LIMIT_IDENTITY_RPM", 120)
}

func perAddress(_ string, env func(string) (string, bool)) (string, error) {
	return perMinute(env, "RATE_LIMIT_USE_IP", "RATE_LIMIT_DEFAULT_RPM", 60)
}

// perMinute gives a rate per second of variables that speak of minutes, with
// the numbers that hold there when only a switch is set.
func perMinute(env func(string) (string, bool), use, rpm string, def float64) (string, error) {
	for _, name := range []string{"RATE_LIMIT_ENABLED", use} {
		on := option{key: name, kind: boolean}
		v, ok := env(name)
		if !ok || v == "" {
			continue
		}
		if yes, err := on.parseBool(v); err != nil || !yes {
			return "0", err
		}
	}
	if v, ok := env(rpm); ok && v != "" {
		n, err := strconv.ParseUint(v, 10, 31)
		if err != nil {
			return "", fmt.Errorf("%s %q is no whole number", rpm, v)
		}
		def = float64(n)
	}
	return strconv.FormatFloat(def/60, 'f', -1, 64), nil
}
