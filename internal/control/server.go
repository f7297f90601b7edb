package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"agentbox/internal/guest"
	"agentbox/internal/peercred"
)

// Server serves one sandbox.
type Server struct {
	http *http.Server
	path string
	done chan struct{}
}

// headTimeout bounds the head of a request; bodies may take as long as they
// need.
const headTimeout = 10 * time.Second

// Serve listens in an owner's directory until Close.
func Serve(dir string, box Box) (*Server, error) {
	l, err := listen(dir)
	if err != nil {
		return nil, fmt.Errorf("listen for other agentbox commands: %w", err)
	}
	s := &Server{path: filepath.Join(dir, socketName), done: make(chan struct{})}
	s.http = &http.Server{
		Handler: handler(box), ReadHeaderTimeout: headTimeout, IdleTimeout: headTimeout,
		MaxHeaderBytes: 64 << 10, ErrorLog: log.New(io.Discard, "", 0),
	}
	go func() {
		defer close(s.done)
		_ = s.http.Serve(&sameUser{l}) // Close ends it
	}()
	return s, nil
}

// Close ends all calls.
func (s *Server) Close() error {
	err := s.http.Close()
	<-s.done
	if e := os.Remove(s.path); !errors.Is(e, os.ErrNotExist) {
		err = errors.Join(err, e)
	}
	return err
}

// inDir gives f a short name of a socket in dir: their paths are limited to 107
// bytes, those of directories are not.
func inDir[T any](dir string, f func(path string) (T, error)) (T, error) {
	d, err := os.Open(dir)
	if err != nil {
		var none T
		return none, err
	}
	defer d.Close()
	return f(fmt.Sprintf("/proc/self/fd/%d/%s", d.Fd(), socketName))
}

func listen(dir string) (*net.UnixListener, error) {
	return inDir(dir, func(path string) (*net.UnixListener, error) {
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		if err != nil {
			return nil, err
		}
		l.SetUnlinkOnClose(false) // the name is good for this moment only
		return l, os.Chmod(path, 0o600)
	})
}

// sameUser accepts root and the user of this process only. The directory keeps
// out everybody else already.
type sameUser struct{ *net.UnixListener }

func (l *sameUser) Accept() (net.Conn, error) {
	for {
		c, err := l.AcceptUnix()
		if err != nil {
			return nil, err
		}
		if uid, err := peercred.UID(c); err == nil && (uid == 0 || int(uid) == os.Geteuid()) {
			return c, nil
		}
		c.Close()
	}
}

func handler(box Box) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /info", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, func() (any, error) { return box.Info(), nil })
	})
	mux.HandleFunc("GET /stat", func(w http.ResponseWriter, r *http.Request) {
		answer(w, func() (any, error) { return box.Stat(r.Context(), r.FormValue("path")) })
	})
	mux.HandleFunc("PUT /tree", func(w http.ResponseWriter, r *http.Request) {
		answer(w, func() (any, error) {
			return struct{}{}, box.PutTree(r.Context(), r.URL.Query().Get("path"), r.Body)
		})
	})
	mux.HandleFunc("GET /tree", func(w http.ResponseWriter, r *http.Request) {
		if err := sendTree(r.Context(), w, box, r.FormValue("path")); err != nil {
			guest.WriteError(w, err)
		}
	})
	return mux
}

func answer(w http.ResponseWriter, f func() (any, error)) {
	v, err := f()
	if err != nil {
		guest.WriteError(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // a client that is gone needs no answer
}

// sendTree returns an error while it can still be told as an answer; later ones
// go into the trailer.
func sendTree(ctx context.Context, w http.ResponseWriter, box Box, path string) error {
	tree, err := box.GetTree(ctx, path)
	if err != nil {
		return err
	}
	defer tree.Close()
	w.Header().Set("Trailer", guest.ErrorTrailer)
	w.Header().Set("Content-Type", "application/x-tar")
	if _, err := io.Copy(w, tree); err != nil {
		w.Header().Set(guest.ErrorTrailer, guest.EncodeTrailer(err))
	}
	return nil
}
