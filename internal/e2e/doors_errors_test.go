package e2e

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	"agentbox/internal/server/rpc/rpctest"
)

// nasty are values that fields of requests are not meant for.
var nasty = struct {
	texts  []string
	floats []float64
}{
	texts: []string{
		"", ".", "..", "../../etc/passwd", "/proc/self/mem", "/none/x", "a\x00b", "\n", strings.Repeat("x", 5000), "-rf", "--help", "$(id)", "%s%n", "📦", "*", "host:70000", "http://x", "localhost:1/x",
		"/dev/full", "x/..", "~", "{{.}}", "'; DROP TABLE sandboxes; --",
	},
	floats: []float64{-1, 0.0001, 1e300, math.NaN(), math.Inf(1), math.Inf(-1)},
}

// spoil fills all fields of a message with the n-th of what they are not meant for; id
// is that of a session that there is, which every second message has.
func spoil(m protoreflect.Message, n int, id string) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		value := func(k int) protoreflect.Value {
			switch f.Kind() {
			case protoreflect.StringKind:
				return protoreflect.ValueOfString(nasty.texts[k%len(nasty.texts)])
			case protoreflect.BytesKind:
				return protoreflect.ValueOfBytes([]byte{0, 0xff})
			case protoreflect.DoubleKind:
				return protoreflect.ValueOfFloat64(nasty.floats[k%len(nasty.floats)])
			case protoreflect.Int32Kind:
				return protoreflect.ValueOfInt32([]int32{-1, math.MaxInt32, math.MinInt32, 1}[k%4])
			case protoreflect.Int64Kind:
				return protoreflect.ValueOfInt64([]int64{-1, math.MaxInt64, math.MinInt64, 1}[k%4])
			case protoreflect.EnumKind:
				return protoreflect.ValueOfEnum(protoreflect.EnumNumber([]int32{-1, 0, 1, 77}[k%4]))
			default:
				sub := m.NewField(f)
				spoil(sub.Message(), k, id)
				return sub
			}
		}
		switch {
		case f.Name() == "session_id" && n%2 == 0 && m.Descriptor().Name() != "CreateSessionRequest":
			m.Set(f, protoreflect.ValueOfString(id))
		case f.IsList():
			l := m.Mutable(f).List()
			for k := range 3 {
				l.Append(value(n + 7*k))
			}
		default:
			m.Set(f, value(n/2+3*i))
		}
	}
}

// TestX18: whatever an rpc or a command is asked for, and whatever goes wrong on the
// host, it tells nothing of the host and the program, nor a secret. TestLEAK10 asks the
// routes.
func TestX18(t *testing.T) {
	t.Parallel()
	d := StartDaemon(t, "--rate-limit-refused", "0")
	c := d.Tenant("acme")
	n := 0
	check := func(what, told string) {
		t.Helper()
		n++
		if leak := inward.FindString(told); leak != "" || strings.Contains(told, d.Dir) || strings.Contains(told, c.Key) || len(told) > 20_000 {
			t.Errorf("%s tells %q: %.1000q", what, leak, told)
		}
	}
	id := c.Create(`{"network":{"allow":["example.com"]}}`).ID
	for protocol := range protocols {
		rpc, stranger := c.RPC(protocol), d.As("abx_"+strings.Repeat("0", 40)).RPC(protocol)
		for _, m := range rpctest.Methods() {
			if m.Name() == "DestroySession" {
				continue
			}
			for k := range 2 * len(nasty.texts) {
				q := dynamicpb.NewMessage(m.Input())
				spoil(q, k, id)
				if protocol == "Connect with JSON" && k > 4 {
					break // one form of the same
				}
				told := rpctest.Call(t.Context(), rpc.raw, m, q)
				if check(fmt.Sprint(protocol, " ", m.Name(), " ", q), told); strings.HasPrefix(told, "internal") || strings.HasPrefix(told, "unknown") {
					t.Errorf("%s %s %v: %s", protocol, m.Name(), q, told)
				}
			}
			check(protocol+" refused", rpctest.Call(t.Context(), stranger.raw, m, dynamicpb.NewMessage(m.Input())))
		}
	}
	for _, args := range []string{"get none", "exec none -- true", "exec " + id + " -- /none", "create --image none-such", "create --memory 9000t", "cp /none " + id + ":/x", "cp " + id + ":/none -", "files cat " + id + " /proc/1/mem", "egress allow " + id + " http://x", "logs " + id + " none", "key ls", "volume rm none"} {
		out := c.CLI(strings.Fields(args)...)
		check("agentbox "+args, out.Stdout+out.Stderr)
	}
	for _, w := range c.ways() {
		if got := c.Send("DELETE", api+"/sandboxes/"+id+"/files?path=/tmp/none", ""); got.Code != 404 {
			t.Fatalf("%v", got)
		}
		check(w.name, fmt.Sprint(w.run(id, "cat /none", 60)))
	}
	if log := d.Log(); strings.Contains(log, "goroutine ") || strings.Contains(log, "level=ERROR") {
		t.Error("the daemon had an error of its own")
	}
	// What goes wrong on the host is the server's to know.
	images := filepath.Join(d.Dir, "images")
	if err := os.Rename(images, images+".away"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(images, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, body := range map[string]string{api + "/sandboxes": `{}`, "/api/sandboxes": `{"project_name":"p","memory_limit":"512m"}`} {
		a := c.Send("POST", path, body)
		if check(path, a.Text); a.Code < 400 {
			t.Errorf("%s without images: %v", path, a)
		}
	}
	out := c.CLI("create")
	check("create", out.Stdout+out.Stderr)
	for protocol := range protocols {
		for _, m := range rpctest.Methods() {
			if m.Name() == "CreateSession" {
				told := rpctest.Call(t.Context(), c.RPC(protocol).raw, m, dynamicpb.NewMessage(m.Input()))
				if check(protocol, told); !strings.Contains(told, ":") {
					t.Errorf("%s without images: %s", protocol, told)
				}
			}
		}
	}
	for _, sb := range c.Sandboxes() {
		check("events", c.Send("GET", api+"/sandboxes/"+sb+"/events", "").Text)
	}
	if err := os.Remove(images); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(images+".away", images); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d answers", n)
}
