package token

import (
	"bytes"
	"encoding/json"
	"strings"
	"unicode/utf8"
)

// payload has the claims in the order in which they are signed.
type payload struct {
	Issuer  string  `json:"iss"`
	Session string  `json:"session_id"`
	Tenant  *string `json:"tenant_id"`
	Hosts   string  `json:"allowed_hosts"`
	Expires int64   `json:"exp"`
}

func encode(c Claims) ([]byte, error) {
	p := payload{Issuer: issuer, Session: c.Session, Hosts: strings.Join(c.Hosts, ","), Expires: c.Expires.Unix()}
	if c.Tenant != "" {
		p.Tenant = &c.Tenant
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false) // other makers of such tokens do not
	if err := e.Encode(p); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// object reads one JSON object into its fields. It refuses what two readers could
// read differently: a field that is there twice, text that is not UTF-8, anything
// behind the object. Names of fields count as they are: encoding/json would take
// "EXP" for "exp" when it fills a struct.
func object(b []byte) (map[string]json.RawMessage, error) {
	if !utf8.Valid(b) {
		return nil, invalid("it is not UTF-8")
	}
	d := json.NewDecoder(bytes.NewReader(b))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, invalid("it holds no JSON object")
	}
	fields := make(map[string]json.RawMessage)
	for d.More() {
		t, err := d.Token()
		name, ok := t.(string)
		if err != nil || !ok {
			return nil, invalid("its JSON is broken")
		}
		if _, twice := fields[name]; twice {
			return nil, invalid("a field is there twice")
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil, invalid("its JSON is broken")
		}
		fields[name] = value
	}
	if t, err := d.Token(); err != nil || t != json.Delim('}') {
		return nil, invalid("its JSON is broken")
	}
	if d.InputOffset() != int64(len(b)) {
		return nil, invalid("something follows its JSON object")
	}
	return fields, nil
}

// text reads a JSON string; null is none.
func text(name string, raw json.RawMessage) (string, error) {
	var s *string
	if len(raw) == 0 || json.Unmarshal(raw, &s) != nil || s == nil {
		return "", invalid("%s is not a text", name)
	}
	return *s, nil
}

// hosts reads a text with commas, or a list of texts. It may be missing.
func hosts(raw json.RawMessage) ([]string, error) {
	if raw == nil {
		return nil, nil
	}
	var list []string
	if raw[0] == '[' {
		var parts []*string
		if json.Unmarshal(raw, &parts) != nil {
			return nil, invalid("allowed_hosts is not a list of texts")
		}
		for _, p := range parts {
			if p == nil {
				return nil, invalid("allowed_hosts is not a list of texts")
			}
			list = append(list, *p)
		}
	} else {
		s, err := text("allowed_hosts", raw)
		if err != nil {
			return nil, err
		}
		list = strings.Split(s, ",")
	}
	var out []string
	for _, h := range list {
		if h = strings.TrimSpace(h); h != "" {
			out = append(out, h)
		}
	}
	return out, nil
}
