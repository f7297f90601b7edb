package egress

import "bufio"

// ServerName reads the name in a ClientHello.
func ServerName(r *bufio.Reader) (string, error) { return serverName(r) }

// MaxHead is the size of a connection's reader.
const MaxHead = maxHead
