package dial

import (
	"cmp"
	"context"
	"net"
	"net/netip"
	"time"
)

// attemptDelay is the wait for an attempt before the next one begins beside it:
// RFC 8305, section 8.
const attemptDelay = 250 * time.Millisecond

// maxAttempts is how many attempts run at once: a name with many addresses that
// take nothing would otherwise make a connection of a sandbox into as many.
const maxAttempts = 4

// interleave orders addresses so that the two families take turns: when one is
// broken, the other comes soon. Otherwise the resolver's order stays.
func interleave(addrs []netip.AddrPort) []netip.AddrPort {
	var first, second []netip.AddrPort
	for _, a := range addrs {
		if a.Addr().Is4() == addrs[0].Addr().Is4() {
			first = append(first, a)
		} else {
			second = append(second, a)
		}
	}
	all := make([]netip.AddrPort, 0, len(addrs))
	for i := range addrs {
		if i < len(first) {
			all = append(all, first[i])
		}
		if i < len(second) {
			all = append(all, second[i])
		}
	}
	return all
}

// attempt is what became of one.
type attempt struct {
	conn net.Conn
	to   netip.AddrPort
	err  error
}

// race connects to the first address that answers. It begins with one and adds
// the next whenever one fails or takes long. When it returns, no attempt runs
// and all connections but the one it gives are closed.
func race(ctx context.Context, addrs []netip.AddrPort, connect func(context.Context, netip.AddrPort) (net.Conn, error)) (net.Conn, netip.AddrPort, error) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan attempt)
	running, begun := 0, 0
	begin := func() {
		if begun == len(addrs) {
			return
		}
		to := addrs[begun]
		begun++
		running++
		go func() {
			conn, err := connect(ctx, to)
			done <- attempt{conn, to, err}
		}()
	}
	defer func() {
		cancel()
		for ; running > 0; running-- {
			if late := <-done; late.err == nil {
				_ = late.conn.Close() // nothing was sent on it
			}
		}
	}()
	var failed error
	begin()
	for running > 0 {
		var next <-chan time.Time
		if begun < len(addrs) && running < maxAttempts {
			next = time.After(attemptDelay)
		}
		select {
		case a := <-done:
			running--
			if a.err == nil {
				return a.conn, a.to, nil
			}
			failed = cmp.Or(failed, a.err)
			if ctx.Err() == nil {
				begin()
			}
		case <-next:
			begin()
		}
	}
	return nil, netip.AddrPort{}, failed
}
