package rpc

import (
	"bytes"
	"testing"

	"google.golang.org/protobuf/proto"

	sandboxv1 "agentbox/internal/gen/sandbox/v1"
)

// FuzzPart holds the reader of files' parts against the library's.
func FuzzPart(f *testing.F) {
	whole, err := proto.Marshal(&sandboxv1.UploadFileRequest{SessionId: "s", Path: "p", Mode: "a", Data: []byte("data")})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	f.Add(append(whole, whole...))
	f.Add(whole[:len(whole)-1])
	f.Add([]byte("\x22\x00"))                 // data that is empty
	f.Add([]byte("\x20\x01\x2a\x01x"))        // data that is a number, and a field that is not known
	f.Add([]byte("\x0a\x01\xff"))             // an id that is no text
	f.Add([]byte("\xa2\x80\x00\x01x"))        // a number of a field, longer than need be
	f.Add([]byte("\x22\xff\xff\xff\xff\x0f")) // longer than all
	c := newCodec()
	f.Fuzz(func(t *testing.T, b []byte) {
		want, got := new(sandboxv1.UploadFileRequest), new(sandboxv1.UploadFileRequest)
		wantErr := proto.Unmarshal(b, want)
		if err := c.UnmarshalRead(t.Context(), bytes.NewBuffer(bytes.Clone(b)), got); (err == nil) != (wantErr == nil) {
			t.Fatalf("read with %v, by the library with %v", err, wantErr)
		}
		if wantErr == nil && (got.GetSessionId() != want.GetSessionId() || got.GetPath() != want.GetPath() || got.GetMode() != want.GetMode() || !bytes.Equal(got.GetData(), want.GetData())) {
			t.Errorf("read as %v, by the library as %v", got, want)
		}
		release(got)
	})
}
