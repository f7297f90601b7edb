package rpc_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect/v2"

	sandboxv1 "agentbox/internal/gen/sandbox/v1"
	"agentbox/internal/gen/sandbox/v1/sandboxv1connect"
)

func (w *world) write(c sandboxv1connect.SandboxServiceClient, id, path, content, mode string) string {
	w.t.Helper()
	a, err := c.WriteFile(w.t.Context(), &sandboxv1.WriteFileRequest{SessionId: id, Path: path, Content: content, Mode: mode})
	if err != nil || a.GetSuccess() != (a.Error == nil) {
		w.t.Fatalf("write %s: %v, %v", path, a, err)
	}
	return a.GetError()
}

func (w *world) read(c sandboxv1connect.SandboxServiceClient, id, path string) (content, failure string) {
	w.t.Helper()
	a, err := c.ReadFile(w.t.Context(), &sandboxv1.ReadFileRequest{SessionId: id, Path: path})
	if err != nil || a.GetSuccess() != (a.Error == nil) || a.GetSuccess() != (a.Content != nil) {
		w.t.Fatalf("read %s: %v, %v", path, a, err)
	}
	return a.GetContent(), a.GetError()
}

// TestTexts: what is written is read, and what can't be is told in the answer.
func TestTexts(t *testing.T) {
	w := start(t)
	c := w.client(w.acme)
	id := w.session(c).GetSessionId()
	for _, s := range []struct{ path, content, mode, failure string }{
		{"a/b.txt", "x", "", ""},
		{"/workspace/f", "1\n", "w", ""},
		{"f", "2\n", "a", ""},
		{"/mnt/user-data/outputs/o", "o", "w", ""},
		{"empty", "", "w", ""},
		{"/workspace/../workspace/f2", "x", "w", ""},
		{"f", "x", "x", "Invalid mode"},
		{"/etc/x", "x", "w", "Path not allowed"},
		{"/workspace_evil/x", "x", "w", "Path not allowed"},
		{"../etc/x", "x", "w", "Path not allowed"},
		{"/mnt/user-data/uploads/x", "x", "w", "Path not allowed"},
		{"a", "x", "w", "[Errno 21] Is a directory: '/workspace/a'"},
		{"f/x", "x", "w", "[Errno 20] Not a directory: '/workspace/f/x'"},
	} {
		if got := w.write(c, id, s.path, s.content, s.mode); got != s.failure {
			t.Errorf("write %s by %s: %q, want %q", s.path, s.mode, got, s.failure)
		}
	}
	w.exec(c, id, `mkdir -p /mnt/user-data/uploads; ln -s /etc l; ln -s /etc/passwd file; ln -s f good; ln -s nowhere/x dangling; printf '\377x' >binary; echo up >/mnt/user-data/uploads/u; ln -s loop loop`)
	if got := w.write(c, id, "l/x", "x", ""); got != "Path not allowed" {
		t.Errorf("write through a link: %q", got)
	}
	for _, s := range []struct{ path, content, failure string }{
		{"a/b.txt", "x", ""},
		{"f", "1\n2\n", ""},
		{"good", "1\n2\n", ""},
		{"empty", "", ""},
		{"/mnt/user-data/uploads/u", "up\n", ""},
		{"nope.txt", "", "File not found"},
		{"dangling", "", "File not found"},
		{"no/../../etc/passwd", "", "File not found"},
		{"a", "", "[Errno 21] Is a directory: '/workspace/a'"},
		{"loop", "", "[Errno 40] Too many levels of symbolic links: '/workspace/loop'"},
		{"binary", "", "File is not valid UTF-8 text"},
		{"file", "", "Path not allowed"},
		{"/etc/passwd", "", "Path not allowed"},
		{"l/../../etc/passwd", "", "Path not allowed"},
		{"/proc/self/environ", "", "Path not allowed"},
		{"/", "", "Path not allowed"},
	} {
		if content, failure := w.read(c, id, s.path); content != s.content || failure != s.failure {
			t.Errorf("read %s: %q %q, want %q %q", s.path, content, failure, s.content, s.failure)
		}
	}
	if got := w.write(c, "none", "f", "x", ""); got != "Session not found" {
		t.Errorf("write in no session: %q", got)
	}
	if _, got := w.read(c, "none", "f"); got != "Session not found" {
		t.Errorf("read in no session: %q", got)
	}
}

