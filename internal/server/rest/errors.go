package rest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/validation"

	"agentbox/internal/nearest"
	"agentbox/internal/server"
	"agentbox/internal/server/doors"
)

// FieldError is what is wrong with the form of one field.
type FieldError = doors.FieldError

// FormProblem is the body of an error about a request's form.
type FormProblem = doors.FormProblem

// Bounds of what an error tells: how much it repeats of one value, in bytes of
// JSON, how much of a name, and of how many fields it speaks.
const (
	maxInput  = 256
	maxName   = 128
	maxFields = 32
)

// problemOf turns what huma found into an answer: the wrong form is a
// FormProblem, a value that is not allowed a Problem that names the field.
func problemOf(ctx huma.Context, status int, msg string, errs []error) huma.StatusError {
	if ctx == nil { // huma asks for the type of errors, for the document
		return &server.Problem{}
	}
	switch status {
	case http.StatusBadRequest:
		if len(errs) == 0 { // the body is required
			errs = []error{&FieldError{Type: "missing", Loc: []any{"body"}, Msg: "the body is missing"}}
		}
	case http.StatusUnprocessableEntity:
	default:
		return server.Explain(ctx.Context(), otherError(status, msg, errs))
	}
	return sortOut(ctx, errs)
}

// sortOut: errors of form come before those of values.
func sortOut(ctx huma.Context, errs []error) huma.StatusError {
	var form []*FieldError
	var value *server.Problem
	for _, err := range errs {
		if len(form) == maxFields {
			break
		}
		f, v := classify(ctx, err)
		if f != nil {
			f.Loc = clipped(f.Loc)
			if ctx.Operation().Metadata[privateKey] != nil {
				f.Input = nil
			}
			form = append(form, f)
		} else if value == nil {
			value = v
		}
	}
	if len(form) > 0 || value == nil {
		slices.SortStableFunc(form, func(a, b *FieldError) int { return strings.Compare(fmt.Sprint(a.Loc), fmt.Sprint(b.Loc)) })
		return &FormProblem{Detail: form}
	}
	return server.Explain(ctx.Context(), value)
}

// otherError is what went wrong before a request was understood.
func otherError(status int, msg string, errs []error) error {
	switch status {
	case http.StatusUnsupportedMediaType:
		return server.NewProblem(server.CodeUnsupportedMedia, "")
	case http.StatusRequestTimeout:
		return server.NewProblem(server.CodeTimeout, "")
	case http.StatusRequestEntityTooLarge:
		return server.NewProblem(server.CodeTooLarge, "")
	default:
		return fmt.Errorf("answer a request: %s: %w", msg, errors.Join(errs...))
	}
}

// forms are huma's words for a wrong form, and ours.
var forms = []struct{ huma, kind, msg string }{
	{validation.MsgUnexpectedProperty, "extra_forbidden", "there is no such field"},
	{validation.MsgExpectedBoolean, "bool_type", "it must be true or false"},
	{validation.MsgExpectedNumber, "float_type", "it must be a number"},
	{validation.MsgExpectedInteger, "int_type", "it must be a whole number"},
	{validation.MsgExpectedString, "string_type", "it must be a text"},
	{validation.MsgExpectedArray, "list_type", "it must be a list"},
	{validation.MsgExpectedObject, "dict_type", "it must be an object"},
	{validation.MsgExpectedMatchExactlyOneSchema, "type_error", "it has the wrong type"},
	{validation.MsgExpectedMatchAtLeastOneSchema, "type_error", "it has the wrong type"},
	{validation.MsgExpectedBase64String, "base64_parsing", "it must be base64"},
	{validation.MsgExpectedRFC3339DateTime, "datetime_parsing", "it must be a time in the form of RFC 3339"},
	{"unknown query parameter", "extra_forbidden", "there is no such parameter"},
	{"required query parameter is missing", "missing", "it is missing"},
	{"required header parameter is missing", "missing", "it is missing"},
	{"invalid integer", "int_parsing", "it must be a whole number"},
	{"invalid float", "float_parsing", "it must be a number"},
	{"invalid boolean", "bool_parsing", "it must be true or false"},
}

