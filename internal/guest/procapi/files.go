package procapi

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"unicode/utf8"

	"agentbox/internal/guest"
	"agentbox/internal/guest/wording"
)

// done is the answer to a request about a file.
type done struct {
	Success bool   `json:"success"`
	Error   string `json:"error,omitempty"`
}

func (a *API) write(w http.ResponseWriter, r *http.Request) {
	var q struct {
		Path    string   `json:"path"`
		Content *content `json:"content"`
		Mode    string   `json:"mode"`
	}
	leave, ok := a.decode(w, r, &q)
	if !ok {
		return
	}
	defer leave()
	appending, known := wording.Appends(q.Mode)
	switch {
	case q.Path == "" || q.Content == nil:
		fail(w, http.StatusBadRequest, "Missing 'path' or 'content' field")
		return
	case !known:
		reply(w, http.StatusOK, done{Error: wording.InvalidMode})
		return
	}
	path := wording.Absolute(q.Path)
	err := a.sandbox.Write(r.Context(), path, appending, bytes.NewReader(*q.Content))
	text := fileText(err, path)
	switch {
	case err == nil:
		reply(w, http.StatusOK, done{Success: true})
	case text == wording.PathNotAllowed:
		fail(w, http.StatusForbidden, text)
	default:
		reply(w, http.StatusOK, done{Error: text})
	}
}

func (a *API) read(w http.ResponseWriter, r *http.Request) {
	var q struct {
		Path string `json:"path"`
	}
	leave, ok := a.decode(w, r, &q)
	if !ok {
		return
	}
	leave()
	if q.Path == "" {
		fail(w, http.StatusBadRequest, "Missing 'path' field")
		return
	}
	path := wording.Absolute(q.Path)
	err := a.send(w, r, path)
	switch {
	case err == nil || r.Context().Err() != nil:
	case errors.Is(err, fs.ErrNotExist):
		reply(w, http.StatusOK, done{Error: wording.FileNotFound})
	case errors.Is(err, errNotText):
		reply(w, http.StatusOK, done{Error: wording.NoText})
	default:
		reply(w, http.StatusOK, done{Error: fileText(err, path)})
	}
}

// send answers with a file's text. After an error nothing was answered.
func (a *API) send(w http.ResponseWriter, r *http.Request, path string) error {
	f, size, err := a.sandbox.Open(r.Context(), path)
	if err != nil {
		return err
	}
	defer f.Close()
	leave, err := a.enter(r, size)
	if err != nil {
		return err
	}
	defer leave()
	b, err := readText(f, max(size, 0))
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", contentJSON)
	to := newPatient(w)
	_, _ = io.WriteString(to, `{"success":true,"content":"`)
	quote(to, b, "")
	_, _ = io.WriteString(to, `"}`)
	return nil
}

// readText reads a file that had this size when it was opened. What was added since
// is left out, so that a small one stays small.
func readText(f io.Reader, size int64) ([]byte, error) {
	if size > wording.MaxText {
		return nil, wording.ErrTooLarge
	}
	b := make([]byte, size)
	n, err := io.ReadFull(f, b)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, err
	}
	if b = b[:n]; !utf8.Valid(b) {
		return nil, errNotText
	}
	return b, nil
}

// fileText is an error about a file in the words that the gRPC door has for it.
func fileText(err error, path string) string {
	if err == nil {
		return ""
	}
	if told := new(guest.Error); !errors.As(err, &told) {
		m, _ := guest.EncodeError(err)
		err = guest.DecodeError(m)
	}
	if text, ok := wording.FileError(err, path); ok {
		return text
	}
	return err.Error()
}
