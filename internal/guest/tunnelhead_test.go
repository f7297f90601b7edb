package guest

import (
	"bytes"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
)

func TestTunnelHead(t *testing.T) {
	long := strings.Repeat(strings.Repeat("a", 63)+".", 3) + strings.Repeat("a", 61)
	for _, h := range []TunnelHead{
		{Kind: TunnelProxy},
		{Kind: TunnelConnect, Name: "example.com", Port: 443},
		{Kind: TunnelConnect, Name: long, Port: 65535},
		{Kind: TunnelName, Name: "_a-1.x"},
	} {
		r := bytes.NewReader(append(h.encode(), "rest"...))
		if got, err := readTunnelHead(r); err != nil || got != h || r.Len() != len("rest") {
			t.Errorf("%+v became %+v, %v with %d bytes left", h, got, err, r.Len())
		}
	}
	for _, h := range []TunnelHead{
		{}, {Kind: 9}, {Kind: TunnelProxy, Name: "x"}, {Kind: TunnelConnect, Name: "x"}, {Kind: TunnelConnect, Port: 1}, {Kind: TunnelName},
		{Kind: TunnelName, Name: "A.b"}, {Kind: TunnelName, Name: "a."}, {Kind: TunnelName, Name: ".a"}, {Kind: TunnelName, Name: "a..b"},
		{Kind: TunnelName, Name: "a b"}, {Kind: TunnelName, Name: "a\x00"}, {Kind: TunnelName, Name: "ä"}, {Kind: TunnelName, Name: long + "a"},
		{Kind: TunnelName, Name: strings.Repeat("a", 64)},
	} {
		if got, err := readTunnelHead(bytes.NewReader(h.encode())); !errdefs.IsInvalidArgument(err) {
			t.Errorf("%+v was taken for %+v, %v", h, got, err)
		}
	}
	if _, err := readTunnelHead(strings.NewReader("\x03\xff\xff")); !errdefs.IsInvalidArgument(err) {
		t.Errorf("a long head: %v", err)
	}
}

func FuzzTunnelHead(f *testing.F) {
	f.Add([]byte{1, 0, 0})
	f.Add([]byte{2, 0, 3, 1, 187, 'a'})
	f.Add([]byte{3, 0, 3, 'a', '.', 'b'})
	f.Fuzz(func(t *testing.T, in []byte) {
		h, err := readTunnelHead(bytes.NewReader(in))
		if err != nil {
			return
		}
		if b := h.encode(); !bytes.HasPrefix(in, b) {
			t.Errorf("%q was read as %+v, which is %q", in, h, b)
		}
		if h.Name != "" && !ValidName(h.Name) {
			t.Errorf("name %q was taken", h.Name)
		}
	})
}
