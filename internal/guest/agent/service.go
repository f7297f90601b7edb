package agent

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/proto"

	guestv1 "agentbox/internal/gen/guest/v1"
	"agentbox/internal/guest"
)

// handler is what the host can ask for.
func (s *session) handler() http.Handler {
	mux := http.NewServeMux()
	guest.Handle(mux, "ListExecs", s.listExecs)
	guest.Handle(mux, "WaitExec", s.waitExec)
	guest.Handle(mux, "SignalExec", s.signalExec)
	guest.Handle(mux, "RemoveExec", s.removeExec)
	guest.Handle(mux, "Ping", s.ping)
	guest.Handle(mux, "ProbeStream", s.probeStream)
	guest.Handle(mux, "KillAll", s.killAll)
	guest.Handle(mux, "Configure", s.configure)
	mux.HandleFunc("POST "+guest.UnaryPrefix+"Quiesce", s.quiesce)
	mux.HandleFunc("POST "+guest.PathExec, s.serveExec)
	mux.HandleFunc("POST "+guest.PathAttach, s.serveAttach)
	f := newFiles(s.agent.opt.Files)
	guest.Handle(mux, "Stat", f.stat)
	guest.Handle(mux, "List", f.list)
	guest.Handle(mux, "Mkdir", f.mkdir)
	guest.Handle(mux, "Move", f.move)
	guest.Handle(mux, "Remove", f.remove)
	guest.Handle(mux, "Copy", f.copy)
	guest.Handle(mux, "Chmod", f.chmod)
	guest.Handle(mux, "Chown", f.chown)
	guest.Handle(mux, "Symlink", f.symlink)
	guest.Handle(mux, "Readlink", f.readlink)
	guest.Handle(mux, "Glob", f.glob)
	guest.Handle(mux, "Search", f.search)
	mux.HandleFunc("GET "+guest.PathWatch, f.watch)
	mux.HandleFunc("GET "+guest.PathFiles, f.get)
	mux.HandleFunc("PUT "+guest.PathFiles, f.put)
	mux.HandleFunc("GET "+guest.PathFilesWithin, f.get)
	mux.HandleFunc("PUT "+guest.PathFilesWithin, f.put)
	mux.HandleFunc("GET "+guest.PathTar, f.getArchive)
	mux.HandleFunc("PUT "+guest.PathTar, f.putArchive)
	guest.Handle(mux, "ListPorts", s.ports.list)
	mux.HandleFunc("POST "+guest.PathPorts, s.ports.serve)
	mux.HandleFunc("POST "+guest.PathTunnel, s.agent.outside.serve)
	mux.HandleFunc("POST "+guest.PathWideTunnel, s.agent.outside.serve)
	return mux
}

// maxList bounds the size of an answer that lists things.
const maxList = 8 << 20

func (s *session) listExecs(context.Context, *guestv1.ListExecsRequest) (*guestv1.ListExecsResponse, error) {
	a := new(guestv1.ListExecsResponse)
	room := maxList
	for _, e := range s.agent.execs.forHost() {
		i := e.info()
		if room -= proto.Size(i) + 8; room < 0 {
			break
		}
		a.Execs = append(a.Execs, i)
	}
	return a, nil
}

func (s *session) waitExec(ctx context.Context, q *guestv1.WaitExecRequest) (*guestv1.WaitExecResponse, error) {
	e, err := s.agent.execs.get(q.GetExecId())
	if err != nil {
		return nil, err
	}
	if d := time.Duration(q.GetTimeoutNs()); d > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, d)
		defer cancel()
	}
	select {
	case <-e.finished:
	case <-ctx.Done():
	}
	a := &guestv1.WaitExecResponse{Info: e.info()}
	if !q.GetOutput() {
		return a, nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	a.Stdout, a.Stderr = e.out[stdout].bytes(e.out[stdout].size), e.out[stderr].bytes(e.out[stderr].size)
	r := proto.Clone(a.Info.GetResult()).(*guestv1.ExecResult)
	r.StdoutTruncated = r.GetStdoutTruncated() || e.out[stdout].dropped
	r.StderrTruncated = r.GetStderrTruncated() || e.out[stderr].dropped
	a.Info.Result = r
	return a, nil
}

