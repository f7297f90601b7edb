package config

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"agentbox/internal/nearest"
	"agentbox/internal/sandbox"
)

// vain is a name that other products read and this version has nothing for.
// Whoever sets it is told: nobody should believe in a protection that isn't
// there. A value that would be wrong there is wrong here, too.
type vain struct {
	name    string
	generic bool // see alias
	check   func(v string) error
	// holds: what check lets through is so anyway, and needs no warning.
	holds bool
}

var vainVariables = []vain{
	{name: "SANDBOX_RUNTIME", check: oneOf("runc", "runsc")},
	{name: "SANDBOX_WORKSPACE_DIR"},
	{name: "DOCKER_AGENT_IMAGE"},
	{name: "DOCKER_AGENT_MEMORY_LIMIT", check: isSize},
	{name: "DOCKER_AGENT_CPU_LIMIT", check: isNumber},
	{name: "DOCKER_AGENT_TIMEOUT_SEC", check: isDuration},
	{name: "DOCKER_AGENT_MAX_OUTPUT_MB", check: isNumber},
	{name: "RATE_LIMIT_OPERATIONS_PER_HOUR", generic: true, check: isNumber},
}

// vainKeys are keys of other products' files.
var vainKeys = []vain{
	{name: "sandbox.use_sandbox", check: isBool},
	{name: "sandbox.work_dir"},
	{name: "sandbox.network_enabled", check: noNetwork, holds: true},
	{name: "daytona.daytona_api_key"},
	{name: "daytona.daytona_server_url"},
	{name: "daytona.daytona_target"},
	{name: "daytona.sandbox_image_name"},
	{name: "daytona.sandbox_entrypoint"},
	{name: "daytona.VNC_password"},
}

// fileAliases are keys of other products' files that set one of ours.
var fileAliases = map[string]string{
	"sandbox.memory_limit": "sandbox.memory",
	"sandbox.cpu_limit":    "sandbox.cpus",
	"sandbox.timeout":      "sandbox.exec_timeout",
}

// say warns of the name, if that is due, or tells what is wrong with its value.
func (n *vain) say(v string) (warning string, err error) {
	if n.check != nil {
		if err := n.check(v); err != nil {
			return "", fmt.Errorf("%s is wrong: %w", n.name, err)
		}
	}
	if n.holds {
		return "", nil
	}
	return n.name + " is set, and this version does nothing with it", nil
}

// idle warns of variables that are set in vain.
func idle(src Sources) (warnings []string, err error) {
	var errs []error
	for _, n := range vainVariables {
		if src.Env == nil || n.generic && !src.CompatEnv {
			continue
		}
		if v, ok := src.Env(n.name); ok && v != "" {
			w, err := n.say(v)
			if err != nil {
				errs = append(errs, err)
				continue
			}
			warnings = append(warnings, w)
		}
	}
	return append(warnings, misspelt(src.EnvNames)...), errors.Join(errs...)
}

// others are variables of ours that are no settings of the daemon, and look like
// one.
var others = []string{"AGENTBOX_URL", "AGENTBOX_API_KEY", "AGENTBOX_CONFIG", "AGENTBOX_SOAK", "AGENTBOX_SEED"}

// misspelt warns of variables whose names are almost those of settings.
func misspelt(names []string) []string {
	known := map[string]bool{}
	for _, o := range options(typeOfConfig) {
		known[o.env()] = true
	}
	settings := slices.Sorted(maps.Keys(known))
	var warnings []string
	for _, name := range slices.Sorted(slices.Values(names)) {
		if !strings.HasPrefix(name, "AGENTBOX_") || known[name] || slices.Contains(others, name) {
			continue
		}
		if like := nearest.Name(name, settings); like != "" {
			warnings = append(warnings, name+" is set, and there is no such setting; did you mean "+like+"?")
		}
	}
	return warnings
}

func oneOf(allowed ...string) func(string) error {
	return func(v string) error {
		if slices.Contains(allowed, v) {
			return nil
		}
		return fmt.Errorf("%q is not allowed: allowed is %s", v, strings.Join(allowed, ", "))
	}
}

func isBool(v string) error {
	_, err := (&option{key: "the value", kind: boolean}).parseBool(v)
	return err
}

func isNumber(v string) error {
	if f, err := strconv.ParseFloat(v, 64); err != nil || !(f >= 0) {
		return fmt.Errorf("%q is no number", v)
	}
	return nil
}

func isSize(v string) error {
	_, err := sandbox.ParseSize("the value", v)
	return err
}

func isDuration(v string) error {
	_, err := sandbox.ParseDuration("the value", v)
	return err
}

// noNetwork refuses to give all sandboxes a network.
func noNetwork(v string) error {
	on, err := (&option{key: "the value", kind: boolean}).parseBool(v)
	if err == nil && on {
		err = errors.New("a sandbox has a network only when the request for it asks for one")
	}
	return err
}