// classify gives either the error of a form or that of a value.
func classify(ctx huma.Context, err error) (*FieldError, *server.Problem) {
	var own *FieldError
	if errors.As(err, &own) {
		return own, nil
	}
	var detailer huma.ErrorDetailer
	if !errors.As(err, &detailer) {
		return &FieldError{Type: "value_error", Loc: []any{"body"}, Msg: "it is not valid"}, nil
	}
	e := detailer.ErrorDetail()
	loc := location(e.Location)
	if name := missing(e.Message); name != "" {
		return &FieldError{Type: "missing", Loc: append(loc, name), Msg: name + " is missing"}, nil
	}
	if e.Message == "invalid integer" {
		if p := outOfRange(ctx.Operation(), loc, e.Value); p != nil {
			return nil, p
		}
	}
	for _, f := range forms {
		if f.huma == e.Message {
			return &FieldError{Type: f.kind, Loc: loc, Msg: f.msg + suggestion(ctx.Operation(), f.kind, loc), Input: short(e.Value)}, nil
		}
	}
	if strings.HasPrefix(e.Message, "invalid date/time") {
		return &FieldError{Type: "datetime_parsing", Loc: loc, Msg: "it must be a time in the form of RFC 3339", Input: short(e.Value)}, nil
	}
	if e.Location == "body" {
		return &FieldError{Type: "json_invalid", Loc: loc, Msg: "the body is not valid JSON: " + jsonReason(e.Message)}, nil
	}
	if text, ok := strings.CutPrefix(e.Message, "invalid value: "); ok { // a parameter whose type reads itself
		return &FieldError{Type: "value_error", Loc: loc, Msg: text, Input: short(e.Value)}, nil
	}
	field := fieldPath(loc)
	p := server.NewProblem(server.CodeInvalidValue, fmt.Sprintf("invalid %s: %s", field, e.Message))
	p.Field, p.Allowed = field, strings.TrimPrefix(e.Message, "expected ")
	return nil, p
}

// outOfRange is the answer to a parameter that is a whole number and none that
// our types can hold; nil: it is no number.
func outOfRange(op *huma.Operation, loc []any, value any) *server.Problem {
	text, _ := value.(string)
	name, _ := loc[len(loc)-1].(string)
	if digits := strings.TrimPrefix(text, "-"); digits == "" || strings.Trim(digits, "0123456789") != "" {
		return nil
	}
	p := server.NewProblem(server.CodeInvalidValue, "invalid "+name+": the number is out of range")
	p.Field, p.Allowed = name, "a whole number that is not as large"
	for _, q := range op.Parameters {
		if q.Name == name && q.Schema.Minimum != nil && q.Schema.Maximum != nil {
			p.Allowed = fmt.Sprintf("%v to %v", *q.Schema.Minimum, *q.Schema.Maximum)
		}
	}
	return p
}

// missing is the name of a field that had to be there.
func missing(msg string) string {
	before, after, _ := strings.Cut(validation.MsgExpectedRequiredProperty, "%s")
	name, ok := strings.CutPrefix(msg, before)
	if !ok {
		return ""
	}
	name, _ = strings.CutSuffix(name, after)
	return name
}

// jsonReason keeps names of Go types out of answers.
func jsonReason(msg string) string {
	switch {
	case strings.HasPrefix(msg, "json: "):
		return "a value does not fit"
	case msg == io.ErrUnexpectedEOF.Error(), msg == "unexpected end of JSON input":
		return "it ends too early"
	}
	return msg
}

