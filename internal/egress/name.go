package egress

import (
	"context"

	"agentbox/internal/egress/policy"
)

// serveName serves a program that connects without a proxy. On port 80 it speaks
// HTTP, and can be answered.
func (c *client) serveName(ctx context.Context, name string, port uint16) {
	t, err := policy.ParseHost(name, port)
	if err == nil && port == 80 {
		w := newWeb(ctx, c, c.conn, c.r, &t)
		w.kind = KindTransparent
		w.serve()
		return
	}
	ctx, f := c.s.begin(ctx, KindTransparent, t)
	defer f.end(c.p.o.Recorder)
	if err != nil {
		f.refuse(deny(0, CodeInvalidHost, err.Error(), ""))
		c.broken = true
		return
	}
	up, v, r := c.open(ctx, f)
	if r == nil {
		c.tunnel(ctx, f, up, v)
		return
	}
	f.refuse(r)
	if port == 443 {
		c.alert() // the one way to say why
		c.linger = true
		return
	}
	c.broken = true
}
