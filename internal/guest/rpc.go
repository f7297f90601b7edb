package guest

import (
	"context"
	"encoding/base64"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/proto"

	guestv1 "agentbox/internal/gen/guest/v1"
)

// Where the guest's HTTP server has things; see the package comment.
const (
	UnaryPrefix = "/agentbox.guest.v1.Guest/"
	PathExec    = "/exec"
	PathAttach  = "/attach"
	PathFiles   = "/files"
	// PathFilesWithin is PathFiles for paths that must not lead out of directories:
	// an agent that does not know of that says so, rather than to let it be.
	PathFilesWithin = "/files/within"
	PathTar         = "/tar"
	PathWatch       = "/watch" // answers with frames
	PathPorts       = "/ports" // upgraded; has PathPort
	PathPort        = "/port"
	PathTunnel      = "/tunnel" // upgraded; carries a Tunnel
	// PathWideTunnel carries another one, for few connections.
	PathWideTunnel = "/tunnel/wide"
	// PathProbe is served by the host: it sends the body back.
	PathProbe = "/probe"

	// Upgrade is the protocol of streams that carry frames.
	Upgrade = "agentbox-frames"
	// ErrorTrailer is set after a body that could not be sent to its end; it
	// holds an Error message in base64.
	ErrorTrailer = "Agentbox-Error"
	// SkippedTrailer is set after an archive that lacks something; it holds a
	// SkippedList as EncodeHeader has it.
	SkippedTrailer = "Agentbox-Skipped"
	// FileHeader comes before a file's body: its FileInfo, as EncodeHeader has it.
	FileHeader = "Agentbox-File"

	contentProto = "application/proto"
)

const (
	// MaxRequest bounds the body of a unary request: a command with its
	// arguments and environment (execve takes 2 MiB), a probe.
	MaxRequest = 4 << 20
	// MaxProbe bounds the payload of Ping and ProbeStream.
	MaxProbe = 64 << 10
)

// Handle serves the unary method of that name with f.
func Handle[Q any, PQ interface {
	*Q
	proto.Message
}, R proto.Message](mux *http.ServeMux, method string, f func(context.Context, PQ) (R, error)) {
	mux.HandleFunc("POST "+UnaryPrefix+method, func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxRequest))
		if err != nil {
			WriteError(w, Errorf(errdefs.ErrInvalidArgument, "read the request of %s: %v", method, err))
			return
		}
		q := PQ(new(Q))
		if err := proto.Unmarshal(b, q); err != nil {
			WriteError(w, Errorf(errdefs.ErrInvalidArgument, "decode the request of %s: %v", method, err))
			return
		}
		a, err := f(r.Context(), q)
		if err != nil {
			WriteError(w, err)
			return
		}
		WriteProto(w, http.StatusOK, a)
	})
}

// WriteError answers a request with an error.
func WriteError(w http.ResponseWriter, err error) {
	m, status := EncodeError(err)
	WriteProto(w, status, m)
}

// WriteProto answers a request with a message.
func WriteProto(w http.ResponseWriter, status int, m proto.Message) {
	b, err := proto.Marshal(m)
	if err != nil {
		http.Error(w, "encode the answer: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", contentProto)
	w.Header().Set("Content-Length", strconv.Itoa(len(b)))
	w.WriteHeader(status)
	_, _ = w.Write(b) // a client that is gone needs no answer
}

// maxHeader bounds a header value that is taken from the other end.
const maxHeader = 16 << 10

// EncodeHeader is a message as the value of a header or trailer.
func EncodeHeader(m proto.Message) string {
	b, _ := proto.Marshal(m) // only a string that is not UTF-8 could fail; the agent sends none
	return base64.StdEncoding.EncodeToString(b)
}

// DecodeHeader reads what EncodeHeader made into m; what is none leaves m empty.
func DecodeHeader(s string, m proto.Message) {
	b, err := base64.StdEncoding.DecodeString(s[:min(len(s), maxHeader)])
	if err != nil || proto.Unmarshal(b, m) != nil {
		proto.Reset(m)
	}
}

// EncodeTrailer is the value of ErrorTrailer for err.
func EncodeTrailer(err error) string {
	m, _ := EncodeError(err)
	// net/http reads trailers of 4 KiB at most, all together.
	m.Message, m.Path = strings.ToValidUTF8(m.Message[:min(len(m.Message), 1<<10)], ""), m.Path[:min(len(m.Path), 512)]
	return EncodeHeader(m)
}

// DecodeTrailer is the error that EncodeTrailer encoded, nil for "".
func DecodeTrailer(s string) error {
	if s == "" {
		return nil
	}
	b, err := base64.StdEncoding.DecodeString(s)
	m := new(guestv1.Error)
	if err != nil || proto.Unmarshal(b, m) != nil {
		return Errorf(errdefs.ErrInternal, "the guest broke off the answer")
	}
	return DecodeError(m)
}
