package agentbox

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// FindOptions bound a search.
type FindOptions struct {
	Exclude []string      // leave out what matches; a pattern without / is for names
	Limit   int           // how much is found at most; 0: 1000
	Timeout time.Duration // then what was found is all; 0: 10 s, at most 30 s
}

func (o *FindOptions) add(q url.Values) {
	q["exclude"] = o.Exclude
	if o.Limit > 0 {
		q.Set("limit", strconv.Itoa(o.Limit))
	}
	if o.Timeout > 0 {
		q.Set("timeout", strconv.FormatFloat(o.Timeout.Seconds(), 'f', -1, 64))
	}
}

// Found are the files that match.
type Found struct {
	Items     []FileInfo `json:"items"`
	Truncated string     `json:"truncated"` // count, size or time: why there may be more; empty: that is all
	Skipped   int        `json:"skipped"`   // directories that the user may not read
}

// Glob finds files below a directory by patterns: * and ? stand for anything but /, ** for
// any directories; there are [a-z], [!a-z] and {one,other}.
func (f *Files) Glob(ctx context.Context, path string, patterns []string, o FindOptions) (Found, error) {
	q := f.query(path)
	q["pattern"] = patterns
	o.add(q)
	return ask[Found](ctx, f.b.c, call{method: http.MethodGet, path: f.b.in("files", "glob"), query: q})
}

// SearchOptions are for Search.
type SearchOptions struct {
	FindOptions
	Literal      bool     // the pattern is no expression
	IgnoreCase   bool     //
	Include      []string // only files that match; a pattern without / is for names
	Context      int      // lines before and after a match
	LimitPerFile int      // 0: no limit of its own
}

// Line is a line that matches.
type Line struct {
	Path      string   `json:"path"`
	Line      int      `json:"line"`   // from 1
	Offset    int64    `json:"offset"` // of the line in the file, in bytes
	Start     int      `json:"start"`  // of the first match in the line, in bytes
	End       int      `json:"end"`
	Text      string   `json:"text"`
	TextStart int      `json:"text_start"` // where Text begins in the line, in bytes
	Cut       bool     `json:"cut"`        // Text is not the whole line
	Before    []string `json:"before"`
	After     []string `json:"after"`
}

// FoundLines are the lines that match.
type FoundLines struct {
	Items     []Line `json:"items"`
	Truncated string `json:"truncated"`  // count, size or time: why there may be more
	Files     int    `json:"files"`      // that were searched
	Binary    int    `json:"binary"`     // that were left out because they are binary
	LongLines int    `json:"long_lines"` // of which only the first 64 KiB were searched
	Skipped   int    `json:"skipped"`    // that were left out otherwise
}

// Search finds lines in the files below a directory by an expression of RE2.
func (f *Files) Search(ctx context.Context, path, pattern string, o SearchOptions) (FoundLines, error) {
	q := f.query(path)
	q.Set("pattern", pattern)
	o.add(q)
	q["include"] = o.Include
	for name, on := range map[string]bool{"literal": o.Literal, "ignore_case": o.IgnoreCase} {
		if on {
			q.Set(name, "true")
		}
	}
	for name, n := range map[string]int{"context": o.Context, "limit_per_file": o.LimitPerFile} {
		if n > 0 {
			q.Set(name, strconv.Itoa(n))
		}
	}
	return ask[FoundLines](ctx, f.b.c, call{method: http.MethodGet, path: f.b.in("files", "search"), query: q})
}

// Change is a change in a directory.
type Change struct {
	// Kind is ready (the first: from here on nothing is missed), create, write, remove,
	// rename, chmod, or overflow: something was missed, read the tree again.
	Kind string    `json:"-"`
	Path string    `json:"path"`
	Name string    `json:"name"` // below the directory; empty: the directory itself
	File *FileInfo `json:"file"` // what is there now; nil: nothing, or not known
}

// Watch goes through the changes in a directory until it is gone; recursive: and in those
// below, also those that come later.
func (f *Files) Watch(ctx context.Context, path string, recursive bool) iter.Seq2[Change, error] {
	q := f.query(path)
	if recursive {
		q.Set("recursive", "true")
	}
	return func(yield func(Change, error) bool) {
		for e, err := range f.b.c.events(ctx, call{method: http.MethodGet, path: f.b.in("files", "watch"), query: q}) {
			change := Change{Kind: e.name}
			switch {
			case err != nil:
			case e.name == "error":
				err = eventError(e.data)
			case e.name == "end":
				return
			default:
				if bad := json.Unmarshal(e.data, &change); bad != nil {
					err = fmt.Errorf("read an event of the server: %w", bad)
				}
			}
			if !yield(change, err) || err != nil {
				return
			}
		}
	}
}
