package guest_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"testing"

	"agentbox/internal/guest"
)

func TestKeyPreamble(t *testing.T) {
	k := guest.NewKey()
	var b bytes.Buffer
	if err := guest.SendKey(&b, k); err != nil {
		t.Fatal(err)
	}
	whole := b.Bytes()
	if got, err := guest.NextKey(bytes.NewReader(whole)); err != nil || got != k {
		t.Fatalf("NextKey = %v, %v", got, err)
	}
	if _, err := guest.NextKey(bytes.NewReader(whole[:len(whole)-1])); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a cut preamble gives %v", err)
	}
	other := bytes.Clone(whole)
	other[0]++
	if _, err := guest.NextKey(bytes.NewReader(other)); err == nil {
		t.Error("NextKey takes something that is no preamble")
	}
	stray := append([]byte("stray frames abx-abx-key"), whole...)
	if got, err := guest.NextKey(bytes.NewReader(stray)); err != nil || got != k {
		t.Errorf("NextKey = %v, %v", got, err)
	}
}

// challenge runs both sides and returns what each says.
func challenge(host, agent guest.Key) (hostErr, guestErr error) {
	h, g := net.Pipe()
	done := make(chan error)
	go func() {
		err := guest.ProveGuest(g, agent)
		if err != nil {
			g.Close()
		}
		done <- err
	}()
	hostErr = guest.ProveHost(h, host)
	if hostErr != nil {
		h.Close()
	}
	return hostErr, <-done
}

func TestChallenge(t *testing.T) {
	k := guest.NewKey()
	if h, g := challenge(k, k); h != nil || g != nil {
		t.Errorf("the same key: host %v, guest %v", h, g)
	}
	if h, g := challenge(k, guest.NewKey()); h == nil || g == nil {
		t.Errorf("different keys: host %v, guest %v", h, g)
	}
	if h, g := challenge(guest.Key{}, guest.Key{}); h == nil || g == nil {
		t.Errorf("no key: host %v, guest %v", h, g)
	}
}

// A guest that has no key can't answer with what the host itself sent.
func TestChallengeReflected(t *testing.T) {
	h, g := net.Pipe()
	go func() {
		defer g.Close()
		nonce := make([]byte, 32)
		_, _ = g.Write(nonce)
		answer := make([]byte, 64)
		if _, err := io.ReadFull(g, answer); err == nil {
			_, _ = g.Write(answer[32:])
		}
	}()
	if err := guest.ProveHost(h, guest.NewKey()); err == nil {
		t.Error("the host accepts its own proof")
	}
}

func TestChallengeSilence(t *testing.T) {
	t.Parallel()
	h, g := net.Pipe()
	defer g.Close()
	var timeout net.Error
	if err := guest.ProveHost(h, guest.NewKey()); !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Errorf("a silent guest gives %v, want a time-out", err)
	}
}

func FuzzProveGuest(f *testing.F) {
	f.Add(make([]byte, 64))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, answer []byte) {
		h, g := net.Pipe()
		go func() {
			var nonce [32]byte
			_, _ = io.ReadFull(h, nonce[:])
			_, _ = h.Write(answer)
			h.Close()
		}()
		if guest.ProveGuest(g, guest.Key{1}) == nil {
			t.Error("an answer without the key is accepted")
		}
		g.Close()
	})
}