// TestLargeMessages: more than a stock limit is taken, more than 64 MiB is refused and
// nothing is done.
func TestLargeMessages(t *testing.T) {
	w := start(t)
	c := w.client(w.acme)
	id := w.session(c).GetSessionId()
	text := strings.Repeat("0123456789abcde\n", 20<<20/16)
	if got := w.write(c, id, "large", text, ""); got != "" {
		t.Fatalf("20 MiB: %s", got)
	}
	if got, failure := w.read(c, id, "large"); got != text {
		t.Errorf("%d bytes came back, %s", len(got), failure)
	}
	_, err := c.WriteFile(t.Context(), &sandboxv1.WriteFileRequest{SessionId: id, Path: "larger", Content: strings.Repeat("x", 64<<20)})
	if connect.CodeOf(err) != connect.CodeResourceExhausted {
		t.Errorf("more than 64 MiB: %v", err)
	}
	if _, failure := w.read(c, id, "larger"); failure != "File not found" {
		t.Errorf("it was written: %q", failure)
	}
}

// TestTransfer: any bytes go up and come down, in any pieces, by any protocol.
func TestTransfer(t *testing.T) {
	for protocol := range protocols {
		t.Run(protocol, func(t *testing.T) { testTransfer(t, protocol) })
	}
}

func testTransfer(t *testing.T, protocol string) {
	w := start(t)
	c := w.by(protocol, w.acme)
	id := w.session(c).GetSessionId()
	data := bytes.Repeat([]byte{0, 1, 0xff, '\n'}, 300_000)
	upload := func(path string, parts ...[]byte) (*sandboxv1.UploadFileResponse, error) {
		up, err := c.UploadFile(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for i, p := range parts {
			m := &sandboxv1.UploadFileRequest{Data: p}
			if i == 0 {
				m.SessionId, m.Path = id, path
			}
			if err := up.Send(m); err != nil && !errors.Is(err, io.EOF) { // the answer says why
				t.Fatal(err)
			}
		}
		return up.CloseAndReceive()
	}
	if a, err := upload("d/bytes", nil, data[:1], data[1:700_000], nil, data[700_000:]); err != nil || a.GetSize() != int64(len(data)) {
		t.Fatalf("upload: %v, %v", a, err)
	}
	download := func(path string) (got []byte, err error) {
		down, err := c.DownloadFile(t.Context(), &sandboxv1.DownloadFileRequest{SessionId: id, Path: path})
		if err != nil {
			t.Fatal(err)
		}
		defer down.Close()
		for {
			m, err := down.Receive()
			if errors.Is(err, io.EOF) {
				return got, nil
			}
			if err != nil {
				return got, err
			}
			got = append(got, m.GetData()...)
		}
	}
	if got, err := download("d/bytes"); err != nil || !bytes.Equal(got, data) {
		t.Errorf("%d bytes of %d came back, %v", len(got), len(data), err)
	}
	for path, want := range map[string]connect.Code{"/etc/passwd": connect.CodePermissionDenied, "none": connect.CodeNotFound, "d": connect.CodeInvalidArgument} {
		if _, err := download(path); connect.CodeOf(err) != want {
			t.Errorf("download %s: %v", path, err)
		}
		if path == "none" {
			continue
		}
		if _, err := upload(path, data[:100]); connect.CodeOf(err) != want {
			t.Errorf("upload %s: %v", path, err)
		}
	}
	if _, err := upload("x"); connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("upload of nothing: %v", err)
	}
}

