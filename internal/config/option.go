package config

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"agentbox/internal/sandbox"
)

var typeOfConfig = reflect.TypeFor[Config]()

// option is one leaf of the struct, as its tags describe it.
type option struct {
	key    string // "limits.sandboxes"
	index  []int  // of the field
	kind   kind
	doc    string
	def    string   // as somebody would write it
	allow  []string // closed list; nil: anything
	min    string   // of a text: bytes, if it is not empty
	secret bool
}

// kind tells how a value is written and read.
type kind int

const (
	text kind = iota
	list
	boolean
	integer
	number
	size
	duration
)

var kindNames = [...]string{"text", "list of texts", "true or false", "whole number", "number", "size", "duration"}

func (k kind) String() string { return kindNames[k] }

func (o *option) env() string {
	return "AGENTBOX_" + strings.ToUpper(strings.ReplaceAll(o.key, ".", "_"))
}
func (o *option) flag() string { return strings.NewReplacer(".", "-", "_", "-").Replace(o.key) }

// section is one table of the file; the first has no name.
type section struct {
	key, doc string
	options  []*option
}

// sections reads the tags of a struct type. Tables are one level deep.
func sections(t reflect.Type) []section {
	all := []section{{}}
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Type.Kind() != reflect.Struct {
			all[0].options = append(all[0].options, optionOf(f, "", []int{i}))
			continue
		}
		s := section{key: f.Tag.Get("key"), doc: f.Tag.Get("doc")}
		for j := range f.Type.NumField() {
			s.options = append(s.options, optionOf(f.Type.Field(j), s.key+".", []int{i, j}))
		}
		all = append(all, s)
	}
	return all
}

// options are all leaves of a struct type, in the order of the struct.
func options(t reflect.Type) []*option {
	var all []*option
	for _, s := range sections(t) {
		all = append(all, s.options...)
	}
	return all
}

func optionOf(f reflect.StructField, prefix string, index []int) *option {
	o := &option{
		key: prefix + f.Tag.Get("key"), index: index, kind: kindOf(f), doc: f.Tag.Get("doc"), def: f.Tag.Get("default"),
		min: f.Tag.Get("min"), secret: f.Tag.Get("secret") == "true",
	}
	if allow := f.Tag.Get("allow"); allow != "" {
		o.allow = strings.Split(allow, ",")
	}
	return o
}

func kindOf(f reflect.StructField) kind {
	switch {
	case f.Type == reflect.TypeFor[time.Duration]():
		return duration
	case f.Tag.Get("unit") == "size":
		return size
	case f.Type.Kind() == reflect.Bool:
		return boolean
	case f.Type.Kind() == reflect.Int64:
		return integer
	case f.Type.Kind() == reflect.Float64:
		return number
	case f.Type.Kind() == reflect.Slice:
		return list
	default:
		return text
	}
}

// set parses s into the option's field of cfg, a pointer to the struct.
func (o *option) set(cfg reflect.Value, s string) error {
	v, err := o.parse(s)
	if err != nil {
		return err
	}
	cfg.Elem().FieldByIndex(o.index).Set(reflect.ValueOf(v))
	return nil
}

// parse gives the field's value, as the field's type.
func (o *option) parse(s string) (any, error) {
	switch o.kind {
	case list:
		return split(s), nil
	case boolean:
		return o.parseBool(s)
	case integer:
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil || n < 0 {
			return nil, o.invalid(s, "a whole number")
		}
		return n, o.atLeast(s, n)
	case number:
		f, err := strconv.ParseFloat(s, 64)
		if err != nil || !(f >= 0) || f > math.MaxInt32 {
			return nil, o.invalid(s, "a number, not negative")
		}
		return f, nil
	case size:
		n, err := sandbox.ParseSize(o.key, s)
		if err != nil {
			return nil, err
		}
		return n, o.atLeast(s, n)
	case duration:
		return sandbox.ParseDuration(o.key, s)
	default:
		if o.allow != nil && !slices.Contains(o.allow, s) {
			return nil, o.invalid(s, strings.Join(o.allow, ", "))
		}
		if least, err := strconv.Atoi(o.min); err == nil && s != "" && len(s) < least {
			return nil, o.invalid(s, "at least "+o.min+" bytes")
		}
		return s, nil
	}
}

func (o *option) parseBool(s string) (bool, error) {
	switch strings.ToLower(s) {
	case "1", "true", "yes":
		return true, nil
	case "0", "false", "no", "":
		return false, nil
	}
	return false, o.invalid(s, "true or false")
}

func (o *option) atLeast(s string, n int64) error {
	if least, err := strconv.ParseInt(o.min, 10, 64); err == nil && n < least {
		return o.invalid(s, "at least "+o.min)
	}
	return nil
}

// invalid never repeats a secret.
func (o *option) invalid(s, allowed string) error {
	if o.secret {
		s = hidden
	}
	return &sandbox.InvalidError{Field: o.key, Value: s, Allowed: allowed}
}

// show writes the field of cfg as it could be set.
func (o *option) show(cfg reflect.Value) string {
	switch v := cfg.Elem().FieldByIndex(o.index).Interface().(type) {
	case []string:
		return strings.Join(v, ",")
	case int64:
		if o.kind == size {
			return sandbox.FormatSize(v)
		}
		return fmt.Sprint(v)
	case time.Duration:
		return v.String()
	default:
		return fmt.Sprint(v)
	}
}

// split reads a list: texts with commas between them, spaces around them
// dropped.
func split(s string) []string {
	var all []string
	for part := range strings.SplitSeq(s, ",") {
		if part = strings.TrimSpace(part); part != "" {
			all = append(all, part)
		}
	}
	return all
}
