package egress

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"strings"
)

// maxFields is how many fields a head of a request may have: each costs more in
// memory than on the wire.
const maxFields = 256

var (
	errHeadSize = errors.New("the head of the request is too large")
	errHead     = errors.New("malformed request")
)

// readRequest reads the head of a request. Its Body reads from r.
//
// net/http reads requests leniently where others do not: it takes lines that end
// in a bare newline, Transfer-Encoding beside Content-Length, and folds what is
// there twice. A server that reads another way would see another request than the
// one that was judged. So the bytes are checked first, in the reader's buffer.
func readRequest(r *bufio.Reader) (*http.Request, error) {
	// One empty line before a request is to be skipped (RFC 9112, section 2.2).
	first, err := r.Peek(1)
	if err == nil && first[0] == '\r' {
		if b, err := r.Peek(2); err == nil && string(b) == "\r\n" {
			_, _ = r.Discard(2)
		}
		first, err = r.Peek(1)
	}
	// Other protocols, such as TLS, have no end of a head to wait for.
	if err == nil && !isTokenByte(first[0]) {
		return nil, malformed("it begins with no method")
	}
	head, err := peekHead(r)
	if err != nil {
		return nil, err
	}
	if err := checkHead(head); err != nil {
		return nil, err
	}
	req, err := http.ReadRequest(r)
	if err != nil {
		return nil, malformed("%v", err)
	}
	return req, nil
}

func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{errHead}, args...)...)
}

var headEnd = []byte("\r\n\r\n")

// peekHead waits for the end of the head and leaves it in the reader.
func peekHead(r *bufio.Reader) ([]byte, error) {
	for seen := 0; ; {
		b, _ := r.Peek(r.Buffered())
		from := max(0, seen-len(headEnd))
		if i := bytes.Index(b[from:], headEnd); i >= 0 {
			return b[:from+i+len(headEnd)], nil
		}
		seen = len(b)
		if seen == r.Size() {
			return nil, errHeadSize
		}
		if _, err := r.Peek(seen + 1); err != nil {
			return nil, err
		}
	}
}

// checkHead checks the form of a head, which ends in an empty line.
func checkHead(head []byte) error {
	lines := strings.Split(strings.TrimSuffix(string(head), string(headEnd)), "\r\n")
	if len(lines) > maxFields+1 {
		return errHeadSize
	}
	old, err := checkRequestLine(lines[0])
	if err != nil {
		return err
	}
	times := make(map[string]int)
	for _, line := range lines[1:] {
		name, value, ok := strings.Cut(line, ":")
		if !ok || !isToken([]byte(name)) {
			return malformed("a line is no field")
		}
		if strings.ContainsFunc(value, isControl) {
			return malformed("a field has control characters")
		}
		times[strings.ToLower(name)]++
	}
	for _, name := range []string{"host", "content-length", "transfer-encoding"} {
		if times[name] > 1 {
			return malformed("%s is there twice", name)
		}
	}
	encoded := times["transfer-encoding"] > 0
	if encoded && (old || times["content-length"] > 0) {
		return malformed("the length of the body is not clear")
	}
	return nil
}

// checkRequestLine takes one form of it. old is HTTP/1.0.
func checkRequestLine(line string) (old bool, err error) {
	parts := strings.Split(line, " ")
	if len(parts) != 3 || !isToken([]byte(parts[0])) {
		return false, malformed("the request line has not three parts")
	}
	for _, c := range []byte(parts[1]) {
		if c <= ' ' || c == 0x7f || c == '\\' || c == '#' { // text that is not escaped is sent by many
			return false, malformed("the request target has characters that no URL has")
		}
	}
	if parts[2] != "HTTP/1.1" && parts[2] != "HTTP/1.0" {
		return false, malformed("the version is neither HTTP/1.1 nor HTTP/1.0")
	}
	return parts[2] == "HTTP/1.0", nil
}

// isControl is true for what may not stand in a field's value (RFC 9110, section
// 5.5).
func isControl(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f }

// hopByHop are fields of one connection, not of the message (RFC 9110, section
// 7.6.1, and those that old programs use).
var hopByHop = []string{
	"Connection", "Keep-Alive", "Proxy-Connection", "Proxy-Authenticate", "Proxy-Authorization",
	"Te", "Trailer", "Transfer-Encoding", "Upgrade",
}

// dropHops removes what must not be passed on, and what Connection names.
func dropHops(h http.Header) {
	for _, v := range h["Connection"] {
		for name := range strings.SplitSeq(v, ",") {
			h.Del(strings.TrimSpace(name))
		}
	}
	for _, name := range hopByHop {
		delete(h, name)
	}
}

// cleanAnswer removes from a head of a server what is not the server's to say to the
// client.
func cleanAnswer(h http.Header) {
	dropHops(h)
	h.Del(CodeHeader)
}

// cleanAside is cleanAnswer for what has no body of its own: trailers, and a head
// before the answer's. Some clients would take what is said there of a body for true.
func cleanAside(h http.Header) {
	cleanAnswer(h)
	h.Del("Content-Length")
}

// oneLine makes a text fit for a status line, whatever clients take for the end of one.
func oneLine(s string) string {
	b := []byte(s)
	for i, c := range b {
		if isControl(rune(c)) {
			b[i] = ' '
		}
	}
	return string(b)
}

// hasToken reports whether a list in a field has a word.
func hasToken(values []string, word string) bool {
	for _, v := range values {
		for part := range strings.SplitSeq(v, ",") {
			if strings.EqualFold(strings.TrimSpace(part), word) {
				return true
			}
		}
	}
	return false
}

// wantsWebSocket reports whether a request asks for the one upgrade that is passed
// on. After others requests could go on in a form in which nobody judges them.
func wantsWebSocket(h http.Header) bool {
	return hasToken(h["Connection"], "upgrade") && len(h["Upgrade"]) == 1 && strings.EqualFold(strings.TrimSpace(h["Upgrade"][0]), "websocket")
}
