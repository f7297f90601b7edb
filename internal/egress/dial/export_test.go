package dial

import "net/netip"

// SetOwn says which addresses this machine is to have.
func (d *Dialer) SetOwn(own func(netip.Addr) bool) { d.own = own }

// IsOwn is how it is found out.
var IsOwn = isOwn
