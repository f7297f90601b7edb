package e2e

import (
	"strings"
	"testing"

	sandboxv1 "agentbox/internal/gen/sandbox/v1"
)

// Cases of the field reports at the doors that the tests of their own do not ask.

// TestB018_Doors: without input a command reads end-of-file.
func TestB018_Doors(t *testing.T) {
	c := everyWay(t, func(t *testing.T, w *way, id string) {
		if got := w.run(id, "cat; echo done", 60); got.stdout != "done\n" || got.code != 0 {
			t.Errorf("%+v", got)
		}
	})
	for protocol := range protocols {
		if got, err := c.RPC(protocol).follow(t.Context(), c.ids["gRPC"][0], "cat; echo done"); err != nil || got != "done\n exit 0" {
			t.Errorf("%s, streamed: %q, %v", protocol, got, err)
		}
	}
}

// TestB027_Doors: no character is damaged by the parts that it comes in.
func TestB027_Doors(t *testing.T) {
	c := sharedCrossed(t)
	const line = `python3 -c "import os;b=('é'*200001).encode();[os.write(1,b[i:i+4097]) for i in range(0,len(b),4097)]"`
	want := strings.Repeat("é", 200001)
	for protocol := range protocols {
		if got, err := c.RPC(protocol).follow(t.Context(), c.ids["native"][0], line); err != nil || got != want+" exit 0" {
			t.Errorf("%s, streamed: %d bytes, %v", protocol, len(got), err)
		}
	}
	for _, w := range c.ways {
		if got := w.run(c.ids["gRPC"][0], line, 60); got.stdout != want {
			t.Errorf("%s: %d bytes, exit %d", w.name, len(got.stdout), got.code)
		}
	}
}

// TestB072_Doors: what a command says arrives when it says it, in each protocol: the
// second line is said when the first has come.
func TestB072_Doors(t *testing.T) {
	c := sharedCrossed(t)
	id := c.ids["gRPC"][0]
	for protocol := range protocols {
		rpc := c.RPC(protocol)
		s, err := rpc.ExecStream(t.Context(), &sandboxv1.ExecStreamRequest{SessionId: id, Command: "rm -f b072; echo 1; until [ -e b072 ]; do sleep .05; done; echo 2"})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		for _, want := range []string{"1\n", "2\n"} {
			if m, err := s.Receive(); err != nil || m.GetData() != want {
				t.Fatalf("%s: %v, %v, want %q", protocol, m, err, want)
			}
			rpc.write(id, "b072", "", "w")
		}
	}
}

// TestB097_Doors: a file may be empty, and may become so.
func TestB097_Doors(t *testing.T) {
	c := sharedCrossed(t)
	id := c.ids["gRPC"][0]
	for protocol := range protocols {
		rpc := c.RPC(protocol)
		for _, content := range []string{"", "full", ""} {
			rpc.write(id, "b097", content, "")
			if a := rpc.read(id, "b097"); !a.GetSuccess() || a.Content == nil || a.GetContent() != content {
				t.Errorf("%s: %q is read as %v", protocol, content, a)
			}
		}
		rpc.want(id, "0\n", "stat -c %s b097")
	}
}

// TestB250_Doors: files and output of more than the 4 MiB that gRPC's clients have by
// default go through all protocols. Those that keep to that default have ExecStream and
// DownloadFile, whose messages are smaller.
func TestB250_Doors(t *testing.T) {
	c := sharedCrossed(t)
	id := c.ids["gRPC"][0]
	for protocol := range protocols {
		rpc := c.RPC(protocol)
		for _, size := range []int{4_300_000, 20 << 20} {
			text := strings.Repeat("0123456789abcde\n", size/16)
			rpc.write(id, "b250", text, "")
			if a := rpc.read(id, "b250"); a.GetContent() != text {
				t.Errorf("%s: of %d bytes %d came back, %s", protocol, len(text), len(a.GetContent()), a.GetError())
			}
		}
		if a := rpc.exec(id, "head -c 5000000 b250"); len(a.GetStdout()) != 5_000_000 {
			t.Errorf("%s: of 5 MB of output %d bytes came", protocol, len(a.GetStdout()))
		}
		stock := c.stock(protocol)
		if got, err := stock.follow(t.Context(), id, "head -c 5000000 b250"); err != nil || len(got) != 5_000_000+len(" exit 0") {
			t.Errorf("%s, a stock client's stream: %d bytes, %v", protocol, len(got), err)
		}
	}
	c.Sh(id, "rm b250")
}
