// Package audit keeps the record of who did what: one line of JSON for each
// action, in files that only grow and of which the oldest go first.
//
// # When a record can't be written
//
// The disk may be full. Then [Log.Write] reports it, and [Log.Err] does until a
// record was written again. What is done is not undone, and what ends something
// (a command, a sandbox) goes on unrecorded; a manager refuses to begin new
// sandboxes while Err is set, so that nobody works unseen for long.
//
// # What a crash can take
//
// A record is handed to the kernel before Write returns, so that killing the
// daemon loses none, and is on the disk within [syncDelay]: a power failure can
// take the last second.
package audit

import (
	"encoding/json"
	"maps"
	"slices"
	"time"

	"agentbox/internal/sandbox"
)

// Action is what was done, one of a closed list.
type Action string

// The actions.
const (
	Create      Action = "create"
	Start       Action = "start"
	Stop        Action = "stop"
	Destroy     Action = "destroy"
	Update      Action = "update" // labels, limits and times of a sandbox
	Exec        Action = "exec"
	FileRead    Action = "file_read"
	FileWrite   Action = "file_write"
	Port        Action = "port"   // a connection to a port of a sandbox
	Policy      Action = "policy" // of the network, of the service
	Volume      Action = "volume" // made, removed
	Image       Action = "image"  // pulled, removed
	Secret      Action = "secret" // set, removed
	KeyCreate   Action = "key_create"
	KeyRevoke   Action = "key_revoke"
	AuthRefused Action = "auth_refused"
)

// OK is the result of an action that was done; other results are the codes of
// errors.
const OK = "ok"

// Record is one action.
type Record struct {
	// Time is when the action ended, UTC. The zero time: when it is written.
	Time   time.Time `json:"time"`
	Action Action    `json:"action"`
	// Owner and KeyID are who did it; empty for a refused authentication.
	Owner string `json:"owner"`
	KeyID string `json:"key_id,omitempty"`
	// Sandbox is its uid; empty: the action was on none.
	Sandbox string `json:"sandbox,omitempty"`
	// Details are a few words more, such as a path or an exec id: never secrets,
	// environments, or contents. Long ones are cut.
	Details   map[string]string `json:"details,omitempty"`
	RequestID string            `json:"request_id,omitempty"`
	Result    string            `json:"result"`
}

const (
	maxText    = 1 << 10  // bytes of one text
	maxDetails = 16       // entries
	maxLine    = 64 << 10 // bytes of a record on disk
)

// line is the record as it stands in the file: bounded, one line.
func (r Record) line() ([]byte, error) {
	if r.Time.IsZero() {
		r.Time = time.Now()
	}
	r.Time = r.Time.UTC()
	for _, s := range []*string{(*string)(&r.Action), &r.Owner, &r.KeyID, &r.Sandbox, &r.RequestID, &r.Result} {
		*s = sandbox.Clip(*s, maxText)
	}
	if len(r.Details) > 0 {
		details := map[string]string{}
		for _, k := range slices.Sorted(maps.Keys(r.Details))[:min(len(r.Details), maxDetails)] {
			details[sandbox.Clip(k, maxText)] = sandbox.Clip(r.Details[k], maxText)
		}
		r.Details = details
	}
	line, err := json.Marshal(r)
	if len(line) >= maxLine { // control characters grow sixfold
		r.Details = map[string]string{"details": "too long"}
		line, err = json.Marshal(r)
	}
	return append(line, '\n'), err
}
