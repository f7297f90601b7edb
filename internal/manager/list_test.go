package manager_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	"agentbox/internal/sandbox"
)

func TestList(t *testing.T) {
	d := newRig(t).open()
	var all []string
	for i := range 7 {
		sb := d.create(sandbox.CreateRequest{Name: fmt.Sprint("n", i), Labels: map[string]string{"odd": fmt.Sprint(i % 2), "'\"%": "x"}})
		all = append(all, sb.UID)
	}
	if _, err := d.Stop(t.Context(), acme, all[3]); err != nil {
		t.Fatal(err)
	}
	list := func(f sandbox.Filter) (got []string, next string) {
		t.Helper()
		page, err := d.List(t.Context(), acme, f)
		if err != nil {
			t.Fatal(err)
		}
		for _, sb := range page.Items {
			got = append(got, sb.UID)
		}
		return got, page.Next
	}
	for _, c := range []struct {
		f    sandbox.Filter
		want []string
	}{
		{sandbox.Filter{}, all},
		{sandbox.Filter{Name: "n2"}, all[2:3]},
		{sandbox.Filter{Labels: map[string]string{"odd": "1"}}, []string{all[1], all[3], all[5]}},
		{sandbox.Filter{Labels: map[string]string{"'\"%": "x", "odd": "2"}}, nil},
		{sandbox.Filter{Status: []sandbox.State{sandbox.Stopped, sandbox.Failed}}, all[3:4]},
	} {
		if got, next := list(c.f); !slices.Equal(got, c.want) || next != "" {
			t.Errorf("%+v: %v, %q", c.f, got, next)
		}
	}
	// Page by page, while others come and go.
	got, next := list(sandbox.Filter{Limit: 3})
	if err := d.Destroy(t.Context(), acme, all[2]); err != nil {
		t.Fatal(err)
	}
	more, last := list(sandbox.Filter{Limit: 4, Cursor: next})
	if !slices.Equal(append(got, more...), all) || last != "" {
		t.Errorf("pages are %v and %v, %q", got, more, last)
	}
	for _, f := range []sandbox.Filter{{Cursor: "x"}, {Cursor: "!"}, {Limit: -1}, {Limit: sandbox.MaxPage + 1}} {
		if _, err := d.List(t.Context(), acme, f); !errdefs.IsInvalidArgument(err) {
			t.Errorf("%+v: %v", f, err)
		}
	}
	if page, err := d.List(t.Context(), sandbox.Caller{Owner: "other"}, sandbox.Filter{Cursor: next}); err != nil || len(page.Items) != 0 {
		t.Errorf("another owner's page: %v, %v", page, err)
	}
}

func TestUpdate(t *testing.T) {
	r := newRig(t)
	d := r.open()
	sb := d.create(sandbox.CreateRequest{Labels: map[string]string{"a": "1", "b": "2"}})
	three := "3"
	short, never := time.Minute, sandbox.Never
	got, err := d.Update(t.Context(), acme, sb.UID, sandbox.Update{Labels: map[string]*string{"a": nil, "c": &three}, IdleTimeout: &never, Lifetime: &short})
	if err != nil || len(got.Labels) != 2 || got.Labels["c"] != "3" || got.IdleTimeout != sandbox.Never {
		t.Errorf("got %+v, %v", got, err)
	}
	if left := time.Until(got.Expires); left > time.Minute || left < 0 {
		t.Errorf("it ends in %v", left)
	}
	if got, err = d.Update(t.Context(), acme, sb.UID, sandbox.Update{Lifetime: &never}); err != nil || !got.Expires.IsZero() {
		t.Errorf("got %+v, %v", got, err)
	}
	zero, wrong := time.Duration(0), -time.Hour
	for _, u := range []sandbox.Update{{Lifetime: &zero}, {IdleTimeout: &zero}, {Lifetime: &wrong}, {Labels: map[string]*string{"": &three}}} {
		if _, err := d.Update(t.Context(), acme, sb.UID, u); !errdefs.IsInvalidArgument(err) {
			t.Errorf("%+v: %v", u, err)
		}
	}
	d.close()
	d = r.open()
	if again := d.get(sb.UID); again.Labels["c"] != "3" || again.IdleTimeout != sandbox.Never || !again.Expires.IsZero() {
		t.Errorf("after a restart: %+v", again)
	}
}
