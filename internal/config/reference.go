package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

const referenceHead = `# Configuration of the daemon

Of ` + "`agentbox serve`" + `. Written from the source (` + "`make reference`" + `): don't edit.

A value comes from the first of these that has it: a flag, a variable, the file, a variable of another product (below), the default.
The file is TOML: the one that ` + "`--config` or `AGENTBOX_CONFIG`" + ` names, else /etc/agentbox/config.toml, for an ordinary user
$XDG_CONFIG_HOME/agentbox/config.toml. Names follow from the key: ` + "`limits.sandboxes` is `AGENTBOX_LIMITS_SANDBOXES` and `--limits-sandboxes`" + `; in the file it is
` + "`sandboxes` in the table `[limits]`" + `. Unknown keys are errors, misspelt variables warnings. A variable that is set to nothing counts as not set. ` + "`agentbox config show`" + ` prints what
holds and where each value came from.

Sizes are bytes, or a number with k, m, g or t (binary): ` + "`512m`" + `. Durations are seconds, or a text such as ` + "`1m30s`" + `. In variables and flags a list has
commas between its entries.
`

// Reference is docs/CONFIG.md.
func Reference() string {
	var b strings.Builder
	b.WriteString(referenceHead)
	for _, s := range sections(typeOfConfig) {
		if s.key == "" {
			b.WriteString("\n## Top level\n\n")
		} else {
			fmt.Fprintf(&b, "\n## [%s]\n\n%s\n\n", s.key, s.doc)
		}
		b.WriteString("| key | type | default | what |\n|---|---|---|---|\n")
		for _, o := range s.options {
			_, name, nested := strings.Cut(o.key, ".")
			if !nested {
				name = o.key
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", name, o.describeKind(), code(o.def), o.doc)
		}
	}
	b.WriteString("\n## Names of other products\n\nEach acts only when it is set and none of agentbox's own names sets the same. A wrong value is an error.\n\n")
	writeAliases(&b, false)
	b.WriteString("\nThese names are so general that they act with `--compat-env` only:\n\n")
	writeAliases(&b, true)
	b.WriteString("\n`MOCK_MODE` is refused. Rates are per minute there.\n\nIn the file:\n\n| key | key here |\n|---|---|\n")
	for _, key := range slices.Sorted(maps.Keys(fileAliases)) {
		fmt.Fprintf(&b, "| `%s` | `%s` |\n", key, fileAliases[key])
	}
	b.WriteString("\nThis version has nothing for the names below. A value that would be wrong there is an error all the same; another one\n" +
		"gets a warning. `sandbox.network_enabled` may be false only.\n\n")
	b.WriteString("Variables: " + names(vainVariables, false) + "; with `--compat-env` also " + names(vainVariables, true) + ".\n\n")
	b.WriteString("Keys: " + names(vainKeys, false) + ".\n")
	return b.String()
}

// names lists those with general names, or the others, as code.
func names(all []vain, generic bool) string {
	var list []string
	for _, n := range all {
		if n.generic == generic {
			list = append(list, code(n.name))
		}
	}
	return strings.Join(list, ", ")
}

func (o *option) describeKind() string {
	s := o.kind.String()
	if o.allow != nil {
		s = strings.Join(o.allow, ", ")
	}
	if o.min != "" {
		s += ", at least " + o.min
	}
	if o.min != "" && o.kind == text {
		s += " bytes"
	}
	return s
}

func writeAliases(b *strings.Builder, generic bool) {
	b.WriteString("| variable | key |\n|---|---|\n")
	for _, a := range aliases {
		if a.generic == generic {
			fmt.Fprintf(b, "| `%s` | `%s` |\n", a.name, a.key)
		}
	}
}

func code(s string) string {
	if s == "" {
		return ""
	}
	return "`" + s + "`"
}
