package hide

import (
	"encoding/base64"
	"strings"
)

// forms are what a server may repeat of a value: itself, which is the first, and what
// base64 makes of it wherever in a text it stands. How that is written in URLs, JSON,
// HTML and the other alphabet of base64 is read, see spellings.
func forms(value string) []string {
	all := []string{value}
	for before := range 3 {
		text := base64.RawStdEncoding.EncodeToString([]byte(strings.Repeat("-", before) + value))
		if (before+len(value))%3 != 0 {
			text = text[:len(text)-1] // which depends on what follows
		}
		// So do the first ones on what goes before: each is 6 of its bits.
		all = append(all, text[(8*before+5)/6:])
	}
	return all
}
