package packages_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/containerd/errdefs"

	"agentbox/internal/packages"
	"agentbox/internal/sandbox"
)

func tool(t testing.TB, name string) packages.Tool {
	t.Helper()
	p, ok := packages.Find(name)
	if !ok {
		t.Fatalf("there is no %s", name)
	}
	return p
}

var full = sandbox.Network{Mode: sandbox.NetworkFull}

// TestNames: what may be installed is named in one narrow form.
func TestNames(t *testing.T) {
	for name, c := range map[string]struct{ good, bad []string }{
		"pip": {
			good: []string{"requests", "numpy>=1.2,<2", "uvicorn[standard]>=0.2", "django~=4.2", "0x", "a.b_c-d", "x[a,b.c]==1.*", "x!=1", "foo===" + "1", "zip", "x.zipped", "tar.x"},
			bad: []string{
				"", " ", "-r x", "-r", "--index-url=https://evil.example", "--index-url https://evil.example", "https://evil.example/x.whl", "git+https://evil.example/x",
				"git+file:///", "file:///etc/passwd", "./x", "/x", "x/y", "name @ https://evil.example/x", "x; python_version<'3'", "x ; touch /pwn", "x; touch /pwn", "x y", "torch==1+cu118",
				"x\n", "x\r", "\nx", "x\x00", "x`id`", "$(id)", "x$(id)", "x'", "x\"", "x[", "x[]", "x[a", "x[a]b", "x=", "x>=1 ", "ünder", "x==１", "-", ".x", "_x", "x[a b]", "x\\",
				strings.Repeat("x", packages.MaxName+1),
				"x.whl", "x.ZIP", "x.tar.gz", "x.tgz", "x.whl[a]", "x==1.zip", "x[a]==1.tar.bz2",
			},
		},
		"npm": {
			good: []string{"express", "@types/node", "left-pad@^1.3", "x@1.2.3-rc.1+b", "x@latest", "x@>=1", "x@*", "Jade"},
			bad: []string{
				"", "-g", "--registry=https://evil.example", "user/repo", "@a/b/c", "./x", "../x", "/x", "x@npm:y", "x@file:/etc", "git://x", "git+ssh://x", "https://x", "x@https://x",
				"x.tgz", "x.tar", "x.tar.gz", "x.tar-gz", "x.TGZ@1", "x@1.tgz", "@a/x.tgz",
				"x y", "x;id", "$(id)", "x@", "x@@y", "@/x", "@a/", "x\n", "_x", ".x", "x@-1",
			},
		},
		"apt": {
			good: []string{"jq", "g++", "libstdc++6", "git=1:2.47.3-0+deb13u1", "libc6:amd64", "python3.13", "jq=1.6~", "jq=1"},
			bad:  []string{"", "a", "-y", "jq-", "jq/stable", "./x.deb", "/x.deb", "jq jq", "JQ", "^jq", "jq$", "jq*", "jq=", "jq:", "?name(x)", "~n", "jq\n", "jq=1.6-", "jq=installed-", "jq=-", "-oDir::Etc=x", "jq;id"},
		},
	} {
		p := tool(t, name)
		for _, s := range c.good {
			cmd, err := p.Command(full, []string{"first", s})
			if err != nil || cmd.Argv[len(cmd.Argv)-1] != s || cmd.Shell != "" || cmd.Timeout <= 0 {
				t.Errorf("%s %q: %+v, %v", name, s, cmd, err)
			}
		}
		for _, s := range c.bad {
			_, err := p.Command(full, []string{"first", s})
			if len(s) > packages.MaxName {
				s = s[:packages.MaxName] + "…"
			}
			var refused *packages.RefusedError
			if !errors.As(err, &refused) || !errdefs.IsInvalidArgument(err) || err.Error() != "Invalid package specifier: "+s {
				t.Errorf("%s %q: %v", name, s, err)
			}
		}
	}
	if _, ok := packages.Find("gem"); ok {
		t.Error("found what is not there")
	}
}

