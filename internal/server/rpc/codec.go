package rpc

import (
	"bytes"
	"context"
	"io"
	"sync"

	"connectrpc.com/connect/v2/connectproto"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	sandboxv1 "agentbox/internal/gen/sandbox/v1"
)

// codec is the binary form of messages. It reads them where they are, while connect's
// own first makes a copy, and makes no copy of the parts of files either: new memory
// for each would keep the collector busy for as long as a file comes.
type codec struct{ *connectproto.BinaryCodec }

// MarshalWrite implements connect.Codec.
func (c codec) MarshalWrite(ctx context.Context, dst io.Writer, msg any) error {
	m, ok := msg.(*sandboxv1.DownloadFileResponse)
	whole, room := dst.(*bytes.Buffer)
	if !ok || !room || len(m.GetData()) == 0 || len(m.ProtoReflect().GetUnknown()) > 0 {
		return c.BinaryCodec.MarshalWrite(ctx, dst, msg)
	}
	size := protowire.SizeTag(partField) + protowire.SizeBytes(len(m.GetData()))
	whole.Grow(size)
	head := protowire.AppendVarint(protowire.AppendTag(whole.AvailableBuffer(), partField, protowire.BytesType), uint64(len(m.GetData())))
	whole.Write(head) // like the next, to memory
	whole.Write(m.GetData())
	return nil
}

// UnmarshalRead implements connect.Codec.
func (c codec) UnmarshalRead(ctx context.Context, src io.Reader, msg any) error {
	whole, ok := src.(*bytes.Buffer)
	if !ok {
		return c.BinaryCodec.UnmarshalRead(ctx, src, msg)
	}
	switch m := msg.(type) {
	case *sandboxv1.UploadFileRequest:
		return readPart(whole, m)
	case proto.Message:
		return c.UnmarshalOptions.Unmarshal(whole.Bytes(), m)
	}
	return c.BinaryCodec.UnmarshalRead(ctx, src, msg)
}

// Fields: UploadFileRequest.data and DownloadFileResponse.data.
const (
	dataField protowire.Number = 4
	partField protowire.Number = 1
)

// readPart reads a part of a file. Its data stays where it is: whole gets other memory.
func readPart(whole *bytes.Buffer, m *sandboxv1.UploadFileRequest) error {
	var rest, data []byte
	for b := whole.Bytes(); len(b) > 0; {
		number, kind, n := protowire.ConsumeField(b)
		if n < 0 {
			return protowire.ParseError(n)
		}
		if number != dataField || kind != protowire.BytesType {
			rest = append(rest, b[:n]...)
		} else {
			_, _, tag := protowire.ConsumeTag(b)
			data, _ = protowire.ConsumeBytes(b[tag:n]) // the last one counts
		}
		b = b[n:]
	}
	if err := proto.Unmarshal(rest, m); err != nil {
		return err
	}
	if len(data) > 0 {
		m.Data = data
		*whole = *bytes.NewBuffer(*parts.Get().(*[]byte))
	}
	return nil
}

// parts is memory of messages that is free again.
var parts = sync.Pool{New: func() any { return new([]byte) }}

// release is called when nobody needs a message's data any more. What is larger than
// usual is not kept.
func release(m *sandboxv1.UploadFileRequest) {
	data := m.Data[:0]
	if m.Data = nil; cap(data) > 0 && cap(data) <= maxPart {
		parts.Put(&data)
	}
}
