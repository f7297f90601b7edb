package e2e

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// pythonStubs makes an environment with grpcio and the stubs of the door, as a client
// in Python does, and returns its interpreter. Without the package index the test is
// skipped.
func pythonStubs(t *testing.T) (python, dir string) {
	t.Helper()
	dir = t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if _, err := net.DefaultResolver.LookupHost(ctx, "pypi.org"); err != nil {
		t.Skip("this machine does not reach the package index:", err)
	}
	if out, err := exec.Command("python3", "-m", "venv", dir+"/venv").CombinedOutput(); err != nil {
		t.Skipf("this machine makes no environments of Python: %v %s", err, out)
	}
	python = dir + "/venv/bin/python"
	if out, err := exec.CommandContext(t.Context(), python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "grpcio-tools").CombinedOutput(); err != nil {
		t.Skipf("the package index gives no grpcio-tools: %v %s", err, out)
	}
	cmd := exec.Command(python, "-m", "grpc_tools.protoc", "-I", "../../proto", "--python_out="+dir, "--grpc_python_out="+dir, "sandbox/v1/sandbox.proto")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("make the stubs: %v %s", err, out)
	}
	return python, dir
}

// freePort is a port of this machine that nobody has now.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port
}

// TestC3PythonExample: the contract's example in Python, with grpcio, by the port that
// it knows: without keys as it is, and again with a key and nothing else.
func TestC3PythonExample(t *testing.T) {
	t.Parallel()
	python, dir := pythonStubs(t)
	program, err := os.ReadFile("testdata/grpc/example.py")
	if err != nil {
		t.Fatal(err)
	}
	run := func(name, key, port string) string {
		// The port is the machine's to choose, since several daemons live on it.
		text := strings.ReplaceAll(string(program), "localhost:50051", "localhost:"+port)
		if key != "" {
			text = strings.ReplaceAll(text, "    stub = ", `    class Key(grpc.UnaryUnaryClientInterceptor, grpc.UnaryStreamClientInterceptor):
        def call(self, go_on, details, request):
            metadata = list(details.metadata or []) + [("authorization", "Bearer `+key+`")]
            return go_on(details._replace(metadata=metadata), request)
        intercept_unary_unary = intercept_unary_stream = call
    channel = grpc.intercept_channel(channel, Key())
    stub = `)
		}
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), python, path)
		cmd.Env = append(os.Environ(), "PYTHONPATH="+dir, "GRPC_VERBOSITY=ERROR")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", name, err, out)
		}
		return string(out)
	}
	want := regexp.MustCompile(`^session [0-9a-f-]{36}
container [0-9a-f]{12}
hosts 8
version 0 Python 3\..*
written True
read print\('Hello from script!'\)
ran Hello from script!
kernel .*gvisor.*
stdout streamed 
exit  0
listed True
destroyed True
then NOT_FOUND Session not found
$`)
	port := freePort(t)
	open := StartDaemon(t, "--no-auth", "--grpc-listen", "127.0.0.1:"+port)
	if got := run("open.py", "", port); !want.MatchString(got) {
		t.Errorf("without keys:\n%s", got)
	}
	open.Stop()
	keyed := StartDaemon(t, "--grpc-listen", "127.0.0.1:"+port)
	if got := run("keyed.py", keyed.Key, port); !want.MatchString(got) {
		t.Errorf("with a key:\n%s", got)
	}
}

// TestGRPCListen: a second daemon of the machine starts without the usual address, and
// says so; an address that was asked for must be free.
func TestGRPCListen(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:50051") // or another program has it
	if err == nil {
		defer l.Close()
	}
	d := StartDaemon(t, "--grpc-listen", "auto")
	if !strings.Contains(d.Log(), "gRPC is served on the main port only") || !strings.Contains(d.Log(), "127.0.0.1:50051") {
		t.Errorf("the log says %s", d.Log())
	}
	d.Admin().GRPC().plain()
	taken := &Daemon{t: t, Dir: DataDir(t), args: []string{"--grpc-listen", "127.0.0.1:50051"}, logs: &lockedBuffer{}}
	if err := taken.StartWith(); err == nil || !strings.Contains(err.Error(), "--grpc-listen") {
		t.Errorf("a daemon on a taken address: %v", err)
	}
}
