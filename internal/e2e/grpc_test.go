package e2e

import (
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connecthttp"

	sandboxv1 "agentbox/internal/gen/sandbox/v1"
	"agentbox/internal/sandbox"
)

// The gRPC door against real sandboxes. The ids of the tests are those of its
// contract's cases.

// protocols are the ways to speak to that door.
var protocols = map[string][]connecthttp.Option{
	"gRPC": {connecthttp.WithGRPC()}, "gRPC-Web": {connecthttp.WithGRPCWeb()}, "Connect": nil, "Connect with JSON": {connecthttp.WithProtoJSON()},
}

func TestG1CreateWithDefaults(t *testing.T) {
	c := sharedRPCs(t)
	sb := c.session(&sandboxv1.CreateSessionRequest{})
	if sb.GetSessionId() == "" || len(sb.GetContainerId()) != 12 || sb.GetStatus() != "running" || !slices.Equal(sb.GetAllowedHosts(), defaultHosts(t)) {
		t.Errorf("a session is %v", sb)
	}
	c.want(sb.GetSessionId(), "root\n/workspace\n", "whoami; pwd")
}

func TestG2GivenHostsAreEchoed(t *testing.T) {
	c := sharedRPCs(t)
	for _, hosts := range [][]string{{"example.com"}, {"b.example", "a.example", "*.example.org"}} {
		if got := c.session(&sandboxv1.CreateSessionRequest{AllowedHosts: hosts}).GetAllowedHosts(); !slices.Equal(got, hosts) {
			t.Errorf("%q is echoed as %q", hosts, got)
		}
	}
}

func TestG3AnEmptyListIsTheDefaults(t *testing.T) {
	c := sharedRPCs(t)
	if got := c.session(&sandboxv1.CreateSessionRequest{AllowedHosts: []string{}}).GetAllowedHosts(); !slices.Equal(got, defaultHosts(t)) {
		t.Errorf("the hosts are %q", got)
	}
}

func TestG4Destroy(t *testing.T) {
	c := sharedRPCs(t)
	if a, err := c.DestroySession(t.Context(), &sandboxv1.DestroySessionRequest{SessionId: c.plain()}); err != nil || !a.GetSuccess() {
		t.Errorf("%v, %v", a, err)
	}
}

func TestG5ListHasIt(t *testing.T) {
	c := sharedRPCs(t)
	id := c.plain()
	a, err := c.ListSessions(t.Context(), &sandboxv1.ListSessionsRequest{})
	if err != nil || !slices.ContainsFunc(a.GetSessions(), func(s *sandboxv1.SessionInfo) bool { return s.GetSessionId() == id }) {
		t.Errorf("%v, %v", a, err)
	}
}

func TestG6Get(t *testing.T) {
	c := sharedRPCs(t)
	sb := c.session(&sandboxv1.CreateSessionRequest{})
	a, err := c.GetSession(t.Context(), &sandboxv1.GetSessionRequest{SessionId: sb.GetSessionId()})
	if got := a.GetSession(); err != nil || got.GetSessionId() != sb.GetSessionId() || got.GetContainerId() != sb.GetContainerId() || got.GetCreatedAt() != sb.GetCreatedAt() {
		t.Errorf("%v, %v; want %v", a, err, sb)
	}
}

func TestG7Echo(t *testing.T) {
	c := sharedRPCs(t)
	c.want(c.plain(), "hello\n", "echo hello")
}

func TestG8Python(t *testing.T) {
	c := sharedRPCs(t)
	c.want(c.plain(), "2\n", "python3 -c 'print(1 + 1)'")
}

func TestG9Stderr(t *testing.T) {
	c := sharedRPCs(t)
	if a := c.exec(c.plain(), "echo error >&2"); a.GetExitCode() != 0 || !strings.Contains(a.GetStderr(), "error") {
		t.Errorf("%v", a)
	}
}

func TestG10ExitCode(t *testing.T) {
	c := sharedRPCs(t)
	id := c.plain()
	for line, code := range map[string]int32{"exit 42": 42, "kill -9 $$": -9, "kill -TERM $$": -15, "no-such-program": 127, "/etc/passwd": 126} {
		if a := c.exec(id, line); a.GetExitCode() != code || a.GetTimedOut() {
			t.Errorf("%s: %v", line, a)
		}
	}
}

