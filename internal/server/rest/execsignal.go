package rest

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"agentbox/internal/sandbox"
)

// Signal is a signal by its number or its name, such as 15, TERM or SIGTERM.
type Signal struct {
	text string
	bad  malformed
}

// UnmarshalJSON never fails: Resolve tells what is wrong, and where.
func (s *Signal) UnmarshalJSON(data []byte) error {
	var number float64
	switch {
	case readNumber(data, &number) && number == math.Trunc(number):
		s.text = itoa(whole(number))
	case json.Unmarshal(data, &s.text) != nil:
		s.bad = malformed{bytes.Clone(data), "string_type", "it must be the number or the name of a signal"}
	}
	return nil
}

// MarshalJSON writes what was read.
func (s Signal) MarshalJSON() ([]byte, error) { return json.Marshal(s.text) }

// Resolve reports a value that is none.
func (s *Signal) Resolve(_ huma.Context, at *huma.PathBuffer) []error { return s.bad.report(at) }

// Schema documents the type.
func (s *Signal) Schema(huma.Registry) *huma.Schema {
	return anyOf("The number or the name of a signal, such as 15, TERM or SIGTERM.",
		map[string]any{"type": "integer", "minimum": 1, "maximum": lastSignal}, map[string]any{"type": "string"})
}

const lastSignal = 64

// signals of Linux, which sandboxes are whatever this program runs on: see
// signal(7). The position is the number.
var signals = strings.Fields("0 HUP INT QUIT ILL TRAP ABRT BUS FPE KILL USR1 SEGV USR2 PIPE ALRM TERM STKFLT CHLD CONT STOP TSTP TTIN TTOU URG XCPU XFSZ VTALRM PROF WINCH IO PWR SYS")

func (s *Signal) number(field string) (int, error) {
	n, err := strconv.Atoi(s.text)
	if err != nil {
		n = 0
		name := strings.TrimPrefix(strings.ToUpper(s.text), "SIG")
		for i := 1; i < len(signals); i++ {
			if signals[i] == name {
				n = i
			}
		}
	}
	if n < 1 || n > lastSignal {
		return 0, &sandbox.InvalidError{Field: field, Value: s.text, Allowed: "1 to 64, or a name such as TERM"}
	}
	return n, nil
}
