package sandbox

import (
	"regexp"
	"sync"
)

// form is the expression that names must match. It is compiled when it is first
// needed: every program that has this package would pay for it at its start, the
// agent in each sandbox, too.
func form(expr string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expr) })
}
