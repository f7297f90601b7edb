package hide

import (
	"encoding/base64"
	"strings"
	"testing"
)

// TestForms: a value is looked for as it is and in the base64 of any text that has it.
func TestForms(t *testing.T) {
	const value = "sk-live/+very secret&<\"1\">"
	all := forms(value)
	if all[0] != value {
		t.Fatalf("%q", all)
	}
	for _, before := range []string{"", "Bearer ", "u:", "<>", "?"} {
		for _, after := range []string{"", "\n", "?>", "}}}"} {
			encoded := base64.StdEncoding.EncodeToString([]byte(before + value + after))
			for _, form := range all {
				encoded = strings.ReplaceAll(encoded, form, "")
			}
			// What is left are characters that have bits of its neighbours, too.
			most := (len(before)+len(after))*4/3 + 2 + 4
			if len(encoded) > most {
				t.Errorf("between %q and %q is left %q", before, after, encoded)
			}
		}
	}
}
