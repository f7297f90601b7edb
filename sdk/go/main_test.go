package agentbox_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	agentbox "agentbox/sdk/go"
)

// connect is a client of the server that AGENTBOX_URL names; without it tests that need
// one are skipped.
func connect(t *testing.T) *agentbox.Client {
	t.Helper()
	if os.Getenv("AGENTBOX_URL") == "" {
		t.Skip("no server: AGENTBOX_URL is not set")
	}
	c, err := agentbox.NewClient()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// within bounds a test: what hangs fails.
func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// box is a sandbox of the test's own, which runs beside others.
func box(t *testing.T, o agentbox.CreateOptions) *agentbox.Box {
	t.Helper()
	t.Parallel()
	b, err := connect(t).Create(within(t), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Destroy(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return b
}

func TestMain(m *testing.M) {
	flag.Parse()
	if skip := flag.Lookup("test.skip"); os.Getenv("AGENTBOX_URL") == "" && skip.Value.String() == "" {
		fmt.Fprintln(os.Stderr, "the examples are skipped: AGENTBOX_URL names no server")
		_ = skip.Value.Set("^Example")
	}
	goleak.VerifyTestMain(m)
}
