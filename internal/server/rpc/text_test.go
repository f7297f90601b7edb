package rpc_test

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect/v2"
	"google.golang.org/protobuf/proto"

	sandboxv1 "agentbox/internal/gen/sandbox/v1"
	"agentbox/internal/gen/sandbox/v1/sandboxv1connect"
	"agentbox/internal/server"
	"agentbox/internal/server/rpc"
)

const textKind = "application/grpc-web-text"

// texted makes a client of gRPC-Web one of its text form, which sends a padded piece for
// whatever it has.
type texted struct{ keyed }

func (x texted) Do(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Content-Type", textKind)
	r.Header.Set("Accept", textKind)
	r.Body, r.GetBody, r.ContentLength = encoded{r.Body}, nil, -1
	resp, err := x.keyed.Do(r)
	if err != nil {
		return nil, err
	}
	if kind := resp.Header.Get("Content-Type"); kind != textKind+"+proto" {
		resp.Body.Close()
		return nil, fmt.Errorf("the answer, %s, is %q", resp.Status, kind)
	}
	resp.Header.Set("Content-Type", "application/grpc-web+proto")
	resp.Body = &decoded{ReadCloser: resp.Body}
	return resp, nil
}

type encoded struct{ io.ReadCloser }

func (e encoded) Read(p []byte) (int, error) {
	plain := make([]byte, len(p)/4*3)
	n, err := e.ReadCloser.Read(plain)
	return copy(p, base64.StdEncoding.EncodeToString(plain[:n])), err
}

// decoded decodes what has come as soon as it is whole, as clients do.
type decoded struct {
	io.ReadCloser
	plain []byte
}

func (d *decoded) Read(p []byte) (int, error) {
	if len(d.plain) == 0 {
		var text [4]byte
		if _, err := io.ReadFull(d.ReadCloser, text[:]); err != nil {
			return 0, err
		}
		var err error
		if d.plain, err = base64.StdEncoding.DecodeString(string(text[:])); err != nil {
			return 0, err
		}
	}
	n := copy(p, d.plain)
	d.plain = d.plain[n:]
	return n, nil
}

// framed is a message as gRPC-Web sends it.
func framed(t *testing.T, m proto.Message) string {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return string(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(b)))) + string(b)
}

func in64(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }

// post sends a request. It returns the answer, its body, decoded if that is text, and the
// status of the call with its words.
func (w *world) post(procedure, kind, accept, key string, body io.Reader) (resp *http.Response, plain, status string) {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.t.Context(), http.MethodPost, w.url+procedure, body)
	if err != nil {
		w.t.Fatal(err)
	}
	r.Header.Set("Content-Type", kind)
	if accept != "" {
		r.Header.Set("Accept", accept)
	}
	resp, err = keyed{&http.Transport{DisableKeepAlives: true}, key}.Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	from := io.Reader(resp.Body)
	if strings.HasPrefix(resp.Header.Get("Content-Type"), textKind) {
		from = &decoded{ReadCloser: resp.Body}
	}
	b, err := io.ReadAll(from)
	if err != nil {
		w.t.Fatalf("%s: the answer is %q, %v", procedure, b, err)
	}
	status = resp.Header.Get("Grpc-Status") + " " + resp.Header.Get("Grpc-Message")
	if _, trailers, ok := strings.Cut(string(b), "grpc-status: "); ok {
		status, _, _ = strings.Cut(trailers, "\r")
	}
	return resp, string(b), strings.TrimSpace(status)
}

