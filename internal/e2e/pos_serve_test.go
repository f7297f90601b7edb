package e2e

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Listening are the sockets on which processes wait for others, as ss -ltnup tells:
// TCP and UDP with their addresses, and local sockets with their paths.
func Listening(t *testing.T, pids []int) (all []string) {
	t.Helper()
	for _, pid := range pids {
		own := map[string]bool{}
		fds, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid)) // the pattern is good
		for _, fd := range fds {
			if to, err := os.Readlink(fd); err == nil && strings.HasPrefix(to, "socket:[") {
				own[strings.Trim(to, "socket:[]")] = true
			}
		}
		for _, kind := range []string{"tcp", "tcp6", "udp", "udp6"} {
			table, _ := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", pid, kind)) // gone meanwhile: nothing
			for line := range strings.Lines(string(table)) {
				f := strings.Fields(line)
				waits := map[string]string{"t": "0A", "u": "07"}[kind[:1]] // TCP_LISTEN, TCP_CLOSE; see include/net/tcp_states.h
				if len(f) > 9 && f[3] == waits && own[f[9]] {
					all = append(all, kind+" "+hostPort(t, f[1]))
				}
			}
		}
		table, _ := os.ReadFile(fmt.Sprintf("/proc/%d/net/unix", pid))
		for line := range strings.Lines(string(table)) {
			if f := strings.Fields(line); len(f) > 6 && f[3] == "00010000" && own[f[6]] { // __SO_ACCEPTCON
				all = append(all, "unix "+strings.Join(f[7:], " "))
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// hostPort reads an address of /proc/net: words of four bytes, each in the host's
// order, and a port.
func hostPort(t *testing.T, s string) string {
	t.Helper()
	address, port, _ := strings.Cut(s, ":")
	b, err := hex.DecodeString(address)
	n, bad := strconv.ParseUint(port, 16, 16)
	if err != nil || bad != nil {
		t.Fatalf("%s is no address", s)
	}
	for i := 0; i < len(b); i += 4 {
		slices.Reverse(b[i : i+4])
	}
	a, _ := netip.AddrFromSlice(b)
	return netip.AddrPortFrom(a, uint16(n)).String()
}

// processes are those of a daemon and of its sandboxes.
func (d *Daemon) processes(boxes ...string) []int {
	d.t.Helper()
	all := []int{d.cmd.Process.Pid}
	for _, id := range boxes {
		all = append(all, CgroupPids(id)...)
		all = append(all, SandboxPids(d.t, id)...)
	}
	for _, pid := range pids(d.t) {
		if b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); err == nil && bytes.Contains(b, []byte(d.Dir)) {
			all = append(all, pid)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// TestPOS05: the host has the daemon's one port and its local socket, before and after
// sandboxes are there, serve and are connected to.
func TestPOS05(t *testing.T) {
	t.Parallel()
	d := StartDaemon(t, "--sandbox-memory", "160m")
	c := d.Admin()
	want := []string{"tcp " + strings.TrimPrefix(d.URL, "http://"), "unix " + filepath.Join(d.Dir, "agentbox.sock.new")} // renamed when it was private
	if got := Listening(t, d.processes()); !slices.Equal(got, want) || !strings.HasPrefix(want[0], "tcp 127.0.0.1:") {
		t.Errorf("before: %q, want %q", got, want)
	}
	var boxes []string
	for range 5 {
		boxes = append(boxes, c.Create(`{}`).ID)
	}
	for _, id := range boxes[:2] {
		c.Background(id, "python3 -m http.server --bind 0.0.0.0 8000 & python3 -c 'import socket; s=socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind((\"0.0.0.0\",5353)); s.recv(1)'")
		Until(t, soon, "the server in the sandbox", func() bool { return strings.Contains(c.Send("GET", api+"/sandboxes/"+id+"/ports", "").Text, "8000") })
		for range 3 {
			resp, err := c.Open(t.Context(), "GET", api+"/sandboxes/"+id+"/ports/8000/connect", nil, upgrade...)
			if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
				t.Fatalf("connect: %v %v", resp, err)
			}
			defer resp.Body.Close()
		}
	}
	all := d.processes(boxes...)
	if len(all) < 11 {
		t.Errorf("only the processes %v", all)
	}
	if got := Listening(t, all); !slices.Equal(got, want) {
		t.Errorf("with sandboxes: %q, want %q", got, want)
	}
	host, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range boxes {
		for _, pid := range CgroupPids(id) {
			if ns, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", pid)); err == nil && ns == host {
				t.Errorf("process %d of a sandbox is in the host's network", pid)
			}
		}
	}
	if info, err := os.Stat(filepath.Join(d.Dir, "agentbox.sock")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the local socket: %v %v", info, err)
	}
	// The control: a further listener that was asked for is seen.
	other := StartDaemon(t, "--metrics-listen", "127.0.0.1:0")
	if got := Listening(t, other.processes()); len(got) != 3 || !strings.HasPrefix(got[0], "tcp 127.0.0.1:") || !strings.HasPrefix(got[1], "tcp 127.0.0.1:") {
		t.Errorf("with a listener for metrics: %q", got)
	}
	if out := Run(t, DataDir(t), "", "config", "show"); out.Code != 0 || !strings.Contains(out.Stdout, "127.0.0.1:8700") {
		t.Errorf("by default it listens on %+v", out)
	}
}

// TestFS14: no request makes a path of the host a part of a sandbox.
func TestFS14(t *testing.T) {
	t.Parallel()
	canary, text, check := hostCanary(t)
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink("/", link); err != nil {
		t.Fatal(err)
	}
	for _, flags := range [][]string{nil, {"--no-auth"}} {
		d := StartDaemon(t, flags...)
		c := d.Admin()
		for _, path := range []string{"/", "/etc", "/proc", "/var/run/docker.sock", d.Dir, filepath.Join(d.Dir, "agentbox.sock"), link, filepath.Dir(canary), "..", "../..", "~", "file:///etc", `\\host\share`, "/proc/self/root", "a/../../etc"} {
			for _, form := range []string{
				`{"volumes":[{"name":%s,"path":"/mnt/x"}]}`, `{"volumes":[{"name":%s,"path":"/mnt/x","read_only":true}]}`, `{"volumes":[{"source":%s,"path":"/mnt/x"}]}`, `{"volumes":[{"host_path":%s,"path":"/mnt/x"}]}`,
				`{"volumes":{"/mnt/x":%s}}`, `{"volumes":[%s]}`, `{"mounts":[{"source":%s,"target":"/mnt/x"}]}`, `{"binds":[%s]}`, `{"storage":%s}`, `{"image":%s}`, `{"rootfs":%s}`, `{"tenant_id":%s}`, `{"devices":[%s]}`, `{"annotations":{"dev.gvisor.spec.mount.x.source":%s}}`,
			} {
				if a := c.Send("POST", api+"/sandboxes", quoted(form, path)); !a.Refused() {
					t.Errorf(form+": %v", path, a)
				}
			}
			for call, body := range map[string]string{"POST /volumes": quoted(`{"name":%s}`, path), "POST /volumes ": quoted(`{"name":"v","path":%s}`, path), "POST /volumes  ": quoted(`{"name":"v","source":%s}`, path)} {
				method, route, _ := strings.Cut(strings.TrimRight(call, " "), " ")
				if a := c.Send(method, api+route, body); !a.Refused() {
					t.Errorf("%s %s: %v", call, body, a)
				}
			}
		}
		if got := c.Sandboxes(); len(got) != 0 {
			t.Errorf("there are %v", got)
		}
		// The control: a sandbox without such a wish is made, and has nothing of the host.
		c.Create(`{"name":"dev"}`)
		if got := c.Sh("dev", "cat "+canary+" /mnt/x/* 2>&1; ls /var/run/docker.sock "+d.Dir+" 2>&1"); strings.Contains(got, text) || strings.Contains(got, "agentbox.db") {
			t.Errorf("in the sandbox: %q", got)
		}
	}
	check()
}
