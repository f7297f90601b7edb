package policy

import (
	_ "embed" // presets.txt
	"maps"
	"slices"
	"strings"
	"sync"
)

//go:embed presets.txt
var presetsText string

// presets are read when they are first needed.
var presets = sync.OnceValue(func() map[string][]string {
	all := map[string][]string{}
	for line := range strings.Lines(presetsText) {
		line, _, _ = strings.Cut(line, "#")
		if name, hosts, ok := strings.Cut(line, ":"); ok {
			all[strings.TrimSpace(name)] = strings.Fields(hosts)
		}
	}
	return all
})

// Presets are the names of the presets, sorted.
func Presets() []string { return slices.Sorted(maps.Keys(presets())) }

// Preset gives the entries of a preset, in their documented order. "default" has
// the hosts that callers get who ask for a network and say nothing else.
func Preset(name string) (entries []string, ok bool) {
	entries, ok = presets()[name]
	return slices.Clone(entries), ok
}
