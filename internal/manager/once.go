package manager

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/containerd/errdefs"

	"agentbox/internal/guest/client"
	"agentbox/internal/ids"
	"agentbox/internal/live"
	"agentbox/internal/sandbox"
)

// repeatable is a caller's request as the store keeps it. The store has neither
// the key nor, without it, the answer: answers may hold secrets.
func repeatable(owner string, once sandbox.Once) (sandbox.Repeatable, error) {
	if err := checkKey(once.Key); err != nil {
		return sandbox.Repeatable{}, err
	}
	request := sha256.Sum256([]byte(once.Request))
	return sandbox.Repeatable{Owner: owner, Key: storedKey(once.Key), Request: request[:], Created: wall()}, nil
}

func storedKey(key string) string {
	sum := sha256.Sum256([]byte("stored " + key))
	return hex.EncodeToString(sum[:])
}

func checkKey(key string) error {
	if len(key) <= sandbox.MaxIdempotencyKey {
		return nil
	}
	return &sandbox.InvalidError{
		Field: "idempotency_key", Value: fmt.Sprintf("%d bytes", len(key)), Allowed: fmt.Sprintf("at most %d bytes", sandbox.MaxIdempotencyKey),
	}
}

// seal hides an answer from those who don't have the key of its request.
func seal(key string, answer []byte) ([]byte, error) {
	c, err := sealer(key)
	if err != nil {
		return nil, err
	}
	nonce := make([]byte, c.NonceSize())
	_, _ = rand.Read(nonce) // never fails: crypto/rand ends the program instead
	return c.Seal(nonce, nonce, answer, nil), nil
}

func unseal(key string, sealed []byte) ([]byte, error) {
	c, err := sealer(key)
	if err != nil {
		return nil, err
	}
	if len(sealed) < c.NonceSize() {
		return nil, fmt.Errorf("a kept answer has %d bytes: %w", len(sealed), errdefs.ErrInternal)
	}
	answer, err := c.Open(nil, sealed[:c.NonceSize()], sealed[c.NonceSize():], nil)
	if err != nil {
		return nil, fmt.Errorf("read a kept answer: %w: %w", err, errdefs.ErrInternal)
	}
	return answer, nil
}

func sealer(key string) (cipher.AEAD, error) {
	sum := sha256.Sum256([]byte("answer " + key))
	block, err := aes.NewCipher(sum[:])
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

// Recall is what a repeatable command of the caller's sandbox was answered with;
// nil: it was not, or its answer was too long to keep.
func (m *Manager) Recall(ctx context.Context, c sandbox.Caller, id string, once sandbox.Once) ([]byte, error) {
	b, err := m.find(ctx, c, id)
	if err != nil {
		return nil, err
	}
	r, err := repeatable(c.Owner, once.In(b.uid()))
	if err != nil {
		return nil, err
	}
	before, err := m.opts.Store.Recall(ctx, r)
	if err != nil || before == nil || len(before.Answer) == 0 {
		return nil, err
	}
	return unseal(once.Key, before.Answer)
}

// startOnce starts a command unless the same request did so before, and follows
// it from its beginning then. Another request with the same key is a
// *sandbox.ReplayError. What is recorded first is the command's id, which the
// sandbox has only once: so the command runs once, whoever dies in between.
func (m *Manager) startOnce(ctx context.Context, l *live.Box, r sandbox.Repeatable, cmd sandbox.Command, out client.Output) (p *client.Process, again bool, err error) {
	before, err := m.opts.Store.Remember(ctx, r)
	if err != nil {
		return nil, false, err
	}
	if before != nil {
		r.Made = before.Made
	}
	if before == nil || !before.Begun {
		p, err = l.Start(ctx, r.Made, cmd, out)
		switch {
		case err == nil:
			m.report("record that a command began", m.opts.Store.Answer(ctx, r))
			return p, false, nil
		case errdefs.IsAlreadyExists(err):
		case client.Told(err): // else it may have begun
			return nil, false, errors.Join(err, m.opts.Store.Unlearn(context.WithoutCancel(ctx), r))
		default:
			return nil, false, err
		}
	}
	p, err = l.Session().Attach(ctx, r.Made, 0, 0, out)
	if errdefs.IsNotFound(err) {
		err = sandbox.Refuse(errdefs.ErrConflict, "the command that was run with this idempotency key has ended, and its result is kept no longer")
	}
	return p, true, err
}

// Answered keeps the answer to a repeatable command for those who ask again. One
// that is too long is not kept.
func (e *Exec) Answered(ctx context.Context, answer []byte) error {
	if !e.Repeatable() || e.again {
		return nil
	}
	return e.m.keep(ctx, e.request, e.once.Key, answer)
}

// keep records that a request is done, with its answer unless that is too long.
func (m *Manager) keep(ctx context.Context, r sandbox.Repeatable, key string, answer []byte) (err error) {
	if len(answer) > int(sandbox.MaxAnswer) {
		return m.noteRepeat(ctx, r)
	}
	if r.Answer, err = seal(key, answer); err != nil {
		return err
	}
	return m.noteRepeat(ctx, r)
}

// noteRepeat records what came of a request, also for one whose time is over.
func (m *Manager) noteRepeat(ctx context.Context, r sandbox.Repeatable) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	defer cancel()
	return m.opts.Store.Answer(ctx, r)
}

