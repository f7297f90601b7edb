package client

import (
	"io"
	"log"
	"net"
	"net/http"

	"agentbox/internal/guest"
)

// discardLog takes what net/http has to say about requests of the guest.
var discardLog = log.New(io.Discard, "", 0)

// listener accepts the streams that the guest opens.
type listener struct{ s *Session }

func (l *listener) Accept() (net.Conn, error) {
	c, err := l.s.mux.Accept()
	if err != nil {
		return nil, err
	}
	return c, l.s.check()
}

func (l *listener) Close() error   { return nil } // the session closes the mux
func (l *listener) Addr() net.Addr { return l.s.mux.Addr() }

// guestHandler serves the guest's requests.
func (s *Session) guestHandler(h http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+guest.PathProbe, func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(http.MaxBytesReader(w, r.Body, guest.MaxProbe))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		_, _ = w.Write(b)
	})
	if h != nil {
		mux.Handle("/", h)
	}
	return mux
}
