package manager_test

import (
	"fmt"
	"reflect"
	"slices"
	"testing"

	"github.com/containerd/errdefs"

	"agentbox/internal/sandbox"
)

// drawer draws placeholders for the secrets that it has.
type drawer struct {
	names []string
	drawn int
}

func (d *drawer) Give(owner string, names []string) (all []sandbox.SecretUse, err error) {
	for _, n := range names {
		if !slices.Contains(d.names, owner+"/"+n) {
			return nil, &sandbox.InvalidError{Field: "secrets", Value: n, Allowed: "yours"}
		}
		d.drawn++
		all = append(all, sandbox.SecretUse{ID: n, Name: n, Placeholder: fmt.Sprintf("placeholder-%d", d.drawn)})
	}
	return all, nil
}

// TestSecretsOfSandboxes: placeholders are drawn for each sandbox, are in its
// environment, and stay what they are whatever becomes of the server and the
// sandbox meanwhile.
func TestSecretsOfSandboxes(t *testing.T) {
	r := newRig(t)
	r.secrets = &drawer{names: []string{"acme/KEY", "acme/B"}}
	d := r.open()
	request := sandbox.CreateRequest{Env: []string{"X=1"}, Secrets: []string{"KEY", "B"}}
	first, err := d.Create(t.Context(), acme, request, "once")
	if err != nil {
		t.Fatal(err)
	}
	if again, err := d.Create(t.Context(), acme, request, "once"); err != nil || again.UID != first.UID || !reflect.DeepEqual(again.Secrets, first.Secrets) {
		t.Errorf("the same request again: %+v, %v", again.Secrets, err)
	}
	second := d.create(request)
	if len(first.Secrets) != 2 || first.Secrets[0].Placeholder == second.Secrets[0].Placeholder {
		t.Errorf("placeholders %+v and %+v", first.Secrets, second.Secrets)
	}
	want := fmt.Sprintf("1 %s %s\n", first.Secrets[0].Placeholder, first.Secrets[1].Placeholder)
	check := func(when string) {
		t.Helper()
		if got := string(d.sh(first.UID, "echo $X $KEY $B").Stdout); got != want {
			t.Errorf("%s: %q, want %q", when, got, want)
		}
		if got := d.get(first.UID).Secrets; !reflect.DeepEqual(got, first.Secrets) {
			t.Errorf("%s: %+v", when, got)
		}
	}
	check("at first")
	d.kill()
	d = r.open()
	check("taken over")
	if _, err := d.Stop(t.Context(), acme, first.UID); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Start(t.Context(), acme, first.UID); err != nil {
		t.Fatal(err)
	}
	check("started again")
	if _, err := d.Create(t.Context(), sandbox.Caller{Owner: "zeta"}, request, ""); !errdefs.IsInvalidArgument(err) {
		t.Errorf("another owner's secrets: %v", err)
	}
	r.secrets = nil
	d.close()
	if _, err := r.open().Create(t.Context(), acme, request, ""); !errdefs.IsNotImplemented(err) {
		t.Errorf("where there are none: %v", err)
	}
}