func (s *session) signalExec(_ context.Context, q *guestv1.SignalExecRequest) (*guestv1.SignalExecResponse, error) {
	e, err := s.agent.execs.get(q.GetExecId())
	if err != nil {
		return nil, err
	}
	if q.GetSignal() < 1 || q.GetSignal() > 64 {
		return nil, guest.Errorf(errdefs.ErrInvalidArgument, "there is no signal %d", q.GetSignal())
	}
	return new(guestv1.SignalExecResponse), e.signal(int(q.GetSignal()), q.GetTree())
}

func (s *session) removeExec(_ context.Context, q *guestv1.RemoveExecRequest) (*guestv1.RemoveExecResponse, error) {
	return new(guestv1.RemoveExecResponse), s.agent.execs.remove(q.GetExecId())
}

func (s *session) ping(_ context.Context, q *guestv1.PingRequest) (*guestv1.PingResponse, error) {
	if len(q.GetPayload()) > guest.MaxProbe {
		return nil, guest.Errorf(errdefs.ErrInvalidArgument, "the payload is larger than %d bytes", guest.MaxProbe)
	}
	running, queued := s.agent.execs.counts()
	return &guestv1.PingResponse{
		Payload: q.GetPayload(), UptimeNs: int64(time.Since(s.agent.started)),
		ExecsRunning: uint32(running), ExecsQueued: uint32(queued), BufferedBytes: s.agent.execs.held.Load(),
	}, nil
}

// probeStream checks the other direction: it opens a stream to the host.
func (s *session) probeStream(_ context.Context, q *guestv1.ProbeStreamRequest) (*guestv1.ProbeStreamResponse, error) {
	if len(q.GetPayload()) > guest.MaxProbe {
		return nil, guest.Errorf(errdefs.ErrInvalidArgument, "the payload is larger than %d bytes", guest.MaxProbe)
	}
	c, err := s.open()
	if err != nil {
		return nil, err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(firstFrame))
	r, err := http.NewRequest(http.MethodPost, "http://host"+guest.PathProbe, bytes.NewReader(q.GetPayload()))
	if err != nil {
		return nil, fmt.Errorf("probe the host: %w", err)
	}
	if err := r.Write(c); err != nil {
		return nil, fmt.Errorf("probe the host: %w", err)
	}
	a, err := http.ReadResponse(bufio.NewReader(c), r)
	if err != nil {
		return nil, fmt.Errorf("probe the host: %w", err)
	}
	defer a.Body.Close()
	b, err := io.ReadAll(io.LimitReader(a.Body, guest.MaxProbe+1))
	if err != nil {
		return nil, fmt.Errorf("probe the host: %w", err)
	}
	return &guestv1.ProbeStreamResponse{Echoed: b}, nil
}

func (s *session) configure(_ context.Context, q *guestv1.ConfigureRequest) (*guestv1.ConfigureResponse, error) {
	if q.GetConfig() == nil {
		return nil, guest.Errorf(errdefs.ErrInvalidArgument, "there is no configuration")
	}
	if err := s.agent.configure(q.GetConfig()); err != nil {
		return nil, err
	}
	return new(guestv1.ConfigureResponse), nil
}

func (s *session) killAll(context.Context, *guestv1.KillAllRequest) (*guestv1.KillAllResponse, error) {
	s.agent.execs.endAll("all processes were killed")
	n, err := s.agent.opt.Launcher.KillAll()
	if err != nil {
		return nil, fmt.Errorf("kill all processes: %w", err)
	}
	return &guestv1.KillAllResponse{Killed: uint32(n)}, nil
}

// quiesce answers and then ends the session, whose stream is closed if it was
// adopted. The answer is written before that: Flush returns when it is.
func (s *session) quiesce(w http.ResponseWriter, _ *http.Request) {
	guest.WriteProto(w, http.StatusOK, &guestv1.QuiesceResponse{Adopted: s.adopted})
	_ = http.NewResponseController(w).Flush()
	go s.drop()
}
