package sandboxes

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"agentbox/internal/server"
	"agentbox/internal/server/doors"
)

// form is a JSON object of a request, or its query, on its way to values. What is
// wrong with it is gathered and told at once. A field that is null was not given.
type form struct {
	place  string // "body" or "query"
	fields map[string]json.RawMessage
	errs   []*doors.FieldError
}

// readForm reads a request's body. Fields that nobody asks it for are passed over, as
// they are there.
func readForm(r *http.Request) (*form, error) {
	if t := r.Header.Get("Content-Type"); t != "" {
		if media, _, err := mime.ParseMediaType(t); err != nil || media != "application/json" {
			return nil, server.NewProblem(server.CodeUnsupportedMedia, "")
		}
	}
	data, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, fmt.Errorf("read the body: %w", err)
	}
	f := &form{place: "body"}
	if len(bytes.TrimSpace(data)) == 0 {
		f.wrong("missing", "", "the body is missing", nil)
		return nil, f.err()
	}
	if err := doors.CheckJSON(data); err != nil {
		f.wrong("json_invalid", "", "the body is not valid JSON: "+jsonReason(err), nil)
		return nil, f.err()
	}
	if err := json.Unmarshal(data, &f.fields); err != nil || f.fields == nil {
		f.wrong("dict_type", "", "it must be an object", nil)
		return nil, f.err()
	}
	return f, nil
}

// jsonReason keeps names of Go's package out of answers.
func jsonReason(err error) string {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return "it ends too early"
	}
	return strings.TrimPrefix(err.Error(), "json: ")
}

// readQuery reads the query, in which each name may stand once.
func readQuery(r *http.Request) (*form, error) {
	f := &form{place: "query", fields: map[string]json.RawMessage{}}
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		f.wrong("query_parsing", "", "a percent sign must stand before two hexadecimal digits", nil)
		return nil, f.err()
	}
	for name, all := range values {
		if len(all) > 1 {
			f.wrong("duplicate", name, "it may stand in the query once", nil)
		}
		text, _ := json.Marshal(all[0]) // a text has always one
		f.fields[name] = text
	}
	return f, f.err()
}

// err is what is wrong; nil: nothing.
func (f *form) err() error {
	if len(f.errs) == 0 {
		return nil
	}
	return &doors.FormProblem{Detail: f.errs}
}

// maxInput bounds how much an error repeats of what was sent, in bytes.
const maxInput = 256

func (f *form) wrong(kind, name, msg string, raw json.RawMessage) {
	e := &doors.FieldError{Type: kind, Loc: []any{f.place}, Msg: msg}
	if name != "" {
		e.Loc = append(e.Loc, name)
	}
	if len(raw) > 0 && len(raw) <= maxInput {
		e.Input = raw
	}
	f.errs = append(f.errs, e)
}

// get is a field that was given.
func (f *form) get(name string) (json.RawMessage, bool) {
	raw, ok := f.fields[name]
	return raw, ok && string(raw) != "null"
}

// require tells of a field that is missing.
func (f *form) require(name string) {
	if _, ok := f.get(name); !ok {
		f.wrong("missing", name, name+" is missing", nil)
	}
}

// text is a field that is a text; "" if it was not given.
func (f *form) text(name string) (s string) {
	if raw, ok := f.get(name); ok && json.Unmarshal(raw, &s) != nil {
		f.wrong("string_type", name, "it must be a text", raw)
	}
	return s
}

// textOrNumber is a field that is a text, or a number, as it is written.
func (f *form) textOrNumber(name string) string {
	raw, ok := f.get(name)
	if !ok {
		return ""
	}
	var n json.Number
	if raw[0] != '"' && json.Unmarshal(raw, &n) == nil {
		return n.String()
	}
	return f.text(name)
}

// boolean is a field that is true or false, in any spelling that clients use.
func (f *form) boolean(name string, byDefault bool) bool {
	raw, ok := f.get(name)
	if !ok {
		return byDefault
	}
	switch strings.ToLower(strings.Trim(string(raw), `"`)) {
	case "true", "yes", "on", "t", "y", "1":
		return true
	case "false", "no", "off", "f", "n", "0":
		return false
	}
	f.wrong("bool_parsing", name, "it must be true or false", raw)
	return byDefault
}

// whole is a field that is a whole number of at least 0.
func (f *form) whole(name string, byDefault int64) int64 {
	raw, ok := f.get(name)
	if !ok {
		return byDefault
	}
	n, err := strconv.ParseInt(strings.Trim(string(raw), `"`), 10, 64)
	if err != nil || n < 0 || n > math.MaxInt32 {
		f.wrong("int_parsing", name, "it must be a whole number from 0 to 2147483647", raw)
		return byDefault
	}
	return n
}

// texts is a field that is an object of texts.
func (f *form) texts(name string) (m map[string]string) {
	if raw, ok := f.get(name); ok && json.Unmarshal(raw, &m) != nil {
		f.wrong("dict_type", name, "it must be an object of texts", raw)
	}
	return m
}
