package agent

import (
	"encoding/binary"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	guestv1 "agentbox/internal/gen/guest/v1"
	"agentbox/internal/guest"
	"agentbox/internal/sandbox"
)

// reader is one client that follows an exec. Its fields are guarded by the
// exec's mu.
type reader struct {
	e        *exec
	at       [2]int64 // next offset of each stream
	lossless bool
	turn     int  // stream to look at first
	gone     bool // the connection ended
	meant    bool // the client said that it leaves
	told     bool // Started with the pid was sent
	waiting  bool // Started without a pid was sent
}

// attach adds a reader that begins at the given offsets.
func (e *exec) attach(at [2]int64, lossless bool) *reader {
	rd := &reader{e: e, at: at, lossless: lossless}
	e.mu.Lock()
	defer e.mu.Unlock()
	for i := range rd.at {
		rd.at[i] = min(max(rd.at[i], 0), e.out[i].end)
	}
	e.readers[rd] = struct{}{}
	stopTimer(e.grace)
	return rd
}

// detach removes the reader. A command that is not to be kept is ended some
// time after its last client left; it does not count as leaving that the client
// said so, or that the whole session was lost.
func (rd *reader) detach(sessionLost bool) {
	e := rd.e
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.readers, rd)
	e.changed.Broadcast()
	if rd.meant || sessionLost || e.keep || e.result != nil || len(e.readers) > 0 {
		return
	}
	e.grace = time.AfterFunc(sandbox.DisconnectGrace, func() {
		e.mu.Lock()
		still := len(e.readers) == 0
		e.mu.Unlock()
		if still {
			e.end(guestv1.Outcome_OUTCOME_CANCELED, "its client went away")
		}
	})
}

// leave makes fill return: the connection of the reader ended, and the client
// meant it or not.
func (rd *reader) leave(meant bool) {
	rd.e.mu.Lock()
	rd.gone, rd.meant = true, meant
	rd.e.changed.Broadcast()
	rd.e.mu.Unlock()
}

// fill waits until there is something to tell and appends frames to buf, as
// many as are ready, until it holds about batch bytes. more is false after the
// last frame.
func (rd *reader) fill(buf []byte, batch int) (_ []byte, more bool) {
	e := rd.e
	before := len(buf)
	e.mu.Lock()
	defer e.mu.Unlock()
	for {
		if rd.gone {
			return buf, false
		}
		buf = rd.started(buf)
		// A program may be quicker than the call that starts it, and clients read
		// nothing before they know that it runs.
		for (rd.told || rd.waiting || e.result != nil) && len(buf) < batch {
			n := len(buf)
			if buf = rd.output(buf); len(buf) == n {
				break
			}
		}
		if e.result != nil && rd.caughtUp() {
			return rd.last(buf), false
		}
		if len(buf) > before {
			e.changed.Broadcast() // a writer may wait for this reader
			return buf, true
		}
		e.changed.Wait()
	}
}

func (rd *reader) started(buf []byte) []byte {
	e := rd.e
	switch {
	case !rd.told && e.begun:
		rd.told = true
		m := &guestv1.Started{ExecId: e.id}
		if e.proc != nil {
			m.Pid = int32(e.proc.Pid())
		}
		return appendMessage(buf, guest.FrameStarted, m)
	case !rd.told && !rd.waiting && e.waits:
		rd.waiting = true
		return appendMessage(buf, guest.FrameStarted, &guestv1.Started{ExecId: e.id})
	}
	return buf
}

// output appends one frame of output, or of a gap, if there is any.
func (rd *reader) output(buf []byte) []byte {
	for range rd.at {
		i := rd.turn
		rd.turn = (rd.turn + 1) % len(rd.at)
		r := &rd.e.out[i]
		if from := rd.at[i]; from < r.first {
			rd.at[i] = r.first
			return appendMessage(buf, guest.FrameGap, &guestv1.Gap{Stderr: i == stderr, From: from, To: r.first})
		}
		if n := min(r.end-rd.at[i], guest.MaxFrame); n > 0 {
			buf = appendHeader(buf, guest.FrameStdout+guest.FrameType(i), int(n))
			start := len(buf)
			buf = slices.Grow(buf, int(n))[:start+int(n)]
			r.copyAt(buf[start:], rd.at[i])
			rd.at[i] += n
			return buf
		}
	}
	return buf
}

// read waits for output and copies some of it to p, as much as there is of one stream.
// n is 0 when the command has ended and all was read, or the client is gone. lost:
// bytes before these were.
func (rd *reader) read(p []byte) (stream, n int, lost bool) {
	e := rd.e
	e.mu.Lock()
	defer e.mu.Unlock()
	for !rd.gone {
		for range rd.at {
			i := rd.turn
			rd.turn = (rd.turn + 1) % len(rd.at)
			r := &e.out[i]
			if rd.at[i] < r.first {
				rd.at[i], lost = r.first, true
			}
			if n := r.copyAt(p, rd.at[i]); n > 0 || lost {
				rd.at[i] += int64(n)
				e.changed.Broadcast() // a writer may wait for this reader
				return i, n, lost
			}
		}
		if e.result != nil {
			return 0, 0, false
		}
		e.changed.Wait()
	}
	return 0, 0, false
}

func (rd *reader) caughtUp() bool {
	return rd.at[stdout] == rd.e.out[stdout].end && rd.at[stderr] == rd.e.out[stderr].end
}

func (rd *reader) last(buf []byte) []byte {
	if err := rd.e.failure; err != nil {
		m, _ := guest.EncodeError(err)
		return appendMessage(buf, guest.FrameError, m)
	}
	return appendMessage(buf, guest.FrameExit, rd.e.result)
}

func appendHeader(buf []byte, t guest.FrameType, n int) []byte {
	buf = append(buf, byte(t))
	return binary.BigEndian.AppendUint32(buf, uint32(n))
}

// appendMessage appends a frame with m. The messages that the agent sends are
// all far smaller than a frame, and hold valid strings only.
func appendMessage(buf []byte, t guest.FrameType, m proto.Message) []byte {
	buf = appendHeader(buf, t, proto.Size(m))
	b, err := proto.MarshalOptions{}.MarshalAppend(buf, m)
	if err != nil {
		return buf[:len(buf)-5]
	}
	return b
}
