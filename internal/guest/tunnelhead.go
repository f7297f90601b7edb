package guest

import (
	"encoding/binary"
	"io"

	"github.com/containerd/errdefs"
)

// TunnelKind is what a stream of a tunnel is for.
type TunnelKind byte

const (
	// TunnelProxy: a program speaks to the proxy; all that it says is for the
	// host to read.
	TunnelProxy TunnelKind = 1
	// TunnelConnect: a program, which knows of no proxy, connected to the address
	// that the sandbox's resolver gave it for Name, on Port.
	TunnelConnect TunnelKind = 2
	// TunnelName: may Name be resolved? The host answers with one byte, 1 or 0.
	TunnelName TunnelKind = 3
)

// TunnelHead begins a stream of a tunnel: a kind (1 byte), a length (2 bytes,
// big-endian) and that many bytes: none, port (2 bytes, big-endian) and name, or
// name.
type TunnelHead struct {
	Kind TunnelKind
	// Name is in lower case and without a dot at its end, see [ValidName].
	Name string
	Port uint16
}

const (
	tunnelHeader = 3
	portLen      = 2
	// maxName is the longest name of the domain name system, as text (RFC 1035).
	maxName  = 253
	maxLabel = 63
)

// ValidName reports whether a name consists of labels of 1 to 63 of a-z, 0-9, -
// and _ with dots between, 253 bytes at most.
func ValidName(name string) bool {
	if len(name) > maxName {
		return false
	}
	label := 0
	for _, c := range []byte(name) {
		switch {
		case c == '.' && label > 0:
			label = 0
			continue
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9', c == '-', c == '_':
			label++
		default:
			return false
		}
		if label > maxLabel {
			return false
		}
	}
	return label > 0
}

func (h TunnelHead) encode() []byte {
	var body []byte
	if h.Kind == TunnelConnect {
		body = binary.BigEndian.AppendUint16(nil, h.Port)
	}
	body = append(body, h.Name...)
	return append(binary.BigEndian.AppendUint16([]byte{byte(h.Kind)}, uint16(len(body))), body...)
}

// readTunnelHead reads no more than the head. What the other end sends and is
// none is InvalidArgument.
func readTunnelHead(r io.Reader) (TunnelHead, error) {
	var head [tunnelHeader]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return TunnelHead{}, err
	}
	h := TunnelHead{Kind: TunnelKind(head[0])}
	size := binary.BigEndian.Uint16(head[1:])
	if size > portLen+maxName {
		return h, Errorf(errdefs.ErrInvalidArgument, "the head of a tunnel's stream has %d bytes", size)
	}
	body := make([]byte, size)
	if _, err := io.ReadFull(r, body); err != nil {
		return h, err
	}
	if h.Kind == TunnelConnect && size >= portLen {
		h.Port, body = binary.BigEndian.Uint16(body), body[portLen:]
	}
	h.Name = string(body)
	if !h.valid() {
		return h, Errorf(errdefs.ErrInvalidArgument, "the head of a tunnel's stream is of kind %d for %.300q, port %d", h.Kind, h.Name, h.Port)
	}
	return h, nil
}

func (h TunnelHead) valid() bool {
	switch h.Kind {
	case TunnelProxy:
		return h.Name == ""
	case TunnelConnect:
		return h.Port != 0 && ValidName(h.Name)
	case TunnelName:
		return ValidName(h.Name)
	}
	return false
}
