package egress

import (
	"context"
	"io"
	"net/http"
	"net/netip"

	"agentbox/internal/egress/policy"
)

// SOCKS5, RFC 1928.
const (
	socksVersion  = 5
	socksNoAuth   = 0x00
	socksNoMethod = 0xff

	socksConnect = 1

	socksIPv4 = 1
	socksName = 3
	socksIPv6 = 4

	socksOK          = 0
	socksFailure     = 1
	socksNotAllowed  = 2
	socksUnreachable = 4
	socksNoCommand   = 7
	socksNoAddress   = 8
)

// serveSOCKS serves a client that speaks SOCKS5. Names are resolved here, if they
// are allowed; there is no authentication and no command but CONNECT.
func (c *client) serveSOCKS(ctx context.Context) {
	if !c.greetSOCKS() {
		return
	}
	t, reply, why := c.readSOCKS()
	c.setReadDeadline(0)
	ctx, f := c.s.begin(ctx, KindSOCKS, t)
	defer f.end(c.p.o.Recorder)
	if why != "" {
		f.refuse(deny(0, CodeInvalid, why, ""))
		c.replySOCKS(reply)
		return
	}
	up, v, r := c.open(ctx, f)
	if r != nil {
		f.refuse(r)
		c.replySOCKS(socksReply(r))
		return
	}
	if !c.replySOCKS(socksOK) {
		up.Close()
		return
	}
	c.tunnel(ctx, f, up, v)
}

// greetSOCKS agrees on no authentication.
func (c *client) greetSOCKS() bool {
	var head [2]byte
	if _, err := io.ReadFull(c.r, head[:]); err != nil {
		return false
	}
	var methods [255]byte
	if _, err := io.ReadFull(c.r, methods[:head[1]]); err != nil {
		return false
	}
	method := byte(socksNoMethod)
	for _, m := range methods[:head[1]] {
		if m == socksNoAuth {
			method = socksNoAuth
		}
	}
	_, err := c.conn.Write([]byte{socksVersion, method})
	return err == nil && method == socksNoAuth
}

// readSOCKS reads the request. With a reason, reply says how it is refused.
func (c *client) readSOCKS() (t policy.Target, reply byte, why string) {
	var head [4]byte // version, command, reserved, kind of address
	if _, err := io.ReadFull(c.r, head[:]); err != nil {
		return t, socksFailure, "the request is cut off"
	}
	if head[0] != socksVersion || head[2] != 0 {
		return t, socksFailure, "no request of SOCKS5"
	}
	size := map[byte]int{socksIPv4: 4, socksIPv6: 16}[head[3]]
	if head[3] == socksName {
		n, err := c.r.ReadByte()
		if err != nil || n == 0 {
			return t, socksFailure, "the request has no name"
		}
		size = int(n)
	}
	if size == 0 {
		return t, socksNoAddress, "an address of an unknown kind"
	}
	b := make([]byte, size+2)
	if _, err := io.ReadFull(c.r, b); err != nil {
		return t, socksFailure, "the request is cut off"
	}
	if head[1] != socksConnect {
		return t, socksNoCommand, "a command other than CONNECT"
	}
	host, port := b[:size], uint16(b[size])<<8|uint16(b[size+1])
	var err error
	if head[3] == socksName {
		t, err = policy.ParseHost(string(host), port)
	} else {
		addr, _ := netip.AddrFromSlice(host)
		t, err = policy.AddrTarget(addr, port)
	}
	if err != nil {
		return policy.Target{}, socksNotAllowed, err.Error()
	}
	return t, socksOK, ""
}

// replySOCKS answers. The address that the server is reached from is none of the
// sandbox's business.
func (c *client) replySOCKS(code byte) bool {
	_, err := c.conn.Write([]byte{socksVersion, code, 0, socksIPv4, 0, 0, 0, 0, 0, 0})
	c.linger = code != socksOK
	return err == nil
}

func socksReply(r *refusal) byte {
	switch {
	case r.status == http.StatusForbidden:
		return socksNotAllowed
	case r.status == http.StatusBadGateway:
		return socksUnreachable
	}
	return socksFailure
}
