package rpc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"connectrpc.com/connect/v2/connectproto"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	sandboxv1 "agentbox/internal/gen/sandbox/v1"
	"agentbox/internal/sandbox"
)

// codec is the binary form of messages. It reads them where they are, while connect's
// own first makes a copy, and makes no copy of the parts of files either: new memory
// for each would keep the collector busy for as long as a file comes.
type codec struct{ *connectproto.BinaryCodec }

// newCodec makes one that does not keep what no field is known for.
func newCodec() codec {
	c := codec{connectproto.NewBinaryCodec()}
	c.UnmarshalOptions.DiscardUnknown = true
	return c
}

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
	m, is := msg.(proto.Message)
	if !ok || !is {
		return c.BinaryCodec.UnmarshalRead(ctx, src, msg)
	}
	call := callOf(ctx)
	call.settle(int64(whole.Len()))
	if part, ok := m.(*sandboxv1.UploadFileRequest); ok {
		return c.readPart(whole, part)
	}
	if err := fewValues(whole.Bytes()); err != nil {
		return err
	}
	if err := c.UnmarshalOptions.Unmarshal(whole.Bytes(), m); err != nil {
		return err
	}
	call.settle(int64(proto.Size(m)))
	return nil
}

// maxValues bounds how many values a message has: each takes memory, an empty one, too. It
// is how many a small message can have.
const maxValues = smallMessage / 2

func fewValues(b []byte) error {
	for n := 0; len(b) > 0 && len(b) > 2*(maxValues-n); n++ { // else there is no room for more
		_, _, size := protowire.ConsumeField(b)
		if size < 0 {
			return protowire.ParseError(size)
		}
		if n >= maxValues {
			return errValues
		}
		b = b[size:]
	}
	return nil
}

var errValues = fmt.Errorf("it has more than %d values", maxValues)

// jsonCodec is the form of messages as JSON, in which lists must be small: an element
// takes much more memory than its text.
type jsonCodec struct{ *connectproto.JSONCodec }

// UnmarshalRead implements connect.Codec.
func (c jsonCodec) UnmarshalRead(ctx context.Context, src io.Reader, msg any) error {
	call := callOf(ctx)
	if whole, ok := src.(*bytes.Buffer); ok {
		call.settle(int64(whole.Len()))
		switch msg.(type) {
		case *sandboxv1.CreateSessionRequest, *sandboxv1.PipInstallRequest:
			if whole.Len() > maxCall {
				return fmt.Errorf("it has %d bytes, of which JSON with lists may have %d", whole.Len(), maxCall)
			}
		}
	}
	err := c.JSONCodec.UnmarshalRead(ctx, src, msg)
	if err != nil && len(err.Error()) > maxReason {
		return errors.New(sandbox.Clip(err.Error(), maxReason))
	}
	if m, ok := msg.(proto.Message); ok && err == nil {
		call.settle(int64(proto.Size(m))) // white space was a part of it
	}
	return err
}

// maxReason bounds what an error says of a message that could not be read, in bytes: it
// repeats a part of it.
const maxReason = 300

// Fields: UploadFileRequest.data and DownloadFileResponse.data.
const (
	dataField protowire.Number = 4
	partField protowire.Number = 1
)

// readPart reads a part of a file. Its data stays where it is: whole gets other memory.
func (c codec) readPart(whole *bytes.Buffer, m *sandboxv1.UploadFileRequest) error {
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
	if err := c.UnmarshalOptions.Unmarshal(rest, m); err != nil {
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

// maxKept bounds the memory of a message that is used again, in bytes.
const maxKept = 4 << 20

// release is called when nobody needs a message's data any more.
func release(m *sandboxv1.UploadFileRequest) {
	data := m.Data[:0]
	if m.Data = nil; cap(data) > 0 && cap(data) <= maxKept {
		parts.Put(&data)
	}
}