// TestTextForm: requests and answers each have the form that is asked for.
func TestTextForm(t *testing.T) {
	w := start(t)
	id := w.session(w.client(w.acme)).GetSessionId()
	message := framed(t, &sandboxv1.ExecRequest{SessionId: id, Command: "echo hello"})
	json := `{"sessionId":"` + id + `","command":"echo hello"}`
	json = string(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(json)))) + json
	const binaryKind = "application/grpc-web"
	for _, form := range []struct{ kind, accept, want string }{
		{textKind, textKind, textKind + "+proto"},
		{textKind, "", textKind + "+proto"},
		{textKind, "*/*", textKind + "+proto"},
		{textKind + "+proto", "text/html, " + textKind + "+proto;q=1", textKind + "+proto"},
		{"Application/gRPC-Web-Text ; charset=utf-8", "no type,,", textKind + "+proto"},
		{textKind + "+json", textKind, textKind + "+json"},
		{textKind, binaryKind + "+proto, " + textKind, binaryKind + "+proto"},
		{binaryKind, textKind, textKind},
		{binaryKind + "+proto", textKind + "+proto", textKind + "+proto"},
		{binaryKind, "*/*", binaryKind},
	} {
		body := message
		if strings.HasSuffix(form.kind, "json") {
			body = json
		}
		if strings.Contains(strings.ToLower(form.kind), "text") {
			body = in64(body)
		}
		resp, plain, status := w.post(sandboxv1connect.SandboxServiceExecProcedure, form.kind, form.accept, w.acme, strings.NewReader(body))
		if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != form.want || status != "0" || !strings.Contains(plain, "hello") {
			t.Errorf("%v: %s %v %q", form, resp.Status, resp.Header, plain)
		}
	}
	for kind, want := range map[string]int{textKind + "+thrift": 415, textKind + "x": 415, "application/grpc-webtext": 415} {
		if resp, _, _ := w.post(sandboxv1connect.SandboxServiceExecProcedure, kind, textKind, w.acme, strings.NewReader(in64(message))); resp.StatusCode != want {
			t.Errorf("%s: %s", kind, resp.Status)
		}
	}
}

// TestTextPieces: a request may be any number of pieces, each padded.
func TestTextPieces(t *testing.T) {
	w := start(t)
	id := w.session(w.client(w.acme)).GetSessionId()
	file := strings.Repeat("0123456789", 10_000)
	messages := framed(t, &sandboxv1.UploadFileRequest{SessionId: id, Path: "f", Data: []byte(file)}) + framed(t, &sandboxv1.UploadFileRequest{Data: []byte(file)})
	for _, size := range []int{1, 2, 3, 4, 5, 1000, 4096, len(messages) / 2, len(messages)} {
		var body strings.Builder
		for rest := []byte(messages); len(rest) > 0; {
			n := min(size, len(rest))
			body.WriteString(in64(string(rest[:n])))
			rest = rest[n:]
		}
		if _, plain, status := w.post(sandboxv1connect.SandboxServiceUploadFileProcedure, textKind, textKind, w.acme, strings.NewReader(body.String())); status != "0" {
			t.Errorf("in pieces of %d bytes: %q, %q", size, status, plain)
		}
		if got, failure := w.read(w.client(w.acme), id, "f"); got != file+file {
			t.Errorf("in pieces of %d bytes: the file has %d, %s", size, len(got), failure)
		}
	}
}

// TestTextBad: what is no base64 is refused with a reason, in the text form, also if no
// end of it ever comes. Nothing is carried out.
func TestTextBad(t *testing.T) {
	w := start(t, func(o *server.Options, _ *rpc.Parts) { o.BodyTimeout = time.Second })
	id := w.session(w.client(w.acme)).GetSessionId()
	good := in64(framed(t, &sandboxv1.ExecRequest{SessionId: id, Command: "touch taken"}))
	for name, body := range map[string]string{
		"no alphabet": "!!!!", "binary": "\x00\x00\x00\x00\x00\x00\x00\x00", "of URLs": "-_-_", "line breaks": good[:8] + "\r\n" + good[8:], "a line": good + "\n",
		"cut": good[:len(good)-1], "padding alone": "====", "something behind": good + "!", "padding in a group": "AA=A" + good,
	} {
		for _, procedure := range []string{sandboxv1connect.SandboxServiceExecProcedure, sandboxv1connect.SandboxServiceExecStreamProcedure, sandboxv1connect.SandboxServiceUploadFileProcedure} {
			resp, _, status := w.post(procedure, textKind, textKind, w.acme, strings.NewReader(body))
			if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != textKind+"+proto" || !strings.HasPrefix(status, "3") || !strings.Contains(resp.Header.Get("Grpc-Message"), "must be base64") {
				t.Errorf("%s to %s: %s, %v", name, procedure, resp.Status, resp.Header)
			}
		}
	}
	for _, procedure := range []string{sandboxv1connect.SandboxServiceExecProcedure, sandboxv1connect.SandboxServiceWriteFileProcedure, sandboxv1connect.SandboxServiceUploadFileProcedure} {
		body, sender := io.Pipe()
		go func() { _, _ = sender.Write([]byte("AAAA!!!!")) }()
		if _, _, status := w.post(procedure, textKind, textKind, w.acme, body); !strings.HasPrefix(status, "3 ") {
			t.Errorf("%s with a body that does not end: %q", procedure, status)
		}
		body.Close()
	}
	if got := w.exec(w.client(w.acme), id, "ls").GetStdout(); got != "" {
		t.Errorf("it was carried out: %q", got)
	}
}

