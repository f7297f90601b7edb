package rest

import (
	"context"
	"encoding/json"
	"fmt"

	"agentbox/internal/sandbox"
)

// Repeats does requests once; manager.Manager does.
type Repeats interface {
	Once(ctx context.Context, c sandbox.Caller, once sandbox.Once, do func(context.Context) ([]byte, error)) ([]byte, error)
}

// Repeatable is the header of a request that may be sent again.
type Repeatable struct {
	Key string `header:"Idempotency-Key" maxLength:"255" doc:"The same request with the same key is done once within a day, and answered with the same answer; another request with it is a conflict."`
}

// repeat does a request, or answers it with what the same one was answered with
// before. What tells requests apart is the operation and what it was asked for.
func repeat[O any](ctx context.Context, a *API, c sandbox.Caller, key, operation string, asked any, do func(context.Context) (*O, error)) (*O, error) {
	if key == "" {
		return do(ctx)
	}
	once, err := onceOf(key, operation, asked)
	if err != nil {
		return nil, err
	}
	answer, err := a.Repeats.Once(ctx, c, once, func(ctx context.Context) ([]byte, error) {
		out, err := do(ctx)
		if err != nil {
			return nil, err
		}
		return json.Marshal(out)
	})
	if err != nil {
		return nil, err
	}
	out := new(O)
	if err := json.Unmarshal(answer, out); err != nil {
		return nil, fmt.Errorf("read a kept answer: %w", err)
	}
	return out, nil
}

func onceOf(key, operation string, asked any) (sandbox.Once, error) {
	text, err := json.Marshal(asked) // the names in it are sorted
	if err != nil {
		return sandbox.Once{}, fmt.Errorf("encode a request: %w", err)
	}
	return sandbox.Once{Key: key, Request: operation + " " + string(text)}, nil
}
