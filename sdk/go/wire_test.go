package agentbox_test

import (
	"bytes"
	"encoding/json"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	agentbox "agentbox/sdk/go"
)

// wire are the types that stand for schemas of the API's document.
var wire = map[string]any{
	"Sandbox": agentbox.Sandbox{}, "NewSandbox": agentbox.CreateOptions{}, "UpdateInputBody": agentbox.UpdateOptions{}, "Limits": agentbox.Limits{},
	"Network": agentbox.Network{}, "NewNetwork": agentbox.Network{}, "NetworkState": agentbox.NetworkState{}, "NetworkRequest": agentbox.NetworkRequest{},
	"OwnedNetworkRequest": agentbox.OwnedNetworkRequest{}, "ChangeNetworkBody": agentbox.NetworkChange{}, "Connection": agentbox.Connection{},
	"PublishedPort": agentbox.PublishedPort{}, "Mount": agentbox.Mount{}, "Stats": agentbox.Stats{}, "Isolation": agentbox.Isolation{}, "Event": agentbox.LifeEvent{},
	"Command": agentbox.Command{}, "Exec": agentbox.ProcessInfo{}, "Kept": agentbox.Kept{}, "Port": agentbox.Port{}, "File": agentbox.FileInfo{},
	"Found": agentbox.Found{}, "FoundLines": agentbox.FoundLines{}, "Line": agentbox.Line{}, "Copied": agentbox.Copied{}, "ShellSession": agentbox.Session{},
	"Volume": agentbox.Volume{}, "Secret": agentbox.Secret{}, "SetSecretInputBody": agentbox.NewSecret{}, "Image": agentbox.Image{},
	"NewKey": agentbox.Key{}, "CreateKeyInputBody": agentbox.NewKey{}, "AuditRecord": agentbox.AuditRecord{}, "Version": agentbox.Version{},
}

// otherwise are fields that types have in another form than a field with that name.
var otherwise = map[string][]string{
	"Sandbox": {"idle_timeout"}, "NewSandbox": {"idle_timeout", "lifetime"}, "UpdateInputBody": {"idle_timeout", "lifetime"},
	"Command": {"command", "timeout", "detach", "stdin"}, // stdin_base64 takes any bytes
}

// TestTypesAreCurrent holds the types and docs/openapi.json together: each field of the one
// is in the other.
func TestTypesAreCurrent(t *testing.T) {
	text, err := os.ReadFile("../../docs/openapi.json")
	if err != nil {
		t.Skip("this is not the project's tree:", err)
	}
	var doc struct {
		Components struct {
			Schemas map[string]struct{ Properties map[string]any }
		}
	}
	if err := json.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	for schema, v := range wire {
		var want []string
		for name := range doc.Components.Schemas[schema].Properties {
			want = append(want, name)
		}
		got := append(fields(reflect.TypeOf(v)), otherwise[schema]...)
		slices.Sort(want)
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%s has %v, and %T %v", schema, want, v, got)
		}
	}
}

// fields are the names in JSON of a struct's fields.
func fields(t reflect.Type) (names []string) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && name == "":
			names = append(names, fields(f.Type)...)
		case name != "-":
			names = append(names, name)
		}
	}
	return names
}

// TestLicence: the module has the project's.
func TestLicence(t *testing.T) {
	want, err := os.ReadFile("../../LICENSE")
	if err != nil {
		t.Skip("this is not the project's tree:", err)
	}
	if got, err := os.ReadFile("LICENSE"); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes, of %d: %v", len(got), len(want), err)
	}
}

// TestResult reads what a server sends of a command.
func TestResult(t *testing.T) {
	var r agentbox.Result
	err := json.Unmarshal([]byte(`{"exec_id":"e","exit_code":null,"output":"","stdout":"/w==","stderr":"","signal":9,"timed_out":false,"oom_killed":true,
		"truncated":{"stdout":true,"stderr":false},"reason":"r","duration":1.5,"cpu_time":0.25,"peak_memory":7}`), &r)
	want := agentbox.Result{ExecID: "e", Stdout: "\xff", Signal: 9, OOMKilled: true, StdoutTruncated: true, Reason: "r", Duration: 1500e6, CPUTime: 250e6, PeakMemory: 7}
	if err != nil || r != want {
		t.Errorf("%+v %v", r, err)
	}
}
