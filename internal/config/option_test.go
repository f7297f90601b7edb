package config

import (
	"strings"
	"testing"
)

type secretConfig struct {
	Password string `key:"password" secret:"true"`
	Pin      int64  `key:"pin" secret:"true" default:"0"`
}

func TestSecretsAreHidden(t *testing.T) {
	var c secretConfig
	from, err := fill(&c, Sources{Flags: map[string]string{"password": "hunter2"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range settings(&c, from.sources) {
		if s.Key == "password" && s.Value != hidden {
			t.Errorf("the password is shown as %q", s.Value)
		}
	}
	if _, err = fill(&c, Sources{Flags: map[string]string{"pin": "hunter2"}}, nil); err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("a wrong secret is reported as: %v", err)
	}
}

// TestDefaultsAreInForce holds the tags: a default that does not parse would be
// an error for everybody.
func TestDefaultsAreInForce(t *testing.T) {
	l, err := Load(Sources{})
	if err != nil {
		t.Fatal(err)
	}
	if len(l.Settings) == 0 || l.Listen != "127.0.0.1:8700" || l.Limits.Sandboxes != 100 || l.Limits.SandboxesPerOwner != 50 || l.NoAuth {
		t.Errorf("defaults are %+v", l.Config)
	}
	for _, s := range sections(typeOfConfig) {
		for _, o := range s.options {
			if o.doc == "" || !strings.HasSuffix(o.doc, ".") {
				t.Errorf("%s is documented as %q", o.key, o.doc)
			}
		}
	}
}
