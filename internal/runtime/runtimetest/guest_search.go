package runtimetest

import (
	"slices"
	"strings"
	"time"

	"github.com/containerd/errdefs"

	"agentbox/internal/guest/client"
)

var searchCases = []guestCase{
	{"Glob", testGlob},
	{"Search", testSearch},
	{"SearchRights", testSearchRights},
	{"SearchLimits", testSearchLimits},
}

// project makes a tree to look through.
func (g *guest) project() {
	g.sh("mkdir -p /tmp/p/src/sub /tmp/p/.git /tmp/p/node_modules/m; cd /tmp/p; printf 'package a\\n// FIND one\\n' > src/a.go; printf 'x\\nfind two\\n' > src/sub/b.go; " +
		"printf 'FIND three\\n' > node_modules/m/c.go; printf 'FIND git\\n' > .git/config; printf 'FIND\\000' > bin; mkfifo p; ln -s src link; printf 'FIND read me\\n' > 'read me.md'")
}

func (g *guest) glob(o client.GlobOptions, patterns ...string) []string {
	g.Helper()
	r, err := g.s.Glob(g.ctx, "/tmp/p", patterns, o)
	g.ok(err)
	var paths []string
	for _, i := range r.Entries {
		paths = append(paths, strings.TrimPrefix(i.Path, "/tmp/p/"))
	}
	if r.Truncated != client.Complete {
		paths = append(paths, string(r.Truncated))
	}
	return paths
}

func testGlob(g *guest) {
	g.project()
	for _, c := range []struct {
		o        client.GlobOptions
		patterns []string
		want     []string
	}{
		{client.GlobOptions{}, []string{"**/*.go"}, []string{"node_modules/m/c.go", "src/a.go", "src/sub/b.go"}},
		{client.GlobOptions{Exclude: []string{"node_modules"}}, []string{"**/*.go"}, []string{"src/a.go", "src/sub/b.go"}},
		{client.GlobOptions{}, []string{"*"}, []string{".git", "bin", "link", "node_modules", "p", "read me.md", "src"}},
		{client.GlobOptions{}, []string{"src/*", "*.md"}, []string{"read me.md", "src/a.go", "src/sub"}},
		{client.GlobOptions{Limit: 1}, []string{"**/*.go"}, []string{"node_modules/m/c.go", "count"}},
		{client.GlobOptions{Limit: 3}, []string{"**/*.go"}, []string{"node_modules/m/c.go", "src/a.go", "src/sub/b.go"}},
		{client.GlobOptions{}, []string{"none"}, nil},
	} {
		if got := g.glob(c.o, c.patterns...); !slices.Equal(got, c.want) {
			g.Errorf("%q %+v: got %q, want %q", c.patterns, c.o, got, c.want)
		}
	}
	for _, bad := range []string{"[", "/tmp", ""} {
		_, err := g.s.Glob(g.ctx, "/tmp/p", []string{bad}, client.GlobOptions{})
		g.want("pattern "+bad, err, errdefs.IsInvalidArgument)
	}
	_, err := g.s.Glob(g.ctx, "/tmp/none", []string{"*"}, client.GlobOptions{})
	g.want("a directory that is not there", err, errdefs.IsNotFound)
	_, err = g.s.Glob(g.ctx, "/tmp/p", []string{"*"}, client.GlobOptions{Timeout: time.Hour})
	g.want("an hour", err, errdefs.IsInvalidArgument)
}

func (g *guest) search(name, pattern string, o client.SearchOptions) *client.SearchResult {
	g.Helper()
	r, err := g.s.Search(g.ctx, name, pattern, o)
	g.ok(err)
	return r
}

