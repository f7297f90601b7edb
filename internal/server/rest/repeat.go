package rest

import (
	"context"
	"encoding/json"
	"fmt"

	"agentbox/internal/ids"
	"agentbox/internal/sandbox"
)

// Repeats does requests once; manager.Manager does.
type Repeats interface {
	Once(ctx context.Context, c sandbox.Caller, once sandbox.Once, do func(ctx context.Context, try sandbox.Try) ([]byte, error)) ([]byte, error)
}

// Repeatable is the header of a request that may be sent again.
type Repeatable struct {
	Key string `header:"Idempotency-Key" maxLength:"255" doc:"The same request with the same key is done once within a day, and answered with the same answer; another request with it is a conflict."`
}

// repeat does a request, or answers it with what the same one was answered with
// before. What tells requests apart is the operation and what it was asked for. made is
// an id for what it makes.
func repeat[O any](ctx context.Context, a *API, c sandbox.Caller, key, operation string, asked any, do func(ctx context.Context, made string) (*O, error)) (*O, error) {
	if key == "" {
		return do(ctx, ids.Hex(sandbox.TryIDLen/2))
	}
	once, err := onceOf(key, operation, asked)
	if err != nil {
		return nil, err
	}
	return repeatOnce(ctx, a, c, once, func(ctx context.Context, try sandbox.Try) (*O, error) { return do(ctx, try.Made) })
}

// repeatIn is repeat for a request about a sandbox, whose ids are one. What must
// not be done again calls begin first, and is not done if that fails.
func repeatIn[O any](ctx context.Context, a *API, c sandbox.Caller, id, key, operation string, asked any, do func(ctx context.Context, try sandbox.Try) (*O, error)) (*O, error) {
	if key == "" {
		return do(ctx, sandbox.Try{Begin: func() error { return nil }})
	}
	once, err := onceOf(key, operation, asked)
	if err != nil {
		return nil, err
	}
	sb, err := a.Sandboxes.Get(ctx, c, id)
	if err != nil {
		return nil, err
	}
	return repeatOnce(ctx, a, c, once.In(sb.UID), do)
}

// keeper is an answer that is kept in another form than the first one has.
type keeper interface{ toKeep() ([]byte, error) }

func repeatOnce[O any](ctx context.Context, a *API, c sandbox.Caller, once sandbox.Once, do func(ctx context.Context, try sandbox.Try) (*O, error)) (*O, error) {
	var first *O
	answer, err := a.Repeats.Once(ctx, c, once, func(ctx context.Context, try sandbox.Try) ([]byte, error) {
		out, err := do(ctx, try)
		if err != nil {
			return nil, err
		}
		first = out
		if k, ok := any(out).(keeper); ok {
			return k.toKeep()
		}
		return json.Marshal(out)
	})
	if err != nil {
		return nil, err // the above may be under way: first is not to be looked at
	}
	if first != nil {
		return first, nil
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