func TestG11Workdir(t *testing.T) {
	c := sharedRPCs(t)
	id := c.plain()
	for dir, want := range map[string]*sandboxv1.ExecResponse{
		"/tmp":      {Stdout: "/tmp\n"},
		"":          {Stdout: "/workspace\n"},
		"/nonexist": {ExitCode: -1, Stderr: "[Errno 2] No such file or directory: '/nonexist'"},
	} {
		a, err := c.Exec(t.Context(), &sandboxv1.ExecRequest{SessionId: id, Command: "pwd", Workdir: dir})
		if err != nil || a.GetStdout() != want.GetStdout() || a.GetStderr() != want.GetStderr() || a.GetExitCode() != want.GetExitCode() || a.GetTimedOut() {
			t.Errorf("in %q: %v, %v", dir, a, err)
		}
	}
}

func TestG12WriteAndRead(t *testing.T) {
	c := sharedRPCs(t)
	id := c.plain()
	c.write(id, "test.txt", "Hello, World!", "w")
	if a := c.read(id, "test.txt"); !a.GetSuccess() || a.GetContent() != "Hello, World!" {
		t.Errorf("%v", a)
	}
}

func TestG13Append(t *testing.T) {
	c := sharedRPCs(t)
	id := c.plain()
	c.write(id, "f", "line1\n", "")
	c.write(id, "f", "line2\n", "a")
	if a := c.read(id, "f"); a.GetContent() != "line1\nline2\n" {
		t.Errorf("%v", a)
	}
}

func TestG14Script(t *testing.T) {
	c := sharedRPCs(t)
	id := c.plain()
	c.write(id, "script.py", "print('Hello from script!')\n", "w")
	c.want(id, "Hello from script!\n", "python3 script.py")
}

// TestG15MissingFile, and the others that can't be read or written.
func TestG15MissingFile(t *testing.T) {
	c := sharedRPCs(t)
	id := c.plain()
	c.want(id, "", "ln -s /etc/passwd l; ln -s /etc dir; mkdir d; mkfifo pipe; printf '\\377x' >binary")
	for path, want := range map[string]string{
		"none": "File not found", "l": "Path not allowed", "dir/passwd": "Path not allowed", "/etc/passwd": "Path not allowed", "../etc/passwd": "Path not allowed",
		"d": "[Errno 21] Is a directory: '/workspace/d'", "binary": "File is not valid UTF-8 text", "/workspace_evil/x": "Path not allowed",
	} {
		if a := c.read(id, path); a.GetSuccess() || a.Content != nil || a.GetError() != want {
			t.Errorf("read %s: %v, want %q", path, a, want)
		}
	}
	if a := c.read(id, "pipe"); a.GetSuccess() || a.GetError() == "" {
		t.Errorf("read a FIFO: %v", a)
	}
	for _, path := range []string{"l", "dir/x", "/etc/x", "/workspace_evil/x", "/mnt/user-data/uploads/x"} {
		a, err := c.WriteFile(t.Context(), &sandboxv1.WriteFileRequest{SessionId: id, Path: path, Content: "x"})
		if err != nil || a.GetSuccess() || a.GetError() != "Path not allowed" {
			t.Errorf("write %s: %v, %v", path, a, err)
		}
	}
}

func TestG16Touch(t *testing.T) {
	c := sharedRPCs(t)
	c.want(c.plain(), "ok\n", "touch /workspace/test && echo ok")
}

func TestG17PythonVersion(t *testing.T) {
	c := sharedRPCs(t)
	if a := c.exec(c.plain(), "python3 --version"); a.GetExitCode() != 0 || !strings.Contains(a.GetStdout(), "Python 3") {
		t.Errorf("%v", a)
	}
}