// TestFS17_CutUpload: a file that is written anew changes when all of it is there: a
// client that goes away in the middle leaves the old one and the link to
// it, and nothing beside it.
func TestFS17_CutUpload(t *testing.T) {
	w := start(t)
	c := w.client(w.acme)
	id := w.session(c).GetSessionId()
	w.exec(c, id, "mkdir d; echo old >d/f; chmod 600 d/f; ln -s d/f l")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	up, err := c.UploadFile(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 4 {
		m := &sandboxv1.UploadFileRequest{Data: bytes.Repeat([]byte("x"), 1<<20)}
		if i == 0 {
			m.SessionId, m.Path = id, "l"
		}
		if err := up.Send(m); err != nil {
			t.Fatal(err)
		}
	}
	files := func() string { return w.exec(c, id, "ls -A d; cat d/f").GetStdout() }
	wait := func(what string, ok func() bool) {
		t.Helper()
		for begin := time.Now(); !ok(); time.Sleep(5 * time.Millisecond) {
			if time.Since(begin) > 20*time.Second {
				t.Fatalf("%s: there are %.300q", what, files())
			}
		}
	}
	wait("the upload began", func() bool { return strings.Count(files(), "\n") == 3 })
	cancel()
	wait("the upload is over", func() bool { return files() == "f\nold\n" })
	if failure := w.write(c, id, "l", "new", ""); failure != "" {
		t.Fatal(failure)
	}
	if got := w.exec(c, id, "ls -A d; cat d/f; readlink l").GetStdout(); got != "f\nnewd/f\n" {
		t.Errorf("after a whole one: %q", got)
	}
}

// TestX23UploadEnds: an upload into a session that goes ends at once with a reason, and
// not when its client has sent enough.
func TestX23UploadEnds(t *testing.T) {
	w := start(t)
	c := w.client(w.acme)
	id := w.session(c).GetSessionId()
	up, err := c.UploadFile(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	send := func() error {
		return up.Send(&sandboxv1.UploadFileRequest{SessionId: id, Path: "f", Mode: "a", Data: []byte("x")})
	}
	if err := send(); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	for !strings.Contains(w.exec(c, id, "ls").GetStdout(), "f") {
		if time.Since(begin) > 20*time.Second {
			t.Fatal("it does not begin")
		}
	}
	if a, err := c.DestroySession(t.Context(), &sandboxv1.DestroySessionRequest{SessionId: id}); err != nil || !a.GetSuccess() {
		t.Fatalf("%v, %v", a, err)
	}
	for err == nil && time.Since(begin) < 20*time.Second {
		time.Sleep(5 * time.Millisecond)
		err = send()
	}
	if !errors.Is(err, io.EOF) {
		t.Fatalf("it goes on: %v", err)
	}
	if _, err := up.CloseAndReceive(); err == nil || !strings.Contains("not_found: Session not found, failed_precondition: Sandbox is not running", err.Error()) { // the latter while it goes
		t.Errorf("it ended with %v", err)
	}
}

// TestTransfersAtOnce: files that come at the same time, in parts of many sizes, packed
// and not, share no memory.
func TestTransfersAtOnce(t *testing.T) {
	w := start(t)
	var clients []sandboxv1connect.SandboxServiceClient
	for range 3 {
		clients = append(clients, w.by("gRPC", w.acme), w.by("gzip", w.acme))
	}
	id := w.session(clients[0]).GetSessionId()
	var all sync.WaitGroup
	for i, c := range clients {
		all.Go(func() {
			var want []byte
			up, err := c.UploadFile(t.Context())
			for part := 1; part <= 1<<20 && err == nil; part *= 2 {
				data := bytes.Repeat([]byte{byte(i), byte(part >> 12)}, part)
				want = append(want, data...)
				err = up.Send(&sandboxv1.UploadFileRequest{SessionId: id, Path: fmt.Sprint("at-once-", i), Data: data})
			}
			if err == nil {
				_, err = up.CloseAndReceive()
			}
			if err != nil {
				t.Error(err)
				return
			}
			down, err := c.DownloadFile(t.Context(), &sandboxv1.DownloadFileRequest{SessionId: id, Path: fmt.Sprint("at-once-", i)})
			if err != nil {
				t.Error(err)
				return
			}
			defer down.Close()
			var got []byte
			m, err := down.Receive()
			for ; err == nil; m, err = down.Receive() {
				got = append(got, m.GetData()...)
			}
			if !errors.Is(err, io.EOF) || !bytes.Equal(got, want) {
				t.Errorf("file %d came back otherwise: %d bytes of %d, %v", i, len(got), len(want), err)
			}
		})
	}
	all.Wait()
}

// TestPartsOfAllForms: a part is read whatever stands before and behind its data, and one
// that is cut off is no file.
func TestPartsOfAllForms(t *testing.T) {
	w := start(t)
	c := w.client(w.acme)
	id := w.session(c).GetSessionId()
	field := func(n byte, s string) string {
		return string(binary.AppendUvarint([]byte{n<<3 | 2}, uint64(len(s)))) + s
	}
	framed := func(m string) string {
		return string(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(m)))) + m
	}
	large, long := strings.Repeat("L", 300_000), strings.Repeat("p", 5_000)
	upload := func(path, body string) string {
		t.Helper()
		first := framed(field(1, id) + field(2, path) + field(4, "first "))
		q, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.url+sandboxv1connect.SandboxServiceUploadFileProcedure, strings.NewReader(first+body))
		if err != nil {
			t.Fatal(err)
		}
		q.Header.Set("Content-Type", "application/grpc-web+proto")
		a, err := keyed{&http.Transport{DisableKeepAlives: true}, w.acme}.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		defer a.Body.Close()
		all, err := io.ReadAll(a.Body)
		if err != nil {
			t.Fatal(err)
		}
		_, trailers, _ := strings.Cut(string(all), "grpc-status: ")
		code, _, _ := strings.Cut(trailers, "\r")
		return code + a.Header.Get("Grpc-Status")
	}
	for name, m := range map[string]struct{ body, want string }{
		"nothing":                {"", ""},
		"data alone":             {framed(field(4, "a")) + framed(field(4, large)), "a" + large},
		"no data":                {framed("") + framed(field(4, "")) + framed(field(1, id)) + framed(field(4, "b")), "b"},
		"fields before":          {framed(field(1, id)+field(2, "x")+field(3, "w")+field(4, large)) + framed(field(4, "c")), large + "c"},
		"a long field before":    {framed(field(2, long)+field(4, "d")) + framed(field(4, "e")), "de"},
		"fields behind":          {framed(field(4, "f")+field(2, "x")) + framed(field(4, large)+field(2, long)), "f" + large},
		"data twice":             {framed(field(4, "g") + field(4, "h")), "h"},
		"a field of later times": {framed(field(15, "x")+field(4, "i")) + framed("\x28\x01"+field(4, "j")), "ij"},
	} {
		if got := upload(name, m.body); got != "0" {
			t.Errorf("%s: it ended with %q", name, got)
		}
		got, failure := w.read(c, id, name)
		if want := "first " + m.want; got != want {
			t.Errorf("%s: it has %d bytes, %.50q, not %d, %s", name, len(got), got, len(want), failure)
		}
	}
	for name, body := range map[string]string{
		"cut in the data":      framed(field(4, large))[:100_000],
		"cut in the envelope":  framed(field(4, large)) + "\x00\x00",
		"cut before the data":  framed(field(2, long) + field(4, "x"))[:1_000],
		"longer than it says":  framed(field(4, "x"))[:5] + "\x22\x7fx",
		"no field where it is": framed("\xff\xff\xff"),
	} {
		if got := upload("cut", body); got == "0" {
			t.Errorf("%s: it is taken", name)
		}
		if got, failure := w.read(c, id, "cut"); failure != "File not found" {
			t.Errorf("%s: there are %d bytes, %s", name, len(got), failure)
		}
	}
}
