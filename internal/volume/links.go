//go:build linux

package volume

type inode struct{ dev, ino uint64 }

const (
	// maxLinked bounds the memory for files with several names while an archive is
	// written: 100,000 files with names of 200 bytes.
	maxLinked = 32 << 20
	// linkedCost is what one costs besides its name: an element of a map, about.
	linkedCost = 128
)

// links remembers the first names of files that have several, until all of them
// were met.
type links struct {
	left int // bytes that may still be taken
	by   map[inode]linked
}

type linked struct {
	name string
	more uint64 // names that may still come
}

func newLinks(most int) links { return links{left: most, by: map[inode]linked{}} }

// first notes a file that has n names. One that there is no room for is not noted.
func (l *links) first(id inode, name string, n uint64) {
	if cost := len(name) + linkedCost; n > 1 && cost <= l.left {
		l.left -= cost
		l.by[id] = linked{name, n - 1}
	}
}

// next returns the first name of a file that is met again.
func (l *links) next(id inode) (name string, ok bool) {
	f, ok := l.by[id]
	if !ok {
		return "", false
	}
	f.more--
	if f.more > 0 {
		l.by[id] = f
	} else {
		l.left += len(f.name) + linkedCost
		delete(l.by, id)
	}
	return f.name, true
}