// TestTextIsAsBinary: requests that are refused, by whomever, are refused as those in the
// binary form are.
func TestTextIsAsBinary(t *testing.T) {
	w := start(t)
	message := framed(t, &sandboxv1.ListSessionsRequest{})
	for name, q := range map[string]struct{ key, body, want string }{
		"no key": {"", message, "16"}, "a wrong key": {"abx_0123456789012345678901234567890123456789", message, "16"},
		"no body": {w.acme, "", ""}, "half an envelope": {w.acme, "\x00\x00", ""}, "two messages": {w.acme, message + message, ""}, "half a message": {w.acme, "\x00\x00\x00\x00\x05x", ""},
		"a packed one that is none": {w.acme, "\x01\x00\x00\x00\x01x", ""}, "too large": {w.acme, "\x00\x05\x00\x00\x00", "8"},
	} {
		_, _, want := w.post(sandboxv1connect.SandboxServiceListSessionsProcedure, "application/grpc-web", "", q.key, strings.NewReader(q.body))
		resp, _, got := w.post(sandboxv1connect.SandboxServiceListSessionsProcedure, textKind, textKind, q.key, strings.NewReader(in64(q.body)))
		if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != textKind+"+proto" || got != want || want == "0" || want == "" || !strings.HasPrefix(want, q.want) {
			t.Errorf("%s: %s %q, in the binary form %q", name, resp.Status, got, want)
		}
	}
}

// TestLargeText: messages have the same bound as in other forms, though their text is a third
// longer; longer ones are refused before they are sent where their length is said.
func TestLargeText(t *testing.T) {
	w := start(t)
	c := w.by("gRPC-Web text", w.acme)
	if _, err := c.GetSession(t.Context(), &sandboxv1.GetSessionRequest{SessionId: strings.Repeat("x", 64<<20-100)}); connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("one of nearly 64 MiB: %.300v", err)
	}
	head := string(binary.BigEndian.AppendUint32([]byte{0}, 64<<20+1))
	if _, _, status := w.post(sandboxv1connect.SandboxServiceGetSessionProcedure, textKind, textKind, w.acme, strings.NewReader(in64(head+"x"))); !strings.HasPrefix(status, "8 ") || !strings.Contains(status, "67108864") {
		t.Errorf("a larger one: %q", status)
	}
	q, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.url+sandboxv1connect.SandboxServiceGetSessionProcedure, io.LimitReader(zeros{}, 90<<20))
	if err != nil {
		t.Fatal(err)
	}
	q.ContentLength = 90 << 20
	q.Header.Set("Content-Type", textKind)
	q.Header.Set("Expect", "100-continue")
	resp, err := keyed{&http.Transport{DisableKeepAlives: true, ExpectContinueTimeout: time.Minute}, w.acme}.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.Header.Get("Content-Type") != textKind+"+proto" || resp.Header.Get("Grpc-Status") != "8" || !bytes.Equal(b, nil) {
		t.Errorf("90 MiB: %s %v %q, %v", resp.Status, resp.Header, b, err)
	}
}
