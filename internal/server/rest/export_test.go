package rest

import "time"

// ControlRunning is what a terminal does with a text message.
var ControlRunning = controlRunning

// SetHeartbeat changes how often silent streams send something.
func SetHeartbeat(d time.Duration) (restore func()) {
	old := quiet
	quiet = d
	return func() { quiet = old }
}
