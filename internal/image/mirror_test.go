package image

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/containerd/errdefs"
)

func apt(files map[string]string) fstest.MapFS {
	fsys := fstest.MapFS{}
	for name, text := range files {
		fsys[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return fsys
}

func TestHostMirror(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		want  mirror
	}{
		"one-line": {map[string]string{"sources.list": `
# deb http://old.example/debian bookworm main
deb-src http://src.example/debian bookworm main
deb cdrom:[Debian 12]/ bookworm main
deb	http://mirror.example/debian/ bookworm main contrib # comment
deb http://mirror.example/debian bookworm-updates main
deb [arch=amd64 signed-by=/x.gpg] http://security.example/debian-security bookworm-security main
`}, mirror{"http://mirror.example/debian/", "http://security.example/debian-security"}},
		"deb822": {map[string]string{"sources.list.d/debian.sources": `Types: deb deb-src
# comment
URIs: https://mirror.example/debian
Suites: trixie
 trixie-updates
Components: main
Signed-By:
 -----BEGIN PGP PUBLIC KEY BLOCK-----

types: deb
uris: https://mirror.example/debian-security
suites: trixie-security
components: main
`}, mirror{"https://mirror.example/debian", "https://mirror.example/debian-security"}},
		"disabled": {map[string]string{"sources.list": "deb http://a.example/debian sid main", "sources.list.d/x.sources": "Enabled: no\nTypes: deb\nURIs: http://b.example/debian-security\nSuites: sid-security\nComponents: main\n"},
			mirror{main: "http://a.example/debian"}},
		"others that use Debian's names": {map[string]string{"sources.list.d/a.list": "deb [signed-by=/a.gpg] https://apt.vendor.example bookworm main", "sources.list.d/b.list": "deb https://x.example/linux/debian bookworm stable",
			"sources.list.d/z.sources": "Types: deb\nURIs: https://cache.example/proxy\nSuites: bookworm\nComponents: main\nSigned-By: /usr/share/keyrings/debian-archive-keyring.gpg\n"},
			mirror{main: "https://cache.example/proxy"}},
		"snapshot": {map[string]string{"sources.list": "deb [check-valid-until=no] http://snapshot.example/archive/debian/20260101T000000Z trixie main"}, mirror{main: "http://snapshot.example/archive/debian/20260101T000000Z"}},
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := hostMirror(apt(c.files)); err != nil || got != c.want {
				t.Errorf("got %+v, %v, want %+v", got, err, c.want)
			}
		})
	}
}

func TestHostWithoutDebianMirror(t *testing.T) {
	for name, files := range map[string]map[string]string{
		"nothing":         {},
		"Ubuntu":          {"sources.list": "deb http://archive.example/ubuntu noble main universe", "sources.list.d/ubuntu.sources": "Types: deb\nURIs: http://archive.example/ubuntu/\nSuites: noble noble-updates\nComponents: main\n"},
		"only a CD":       {"sources.list": "deb cdrom:[Debian]/ trixie main"},
		"broken":          {"sources.list": "deb [arch=amd64 http://x/debian trixie main\ndeb\ndeb x\n"},
		"only a security": {"sources.list": "deb http://x.example/debian-security trixie-security main"},
	} {
		if m, err := hostMirror(apt(files)); !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), "--mirror") || !strings.Contains(err.Error(), "MIRROR=") {
			t.Errorf("%s: got %+v, %v", name, m, err)
		}
	}
}

func TestGivenMirror(t *testing.T) {
	m, err := parseMirror("http://a.example/debian, https://b.example/debian-security")
	if err != nil || m != (mirror{"http://a.example/debian", "https://b.example/debian-security"}) {
		t.Errorf("got %+v, %v", m, err)
	}
	want := "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://a.example/debian trixie main contrib\n" +
		"deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://a.example/debian trixie-updates main contrib\n" +
		"deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] https://b.example/debian-security trixie-security main contrib\n"
	if got := m.sources("trixie", []string{"main", "contrib"}); got != want {
		t.Errorf("sources are\n%s", got)
	}
	if got := m.sources("sid", []string{"main"}); strings.Count(got, "\n") != 1 {
		t.Errorf("sources of an unreleased suite are\n%s", got)
	}
	for _, bad := range []string{"/debian", "ftp://x/debian", "http://", "http://x/debian sid main", "http://x/[trusted=yes]", ",http://x/", "http://x/\nhttp://y/"} {
		if m, err := parseMirror(bad); !errdefs.IsInvalidArgument(err) {
			t.Errorf("%q: got %+v, %v", bad, m, err)
		}
	}
}

func FuzzAptSources(f *testing.F) {
	f.Add("deb [a=b] http://x/debian trixie main\n", "Types: deb\nURIs: http://x/debian\nSuites: trixie\nComponents: main\n\n x: y")
	f.Fuzz(func(t *testing.T, one, deb822 string) {
		m, err := hostMirror(apt(map[string]string{"sources.list": one, "sources.list.d/x.sources": deb822}))
		if err == nil && (!usable(m.main) || strings.ContainsAny(m.main+m.security, " \t\n")) {
			t.Errorf("mirror %q, %q", m.main, m.security)
		}
	})
}
