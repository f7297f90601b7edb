package agentbox_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	agentbox "agentbox/sdk/go"
)

// unique is a name that no other run of the tests has.
func unique(t *testing.T) string {
	t.Helper()
	return strings.ToLower(t.Name()) + "-" + time.Now().UTC().Format("150405.000000000")
}

func TestLife(t *testing.T) {
	c, ctx := connect(t), within(t)
	o := agentbox.CreateOptions{
		Name: unique(t), Labels: map[string]string{"test": unique(t)}, Limits: agentbox.Limits{Memory: 300 << 20, Pids: 100},
		IdleTimeout: agentbox.Never, Lifetime: time.Hour, Env: map[string]string{"A": "b"}, IdempotencyKey: unique(t),
	}
	b, err := c.Create(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	info := b.Info()
	if info.Status != "running" || info.Name != o.Name || info.Limits.Memory != 300<<20 || info.IdleTimeout != agentbox.Never || time.Until(info.ExpiresAt) > time.Hour || !info.StoppedAt.IsZero() {
		t.Errorf("%+v", info)
	}
	if again, err := c.Create(ctx, o); err != nil || again.ID() != b.ID() {
		t.Errorf("the same request again: %v", err)
	}
	o.IdempotencyKey = ""
	if _, err := c.Create(ctx, o); !errors.Is(err, agentbox.ErrConflict) {
		t.Errorf("a name that is taken is %v", err)
	}
	for _, id := range []string{info.ID, info.ShortID, info.Label, info.Name} {
		if found, err := c.Get(ctx, id); err != nil || found.ID() != b.ID() {
			t.Errorf("%s: %v", id, err)
		}
	}
	list, err := agentbox.Collect(c.List(ctx, agentbox.ListOptions{Labels: o.Labels, Status: []string{"running"}}))
	if err != nil || len(list) != 1 || list[0].ID() != b.ID() {
		t.Errorf("%d: %v", len(list), err)
	}
	if err := b.Files.Write(ctx, "kept", []byte("x"), agentbox.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := b.Stop(ctx); err != nil || b.Info().Status != "stopped" {
		t.Fatal(err, b.Info().Status)
	}
	if _, err := b.Exec(ctx, agentbox.Sh("true")); !errors.Is(err, agentbox.ErrNotRunning) || !errors.Is(err, agentbox.ErrConflict) {
		t.Errorf("a stopped one is %v", err)
	}
	if err := b.Start(ctx); err != nil {
		t.Fatal(err)
	}
	if text, err := b.Files.ReadText(ctx, "kept"); err != nil || text != "x" {
		t.Errorf("%q %v", text, err)
	}
	if info, err := b.Update(ctx, agentbox.UpdateOptions{IdleTimeout: time.Minute, Limits: agentbox.Limits{Memory: 256 << 20}}); err != nil || info.IdleTimeout != time.Minute || info.Limits.Memory != 256<<20 {
		t.Errorf("%+v %v", info, err)
	}
	events, err := agentbox.Collect(b.Events(ctx))
	if err != nil || len(events) < 4 {
		t.Errorf("%+v %v", events, err)
	}
	if err := b.Destroy(ctx); err != nil {
		t.Fatal(err)
	}
	err = b.Destroy(ctx)
	var gone *agentbox.Error
	if !errors.Is(err, agentbox.ErrNotFound) || !errors.As(err, &gone) || gone.Code != "sandbox_destroyed" || gone.RequestID == "" {
		t.Errorf("a gone one is %v", err)
	}
}

func TestLook(t *testing.T) {
	b, ctx := box(t, agentbox.CreateOptions{}), within(t)
	if s, err := b.Stats(ctx); err != nil || s.Processes == 0 {
		t.Errorf("%+v %v", s, err)
	}
	for s, err := range b.FollowStats(ctx) {
		if err != nil || s.Time.IsZero() {
			t.Errorf("%+v %v", s, err)
		}
		break
	}
	for e, err := range b.FollowEvents(ctx, 0) {
		if err != nil || e.Seq == 0 {
			t.Errorf("%+v %v", e, err)
		}
		break
	}
	if i, err := b.Isolation(ctx); err != nil || i.Backend != "gvisor" {
		t.Errorf("%+v %v", i, err)
	}
	c := connect(t)
	if v, err := c.Version(ctx); err != nil || v.API != "v1" {
		t.Errorf("%+v %v", v, err)
	}
	if images, err := agentbox.Collect(c.Images.List(ctx)); err != nil || len(images) == 0 {
		t.Errorf("%+v %v", images, err)
	} else if i, err := c.Images.Get(ctx, images[0].Name); err != nil || i != images[0] {
		t.Errorf("%+v %v", i, err)
	}
	for r, err := range c.Audit(ctx, agentbox.AuditOptions{Sandbox: b.ID(), Action: "create"}) {
		if err != nil || r.Sandbox != b.ID() {
			t.Errorf("%+v %v", r, err)
		}
	}
}

func TestVolumes(t *testing.T) {
	c, ctx := connect(t), within(t)
	name := "v" + time.Now().UTC().Format("150405.000000000")
	v, err := c.Volumes.Create(ctx, name, 64<<20)
	if errors.Is(err, agentbox.ErrUnsupported) {
		t.Skip("this server has no volumes:", err)
	} else if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.Volumes.Remove(ctx, name); err != nil {
			t.Error(err)
		}
	}()
	b, err := c.Create(ctx, agentbox.CreateOptions{Volumes: []agentbox.Mount{{Name: v.Name, Path: "/data"}}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = b.Exec(ctx, agentbox.Sh("echo kept >/data/f"))
	if err := errors.Join(err, b.Destroy(ctx)); err != nil {
		t.Fatal(err)
	}
	var tar bytes.Buffer
	if _, err := c.Volumes.ReadArchive(ctx, name, &tar, agentbox.ArchiveOptions{}); err != nil || !strings.Contains(tar.String(), "kept\n") {
		t.Errorf("%d bytes: %v", tar.Len(), err)
	}
	if err := c.Volumes.WriteArchive(ctx, name, &tar, agentbox.ArchiveOptions{}); err != nil {
		t.Error(err)
	}
	if v, err := c.Volumes.Get(ctx, name); err != nil || v.Size != 64<<20 || v.Used == 0 {
		t.Errorf("%+v %v", v, err)
	}
}

func TestSecretsAndKeys(t *testing.T) {
	c, ctx := connect(t), within(t)
	s, err := c.Secrets.Set(ctx, agentbox.NewSecret{Name: "GO_SDK_TEST", Value: "12345678abc", Hosts: []string{"api.example.com"}})
	if err != nil || s.Header == "" {
		t.Fatalf("%+v %v", s, err)
	}
	if err := c.Secrets.Remove(ctx, s.Name); err != nil {
		t.Error(err)
	}
	k, err := c.Keys.Create(ctx, agentbox.NewKey{Owner: "go-sdk-test", Name: "t"})
	if err != nil || k.Secret == "" {
		t.Fatalf("%+v %v", k, err)
	}
	if err := c.Keys.Revoke(ctx, k.ID); err != nil {
		t.Error(err)
	}
}
