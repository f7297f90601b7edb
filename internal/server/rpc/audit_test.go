package rpc_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"agentbox/internal/audit"
	sandboxv1 "agentbox/internal/gen/sandbox/v1"
)

// TestX5LikeIds: two ids with the same beginning are two sessions.
func TestX5LikeIds(t *testing.T) {
	w := start(t)
	c := w.client(w.acme)
	var ids []string
	for _, id := range []string{"12345678-a", "12345678-b"} {
		a, err := c.CreateSession(t.Context(), &sandboxv1.CreateSessionRequest{SessionId: &id})
		if err != nil {
			t.Fatal(err)
		}
		w.exec(c, id, "echo "+id+" >f")
		ids = append(ids, a.GetSession().GetContainerId())
	}
	if got := w.exec(c, "12345678-a", "cat f").GetStdout(); got != "12345678-a\n" || ids[0] == ids[1] {
		t.Errorf("%q, %v", got, ids)
	}
	if got := w.exec(c, "12345678", "true"); got.GetStderr() != "Session not found" {
		t.Errorf("by the beginning: %v", got)
	}
}

// TestX24Audit: who did what is recorded, with the request's id; what contents were is
// not.
func TestX24Audit(t *testing.T) {
	w := start(t)
	c := w.client(w.acme)
	sb := w.session(c)
	id := sb.GetSessionId()
	w.exec(c, id, "echo in the command")
	w.stream(c.ExecStream(t.Context(), &sandboxv1.ExecStreamRequest{SessionId: id, Command: "true"}))
	w.write(c, id, "f", "a secret content", "")
	w.read(c, id, "f")
	w.read(c, id, "/etc/passwd")
	down, err := c.DownloadFile(t.Context(), &sandboxv1.DownloadFileRequest{SessionId: id, Path: "f"})
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := down.Receive(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if a, err := c.PipInstall(t.Context(), &sandboxv1.PipInstallRequest{SessionId: id, Packages: []string{"-r x"}}); err != nil || a.GetExitCode() != -1 {
		t.Fatalf("%v, %v", a, err)
	}
	if _, err := c.DestroySession(t.Context(), &sandboxv1.DestroySessionRequest{SessionId: id}); err != nil {
		t.Fatal(err)
	}
	w.exec(c, id, "too late")
	page, err := w.audit.Query(t.Context(), audit.Query{Owner: "acme", OldestFirst: true})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range page.Records {
		got = append(got, string(r.Action)+" "+r.Result)
		if r.RequestID == "" || r.KeyID == "" || r.Sandbox != "" && !strings.HasPrefix(r.Sandbox, sb.GetContainerId()) {
			t.Errorf("a record is %+v", r)
		}
		for _, v := range r.Details {
			if strings.Contains(v, "secret content") {
				t.Errorf("a content is in %+v", r)
			}
		}
	}
	want := []string{"create ok", "exec ok", "exec ok", "file_write ok", "file_read ok", "file_read out_of_range", "file_read ok", "exec forbidden", "destroy ok", "exec sandbox_destroyed"}
	if !slices.Equal(got, want) {
		t.Errorf("recorded is %q\nwant %q", got, want)
	}
}

// TestX24CommandsAreSeenWhileTheyRun, whatever becomes of them and of the server.
func TestX24CommandsAreSeenWhileTheyRun(t *testing.T) {
	w := start(t)
	c := w.client(w.acme)
	id := w.session(c).GetSessionId()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = c.Exec(ctx, &sandboxv1.ExecRequest{SessionId: id, Command: "sleep 600", Timeout: 600})
	}()
	defer func() { cancel(); <-ended }()
	seen := func(r audit.Record) bool {
		return strings.HasPrefix(r.Details["command"], "sleep 600") && r.Details["exec_id"] != "" && r.Result == audit.OK
	}
	for begin := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		page, err := w.audit.Query(t.Context(), audit.Query{Owner: "acme", Action: audit.Exec})
		if err != nil {
			t.Fatal(err)
		}
		if slices.ContainsFunc(page.Records, seen) {
			return
		}
		if time.Since(begin) > 20*time.Second {
			t.Fatalf("the command that runs is not in %+v", page.Records)
		}
	}
}
