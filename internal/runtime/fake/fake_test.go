package fake_test

import (
	"fmt"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"agentbox/internal/runtime"
	"agentbox/internal/runtime/fake"
	"agentbox/internal/runtime/runtimetest"
	"agentbox/internal/sandbox"
)

// A server that refused an upload lingers for half a second, as net/http does so
// that its answer arrives.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait"))
}

// factory gives each directory of the suite a host of its own.
func factory(o fake.Options) runtimetest.Factory {
	var hosts sync.Map
	host := func(dir string) *fake.Host {
		h, _ := hosts.LoadOrStore(dir, fake.NewHost(o))
		return h.(*fake.Host)
	}
	return runtimetest.Factory{
		Name:       "fake",
		Open:       func(dir string) (runtime.Runtime, error) { return host(dir).Open(), nil },
		EchoServer: "echod",
		Netcat:     "netcat",
		Crash:      func(dir, id string) error { return host(dir).Kill(id, sandbox.ReasonCrashed, "the test did it") },
	}
}

func TestSeam(t *testing.T) { runtimetest.RunSeam(t, factory(fake.Options{})) }

func TestSeamWithoutLimits(t *testing.T) {
	runtimetest.RunSeam(t, factory(fake.Options{NotEnforced: []string{sandbox.LimitMemory, sandbox.LimitCPUs}}))
}

func TestGuest(t *testing.T) { runtimetest.RunGuest(t, factory(fake.Options{})) }

// A reason that a test chose is what everybody is told.
func TestKill(t *testing.T) {
	h := fake.NewHost(fake.Options{})
	defer h.Close()
	r := h.Open()
	defer r.Close()
	events := r.Watch(t.Context())
	id := fmt.Sprintf("%064x", 1)
	if err := r.Create(t.Context(), runtime.Spec{ID: id}); err != nil {
		t.Fatal(err)
	}
	if err := r.Start(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if err := h.Kill(id, sandbox.ReasonOOM, "too much"); err != nil {
		t.Fatal(err)
	}
	if ev := <-events; ev.ID != id || ev.Reason != sandbox.ReasonOOM || ev.Detail != "too much" {
		t.Errorf("got %+v", ev)
	}
	all, err := r.List(t.Context())
	if err != nil || len(all) != 1 || all[0].State != sandbox.Failed || all[0].Reason != sandbox.ReasonOOM {
		t.Errorf("got %+v, %v", all, err)
	}
	if err := h.Kill(id, sandbox.ReasonOOM, ""); err == nil {
		t.Error("a dead sandbox was killed")
	}
}
