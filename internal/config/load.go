package config

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/BurntSushi/toml"

	"agentbox/internal/nearest"
)

// Sources are where values come from, beside the defaults.
type Sources struct {
	// File is the path of the TOML file. Empty: none.
	File string
	// Env looks a variable up, as os.LookupEnv does. A variable that is set to
	// nothing is taken as not set. nil: no variables.
	Env func(name string) (string, bool)
	// EnvNames are the names of all variables, to warn of misspelt ones.
	EnvNames []string
	// Flags are the flags that were given, by name, as text.
	Flags map[string]string
	// CompatEnv lets variables with general names (API_PORT, LOG_LEVEL) act.
	CompatEnv bool
}

// Setting is one effective value.
type Setting struct {
	Key string `json:"key"`
	// Value is written as it could be set. A secret's is "(hidden)".
	Value string `json:"value"`
	// Source is "default", "file PATH", "env NAME" or "flag --NAME"; another
	// product's key in the file follows the path.
	Source string `json:"source"`
}

const (
	hidden = "(hidden)"
	// maxFile bounds the configuration file, in bytes.
	maxFile = 1 << 20
)

// Loaded is the result of [Load].
type Loaded struct {
	Config
	// Settings has every value and where it came from, in the order of the
	// documentation.
	Settings []Setting
	// Warnings name variables and keys that are set and mean nothing to this
	// version.
	Warnings []string
}

// Load gives the effective configuration. An error names each key or variable
// that is wrong, and what would be right; it never has a secret's value.
func Load(src Sources) (*Loaded, error) {
	var l Loaded
	if err := mock(src); err != nil {
		return nil, err
	}
	warnings, err := idle(src)
	if err != nil {
		return nil, err
	}
	origin, err := fill(&l.Config, src, aliases)
	if err != nil {
		return nil, err
	}
	if err := l.resolve(origin); err != nil {
		return nil, err
	}
	l.Settings, l.Warnings = settings(&l.Config, origin.sources), append(warnings, origin.warnings...)
	return &l, nil
}

// origin tells where values are from, by key, and what was given in vain.
type origin struct {
	sources  map[string]string
	warnings []string
}

// of adds where the value is from that is wrong.
func (o origin) of(key string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", o.sources[key], err)
}

// fill sets the struct that dst points to.
func fill(dst any, src Sources, aliases []alias) (origin, error) {
	if src.Env == nil {
		src.Env = func(string) (string, bool) { return "", false }
	}
	opts := options(reflect.TypeOf(dst).Elem())
	file, warnings, err := readFile(src.File, opts)
	if err != nil {
		return origin{}, err
	}
	from := origin{map[string]string{}, warnings}
	var errs []error
	for _, o := range opts {
		value, source, err := find(o, src, file, aliases)
		if err == nil {
			err = o.set(reflect.ValueOf(dst), value)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", source, err))
		}
		from.sources[o.key] = source
	}
	return from, errors.Join(errs...)
}

// settings shows the struct that cfg points to.
func settings(cfg any, sources map[string]string) []Setting {
	v := reflect.ValueOf(cfg)
	var all []Setting
	for _, o := range options(v.Type().Elem()) {
		shown := o.show(v)
		if o.secret && shown != "" {
			shown = hidden
		}
		all = append(all, Setting{Key: o.key, Value: shown, Source: sources[o.key]})
	}
	return all
}

// find looks for an option in all places, the strongest first.
func find(o *option, src Sources, file map[string]written, aliases []alias) (value, source string, err error) {
	if v, ok := src.Flags[o.flag()]; ok {
		return v, "flag --" + o.flag(), nil
	}
	if v, ok := src.Env(o.env()); ok && v != "" {
		return v, "env " + o.env(), nil
	}
	if v, ok := file[o.key]; ok {
		source = "file " + src.File
		if v.key != o.key {
			source += " " + v.key
		}
		return v.text, source, nil
	}
	for _, a := range aliases {
		if a.key != o.key || a.generic && !src.CompatEnv {
			continue
		}
		if v, ok := src.Env(a.name); ok && v != "" {
			v, err = a.value(v, src.Env)
			return v, "env " + a.name, err
		}
	}
	return o.def, "default", nil
}

