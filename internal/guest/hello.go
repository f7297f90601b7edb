package guest

import (
	"encoding/binary"
	"fmt"
	"io"
	"slices"

	"google.golang.org/protobuf/proto"

	guestv1 "agentbox/internal/gen/guest/v1"
)

// Version is the protocol that this build speaks best. A host also speaks the
// version before it, so that sandboxes outlive an upgrade of the host; guests
// keep the agent that they were started with.
const Version = 1

// MaxHello bounds a Hello and a HelloReply. A reply that would be larger lists
// fewer commands.
const MaxHello = 1 << 20

// Versions lists the versions that this build speaks, best first.
func Versions() []uint32 {
	if Version == 1 {
		return []uint32{Version}
	}
	return []uint32{Version, Version - 1}
}

// ChooseVersion returns the best of the offered versions that this build
// speaks, 0 when there is none.
func ChooseVersion(offered []uint32) uint32 {
	for _, v := range Versions() {
		if slices.Contains(offered, v) {
			return v
		}
	}
	return 0
}

// WriteHello sends the first message of a session, host to guest.
func WriteHello(w io.Writer, m *guestv1.Hello) error { return writeMessage(w, "hello", m) }

// ReadHello reads what WriteHello sent. io.EOF means that the stream ended
// before it.
func ReadHello(r io.Reader) (*guestv1.Hello, error) {
	m := new(guestv1.Hello)
	if err := readMessage(r, "hello", m); err != nil {
		return nil, err
	}
	return m, nil
}

// WriteReply sends the guest's answer to Hello.
func WriteReply(w io.Writer, m *guestv1.HelloReply) error { return writeMessage(w, "hello reply", m) }

// ReadReply reads what WriteReply sent.
func ReadReply(r io.Reader) (*guestv1.HelloReply, error) {
	m := new(guestv1.HelloReply)
	if err := readMessage(r, "hello reply", m); err != nil {
		return nil, err
	}
	return m, nil
}

func writeMessage(w io.Writer, what string, m proto.Message) error {
	n := proto.Size(m)
	if n > MaxHello {
		return fmt.Errorf("write %s: %d bytes are more than %d", what, n, MaxHello)
	}
	b := make([]byte, 4, 4+n)
	binary.BigEndian.PutUint32(b, uint32(n))
	b, err := proto.MarshalOptions{}.MarshalAppend(b, m)
	if err != nil {
		return fmt.Errorf("write %s: %w", what, err)
	}
	if _, err := w.Write(b); err != nil {
		return fmt.Errorf("write %s: %w", what, err)
	}
	return nil
}

func readMessage(r io.Reader, what string, m proto.Message) error {
	var h [4]byte
	if _, err := io.ReadFull(r, h[:]); err != nil {
		return fmt.Errorf("read %s: %w", what, err)
	}
	n := binary.BigEndian.Uint32(h[:])
	if n > MaxHello {
		return fmt.Errorf("read %s: %d bytes are more than %d", what, n, MaxHello)
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(r, b); err != nil {
		return fmt.Errorf("read %s: %w", what, err)
	}
	if err := proto.Unmarshal(b, m); err != nil {
		return fmt.Errorf("read %s: %w", what, err)
	}
	return nil
}
