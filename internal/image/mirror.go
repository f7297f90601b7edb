package image

import (
	"fmt"
	"io/fs"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
)

// mirror is where the packages of an image come from.
type mirror struct {
	main     string // URI of a Debian mirror
	security string // URI of the archive of security updates, or ""
}

// debianSuites are the names that tell the Debian archive from others, in the
// apt sources of a host.
var debianSuites = []string{
	"bullseye", "bookworm", "trixie", "forky", "duke", "sid",
	"oldoldstable", "oldstable", "stable", "testing", "unstable",
}

// unreleased suites have neither updates nor security archives.
var unreleased = []string{"sid", "unstable", "experimental"}

// parseMirror reads what a caller gave: one URI, optionally a comma and that of
// the archive of security updates.
func parseMirror(s string) (mirror, error) {
	main, security, _ := strings.Cut(s, ",")
	m := mirror{main: strings.TrimSpace(main), security: strings.TrimSpace(security)}
	for _, u := range []string{m.main, m.security} {
		if p, err := url.Parse(u); u != "" && (err != nil || !usable(u) || p.Host == "" || strings.ContainsAny(u, " \t\n[]")) {
			return mirror{}, fmt.Errorf("mirror %q is no http or https URL: %w", u, errdefs.ErrInvalidArgument)
		}
	}
	if m.main == "" {
		return mirror{}, fmt.Errorf("mirror %q is empty: %w", s, errdefs.ErrInvalidArgument)
	}
	return m, nil
}

func usable(uri string) bool {
	return strings.HasPrefix(uri, "http://") || strings.HasPrefix(uri, "https://")
}

// hostMirror finds the Debian mirror in a host's /etc/apt.
func hostMirror(etcApt fs.FS) (mirror, error) {
	var m mirror
	best := -1
	for _, s := range aptSources(etcApt) {
		if !slices.Contains(s.components, "main") || !usable(s.uri) {
			continue
		}
		release, security := strings.CutSuffix(s.suite, "-security")
		switch {
		case !slices.Contains(debianSuites, release):
		case security:
			if m.security == "" {
				m.security = s.uri
			}
		default:
			// Others name their suites after Debian's too.
			if n := s.likeness(); n > best {
				m.main, best = s.uri, n
			}
		}
	}
	if m.main == "" {
		return mirror{}, fmt.Errorf("this machine's apt sources name no Debian mirror: give one with --mirror URL (make: MIRROR=URL): %w", errdefs.ErrFailedPrecondition)
	}
	return m, nil
}

// sources returns the lines of sources.list for a suite.
func (m mirror) sources(suite string, components []string) string {
	var b strings.Builder
	line := func(uri, suite string) {
		fmt.Fprintf(&b, "deb [signed-by=%s] %s %s %s\n", keyring, uri, suite, strings.Join(components, " "))
	}
	line(m.main, suite)
	if !slices.Contains(unreleased, suite) {
		line(m.main, suite+"-updates")
		if m.security != "" {
			line(m.security, suite+"-security")
		}
	}
	return b.String()
}

// aptSource is one suite of one archive in a host's apt sources.
type aptSource struct {
	uri, suite string
	components []string
	signedBy   string
}

// likeness tells how much s looks like the Debian archive itself.
func (s aptSource) likeness() int {
	n := 0
	if slices.Contains(strings.Split(s.uri, "/"), "debian") {
		n += 2
	}
	if strings.Contains(s.signedBy, "debian-archive") {
		n++
	}
	return n
}

// maxSources bounds one file of apt sources.
const maxSources = 1 << 20

// aptSources reads all sources of a host, in both formats, in apt's order. What
// can't be read is left out.
func aptSources(etcApt fs.FS) []aptSource {
	files := []string{"sources.list"}
	for _, pattern := range []string{"sources.list.d/*.list", "sources.list.d/*.sources"} {
		more, _ := fs.Glob(etcApt, pattern) // the patterns are good
		files = append(files, more...)
	}
	var all []aptSource
	for _, name := range files {
		text, err := fs.ReadFile(etcApt, name)
		if err != nil || len(text) > maxSources {
			continue
		}
		if path.Ext(name) == ".sources" {
			all = append(all, parseDeb822(string(text))...)
		} else {
			all = append(all, parseOneLine(string(text))...)
		}
	}
	return all
}

// parseOneLine reads "deb [options] uri suite component…" lines.
func parseOneLine(text string) []aptSource {
	var all []aptSource
	for line := range strings.SplitSeq(text, "\n") {
		line, _, _ = strings.Cut(line, "#")
		rest, ok := strings.CutPrefix(strings.ReplaceAll(strings.TrimSpace(line), "\t", " "), "deb ")
		if !ok {
			continue
		}
		options := ""
		if rest = strings.TrimSpace(rest); strings.HasPrefix(rest, "[") {
			if options, rest, ok = strings.Cut(rest[1:], "]"); !ok {
				continue
			}
		}
		if f := strings.Fields(rest); len(f) >= 2 {
			all = append(all, aptSource{f[0], f[1], f[2:], options})
		}
	}
	return all
}

// parseDeb822 reads stanzas of fields.
func parseDeb822(text string) []aptSource {
	var all []aptSource
	fields := map[string]string{}
	flush := func() {
		if slices.Contains(strings.Fields(fields["types"]), "deb") && strings.TrimSpace(fields["enabled"]) != "no" {
			for _, uri := range strings.Fields(fields["uris"]) {
				for _, suite := range strings.Fields(fields["suites"]) {
					all = append(all, aptSource{uri, suite, strings.Fields(fields["components"]), fields["signed-by"]})
				}
			}
		}
		clear(fields)
	}
	last := ""
	for line := range strings.SplitSeq(text, "\n") {
		switch {
		case strings.HasPrefix(line, "#"):
		case strings.TrimSpace(line) == "":
			flush()
			last = ""
		case line[0] == ' ' || line[0] == '\t':
			fields[last] += " " + line
		default:
			key, value, _ := strings.Cut(line, ":")
			last = strings.ToLower(strings.TrimSpace(key))
			fields[last] = value
		}
	}
	flush()
	return all
}
