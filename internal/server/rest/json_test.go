package rest

import (
	"encoding/json"
	"strings"
	"testing"

	"agentbox/internal/server/doors"
)

// TestAPI01_OneReading: a body means the same to every reader, or is refused.
func TestAPI01_OneReading(t *testing.T) {
	for body, want := range map[string]bool{
		`{"a":"\ud83d\ude00"}`: true, `{"a":"\uD83D\uDE00x\ud83d\ude00"}`: true, `{"a":"\\ud800"}`: true, `{"a":"\u0000\n\"\\"}`: true, `{"a":[{"b":1},{"b":2}]}`: true,
		`{"a":"\ud83d"}`: false, `{"a":"\ude00"}`: false, `{"a":"\ud83d\ud83d"}`: false, `{"a":"\ud83dx\ude00"}`: false, `{"a":"\ude00\ud83d"}`: false, `{"\ud83d":1}`: false, `{"a":"\ud83d\n"}`: false, `"\ud83d`: false, `"\ud83d\`: false,
		`{"a":1,"a":2}`: false, `{"b":{"a":1,"\u0061":2}}`: false, "\"\xff\"": false, strings.Repeat("[", 33) + strings.Repeat("]", 33): false,
		`[` + strings.Repeat("0,", doors.MaxValues+1) + `0]`: false, `[` + strings.Repeat("0,", doors.MaxValues/2) + `0]`: true,
	} {
		var v any
		if err := unmarshal([]byte(body), &v); (err == nil) != want {
			t.Errorf("%.60s: %v", body, err)
		}
	}
}

// FuzzOneReading: what is taken and written again is the same text to all.
func FuzzOneReading(f *testing.F) {
	for _, s := range []string{`{"a":"\ud83d\ude00"}`, `{"a":"\ud83d"}`, `"\ude00`, `[1,{"a":[]}]`, `"\u`, `\`, `"\ud83d\`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		var v any
		if unmarshal([]byte(s), &v) != nil || strings.Contains(s, "\ufffd") || strings.Contains(strings.ToLower(s), `\ufffd`) {
			return
		}
		if b, err := json.Marshal(v); err != nil || strings.Contains(string(b), "\ufffd") || strings.Contains(string(b), `\ufffd`) {
			t.Errorf("%q is read as %q", s, b)
		}
	})
}
