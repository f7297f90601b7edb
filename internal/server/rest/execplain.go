package rest

import (
	"mime"
	"strings"

	"agentbox/internal/sandbox"
)

// plainFrames reports whether a client wants the frames of the process API.
func plainFrames(accept string) bool {
	for part := range strings.SplitSeq(accept, ",") {
		media, params, err := mime.ParseMediaType(part)
		if err == nil && media == typeEvents && params["profile"] == "process-api" {
			return true
		}
	}
	return false
}

// plainFrame is one frame of the process API.
type plainFrame struct {
	Type     string  `json:"type"`
	Data     *string `json:"data,omitempty"`
	ExitCode *int    `json:"exit_code,omitempty"`
}

// frame sends a frame, which has neither name nor id.
func (e *events) frame(f plainFrame) error {
	return e.do(func() error {
		e.s.buf.Reset()
		return e.s.sendData(f)
	})
}

// plainCode is the number that the process API makes of a result: a signal is
// negative.
func plainCode(r *sandbox.Result) *int {
	code := r.ExitCode
	switch r.Outcome {
	case sandbox.Exited:
	case sandbox.TimedOut:
		code = -1
	case sandbox.OOM:
		code = -9
	default:
		code = -r.Signal
	}
	return &code
}
