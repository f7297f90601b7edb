package wire

import (
	"log/slog"
	"os"

	"agentbox/internal/failpoint"
)

// armFailpoints does what the environment asks for, and says so in a way that no
// log level hides: such a daemon is for tests.
func armFailpoints(log *slog.Logger) error {
	text := os.Getenv(failpoint.Variable)
	if text == "" {
		return nil
	}
	log.Error("THIS SERVER FAILS ON PURPOSE, because "+failpoint.Variable+" is set: it is for tests only", "failpoints", text)
	return failpoint.Arm(text)
}
