// Package procapi is the process API: an HTTP server in a sandbox by which its own
// programs run commands and read and write files. Who calls it is as little trusted
// as any program there, so all that a caller can make it hold is bounded.
package procapi

import (
	"context"
	"io"
	"net/http"
	"time"

	"agentbox/internal/guest/wording"
	"agentbox/internal/sandbox"
)

// Sandbox is what the API works on, with the rights of the sandbox's default user.
// Errors are those that the guest tells.
type Sandbox interface {
	// Run runs a command with empty standard input and returns when it has ended. A
	// ctx that ends, and a writer that fails, end it. One goroutine calls the writers.
	Run(ctx context.Context, c Command, stdout, stderr io.Writer) (*sandbox.Result, error)
	// Open opens a regular file below wording.Readable; size is what it has now.
	Open(ctx context.Context, path string) (f io.ReadCloser, size int64, err error)
	// Write writes a file below wording.Writable, and makes the directories above it.
	Write(ctx context.Context, path string, appending bool, content io.Reader) error
	// Reserve takes memory for output that waits for its command's end, in bytes;
	// false: there is no more. Release gives it back.
	Reserve(n int64) bool
	Release(n int64)
	// Rest is told that a large request is over: a time to give memory back.
	Rest()
}

// Command is what to run by /bin/sh -c.
type Command struct {
	Line, Dir string
	// Timeout includes the wait for a free place; 0: none.
	Timeout time.Duration
	// MaxOutput is how many bytes of each stream are taken; 0: all.
	MaxOutput int64
}

// Options are what the operator allows.
type Options struct {
	// MaxTimeout is the longest that a command may take; 0: nothing bounds it.
	MaxTimeout time.Duration
	// MaxOutput is how many bytes of each stream an answer may have; 0: nothing
	// bounds them.
	MaxOutput int64
}

// Bounds of what a client may take its time for.
const (
	headTime  = 10 * time.Second // to send the head of a request
	bodyTime  = time.Minute      // to send the body
	writeTime = time.Minute      // to take a piece of the answer
	idleTime  = time.Minute      // between two requests
	maxHead   = 16 << 10         // bytes of the head of a request
)

// API answers requests.
type API struct {
	sandbox Sandbox
	options Options
	large   chan struct{} // the place of what is large
}

// New makes an API.
func New(s Sandbox, o Options) *API { return &API{s, o, make(chan struct{}, 1)} }

// Server is an HTTP server for the API.
func (a *API) Server() *http.Server {
	return &http.Server{
		Handler: a, ReadHeaderTimeout: headTime, IdleTimeout: idleTime, MaxHeaderBytes: maxHead,
		ErrorLog: discardLog, DisableGeneralOptionsHandler: true,
	}
}

var routes = map[string]struct {
	method string
	serve  func(*API, http.ResponseWriter, *http.Request)
}{
	"/health":      {http.MethodGet, (*API).health},
	"/exec":        {http.MethodPost, (*API).exec},
	"/exec/stream": {http.MethodPost, (*API).stream},
	"/file/write":  {http.MethodPost, (*API).write},
	"/file/read":   {http.MethodPost, (*API).read},
}

// ServeHTTP implements http.Handler.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// Also of a body that nobody wants: the server reads it before it answers.
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTime))
	route, ok := routes[r.URL.Path]
	switch {
	case fromPage(r):
		fail(w, http.StatusForbidden, "Web pages may not use this API")
	case !ok:
		fail(w, http.StatusNotFound, "Not found")
	case r.Method != route.method && !(r.Method == http.MethodHead && route.method == http.MethodGet):
		w.Header().Set("Allow", route.method)
		fail(w, http.StatusMethodNotAllowed, "Method not allowed")
	default:
		route.serve(a, w, r)
	}
}

// fromPage reports a request that a web page had a browser in the sandbox send:
// pages reach the loopback interface, and must not run commands there. Browsers say
// so with every request but those that a person's own step made.
func fromPage(r *http.Request) bool {
	site := r.Header.Get("Sec-Fetch-Site")
	return r.Header.Get("Origin") != "" || site != "" && site != "none"
}

func (a *API) health(w http.ResponseWriter, _ *http.Request) {
	reply(w, http.StatusOK, struct {
		Status string `json:"status"`
	}{"ok"})
}

// reply answers with JSON.
func reply(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", contentJSON)
	w.WriteHeader(status)
	_ = wording.EncodeJSON(newPatient(w), v) // a client that is gone needs no answer
}

const contentJSON = "application/json; charset=utf-8"

// fail answers with an error.
func fail(w http.ResponseWriter, status int, text string) {
	reply(w, status, struct {
		Error string `json:"error"`
	}{text})
}

// patient writes to a client that has writeTime for each piece.
type patient struct {
	http.ResponseWriter
	control *http.ResponseController
}

func newPatient(w http.ResponseWriter) patient {
	return patient{w, http.NewResponseController(w)}
}

// Write implements io.Writer.
func (p patient) Write(b []byte) (int, error) {
	_ = p.control.SetWriteDeadline(time.Now().Add(writeTime))
	return p.ResponseWriter.Write(b)
}
