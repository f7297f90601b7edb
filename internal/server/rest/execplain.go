package rest

import (
	"mime"
	"strings"
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