// Do does what a repeatable request asks for.
type Do = func(ctx context.Context, try sandbox.Try) (answer []byte, err error)

// flight is a repeatable request that is being done.
type flight struct {
	request string
	done    chan struct{}
	answer  []byte // set before done is closed
	err     error
}

// Once does what a request asks for unless the same request did so within a day,
// and returns the answer of that time. Those who ask while it is done wait for
// it. It goes on when ctx ends first; when it fails the key is free again, and if
// the daemon ends in the middle the same request does it again. Not so once do has
// called begin: what must not be done twice is then a Conflict for a day, unless
// there is an answer. An answer that is longer
// than sandbox.MaxAnswer is given to those who wait and is a Conflict later.
func (m *Manager) Once(ctx context.Context, c sandbox.Caller, once sandbox.Once, do Do) ([]byte, error) {
	r, err := repeatable(c.Owner, once)
	if err != nil {
		return nil, err
	}
	for {
		f, mine := m.takeOff(r)
		if mine {
			if !m.spawn(func() { m.fly(ctx, f, r, once.Key, do) }) {
				m.land(f, r, nil, errDraining)
			}
		}
		if f.request != string(r.Request) {
			return nil, &sandbox.ReplayError{}
		}
		select {
		case <-f.done:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		if mine || f.err == nil {
			return f.answer, f.err
		}
	}
}

// takeOff returns the flight of a key, and whether it is the caller's to do.
func (m *Manager) takeOff(r sandbox.Repeatable) (f *flight, mine bool) {
	id := ownedID{r.Owner, r.Key}
	m.flying.Lock()
	defer m.flying.Unlock()
	if f = m.flights[id]; f != nil {
		return f, false
	}
	f = &flight{request: string(r.Request), done: make(chan struct{})}
	m.flights[id] = f
	return f, true
}

func (m *Manager) land(f *flight, r sandbox.Repeatable, answer []byte, err error) {
	f.answer, f.err = answer, err
	m.flying.Lock()
	delete(m.flights, ownedID{r.Owner, r.Key})
	m.flying.Unlock()
	close(f.done)
}

func (m *Manager) fly(ctx context.Context, f *flight, r sandbox.Repeatable, key string, do Do) {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	defer context.AfterFunc(m.ctx, func() { cancel(errDraining) })()
	answer, err := m.doOnce(ctx, r, key, do)
	m.land(f, r, answer, err)
}

func (m *Manager) doOnce(ctx context.Context, r sandbox.Repeatable, key string, do Do) ([]byte, error) {
	r.Made = ids.Hex(sandbox.TryIDLen / 2)
	before, err := m.opts.Store.Remember(ctx, r)
	switch {
	case err != nil:
		return nil, err
	case before != nil && len(before.Answer) > 0:
		return unseal(key, before.Answer)
	case before != nil && before.Begun:
		return nil, sandbox.Refuse(errdefs.ErrConflict, "what was asked for with this idempotency key was begun before, and no answer to it is kept")
	}
	if before != nil && before.Made != "" { // an older daemon recorded none
		r.Made = before.Made
	}
	answer, err := do(ctx, sandbox.Try{Made: r.Made, Begin: func() error { return m.noteRepeat(ctx, r) }})
	switch {
	case err != nil && ctx.Err() != nil: // the daemon ends, and what was begun may go on
		return nil, err
	case err != nil:
		return nil, errors.Join(err, m.opts.Store.Unlearn(context.WithoutCancel(ctx), r))
	}
	m.report("keep an answer", m.keep(ctx, r, key, answer))
	return answer, nil
}
