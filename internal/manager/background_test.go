package manager_test

import (
	"sync"
	"testing"

	"agentbox/internal/sandbox"
)

// A background command that ends at once is no error, whoever is faster.
func TestShortBackgroundCommands(t *testing.T) {
	d := newRig(t).open()
	sb := d.create(sandbox.CreateRequest{})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 100 {
				if _, err := d.StartExec(t.Context(), acme, sb.UID, sandbox.Command{Argv: []string{"true"}, Background: true}, nothing, ""); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}
