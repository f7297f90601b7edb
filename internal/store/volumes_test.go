package store_test

import (
	"reflect"
	"testing"

	"github.com/containerd/errdefs"

	"agentbox/internal/sandbox"
)

// Volumes outlive the store, and their names are an owner's own.
func TestVolumes(t *testing.T) {
	file, ctx := path(t), t.Context()
	s := open(t, file)
	vol := func(id, owner, name string) sandbox.Volume {
		return sandbox.Volume{
			ID: id, Owner: owner, Name: name, Size: 1 << 30, Kind: sandbox.VolumeDirectory,
			State: sandbox.VolumeCreating, NotEnforced: []string{sandbox.LimitDisk}, Created: t0,
		}
	}
	a, b := vol("2", "a", "data"), vol("1", "b", "data")
	for _, v := range []sandbox.Volume{b, a, vol("3", "a", "cache")} {
		if err := s.AddVolume(ctx, v); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.AddVolume(ctx, vol("4", "a", "data")); !errdefs.IsAlreadyExists(err) {
		t.Errorf("a name twice: %v", err)
	}
	if err := s.SetVolumeState(ctx, "2", sandbox.VolumeReady); err != nil {
		t.Error(err)
	}
	if err := s.SetVolumeState(ctx, "5", sandbox.VolumeReady); !errdefs.IsNotFound(err) {
		t.Errorf("the state of none: %v", err)
	}
	for range 2 { // again is no error
		if err := s.DeleteVolume(ctx, "3"); err != nil {
			t.Error(err)
		}
	}
	s = open(t, file)
	a.State = sandbox.VolumeReady
	if got, err := s.Volume(ctx, "a", "data"); err != nil || !reflect.DeepEqual(got, a) {
		t.Errorf("got %+v, %v; want %+v", got, err, a)
	}
	if _, err := s.Volume(ctx, "b", "cache"); !errdefs.IsNotFound(err) {
		t.Errorf("a removed one: %v", err)
	}
	if got, err := s.Volumes(ctx, ""); err != nil || !reflect.DeepEqual(got, []sandbox.Volume{a, b}) {
		t.Errorf("all: %+v, %v", got, err)
	}
	if got, err := s.Volumes(ctx, "b"); err != nil || !reflect.DeepEqual(got, []sandbox.Volume{b}) {
		t.Errorf("those of b: %+v, %v", got, err)
	}
}
