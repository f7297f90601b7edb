package rest

import "time"

// SetHeartbeat changes how often silent streams send something.
func SetHeartbeat(d time.Duration) (restore func()) {
	old := heartbeat
	heartbeat = d
	return func() { heartbeat = old }
}