func TestG18UnknownSession(t *testing.T) {
	c := sharedRPCs(t)
	_, err := c.GetSession(t.Context(), &sandboxv1.GetSessionRequest{SessionId: "none"})
	var status *connect.Error
	if !errors.As(err, &status) || status.Code() != connect.CodeNotFound || status.Message() != "Session not found" {
		t.Errorf("get: %v", err)
	}
	if a, err := c.DestroySession(t.Context(), &sandboxv1.DestroySessionRequest{SessionId: "none"}); err != nil || a.GetSuccess() {
		t.Errorf("destroy: %v, %v", a, err)
	}
	if a := c.exec("none", "true"); a.GetExitCode() != -1 || a.GetStderr() != "Session not found" {
		t.Errorf("exec: %v", a)
	}
	s, err := c.ExecStream(t.Context(), &sandboxv1.ExecStreamRequest{SessionId: "none", Command: "true"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if m, err := s.Receive(); err != nil || m.GetType() != "error" || m.GetData() != "Session not found" {
		t.Errorf("stream: %v, %v", m, err)
	}
	if _, err := s.Receive(); !errors.Is(err, io.EOF) {
		t.Errorf("the stream goes on: %v", err)
	}
}

// TestG19StreamIsLive: the first line is there before the second can be.
func TestG19StreamIsLive(t *testing.T) {
	c := sharedRPCs(t)
	id := c.plain()
	s, err := c.ExecStream(t.Context(), &sandboxv1.ExecStreamRequest{SessionId: id, Command: "echo 1; until [ -e go ]; do sleep .05; done; echo 2"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if m, err := s.Receive(); err != nil || m.GetType() != "stdout" || m.GetData() != "1\n" {
		t.Fatalf("first: %v, %v", m, err)
	}
	c.write(id, "go", "", "w")
	if m, err := s.Receive(); err != nil || m.GetData() != "2\n" {
		t.Errorf("then: %v, %v", m, err)
	}
	if m, err := s.Receive(); err != nil || m.GetType() != "exit" || m.ExitCode == nil || m.GetExitCode() != 0 || m.GetData() != "" {
		t.Errorf("at the end: %v, %v", m, err)
	}
	if _, err := s.Receive(); !errors.Is(err, io.EOF) {
		t.Errorf("the stream goes on: %v", err)
	}
}

func TestG20SameIdSameSandbox(t *testing.T) {
	c := sharedRPCs(t)
	q := &sandboxv1.CreateSessionRequest{SessionId: new("g20")}
	first := c.session(q)
	q.AllowedHosts = []string{"other.example"}
	if again := c.session(q); again.GetContainerId() != first.GetContainerId() || !slices.Equal(again.GetAllowedHosts(), first.GetAllowedHosts()) {
		t.Errorf("%v, then %v", first, again)
	}
}

// TestG21Idle: a session that does something is not idle, and one that does nothing
// goes.
func TestG21Idle(t *testing.T) {
	t.Parallel()
	d := StartDaemon(t, "--grpc-session-timeout", "2")
	c := d.Admin().GRPC()
	idle, busy := c.plain(), c.plain()
	done := make(chan *sandboxv1.ExecResponse, 1)
	go func() {
		a, err := c.Exec(t.Context(), &sandboxv1.ExecRequest{SessionId: busy, Command: "sleep 6; echo slept"})
		if err != nil {
			t.Error(err)
		}
		done <- a
	}()
	Until(t, 2*time.Second+soon, "the idle session is gone", func() bool {
		a, err := c.ListSessions(t.Context(), &sandboxv1.ListSessionsRequest{})
		return err == nil && !slices.ContainsFunc(a.GetSessions(), func(s *sandboxv1.SessionInfo) bool { return s.GetSessionId() == idle })
	})
	if a := <-done; a.GetStdout() != "slept\n" {
		t.Errorf("the busy one: %v", a)
	}
}

// TestG22TenantStorage: what one session of a tenant writes the next one has; another
// tenant's has not, nor has that of another owner.
func TestG22TenantStorage(t *testing.T) {
	t.Parallel()
	d := StartDaemon(t, "--storage", DataDir(t)+"/tenants")
	c := d.Admin().GRPC()
	of := func(tenant string) string {
		sb := c.session(&sandboxv1.CreateSessionRequest{TenantId: &tenant})
		if sb.GetTenantId() != tenant {
			t.Errorf("the tenant is %q", sb.GetTenantId())
		}
		return sb.GetSessionId()
	}
	first, second, other := of("acme"), of("acme"), of("zeta")
	c.want(first, "", "echo kept >f; echo out >/mnt/user-data/outputs/o")
	c.want(second, "kept\nout\n", "cat f /mnt/user-data/outputs/o")
	c.want(other, "", "ls; ls /mnt/user-data/outputs")
	stranger := d.Tenant("stranger").GRPC() // whose tenants are its own, whatever they are called (TEN-09)
	stranger.want(stranger.session(&sandboxv1.CreateSessionRequest{TenantId: new("acme")}).GetSessionId(), "", "ls; ls /mnt/user-data/outputs")
	if sb := c.session(&sandboxv1.CreateSessionRequest{TenantId: new("a.b-c_d")}); sb.GetTenantId() != "a.b-c_d" {
		t.Errorf("a tenant of every kind of character: %v", sb)
	}
}

func TestG24BadIds(t *testing.T) {
	c := sharedRPCs(t)
	for name, q := range map[string]*sandboxv1.CreateSessionRequest{
		"tenant":  {TenantId: new("../x")},
		"session": {SessionId: new("a/b")},
	} {
		if a, err := c.CreateSession(t.Context(), q); connect.CodeOf(err) != connect.CodeInvalidArgument {
			t.Errorf("%s: %v, %v", name, a, err)
		}
	}
}

// TestG25WritesStayInside: root may write everywhere in its sandbox, and nobody else
// sees it.
func TestG25WritesStayInside(t *testing.T) {
	c := sharedRPCs(t)
	one, two := c.plain(), c.plain()
	c.want(one, "ok\n", "touch /etc/x /workspace/x /mnt/user-data/outputs/x /tmp/x && echo ok")
	c.want(two, "", "ls -d /etc/x /workspace/x /mnt/user-data/outputs/x /tmp/x 2>/dev/null; true")
}

// TestX17SessionsOutliveTheServer: after a kill they are there, with the same ids, and
// so are their processes.
func TestX17SessionsOutliveTheServer(t *testing.T) {
	t.Parallel()
	d := StartDaemon(t)
	c := d.Admin().GRPC()
	before := c.session(&sandboxv1.CreateSessionRequest{SessionId: new("kept"), TenantId: new("acme"), Limits: &sandboxv1.Limits{MemoryBytes: 256 * sandbox.MiB}})
	d.Admin().Background("kept", "echo up >up; sleep infinity")
	d.Kill()
	d.Start()
	c = d.Admin().GRPC()
	a, err := c.GetSession(t.Context(), &sandboxv1.GetSessionRequest{SessionId: "kept"})
	if after := a.GetSession(); err != nil || after.GetContainerId() != before.GetContainerId() || after.GetCreatedAt() != before.GetCreatedAt() || after.GetTenantId() != "acme" || !slices.Equal(after.GetAllowedHosts(), before.GetAllowedHosts()) {
		t.Errorf("%v, %v; before %v", a, err, before)
	}
	c.want("kept", "up\n1\n", "cat up; pgrep -cx sleep")
	if again := c.session(&sandboxv1.CreateSessionRequest{SessionId: new("kept")}); again.GetContainerId() != before.GetContainerId() {
		t.Errorf("made anew: %v", again)
	}
}

// TestG23PipInstall: what is needed first, what may be named, and an installation from
// what the sandbox itself has.
func TestG23PipInstall(t *testing.T) {
	c := sharedRPCs(t)
	install := func(id string, packages ...string) *sandboxv1.ExecResponse {
		t.Helper()
		a, err := c.PipInstall(t.Context(), &sandboxv1.PipInstallRequest{SessionId: id, Packages: packages})
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	index := defaultHosts(t)[:2]
	for _, hosts := range [][]string{{"example.com"}, index[:1]} {
		id := c.session(&sandboxv1.CreateSessionRequest{AllowedHosts: hosts}).GetSessionId()
		want := "pip install requires " + index[0] + " and " + index[1] + " in allowed_hosts"
		if a := install(id, "requests"); a.GetExitCode() != -1 || a.GetStderr() != want || a.GetTimedOut() {
			t.Errorf("with %q: %v", hosts, a)
		}
	}
	id := c.plain()
	for _, p := range []string{"-r x", "--index-url=y", "https://a.example/x.whl", "a @ https://a.example/x", "a; python_version<'3'", "a b", "a==1+cu118", "", "a\n", "../a", "."} {
		if a := install(id, "fine", p); a.GetExitCode() != -1 || a.GetStderr() != "Invalid package specifier: "+p {
			t.Errorf("%q: %v", p, a)
		}
	}
	up, err := c.UploadFile(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(wheel(t))
	if err == nil {
		err = up.Send(&sandboxv1.UploadFileRequest{SessionId: id, Path: "x-1.0-py3-none-any.whl", Data: b})
	}
	if err == nil {
		_, err = up.CloseAndReceive()
	}
	if err != nil {
		t.Fatal(err)
	}
	c.want(id, "", `mkdir -p ~/.config/pip && printf '[global]\nno-index = true\nfind-links = /workspace\n' >~/.config/pip/pip.conf`)
	if a := install(id, "x>=0.5,<2"); a.GetExitCode() != 0 {
		t.Errorf("a good one: %v", a)
	}
	c.want(id, "42\n", "python3 -c 'import x; print(x.y)'")
	if a := install(id); a.GetExitCode() <= 0 || a.GetStderr() == "" {
		t.Errorf("no package at all: %v", a)
	}
	if a := install("none", "x"); a.GetExitCode() != -1 || a.GetStderr() != "Session not found" {
		t.Errorf("in no session: %v", a)
	}
}
