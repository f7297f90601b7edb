package client_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	guestv1 "agentbox/internal/gen/guest/v1"
	"agentbox/internal/guest"
	"agentbox/internal/guest/client"
	"agentbox/internal/sandbox"
)

// TestFrozenGuest: calls into a guest that takes nothing any more, as when root in the
// sandbox froze its agent, end for whoever made them and leave nothing behind.
func TestFrozenGuest(t *testing.T) {
	const takes, deadline = 3 * time.Second, time.Second
	content := make([]byte, 4<<20)
	frozen := func(t *testing.T, buffer io.Writer, each int, which ...string) {
		host, end := net.Pipe()
		go func() {
			if _, err := guest.ReadHello(end); err == nil {
				_ = guest.WriteReply(end, &guestv1.HelloReply{Version: guest.Version})
			}
			if buffer != nil {
				_, _ = io.Copy(buffer, end)
			}
		}()
		s, err := client.New(t.Context(), host, client.Options{TakeTimeout: takes})
		if err != nil {
			t.Fatal(err)
		}
		calls := map[string]func(context.Context) error{
			"stat": func(ctx context.Context) error { _, err := s.Stat(ctx, "/f", client.StatOptions{}); return err },
			"upload": func(ctx context.Context) error {
				return s.WriteFile(ctx, "/f", bytes.NewReader(content), client.WriteOptions{})
			},
			"download": func(ctx context.Context) error {
				_, err := s.ReadFile(ctx, "/f", client.ReadOptions{})
				return err
			},
			"command": func(ctx context.Context) error {
				_, err := s.Start(ctx, "x", sandbox.Command{Argv: []string{"true"}}, client.Output{})
				return err
			},
		}
		var all sync.WaitGroup
		for _, name := range which {
			call := calls[name]
			for range each {
				all.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), deadline)
					defer cancel()
					began := time.Now()
					if err := call(ctx); err == nil || time.Since(began) > takes+deadline+2*time.Second {
						t.Errorf("%s: %v after %v", name, err, time.Since(began))
					}
				})
			}
		}
		all.Wait()
		<-s.Done() // with all that was dropped
		if s.Err() == nil {
			t.Error("the session ended as if it had been closed")
		}
		_ = s.Close()
		_ = end.Close()
	}
	const many = 100 // more than may wait to be sent, or taken
	t.Run("one", func(t *testing.T) { frozen(t, nil, 1, "upload") })
	t.Run("many", func(t *testing.T) { frozen(t, nil, many, "stat", "upload", "download", "command") })
	// What is on its way fits into the kernel's buffers.
	t.Run("buffered", func(t *testing.T) { frozen(t, io.Discard, many, "stat", "upload", "download", "command") })
}
