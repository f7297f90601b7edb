package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// tryCurl runs the line that the server says to try, with a key in the
// environment if one is given.
func (d *Daemon) tryCurl(key string) {
	d.t.Helper()
	cmd := exec.Command("bash", "-c", d.Curl)
	cmd.Env = append(os.Environ(), "AGENTBOX_API_KEY="+key)
	out, err := cmd.CombinedOutput()
	var sb served
	if json.Unmarshal(out, &sb) != nil || err != nil || sb.Status != "running" {
		d.t.Errorf("%s\ngives %s, %v", d.Curl, out, err)
	}
}

// TestServeSaysHowToBegin takes the server by its words: a key is shown once, and
// what is said later works, too.
func TestServeSaysHowToBegin(t *testing.T) {
	t.Parallel()
	d := StartDaemon(t)
	if strings.Count(d.Said, d.Key) != 2 || d.Key == "" { // by itself, and in the line to try
		t.Errorf("the first start says\n%s", d.Said)
	}
	d.tryCurl("")
	if code := d.Stop(); code != 0 {
		t.Errorf("it ended with %d", code)
	}
	d.Start()
	command := regexp.MustCompile(`(?m)^to make an API key: agentbox (.*)$`).FindStringSubmatch(d.Said)
	if strings.Contains(d.Said, "abx_") || command == nil {
		t.Fatalf("the second start says\n%s", d.Said)
	}
	// In an environment that knows nothing of this server.
	out := Run(t, "/nonexistent", "", strings.Fields(command[1])...)
	key := strings.TrimSpace(out.Stdout)
	if out.Code != 0 || !strings.HasPrefix(key, "abx_") {
		t.Fatalf("%s: %+v", command[0], out)
	}
	d.tryCurl(key)
	if log := d.logs.String(); strings.Contains(log, d.Key) || strings.Contains(log, key) {
		t.Error("a key is in the log")
	}
}

// TestServeSaysHowToBeginElsewhere: also where the address is none to send
// anything to, and where the certificate is for a name that nobody told.
func TestServeSaysHowToBeginElsewhere(t *testing.T) {
	t.Parallel()
	cert, key := selfSigned(t)
	for name, args := range map[string][]string{
		"all addresses": {"--listen", "0.0.0.0:0"}, "TLS": {"--tls-cert", cert, "--tls-key", key}, "no keys": {"--no-auth"},
		"IPv6": {"--listen", "[::1]:0"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			StartDaemon(t, args...).tryCurl("")
		})
	}
}

// TestServeAsUnit: systemd hears when the server is ready and when it stops, and
// its journal gets no key.
func TestServeAsUnit(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	systemd, err := net.ListenPacket("unixgram", path)
	if err != nil {
		t.Fatal(err)
	}
	defer systemd.Close()
	t.Setenv("NOTIFY_SOCKET", path)
	d := &Daemon{t: t, Dir: DataDir(t), logs: &lockedBuffer{}, adjust: func(cmd *exec.Cmd) {
		var out unix.Stat_t
		if err := unix.Fstat(int(cmd.Stdout.(*os.File).Fd()), &out); err != nil {
			t.Fatal(err)
		}
		cmd.Env = append(cmd.Env, fmt.Sprintf("JOURNAL_STREAM=%d:%d", out.Dev, out.Ino))
	}}
	d.forTest(t)
	hears := func(want string) {
		t.Helper()
		b := make([]byte, 256)
		if err := systemd.SetReadDeadline(time.Now().Add(10*time.Second + Slack())); err != nil {
			t.Fatal(err)
		}
		n, _, err := systemd.ReadFrom(b)
		if err != nil || string(b[:n]) != want {
			t.Errorf("systemd hears %q, %v; want %q", b[:n], err, want)
		}
	}
	hears("READY=1")
	resp, err := http.Get(d.URL + "/readiness")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 200 || strings.Contains(d.Said, "abx_") {
		t.Errorf("when it is ready /readiness says %d, and it said\n%s", resp.StatusCode, d.Said)
	}
	d.Stop()
	hears("STOPPING=1")
	d.Start()
}

// TestServeProcessors: the server leaves half of the CPUs to sandboxes, or runs on as many as
// GOMAXPROCS says.
func TestServeProcessors(t *testing.T) {
	t.Parallel()
	half := max(1, runtime.NumCPU()/2)
	for set, most := range map[string]int{"": half, strconv.Itoa(half + 2): half + 2} {
		d := &Daemon{t: t, Dir: DataDir(t), logs: &lockedBuffer{}, adjust: func(cmd *exec.Cmd) {
			cmd.Env = append(cmd.Env, "GOMAXPROCS="+set)
		}}
		d.forTest(t)
		var got int
		for line := range strings.Lines(d.local("/metrics")) {
			if n, ok := strings.CutPrefix(line, "go_sched_gomaxprocs_threads "); ok {
				got, _ = strconv.Atoi(strings.TrimSpace(n))
			}
		}
		if got < 1 || got > most || set != "" && got != most { // a quota may leave it fewer, but not what it was told
			t.Errorf("told %q it runs on %d CPUs, want %d", set, got, most)
		}
	}
}

// TestServeBesideUnit: what a unit started has the variable of its journal, too; a
// terminal or a file gets the key.
func TestServeBesideUnit(t *testing.T) {
	t.Setenv("JOURNAL_STREAM", "8:12345")
	if d := StartDaemon(t); d.Key == "" {
		t.Errorf("the first start says\n%s", d.Said)
	}
}

// selfSigned makes a certificate for the name agentbox.example.
func selfSigned(t *testing.T) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "agentbox.example"}, DNSNames: []string{"agentbox.example"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	public, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(name, kind string, der []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	return write("cert.pem", "CERTIFICATE", public), write("key.pem", "PRIVATE KEY", secret)
}
