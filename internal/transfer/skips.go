package transfer

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
)

// What is told of entries that are left out, however many there are and however
// long their names, so that a guest can't fill the host's memory or terminal.
const (
	maxSkipped = 100
	maxShown   = 256 // bytes of a name
)

// Skips collects what a transfer left out. The zero value is ready to use.
type Skips struct {
	told   []string
	untold int // beyond maxSkipped
}

// Add notes that name, which a guest may have chosen, was left out, and why.
func (s *Skips) Add(name, why string) {
	if len(s.told) == maxSkipped {
		s.untold++
		return
	}
	s.told = append(s.told, shown(name)+": "+why)
}

// List returns what was noted as printable text of bounded size.
func (s *Skips) List() []string {
	if s.untold == 0 {
		return s.told
	}
	return append(s.told, fmt.Sprintf("and %d more", s.untold))
}

// shown is a guest's name for a person to read.
func shown(name string) string {
	if len(name) > maxShown {
		return strconv.Quote(name[:maxShown]) + "…"
	}
	return strconv.Quote(name)
}

// Reason is what went wrong with a file, without the names in the error, which a
// guest may have chosen.
func Reason(err error) string {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err.Error()
	}
	var link *os.LinkError
	if errors.As(err, &link) {
		return link.Err.Error()
	}
	return strconv.Quote(err.Error())
}
