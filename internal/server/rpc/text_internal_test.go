package rpc

import (
	"bytes"
	"encoding/base64"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect/v2"
)

// groups is what a text of base64 stands for, decoded group by group; false: it is none,
// after what is returned.
func groups(text string) (plain []byte, ok bool) {
	for ; len(text) >= 4; text = text[4:] {
		b, err := base64.StdEncoding.DecodeString(text[:4])
		if err != nil || strings.ContainsAny(text[:4], "\r\n") {
			return plain, false
		}
		plain = append(plain, b...)
	}
	return plain, text == ""
}

// inPieces reads at most so many bytes at once.
type inPieces struct {
	io.Reader
	size int
}

func (r inPieces) Read(p []byte) (int, error) { return r.Reader.Read(p[:min(len(p), r.size)]) }

// FuzzText holds the text form of gRPC-Web against base64 group by group, both ways, in
// whatever pieces it comes.
func FuzzText(f *testing.F) {
	for _, s := range []string{"", "AAAA", "AAAAAA==", "YQ==YmM=ZGVm", "YQ==YQ==", "AAA", "AAAAA", "====", "A===", "=AAA", "AA=A", "AAAA\n", "AAAAAA\nA", "AA\nAA\n\n\n", "-_-_", "AAAA!AAA", "\x00\x00\x00\x00", "YR=="} {
		f.Add([]byte(s), 1)
		f.Add([]byte(s), 7)
	}
	f.Add(bytes.Repeat([]byte("YQ=="), 5_000), 5_000)
	f.Add(append(bytes.Repeat([]byte("YWJj"), 5_000), '!'), 4_095)
	f.Fuzz(func(t *testing.T, b []byte, size int) {
		size = max(1, size%10_000)
		want, ok := groups(string(b))
		body := &textBody{ReadCloser: io.NopCloser(inPieces{bytes.NewReader(b), size})}
		got, err := io.ReadAll(inPieces{body, size})
		var told *connect.Error
		if (err == nil) != ok || !ok && (!errors.As(err, &told) || told.Code() != connect.CodeInvalidArgument) || !bytes.Equal(got, want) {
			t.Fatalf("%q is read as %q, %v, and stands for %q, %v", b, got, err, want, ok)
		}
		if _, again := body.Read(make([]byte, 1)); ok && !errors.Is(again, io.EOF) || !ok && !errors.Is(again, err) {
			t.Errorf("then comes %v, after %v", again, err)
		}
		w := httptest.NewRecorder()
		inText(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			for rest := b; len(rest) > 0; {
				n, err := w.Write(rest[:min(size, len(rest))])
				if err != nil {
					t.Fatal(err)
				}
				if rest = rest[n:]; len(rest)%2 == 0 {
					w.(http.Flusher).Flush()
				}
			}
		})).ServeHTTP(w, &http.Request{Header: http.Header{"Content-Type": {textKind}}, Body: http.NoBody})
		if back, ok := groups(w.Body.String()); !ok || !bytes.Equal(back, b) {
			t.Errorf("%q is sent as %q", b, w.Body)
		}
	})
}

// TestTextAnswer: what was flushed can be decoded, an answer has the type of the text form
// and no length of the binary one, and handlers reach the connection.
func TestTextAnswer(t *testing.T) {
	s := httptest.NewServer(inText(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", r.Header.Get("Content-Type"))
		w.Header().Set("Content-Length", "5")
		c := http.NewResponseController(w)
		for what, f := range map[string]func() error{
			"read deadline": func() error { return c.SetReadDeadline(time.Now().Add(time.Minute)) }, "full duplex": c.EnableFullDuplex,
			"write deadline": func() error { return c.SetWriteDeadline(time.Now().Add(time.Minute)) }, "flush": c.Flush,
		} {
			if err := f(); err != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
		for _, piece := range []string{"a", "bc", "de"} {
			_, _ = io.WriteString(w, piece[:1])
			_, _ = io.WriteString(w, piece[1:])
			if piece != "de" { // which the end sends
				_ = c.Flush()
			}
		}
	})))
	defer s.Close()
	resp, err := s.Client().Post(s.URL, textKind, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || string(b) != "YQ==YmM=ZGU=" || resp.Header.Get("Content-Type") != "application/grpc-web-text+proto" || resp.ContentLength >= 0 {
		t.Errorf("the answer is %q, %v, %v", b, resp.Header, err)
	}
}
