package agent

import (
	"slices"
	"strings"
)

// FirstNames collects the first names of a directory in the order of bytes. Its
// memory is bounded by the limit, however large the directory is.
type FirstNames struct {
	after string
	limit int
	names []string
	more  bool
}

// NewFirstNames collects at most limit names that come after the given one; ""
// is before all.
func NewFirstNames(after string, limit int) *FirstNames {
	return &FirstNames{after: after, limit: limit}
}

// Add takes names in any order.
func (f *FirstNames) Add(names []string) {
	for _, n := range names {
		switch {
		case n <= f.after:
		case f.more && n > f.names[f.limit-1]: // the first limit names are sorted then
		default:
			f.names = append(f.names, n)
		}
		if len(f.names) >= 2*f.limit+64 {
			f.cut()
		}
	}
}

func (f *FirstNames) cut() {
	slices.Sort(f.names)
	if len(f.names) > f.limit {
		clear(f.names[f.limit:])
		f.names, f.more = f.names[:f.limit], true
	}
}

// Sorted returns the names, and whether there are more.
func (f *FirstNames) Sorted() ([]string, bool) {
	f.cut()
	return f.names, f.more
}

// join is a path of dir's entry. Not path.Join: it would resolve ".." before
// links.
func join(dir, name string) string {
	switch {
	case dir == "" || name == "":
		return dir + name
	case strings.HasSuffix(dir, "/"):
		return dir + name
	}
	return dir + "/" + name
}

// base is a path's last element, without slashes behind it; "" for the root
// directory.
func base(p string) string {
	p = strings.TrimRight(p, "/")
	return p[strings.LastIndexByte(p, '/')+1:]
}

// parent is the directory that a path's last element is in, "." for a relative
// path of one element.
func parent(p string) string {
	p = strings.TrimRight(p, "/")
	i := strings.LastIndexByte(p, '/')
	switch {
	case i < 0 && p == "":
		return "/"
	case i < 0:
		return "."
	}
	if d := strings.TrimRight(p[:i], "/"); d != "" {
		return d
	}
	return "/"
}
