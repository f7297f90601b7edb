package e2e

import (
	"encoding/hex"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/types/descriptorpb"

	sandboxv1 "agentbox/internal/gen/sandbox/v1"
)

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

// TestC3PythonExample: the contract's example in Python, with the package's stubs and
// the index's grpcio, by the port that it knows: without keys as it is, and again with a
// key and nothing else. The class Sandbox reaches a server by TLS, too, if it was told
// whom to trust.
func TestC3PythonExample(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	project := filepath.Join("..", "..", "sdk", "python")
	python := installPython(t, pythonWheels(t, filepath.Join(project, "pyproject.toml")), project, dir)
	t.Run("stubs", func(t *testing.T) { stubsAreCurrent(t, python) })
	t.Run("TLS", func(t *testing.T) { sandboxByTLS(t, python) })
	program, err := os.ReadFile(filepath.Join(project, "examples", "sandbox_v1", "example.py"))
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
		return command(t, "", "env", "GRPC_VERBOSITY=NONE", python, path)
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

// stubsAreCurrent holds the stubs of the package against the server's own.
func stubsAreCurrent(t *testing.T, python string) {
	out := command(t, "", python, "-c", "from sandbox.v1 import sandbox_pb2; print(sandbox_pb2.DESCRIPTOR.serialized_pb.hex())")
	raw, err := hex.DecodeString(strings.TrimSpace(out))
	if err != nil {
		t.Fatalf("the stubs say %q: %v", out, err)
	}
	theirs := new(descriptorpb.FileDescriptorProto)
	if err := proto.Unmarshal(raw, theirs); err != nil {
		t.Fatal(err)
	}
	ours := protodesc.ToFileDescriptorProto(sandboxv1.File_sandbox_v1_sandbox_proto)
	for _, m := range ours.GetMessageType() {
		for _, f := range m.GetField() {
			f.JsonName = nil // which follows from the name
		}
	}
	ours.Options = nil // Go's package
	if !proto.Equal(ours, theirs) {
		t.Error("the stubs in sdk/python are not those of proto/sandbox/v1: make proto")
	}
}

func sandboxByTLS(t *testing.T, python string) {
	ca := newAuthority(t, "a company")
	cert, key := ca.files()
	d := StartDaemon(t, "--tls-cert", cert, "--tls-key", key)
	program := `
import sys
from agentbox import ConnectionFailed, Sandbox
url, key, ca = sys.argv[1:]
with Sandbox(url, api_key=key, ca_file=ca) as sandbox:
    sandbox.create()
    print(sandbox.exec("echo by TLS").stdout, end="")
try:
    Sandbox(url, api_key=key).create()
except ConnectionFailed as e:
    print("certificate" in str(e).lower())
`
	if got := command(t, "", "env", "GRPC_VERBOSITY=NONE", python, "-c", program, d.URL, d.Key, ca.File); !strings.HasSuffix(got, "by TLS\nTrue\n") {
		t.Errorf("the program says %q", got)
	}
}

// What the class Sandbox of the Python package does on its own side.
func TestC5_Python(t *testing.T)   { shownInPython(t, "C5") }
func TestC6_Python(t *testing.T)   { shownInPython(t, "C6") }
func TestC7_Python(t *testing.T)   { shownInPython(t, "C7") }
func TestB250_Python(t *testing.T) { shownInPython(t, "B250") }

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