// location reads huma's form of a place, body.items[3].name.
func location(s string) []any {
	loc := []any{}
	for part := range strings.SplitSeq(s, ".") {
		name, rest, _ := strings.Cut(part, "[")
		loc = append(loc, name)
		for rest != "" {
			var index string
			index, rest, _ = strings.Cut(rest, "]")
			if i, err := strconv.Atoi(index); err == nil {
				loc = append(loc, i)
			}
			rest = strings.TrimPrefix(rest, "[")
		}
	}
	return loc
}

// fieldPath is a place in a body or of a parameter as our own checks write it,
// network.allow[3].
func fieldPath(loc []any) string {
	if len(loc) > 1 { // the first is body, query or path
		loc = loc[1:]
	}
	path := ""
	for _, part := range loc {
		switch index, ok := part.(int); {
		case ok:
			path += fmt.Sprintf("[%d]", index)
		case path == "":
			path = fmt.Sprint(part)
		default:
			path += fmt.Sprintf(".%v", part)
		}
	}
	return path
}

// suggestion names the field or parameter that somebody may have meant.
func suggestion(op *huma.Operation, kind string, loc []any) string {
	word, ok := loc[len(loc)-1].(string)
	if kind != "extra_forbidden" || !ok {
		return ""
	}
	if len(word) > maxName {
		return ""
	}
	if like := nearest.Name(word, known(op, loc)); like != "" {
		return "; did you mean " + like + "?"
	}
	return ""
}

// known are the names that could have stood at a place.
func known(op *huma.Operation, loc []any) []string {
	if loc[0] == "query" {
		var names []string
		for _, p := range op.Parameters {
			if p.In == "query" {
				names = append(names, p.Name)
			}
		}
		return names
	}
	if op.RequestBody == nil {
		return nil
	}
	s := op.RequestBody.Content["application/json"].Schema
	for _, step := range loc[1 : len(loc)-1] {
		if s = deref(op, s); s == nil {
			return nil
		}
		switch step := step.(type) {
		case string:
			s = s.Properties[step]
		default:
			s = s.Items
		}
	}
	if s = deref(op, s); s == nil {
		return nil
	}
	return slices.Sorted(maps.Keys(s.Properties))
}

// deref follows a reference to the document's list of types.
func deref(op *huma.Operation, s *huma.Schema) *huma.Schema {
	if r, ok := op.Metadata[registryKey].(huma.Registry); ok && s != nil && s.Ref != "" {
		return r.SchemaFromRef(s.Ref)
	}
	return s
}

// short is v if it is fit to be repeated.
func short(v any) any {
	if room(v, maxInput) < 0 {
		return nil // too much to be worth writing down
	}
	if b, err := json.Marshal(v); err != nil || len(b) > maxInput {
		return nil
	}
	return v
}

// room is what is left of n bytes behind v, which needs at least what is counted;
// it looks no further than they reach.
func room(v any, n int) int {
	switch v := v.(type) {
	case string:
		n -= len(v)
	case []any:
		for i := 0; i < len(v) && n >= 0; i++ {
			n = room(v[i], n-1)
		}
	case map[string]any:
		for name, one := range v {
			if n -= len(name) + 1; n < 0 {
				break
			}
			n = room(one, n)
		}
	}
	return n
}

// clipped bounds the names in a place.
func clipped(loc []any) []any {
	for i, part := range loc {
		if name, ok := part.(string); ok && len(name) > maxName {
			loc[i] = strings.ToValidUTF8(name[:maxName], "") + "…"
		}
	}
	return loc
}

// errorResponses are documented for every route.
func errorResponses(r huma.Registry) map[string]*huma.Response {
	content := func(s *huma.Schema) map[string]*huma.MediaType {
		return map[string]*huma.MediaType{"application/json": {Schema: s}}
	}
	return map[string]*huma.Response{
		"422":     {Description: "The request has the wrong form.", Content: content(r.Schema(reflect.TypeFor[FormProblem](), true, "FormProblem"))},
		"default": {Description: "It was not done; code says why.", Content: content(r.Schema(reflect.TypeFor[server.Problem](), true, "Problem"))},
	}
}
