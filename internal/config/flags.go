package config

import (
	"slices"

	"github.com/spf13/pflag"
)

// AddFlags adds a flag for each option to fs, or for those of the keys, if any are
// given. They are texts until [Load] reads them, so that a wrong one is reported as
// one in the file is.
func AddFlags(fs *pflag.FlagSet, keys ...string) {
	for _, o := range options(typeOfConfig) {
		if len(keys) > 0 && !slices.Contains(keys, o.key) {
			continue
		}
		f := fs.VarPF(&flagValue{kind: o.kind}, o.flag(), "", o.doc+" ("+o.env()+")")
		f.DefValue = o.def
		if o.kind == boolean {
			f.NoOptDefVal = "true"
		}
	}
}

// FlagValues are the flags of fs that were given, for [Sources].
func FlagValues(fs *pflag.FlagSet) map[string]string {
	given := map[string]string{}
	fs.Visit(func(f *pflag.Flag) {
		if _, ok := f.Value.(*flagValue); ok {
			given[f.Name] = f.Value.String()
		}
	})
	return given
}

type flagValue struct {
	kind kind
	s    string
}

func (v *flagValue) String() string { return v.s }

// Type names the value in the help; pflag shows none of a flag that needs none.
func (v *flagValue) Type() string {
	if v.kind == boolean {
		return "bool"
	}
	return v.kind.String()
}

// Set takes a list's flag any number of times.
func (v *flagValue) Set(s string) error {
	if v.kind == list && v.s != "" {
		s = v.s + "," + s
	}
	v.s = s
	return nil
}
