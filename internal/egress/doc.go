// Package egress is the proxy through which sandboxes reach the network: the only
// way out, since they have no network device. It takes each connection of a
// sandbox as the bytes that a program in it sent to its proxy, decides by the
// policy of the sandbox's [Session], and dials.
//
// Spoken are HTTP/1.1 (CONNECT and absolute-form requests), SOCKS5 with names
// ([Proxy.ServeConn]), and plain connections to a name that the sandbox's
// resolver gave out ([Proxy.ServeName]). Everything in a connection is hostile:
// heads, names and handshakes are bounded in size and time, framing is strict,
// and each request on a connection is judged by itself.
//
// What goes through a tunnel is looked at once, at its beginning: a TLS handshake
// must name the host that was allowed, and so must each request of plain HTTP.
// The server's bytes never wait for that.
package egress
