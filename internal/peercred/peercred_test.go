package peercred_test

import (
	"net"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"agentbox/internal/peercred"
)

func TestUID(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("peers have credentials on Linux only")
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "s"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	server, err := l.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	if uid, err := peercred.UID(server); err != nil || int(uid) != os.Geteuid() {
		t.Errorf("the peer is %d, %v; want %d", uid, err, os.Geteuid())
	}
}