// TestHosts: with a list, the index's hosts stand in it by their names.
func TestHosts(t *testing.T) {
	list := func(entries ...string) sandbox.Network { return sandbox.Network{Allow: entries} }
	pip, npm, apt := tool(t, "pip"), tool(t, "npm"), tool(t, "apt")
	for _, c := range []struct {
		tool packages.Tool
		net  sandbox.Network
		ok   bool
	}{
		{pip, sandbox.Network{}, false},
		{pip, sandbox.Network{Mode: sandbox.NetworkNone}, false},
		{pip, full, true},
		{pip, list("pypi.org", "files.pythonhosted.org"), true},
		{pip, list("python"), true},
		{pip, list("default"), true},
		{pip, list("pypi.org"), false},
		{pip, list("files.pythonhosted.org", "example.com"), false},
		{pip, list("pypi.org", "*.pythonhosted.org"), false},
		{pip, list("pypi.org", "GET files.pythonhosted.org/*"), false},
		{npm, list("node"), true},
		{npm, list("python"), false},
		{apt, sandbox.Network{}, true}, // its sources are the image's
	} {
		_, err := c.tool.Command(c.net, []string{"six"})
		if (err == nil) != c.ok {
			t.Errorf("%s with %+v: %v", c.tool.Name, c.net, err)
		}
		if err != nil && (!errdefs.IsPermissionDenied(err) || !strings.HasSuffix(err.Error(), " in allowed_hosts")) {
			t.Errorf("%s with %+v: %v", c.tool.Name, c.net, err)
		}
	}
	_, err := pip.Command(list(), nil)
	if want := "pip install requires pypi.org and files.pythonhosted.org in allowed_hosts"; err == nil || err.Error() != want {
		t.Errorf("it says %v, not %s", err, want)
	}
}

// TestCommands: what runs, and that callers do not share it.
func TestCommands(t *testing.T) {
	pip, apt := tool(t, "pip"), tool(t, "apt")
	one, err := pip.Command(full, []string{"a", "b>=1"})
	two, err2 := pip.Command(full, nil)
	if err = errors.Join(err, err2); err != nil || !slices.Equal(one.Argv, []string{"pip", "install", "--user", "a", "b>=1"}) || len(two.Argv) != 3 || one.Timeout != packages.Timeout {
		t.Errorf("%+v, %+v, %v", one, two, err)
	}
	if c, err := apt.Command(full, []string{"jq"}); err != nil || c.User != "root" {
		t.Errorf("%+v, %v", c, err)
	}
	if _, err := pip.Command(full, make([]string, packages.MaxPackages+1)); !errdefs.IsInvalidArgument(err) {
		t.Errorf("too many: %v", err)
	}
	if _, err := pip.Command(full, []string{strings.Repeat("ä", 1<<19)}); err == nil || len(err.Error()) > 300 || !utf8.ValidString(err.Error()) {
		t.Errorf("a long name: %.400v", err)
	}
}

// FuzzName: whatever is taken can be no option, path, URL, pattern or second
// argument of any shell.
func FuzzName(f *testing.F) {
	for _, s := range []string{"requests", "x[a]>=1,<2", "@a/b@^1", "g++=1:2", "-r x", "x; id", "git+file:///"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for _, p := range packages.Tools() {
			if _, err := p.Command(full, []string{s}); err != nil {
				continue
			}
			rest := s
			if p.Name == "npm" {
				rest = strings.TrimPrefix(s, "@")
				scope, name, scoped := strings.Cut(rest, "/")
				if scoped && (rest == s || scope == "") {
					t.Errorf("npm takes %q", s)
				}
				rest = scope + name
			}
			if s == "" || rest == "" || strings.ContainsAny(rest[:1], "-./_~^") || strings.ContainsAny(rest, " \t\r\n\x00/\\'\"`$;|&(){}#?%") || strings.Contains(s, "://") {
				t.Errorf("%s takes %q", p.Name, s)
			}
			for _, r := range s {
				if r > 0x7e {
					t.Errorf("%s takes %q", p.Name, s)
				}
			}
			if p.Name == "apt" && strings.HasSuffix(strings.SplitN(s, "=", 2)[0], "-") {
				t.Errorf("apt would remove %q", s)
			}
		}
	})
}
