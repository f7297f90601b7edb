package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connecthttp"
	"connectrpc.com/connect/v2/connectproto"
	"google.golang.org/protobuf/encoding/protowire"

	sandboxv1 "agentbox/internal/gen/sandbox/v1"
	"agentbox/internal/gen/sandbox/v1/sandboxv1connect"
)

// rpcs is a client of the daemon by gRPC, through its local socket as well.
type rpcs struct {
	sandboxv1connect.SandboxServiceClient
	transport *http.Transport
}

// Do implements connecthttp.HTTPClient.
func (r *rpcs) Do(q *http.Request) (*http.Response, error) { return r.transport.RoundTrip(q) }

func (s *served) grpc() *rpcs {
	// Clients of gRPC's C core ask for larger frames, too, and widen their windows, when
	// much comes.
	r := &rpcs{transport: &http.Transport{Protocols: new(http.Protocols), HTTP2: &http.HTTP2Config{MaxReadFrameSize: 1 << 20, MaxReceiveBufferPerStream: 16 << 20}}}
	r.transport.Protocols.SetUnencryptedHTTP2(true)
	r.transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", s.socket)
	}
	r.SandboxServiceClient = sandboxv1connect.NewSandboxServiceClient(connect.NewClient(connecthttp.NewTransport(r, "http://localhost", connecthttp.WithGRPC(), connecthttp.WithCodecs(lean{connectproto.NewBinaryCodec()}))))
	return r
}

func (r *rpcs) exec(ctx context.Context, id, line string) error {
	a, err := r.Exec(ctx, &sandboxv1.ExecRequest{SessionId: id, Command: line})
	if err == nil && a.GetExitCode() != 0 {
		err = fmt.Errorf("%.100q ended with %d: %s", line, a.GetExitCode(), a.GetStderr())
	}
	return err
}

// stream follows a command that writes the time.
func (r *rpcs) stream(ctx context.Context, id string, to *samples, times int) error {
	argv := ticker(times)
	s, err := r.ExecStream(ctx, &sandboxv1.ExecStreamRequest{SessionId: id, Command: argv[0] + " -c '" + argv[2] + "'"})
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }() // the answer was read, or there is an error
	lines, w := io.Pipe()
	go func() {
		for {
			m, err := s.Receive()
			if err == nil {
				_, err = io.WriteString(w, m.GetData())
			}
			if err != nil {
				_ = w.CloseWithError(ends(err)) // never fails
				return
			}
		}
	}()
	return delays(to, lines, func(line string) (string, bool) { return line, line != "" })
}

func ends(err error) error {
	if errors.Is(err, io.EOF) {
		return io.EOF
	}
	return err
}

// transferSize is what the calls for files are measured with.
const transferSize = 64 << 20

// lean reads the parts of a file where they are. With new memory for each, a good part
// of the figure would be the collector's in this program; what REST sends is not kept
// either.
type lean struct{ *connectproto.BinaryCodec }

// UnmarshalRead implements connect.Codec. The data holds until the next message.
func (c lean) UnmarshalRead(ctx context.Context, src io.Reader, msg any) error {
	whole, ok := src.(*bytes.Buffer)
	part, is := msg.(*sandboxv1.DownloadFileResponse)
	if !ok || !is {
		return c.BinaryCodec.UnmarshalRead(ctx, src, msg)
	}
	field, kind, n := protowire.ConsumeTag(whole.Bytes())
	if n < 0 || field != 1 || kind != protowire.BytesType {
		return fmt.Errorf("a part of a file begins with %.20q", whole.Bytes())
	}
	part.Data, n = protowire.ConsumeBytes(whole.Bytes()[n:])
	return protowire.ParseError(min(n, 0))
}

