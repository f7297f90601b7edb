package guest

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// Key is the secret that a sandbox's agent shares with whoever may attach to
// it. It is drawn for each sandbox, stored by the host where only the host can
// read it, and never passed in arguments, environment or files of the guest.
type Key [32]byte

// NewKey draws a key.
func NewKey() Key {
	var k Key
	_, _ = rand.Read(k[:]) // never fails: crypto/rand ends the program instead
	return k
}

// ProveTimeout bounds each half of a challenge. Both ends are local processes
// that have nothing else to do; a restored guest under load needs well under a
// second.
const ProveTimeout = 2 * time.Second

// keyMagic starts the preamble, so that NextKey finds it behind what a session
// left on the stream.
var keyMagic = [8]byte{'a', 'b', 'x', '-', 'k', 'e', 'y', 1}

var (
	errBadProof = errors.New("prove key: the other end does not hold the sandbox's key")
	errNoKey    = errors.New("prove key: no key is set")
)

// SendKey gives k to the agent. The host sends it on the donated stream once
// after each start and each restore, before Hello. An adopted stream never
// carries it: see ProveHost.
func SendKey(w io.Writer, k Key) error {
	if _, err := w.Write(append(keyMagic[:], k[:]...)); err != nil {
		return fmt.Errorf("send key: %w", err)
	}
	return nil
}

// NextKey skips bytes up to a preamble and reads it. After a session the
// donated stream may still hold its last frames when a restore, or the host,
// begins anew on it.
func NextKey(r io.Reader) (Key, error) {
	var last [len(keyMagic)]byte
	var b [1]byte
	for last != keyMagic {
		if _, err := io.ReadFull(r, b[:]); err != nil {
			return Key{}, fmt.Errorf("read key: %w", err)
		}
		copy(last[:], last[1:])
		last[len(last)-1] = b[0]
	}
	var k Key
	if _, err := io.ReadFull(r, k[:]); err != nil {
		return Key{}, fmt.Errorf("read key: %w", err)
	}
	return k, nil
}

// SessionEnd is what the guest writes on the donated stream when nobody in it
// reads for a session any more. It can't close that stream, and these bytes are no
// header of a yamux frame, whose first byte is 0: the host's session ends by them.
const SessionEnd = "agentbox session end\n"

// The challenge on an adopted stream; a nonce is 32 random bytes.
//
//	guest → host   nonce Ng
//	host  → guest  nonce Nh, HMAC(K, "host" | Ng | Nh)
//	guest → host   HMAC(K, "guest" | Nh | Ng)
const (
	nonceLen  = 32
	hostRole  = "agentbox host"
	guestRole = "agentbox guest"
)

// ProveHost runs the host's side of the challenge on a stream that was just
// handed to the agent. When it returns nil both ends know that the other holds
// k. On error the caller closes conn. It reads nothing beyond the challenge.
func ProveHost(conn net.Conn, k Key) error {
	return prove(conn, k, func() error {
		var theirs [nonceLen]byte
		if _, err := io.ReadFull(conn, theirs[:]); err != nil {
			return err
		}
		ours := nonce()
		if _, err := conn.Write(append(ours[:], proof(k, hostRole, theirs, ours)...)); err != nil {
			return err
		}
		var mac [sha256.Size]byte
		if _, err := io.ReadFull(conn, mac[:]); err != nil {
			return err
		}
		return check(mac[:], proof(k, guestRole, ours, theirs))
	})
}

// ProveGuest runs the agent's side of the challenge; see ProveHost.
func ProveGuest(conn net.Conn, k Key) error {
	return prove(conn, k, func() error {
		ours := nonce()
		if _, err := conn.Write(ours[:]); err != nil {
			return err
		}
		var answer [nonceLen + sha256.Size]byte
		if _, err := io.ReadFull(conn, answer[:]); err != nil {
			return err
		}
		theirs := [nonceLen]byte(answer[:nonceLen])
		if err := check(answer[nonceLen:], proof(k, hostRole, ours, theirs)); err != nil {
			return err
		}
		_, err := conn.Write(proof(k, guestRole, theirs, ours))
		return err
	})
}

func prove(conn net.Conn, k Key, run func() error) error {
	if k == (Key{}) {
		return errNoKey
	}
	if err := conn.SetDeadline(time.Now().Add(ProveTimeout)); err != nil {
		return fmt.Errorf("prove key: %w", err)
	}
	if err := run(); err != nil {
		if errors.Is(err, errBadProof) {
			return err
		}
		return fmt.Errorf("prove key: %w", err)
	}
	if err := conn.SetDeadline(time.Time{}); err != nil {
		return fmt.Errorf("prove key: %w", err)
	}
	return nil
}

func nonce() (n [nonceLen]byte) {
	_, _ = rand.Read(n[:])
	return n
}

func proof(k Key, role string, first, second [nonceLen]byte) []byte {
	h := hmac.New(sha256.New, k[:])
	h.Write([]byte(role))
	h.Write(first[:])
	h.Write(second[:])
	return h.Sum(nil)
}

func check(got, want []byte) error {
	if !hmac.Equal(got, want) {
		return errBadProof
	}
	return nil
}