// written is a value of the file as text, and the key that it has there.
type written struct{ key, text string }

// readFile gives the file's values by option.
func readFile(path string, opts []*option) (values map[string]written, warnings []string, err error) {
	if path == "" {
		return nil, nil, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, fmt.Errorf("read the configuration: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(data) > maxFile {
		err = fmt.Errorf("%s is larger than %d bytes", path, maxFile)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("read the configuration: %w", err)
	}
	values, warnings, err = parseFile(string(data), opts)
	if err != nil {
		return nil, nil, fmt.Errorf("configuration %s: %w", path, err)
	}
	return values, warnings, nil
}

func parseFile(data string, opts []*option) (values map[string]written, warnings []string, err error) {
	var tree map[string]any
	if _, err := toml.Decode(data, &tree); err != nil {
		return nil, nil, err
	}
	known := map[string]*option{}
	var keys []string
	for _, o := range opts {
		known[o.key] = o
		keys = append(keys, o.key)
	}
	keys = append(keys, slices.Sorted(maps.Keys(fileAliases))...)
	values = map[string]written{}
	var errs []error
	flat := flatten(tree)
	for _, key := range slices.Sorted(maps.Keys(flat)) {
		if i := slices.IndexFunc(vainKeys, func(n vain) bool { return n.name == key }); i >= 0 {
			w, err := vainKeys[i].say(fmt.Sprint(flat[key]))
			if w != "" {
				warnings = append(warnings, w)
			}
			errs = append(errs, err)
			continue
		}
		o := known[key]
		if o == nil {
			o = known[fileAliases[key]]
		}
		if o == nil {
			errs = append(errs, unknown(key, keys))
			continue
		}
		s, ok := o.fromFile(flat[key])
		if !ok {
			errs = append(errs, fmt.Errorf("%s must be of type: %s", key, o.kind))
			continue
		}
		if own := values[o.key]; own.key != o.key { // its own name wins
			values[o.key] = written{key, s}
		}
	}
	return values, warnings, errors.Join(errs...)
}

// flatten joins the names of tables and keys with points.
func flatten(tree map[string]any) map[string]any {
	flat := map[string]any{}
	for key, v := range tree {
		table, ok := v.(map[string]any)
		if !ok {
			flat[key] = v
			continue
		}
		for name, v := range table {
			flat[key+"."+name] = v // a deeper table is an unknown key or a wrong type
		}
	}
	return flat
}

func unknown(key string, keys []string) error {
	if like := nearest.Name(key, keys); like != "" {
		return fmt.Errorf("unknown key %q; did you mean %s?", key, like)
	}
	_, last, _ := strings.Cut(key, ".")
	for _, k := range keys { // right name, wrong table
		if k == last || strings.HasSuffix(k, "."+key) {
			return fmt.Errorf("unknown key %q; did you mean %s?", key, k)
		}
	}
	return fmt.Errorf("unknown key %q; docs/CONFIG.md has the list", key)
}

// fromFile gives a TOML value as text, if it has a fitting type.
func (o *option) fromFile(v any) (string, bool) {
	switch v := v.(type) {
	case string:
		return v, o.kind == text || o.kind == size || o.kind == duration
	case bool:
		return fmt.Sprint(v), o.kind == boolean
	case int64:
		return fmt.Sprint(v), o.kind == integer || o.kind == number || o.kind == size || o.kind == duration
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64), o.kind == number || o.kind == duration
	case []any:
		var parts []string
		for _, e := range v {
			s, ok := e.(string)
			if !ok || strings.Contains(s, ",") {
				return "", false
			}
			parts = append(parts, s)
		}
		return strings.Join(parts, ","), o.kind == list
	default:
		return "", false
	}
}