// transfer sends a file and takes it back, and adds how long each way took.
func (r *rpcs) transfer(ctx context.Context, id string, up, down *samples) error {
	part := make([]byte, 512<<10)
	err := timed(up, func() error {
		s, err := r.UploadFile(ctx)
		if err != nil {
			return err
		}
		for range transferSize / len(part) {
			if err := s.Send(&sandboxv1.UploadFileRequest{SessionId: id, Path: "file", Data: part}); err != nil {
				return err
			}
		}
		_, err = s.CloseAndReceive()
		return err
	})
	return errors.Join(err, timed(down, func() error {
		s, err := r.DownloadFile(ctx, &sandboxv1.DownloadFileRequest{SessionId: id, Path: "file"})
		if err != nil {
			return err
		}
		defer func() { _ = s.Close() }()
		n := 0
		for {
			m, err := s.Receive()
			if errors.Is(err, io.EOF) && n == transferSize {
				return nil
			}
			if err != nil {
				return fmt.Errorf("%d bytes came: %w", n, err)
			}
			n += len(m.GetData())
		}
	}))
}

// transfer is the same through REST.
func (s *served) transfer(ctx context.Context, id string, up, down *samples) error {
	do := func(method string, body io.Reader) error {
		q, err := http.NewRequestWithContext(ctx, method, "http://agentbox/api/v1/sandboxes/"+id+"/files?path=/workspace/rest", body)
		if err != nil {
			return err
		}
		a, err := s.http.Do(q)
		if err != nil {
			return err
		}
		defer a.Body.Close()
		n, err := io.Copy(io.Discard, a.Body)
		if err == nil && (a.StatusCode >= 300 || method == http.MethodGet && n != transferSize) {
			err = fmt.Errorf("%s a file: %s, %d bytes", method, a.Status, n)
		}
		return err
	}
	data := bytes.NewReader(make([]byte, transferSize))
	return errors.Join(timed(up, func() error { return do(http.MethodPut, data) }), timed(down, func() error { return do(http.MethodGet, nil) }))
}

// rpc measures the door for gRPC beside REST's and the engine without a daemon.
func (b *bench) rpc(ctx context.Context, s *served) error {
	id, err := s.create(ctx)
	if err != nil {
		return err
	}
	r := s.grpc()
	defer r.transport.CloseIdleConnections()
	return b.running(ctx, func(sb *box, _ string) error {
		var through, rest, own, first, up, down, restUp, restDown samples
		for range b.n(200) {
			var err error
			for _, one := range []struct {
				to *samples
				f  func() error
			}{
				{&through, func() error { return r.exec(ctx, id, "true") }},
				{&rest, func() error { return s.exec(ctx, id, "/bin/sh", "-c", "true") }},
				{&own, func() error { return sb.exec(ctx, "/bin/sh", "-c", "true") }},
			} {
				pause()
				err = errors.Join(err, timed(one.to, one.f))
			}
			if err != nil {
				return err
			}
		}
		err := r.stream(ctx, id, &first, b.n(100))
		for range b.n(10) {
			err = errors.Join(err, r.transfer(ctx, id, &up, &down), s.transfer(ctx, id, &restUp, &restDown))
		}
		if err != nil {
			return err
		}
		b.report.add("exec true through gRPC", "ms", through, nil, "<= engine + 1.5 ms")
		b.report.add("- through REST, in turns with it", "ms", rest, nil, "")
		b.report.add("- the engine alone, in turns with it", "ms", own, nil, "")
		b.report.add("ExecStream: first byte after the program's write", "ms", first, nil, "<= 5 ms")
		b.report.add("64 MiB up through gRPC", "ms", up, nil, "")
		b.report.add("- through REST, in turns with it", "ms", restUp, nil, "")
		b.report.add("- REST's time by gRPC's", "share", over(restUp, up), nil, ">= 0.8")
		b.report.add("64 MiB down through gRPC", "ms", down, nil, "")
		b.report.add("- through REST, in turns with it", "ms", restDown, nil, "")
		b.report.add("- REST's time by gRPC's", "share", over(restDown, down), nil, ">= 0.8")
		return s.destroy(ctx, id)
	})
}
