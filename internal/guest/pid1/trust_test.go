//go:build linux

package pid1

import (
	"bytes"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"

	guestv1 "agentbox/internal/gen/guest/v1"
	"agentbox/internal/guest/agent"
)

const debianBundle = "/etc/ssl/certs/ca-certificates.crt"

func block(content string) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte(content)}))
}

// guestRoot is a file system with the given files.
func guestRoot(t *testing.T, files map[string]string) *trust {
	t.Helper()
	tr := &trust{root: t.TempDir()}
	for p, content := range files {
		p = filepath.Join(tr.root, p)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return tr
}

func (t *trust) content(tt *testing.T, p string) string {
	tt.Helper()
	b, err := os.ReadFile(t.root + p)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// The bundle of the system has the image's own certificates and those that were
// given, each once; what was given anew replaces what was given before.
func TestTrust(t *testing.T) {
	own := "# of the image\n" + block("own") + block("both")
	for name, at := range map[string][2]string{
		"debian": {debianBundle, "/usr/local/share/ca-certificates/agentbox.crt"},
		"fedora": {"/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", "/etc/pki/ca-trust/source/anchors/agentbox.crt"},
	} {
		t.Run(name, func(t *testing.T) {
			tr := guestRoot(t, map[string]string{at[0]: own})
			give := func(certs ...string) {
				t.Helper()
				var raw [][]byte
				for _, c := range certs {
					raw = append(raw, []byte(c))
				}
				if err := tr.give(raw); err != nil {
					t.Fatal(err)
				}
			}
			give()
			if got := tr.content(t, at[0]); got != own {
				t.Errorf("without any it is %q", got)
			}
			give("both", "a")
			want := own + trustBegin + block("a") + trustEnd
			if got := tr.content(t, at[0]); got != want {
				t.Errorf("the bundle is %q", got)
			}
			if got := tr.content(t, at[1]); got != block("both")+block("a") {
				t.Errorf("what was added is %q", got)
			}
			// Another agent, after a stop and a start, finds what it is about to write.
			tr = &trust{root: tr.root}
			give("both", "a")
			if got := tr.content(t, at[0]); got != want {
				t.Errorf("given again: %q", got)
			}
			// The sandbox's root added one of its own meanwhile.
			if err := os.WriteFile(tr.root+at[0], []byte(want+block("user")), 0o644); err != nil {
				t.Fatal(err)
			}
			give("b")
			if got := tr.content(t, at[0]); got != own+block("user")+trustBegin+block("b")+trustEnd {
				t.Errorf("given anew: %q", got)
			}
			if vars, java := tr.env(nil); valueOf(vars, "SSL_CERT_FILE") != at[0] || valueOf(vars, "NODE_EXTRA_CA_CERTS") != at[1] || java == "" {
				t.Errorf("the environment is %q, %q", vars, java)
			}
			tr = &trust{root: tr.root}
			give()
			if got := tr.content(t, at[0]) + tr.content(t, at[1]) + tr.content(t, javaStore); !strings.HasPrefix(got, own+block("user")) || strings.Contains(got, "agentbox begin") || strings.Count(got, "no such file") != 2 {
				t.Errorf("taken away: %q", got)
			}
			if vars, java := tr.env(nil); vars != nil || java != "" {
				t.Errorf("the environment is %q, %q", vars, java)
			}
		})
	}
}

// An image without a bundle gets one.
func TestTrustWithoutBundle(t *testing.T) {
	tr := guestRoot(t, nil)
	if err := tr.give([][]byte{[]byte("a")}); err != nil {
		t.Fatal(err)
	}
	if got := tr.content(t, debianBundle); got != trustBegin+block("a")+trustEnd {
		t.Errorf("the bundle is %q", got)
	}
}

// Nothing is written through a link, nor read from what is no file.
func TestTrustFollowsNothing(t *testing.T) {
	for name, p := range map[string]string{"the bundle": debianBundle, "its directory": "/etc/ssl", "additions": "/usr/local/share/ca-certificates", "the key store": "/run/agentbox"} {
		tr := guestRoot(t, map[string]string{"/victim/certs/ca-certificates.crt": "untouched", "/usr/local/share/x": ""})
		p = tr.root + p
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		to := tr.root + "/victim"
		if p == tr.root+debianBundle {
			to += "/certs/ca-certificates.crt"
		}
		if err := os.Symlink(to, p); err != nil {
			t.Fatal(err)
		}
		if err := tr.give([][]byte{[]byte("a")}); err == nil {
			t.Errorf("%s is a link, and that is no error", name)
		}
		if vars, _ := tr.env(nil); vars != nil {
			t.Errorf("%s: there is %q", name, vars)
		}
		entries, err := os.ReadDir(tr.root + "/victim")
		if got := tr.content(t, "/victim/certs/ca-certificates.crt"); err != nil || len(entries) != 1 || got != "untouched" {
			t.Errorf("%s: what the link leads to has %v, %q", name, entries, got)
		}
	}
	tr := guestRoot(t, map[string]string{debianBundle: strings.Repeat("#", maxBundle+1)})
	if err := tr.give([][]byte{[]byte("a")}); err == nil {
		t.Error("a bundle of any size is read")
	}
}

// What a command was given counts, also for programs that read more than one of
// the variables.
func TestTrustEnv(t *testing.T) {
	tr := &trust{bundle: "/b", added: "/a"}
	for _, c := range []struct {
		env  []string
		want map[string]string
	}{
		{nil, map[string]string{"SSL_CERT_FILE": "/b", "CURL_CA_BUNDLE": "/b", "PIP_CERT": "/b", "NODE_EXTRA_CA_CERTS": "/a", "JAVA_TOOL_OPTIONS": javaProxy() + " -Djavax.net.ssl.trustStore=" + javaStore}},
		{[]string{"SSL_CERT_FILE=/mine"}, map[string]string{"SSL_CERT_FILE": "/mine", "CURL_CA_BUNDLE": "", "PIP_CERT": "/b"}},
		{[]string{"REQUESTS_CA_BUNDLE=/mine"}, map[string]string{"REQUESTS_CA_BUNDLE": "/mine", "PIP_CERT": "", "SSL_CERT_FILE": "/b"}},
		{[]string{"NODE_EXTRA_CA_CERTS=", "JAVA_TOOL_OPTIONS=-Dx"}, map[string]string{"NODE_EXTRA_CA_CERTS": "", "JAVA_TOOL_OPTIONS": "-Dx"}},
	} {
		env := environment(agent.ProcessSpec{Env: c.env}, identity{uid: 1000, home: "/home/user"}, &guestv1.Network{}, tr)
		for name, want := range c.want {
			if got := valueOf(env, name); got != want {
				t.Errorf("%q: %s is %q, not %q", c.env, name, got, want)
			}
		}
	}
}

// What the sandbox's root makes of the bundle is read again at the next start.
func FuzzTrustBundle(f *testing.F) {
	f.Add([]byte(block("a") + trustBegin + block("b") + trustEnd))
	f.Add([]byte(trustEnd + trustBegin))
	f.Fuzz(func(t *testing.T, text []byte) {
		own := withoutBlock(text)
		if len(own) > len(text) {
			t.Errorf("%d bytes became %d", len(text), len(own))
		}
		certificates(own)
		with := withBlock(own, [][]byte{[]byte("a")})
		if n := len(own); n > 0 && own[n-1] == '\n' && !bytes.Contains(own, []byte(trustBegin)) && !bytes.Equal(withoutBlock(with), own) {
			t.Errorf("%q does not come back from %q", own, with)
		}
	})
}
