package e2e

import (
	"fmt"
	"os"
	"testing"
)

// TestMain ends the engine that tests share. With envProbe set this process is
// a probe: a host of sandboxes on its own, whose memory a test measures.
func TestMain(m *testing.M) {
	if name := os.Getenv(envProbe); name != "" {
		os.Exit(runProbe(name))
	}
	code := m.Run()
	if err := CloseEngine(); err != nil {
		fmt.Fprintln(os.Stderr, "close the engine:", err)
		code = max(code, 1)
	}
	if err := closeLab(); err != nil {
		fmt.Fprintln(os.Stderr, "end the shared lab:", err)
		code = max(code, 1)
	}
	if err := closeDaemon(); err != nil {
		fmt.Fprintln(os.Stderr, "end the shared daemon:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}