func testSearch(g *guest) {
	g.project()
	paths := func(r *client.SearchResult) (list []string) {
		for _, m := range r.Matches {
			list = append(list, strings.TrimPrefix(m.Path, "/tmp/p/"))
		}
		return list
	}
	r := g.search("/tmp/p", `\bFIND\b`, client.SearchOptions{Exclude: []string{".git"}})
	if got := paths(r); !slices.Equal(got, []string{"node_modules/m/c.go", "read me.md", "src/a.go"}) || r.Binary != 1 || r.Files != 4 || r.Truncated != "" {
		g.Errorf("got %q: %+v", got, r)
	}
	if m := r.Matches[2]; m.Line != 2 || m.Text != "// FIND one" || m.Start != 3 || m.End != 7 || m.Offset != 10 {
		g.Errorf("got %+v", m)
	}
	r = g.search("/tmp/p", "find", client.SearchOptions{IgnoreCase: true, Include: []string{"*.go"}, Exclude: []string{"node_modules"}, Context: 2})
	if got := paths(r); !slices.Equal(got, []string{"src/a.go", "src/sub/b.go"}) || !slices.Equal(r.Matches[0].Before, []string{"package a"}) {
		g.Errorf("got %q: %+v", got, r)
	}
	r = g.search("/tmp/p/src/a.go", "FIND one", client.SearchOptions{Literal: true})
	if len(r.Matches) != 1 || r.Matches[0].Path != "/tmp/p/src/a.go" {
		g.Errorf("one file: got %+v", r)
	}
	if r = g.search("/tmp/p/link", "FIND", client.SearchOptions{}); len(r.Matches) != 1 || r.Matches[0].Path != "/tmp/p/link/a.go" {
		g.Errorf("by a link: got %+v", r)
	}
	for pattern, is := range map[string]func(error) bool{"(": errdefs.IsInvalidArgument, "": errdefs.IsInvalidArgument} {
		_, err := g.s.Search(g.ctx, "/tmp/p", pattern, client.SearchOptions{})
		g.want("pattern "+pattern, err, is)
	}
	_, err := g.s.Search(g.ctx, "/tmp/p/p", "x", client.SearchOptions{})
	g.want("search a FIFO", err, errdefs.IsInvalidArgument)
}

func testSearchRights(g *guest) {
	g.sh("mkdir -p /tmp/sr/shut; printf 'secret word\\n' > /tmp/sr/shut/f; printf 'secret word\\n' > /tmp/sr/closed; chmod 0 /tmp/sr/closed /tmp/sr/shut; printf 'secret word\\n' > /tmp/sr/open")
	r := g.search("/tmp/sr", "secret", client.SearchOptions{})
	if len(r.Matches) != 1 || r.Skipped.Total != 2 || r.Skipped.First[0].Reason != client.SkipDenied {
		g.Errorf("got %+v", r)
	}
	if r := g.search("/tmp/sr", "secret", client.SearchOptions{User: "root"}); len(r.Matches) != 3 {
		g.Errorf("root found %+v", r)
	}
	_, err := g.s.Search(g.ctx, "/root", "x", client.SearchOptions{})
	g.want("search in /root", err, errdefs.IsPermissionDenied)
}

func testSearchLimits(g *guest) {
	g.write("/tmp/sl/many", strings.Repeat("match\n", 20_000), client.WriteOptions{Parents: true})
	r := g.search("/tmp/sl", "match", client.SearchOptions{})
	if len(r.Matches) != 1000 || r.Truncated != client.TruncatedCount {
		g.Errorf("%d matches, %q", len(r.Matches), r.Truncated)
	}
	if r := g.search("/tmp/sl", "match", client.SearchOptions{LimitPerFile: 1}); len(r.Matches) != 1 || r.Truncated != client.Complete {
		g.Errorf("%d matches, %q", len(r.Matches), r.Truncated)
	}
	if r := g.search("/tmp/sl", "match", client.SearchOptions{MaxFileSize: 100}); len(r.Matches) != 0 || r.Skipped.Total != 1 || r.Skipped.First[0].Reason != client.SkipSize {
		g.Errorf("got %+v", r)
	}
	g.write("/tmp/sl/wide", strings.Repeat(strings.Repeat("w", 3000)+"\n", 5000), client.WriteOptions{})
	r = g.search("/tmp/sl/wide", "w$", client.SearchOptions{Limit: 10_000, MaxLine: 4096, Timeout: 30 * time.Second})
	if len(r.Matches) < 1000 || len(r.Matches) == 5000 || r.Truncated != client.TruncatedSize {
		g.Errorf("%d matches, %q", len(r.Matches), r.Truncated)
	}
	if r := g.search("/tmp", "match", client.SearchOptions{Timeout: 1}); r.Truncated != client.TruncatedTime {
		g.Errorf("in a nanosecond: %q", r.Truncated)
	}
}
