package policy

import (
	"fmt"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"golang.org/x/net/idna"
)

// Lengths of names and labels: RFC 1035, section 2.3.4, in their text form.
const (
	maxName  = 253
	maxLabel = 63
)

// profile is how names are mapped: UTS #46 as resolvers and browsers use it.
// Which ASCII characters a name may have and where its hyphens may stand is
// judged by checkASCII, less strictly than IDNA would, since names such as
// "r3---sn-x" and "_x" exist; lengths are, too.
var profile = sync.OnceValue(func() *idna.Profile {
	return idna.New(idna.MapForLookup(), idna.StrictDomainName(false), idna.CheckHyphens(false), idna.BidiRule())
})

// canonical is the one form of a name: lower case, A-labels, no dot at the end.
// What would reach that form only by being mapped (full-width letters, other
// dots, characters that vanish) is refused: whoever looks at it sees another name.
func canonical(host string) (string, error) {
	name := strings.TrimSuffix(host, ".")
	if name == "" {
		return "", refuse(host, "is empty")
	}
	name, err := lower(name)
	if err != nil {
		return "", err
	}
	if !plain(name) {
		if name, err = ascii(name); err != nil {
			return "", err
		}
	}
	return name, checkASCII(name)
}

// lower maps to lower case. Characters whose lower case is ASCII and that are not
// themselves, such as the Kelvin sign, are refused.
func lower(name string) (string, error) {
	if !utf8.ValidString(name) {
		return "", refuse(name, "is not UTF-8")
	}
	alien := false
	name = strings.Map(func(r rune) rune {
		l := unicode.ToLower(r)
		alien = alien || r >= utf8.RuneSelf && l < utf8.RuneSelf
		return l
	}, name)
	if alien {
		return "", refuse(name, "has a character that is another one in disguise")
	}
	return name, nil
}

// plain reports whether a name in lower case has no internationalised label.
func plain(name string) bool {
	for i := range len(name) {
		if name[i] >= utf8.RuneSelf {
			return false
		}
	}
	return !strings.HasPrefix(name, "xn--") && !strings.Contains(name, ".xn--")
}

// ascii gives internationalised labels their xn-- form and sees to it that
// every label, in whichever of its two forms, is what it was.
func ascii(name string) (string, error) {
	u, err := profile().ToUnicode(name)
	if err != nil {
		return "", refuse(name, fmt.Sprintf("is no valid internationalised name (%.64s)", err))
	}
	a, err := profile().ToASCII(u)
	if err != nil {
		return "", refuse(name, fmt.Sprintf("is no valid internationalised name (%.64s)", err))
	}
	was, unicoded, ascii := strings.Split(name, "."), strings.Split(u, "."), strings.Split(a, ".")
	if len(was) != len(unicoded) || len(was) != len(ascii) {
		return "", refuse(name, "has dots other than the usual one")
	}
	for i, label := range was {
		if label != unicoded[i] && label != ascii[i] {
			return "", refuse(name, "is not in the form that it is mapped to, "+a)
		}
	}
	return a, nil
}

// checkASCII judges characters, labels and lengths.
func checkASCII(name string) error {
	if len(name) > maxName {
		return refuse(name, fmt.Sprintf("is longer than %d bytes", maxName))
	}
	for label := range strings.SplitSeq(name, ".") {
		switch {
		case label == "":
			return refuse(name, "has an empty label")
		case len(label) > maxLabel:
			return refuse(name, fmt.Sprintf("has a label of more than %d bytes", maxLabel))
		case label[0] == '-' || label[len(label)-1] == '-':
			return refuse(name, "has a label with a hyphen at an end")
		}
		for i := range len(label) {
			if c := label[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' {
				return refuse(name, fmt.Sprintf("has the character %q; want letters, digits, - and _", c))
			}
		}
	}
	return nil
}

// numeric reports whether some resolver may take a canonical name for an IPv4
// address: whether its last label is a number, decimal, octal or hexadecimal (the
// "ends in a number" of the WHATWG URL Standard). No such top-level domain exists.
func numeric(name string) bool {
	last := name[strings.LastIndexByte(name, '.')+1:]
	if hex, ok := strings.CutPrefix(last, "0x"); ok {
		return strings.Trim(hex, "0123456789abcdef") == ""
	}
	return strings.Trim(last, "0123456789") == ""
}

// local reports whether a canonical name means the machine that asks, RFC 6761,
// section 6.3. There the proxy never leads.
func local(name string) bool {
	return name == "localhost" || strings.HasSuffix(name, ".localhost") || name == "localhost.localdomain"
}
