//go:build linux

package pid1

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// As kernels print them: a listener, a connection, listeners of IPv6.
const (
	tcpTable = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   1: 0100007F:1F40 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0        2 1 0000000000000000 0 0 0 0 -1
   4: 0100007F:AD75 0100007F:1F40 01 00000000:00000000 00:00000000 00000000  1000        0        5 1 0000000000000000 0 0 0 0 -1
`
	tcp6Table = `  sl  local_address                         remote_address                        st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   2: 00000000000000000000000000000000:2328 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0        3 1 0000000000000000 0 0 0 0 -1
   3: 00000000000000000000000001000000:2329 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0        4 1 0000000000000000 0 0 0 0 -1
   4: 0000000000000000FFFF00000100007F:232A 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0        5 1 0000000000000000 0 0 0 0 -1
`
)

func TestListeners(t *testing.T) {
	var got []string
	for _, table := range []string{tcpTable, tcp6Table} {
		list, cut := listeners(strings.NewReader(table))
		if cut {
			t.Error("a short table counts as cut")
		}
		for _, s := range list {
			got = append(got, s.addr.String())
		}
	}
	if want := "127.0.0.1:8000 [::]:9000 [::1]:9001 127.0.0.1:9002"; strings.Join(got, " ") != want {
		t.Errorf("got %v, want %s", got, want)
	}
	row := strings.Split(tcpTable, "\n")[1] + "\n"
	if list, cut := listeners(strings.NewReader(strings.Repeat(row, maxSockets+10))); !cut || len(list) > maxSockets+1 {
		t.Errorf("%d rows of a table that is too long, cut: %t", len(list), cut)
	}
}

func FuzzListeners(f *testing.F) {
	f.Add(tcpTable)
	f.Add(tcp6Table)
	f.Fuzz(func(t *testing.T, table string) {
		list, _ := listeners(strings.NewReader(table))
		for _, s := range list {
			if !s.addr.IsValid() {
				t.Errorf("an invalid address in %q", table)
			}
		}
	})
}

// The kernel of the host prints such tables, too. Sockets of another process are
// listed, the agent's own are not.
func TestListening(t *testing.T) {
	const helper = "AGENTBOX_TEST_LISTEN"
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if os.Getenv(helper) != "" {
		fmt.Println(l.Addr())
		_, _ = io.Copy(io.Discard, os.Stdin)
		return
	}
	other := exec.Command(os.Args[0], "-test.run=^TestListening$")
	other.Env = append(os.Environ(), helper+"=1")
	stdin, err := other.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := other.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		stdin.Close()
		_ = other.Wait()
	}()
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	const all = 1 << 20
	list, _, err := network{}.Listening(context.Background(), all)
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for _, p := range list {
		at := fmt.Sprintf("%s:%d", p.GetAddress(), p.GetPort())
		if at == l.Addr().String() {
			t.Errorf("the agent's own socket is listed: %v", p)
		}
		found = found || at == strings.TrimSpace(line) && p.GetUid() == uint32(os.Getuid()) && int(p.GetPid()) == other.Process.Pid
	}
	if !found {
		t.Errorf("%s is not among %d ports", strings.TrimSpace(line), len(list))
	}
}

// TestTaken: a program that waits for connections to an address is seen, with all
// addresses, too; the agent's own socket and a port beside it are none.
func TestTaken(t *testing.T) {
	l := &loopback{}
	own, err := l.ListenAside(netip.MustParseAddrPort("127.0.0.1:0"))
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	taken := func(at net.Addr) bool {
		t.Helper()
		port := at.(*net.TCPAddr).AddrPort().Port()
		yes, err := l.Taken(netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), port))
		if err != nil {
			t.Fatal(err)
		}
		return yes
	}
	if taken(own.(listener).Addr()) {
		t.Error("the agent's own socket counts")
	}
	for address, want := range map[string]bool{"127.0.0.1:0": true, "0.0.0.0:0": true, "[::]:0": true, "127.0.0.2:0": false, "[::1]:0": false} {
		theirs, err := net.Listen("tcp", address)
		if err != nil {
			t.Logf("not on %s: %v", address, err) // a machine without IPv6
			continue
		}
		if got := taken(theirs.Addr()); got != want {
			t.Errorf("a program on %s: %t", address, got)
		}
		_ = theirs.Close()
		if taken(theirs.Addr()) {
			t.Errorf("one that was on %s still counts", address)
		}
	}
}
