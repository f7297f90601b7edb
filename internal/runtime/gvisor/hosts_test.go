package gvisor_test

import "testing"

// A program finds its own host, also after another session named it again.
func TestOwnNameResolves(t *testing.T) {
	b := newBox(t)
	for range 2 {
		if got := b.sh(`python3 -c 'import socket; print(socket.gethostbyname(socket.gethostname()))'; grep -c "$(hostname)" /etc/hosts`); got != "127.0.1.1\n1\n" {
			t.Errorf("got %q", got)
		}
		b.s.Close()
		b.connect()
	}
}
