package procapi

import "math"

// capture keeps output until its command has ended.
type capture struct {
	sandbox Sandbox
	most    int // bytes to keep
	b       []byte
	full    bool // there was more
}

// newCapture keeps at most so many bytes; 0: all for which there is memory.
func newCapture(s Sandbox, most int64) *capture {
	if most <= 0 {
		most = math.MaxInt
	}
	return &capture{sandbox: s, most: int(most)}
}

// Write implements io.Writer. What it does not keep is lost.
func (c *capture) Write(p []byte) (int, error) {
	n := len(p)
	if c.full {
		return n, nil
	}
	if room := c.most - len(c.b); len(p) > room {
		p, c.full = p[:room], true
	}
	if need := len(c.b) + len(p); need > cap(c.b) {
		p = p[:c.grow(need)-len(c.b)]
	}
	c.b = append(c.b, p...)
	return n, nil
}

// grow makes room for need bytes, in large steps: append's small ones would leave
// several times the output behind. It returns for how many there is room.
func (c *capture) grow(need int) int {
	for _, size := range []int{min(max(4*cap(c.b), need), c.most), need} {
		if c.sandbox.Reserve(int64(size)) { // beside what it has, until that is copied
			b := append(make([]byte, 0, size), c.b...)
			c.sandbox.Release(int64(cap(c.b)))
			c.b = b
			return need
		}
	}
	c.full = true
	return cap(c.b)
}

// free gives the memory back.
func (c *capture) free() {
	c.sandbox.Release(int64(cap(c.b)))
	c.b = nil
}
