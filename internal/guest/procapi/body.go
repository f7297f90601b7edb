package procapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"time"
	"unicode/utf8"
)

const (
	// maxBody bounds the body of a request, in bytes.
	maxBody = 64 << 20
	// small is what may be held for every connection at once; of what is larger there
	// is one at a time.
	small = 64 << 10
	// maxName bounds a path, in bytes: more than any file system takes.
	maxName = 32 << 10
)

var discardLog = log.New(io.Discard, "", 0)

// enter waits for the place of what is large, if n bytes are. leave gives it back.
func (a *API) enter(r *http.Request, n int64) (leave func(), err error) {
	if n >= 0 && n <= small {
		return func() {}, nil
	}
	select {
	case a.large <- struct{}{}:
		return func() {
			<-a.large
			a.sandbox.Rest()
		}, nil
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
}

// decode reads the body of a request into q; not ok: it was answered. What q holds of
// the body may be used until leave.
func (a *API) decode(w http.ResponseWriter, r *http.Request, q any) (leave func(), ok bool) {
	if r.ContentLength > maxBody {
		tooLarge(w)
		return nil, false
	}
	leave, err := a.enter(r, r.ContentLength)
	if err != nil {
		return nil, false // nobody waits for an answer
	}
	if err = readJSON(w, r, q); err == nil {
		return leave, true
	}
	leave()
	var wrong *json.UnmarshalTypeError
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		tooLarge(w)
	case errors.As(err, &wrong) && wrong.Field != "":
		fail(w, http.StatusBadRequest, fmt.Sprintf("'%s' must not be of type %s", wrong.Field, wrong.Value))
	default:
		fail(w, http.StatusBadRequest, "Invalid JSON")
	}
	return nil, false
}

func tooLarge(w http.ResponseWriter) {
	w.Header().Set("Connection", "close") // nobody reads the rest of it
	fail(w, http.StatusRequestEntityTooLarge, fmt.Sprintf("The body has more than %d bytes", maxBody))
}

var errNotText = errors.New("the body is not UTF-8")

func readJSON(w http.ResponseWriter, r *http.Request, q any) error {
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Now().Add(bodyTime))
	body := http.MaxBytesReader(w, r.Body, maxBody)
	var b []byte
	var err error
	if r.ContentLength >= 0 {
		b = make([]byte, r.ContentLength)
		_, err = io.ReadFull(body, b)
	} else {
		b, err = io.ReadAll(body)
	}
	if err != nil {
		return err
	}
	_ = control.SetReadDeadline(time.Time{}) // from here on it shows when the client goes away
	if !utf8.Valid(b) {
		return errNotText
	}
	return json.Unmarshal(b, q)
}
