package token_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"agentbox/internal/egress/token"
)

// open is a start of the daemon.
func open(t *testing.T, path, secret string, overlap time.Duration) *token.Keys {
	t.Helper()
	k, err := token.Open(path, secret, overlap)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode() != 0o600 {
		t.Fatalf("the file is %v, %v", info.Mode(), err)
	}
	if all, _ := os.ReadDir(filepath.Dir(path)); len(all) != 1 {
		t.Fatalf("beside it there are %v", all)
	}
	return k
}

func signed(t *testing.T, k *token.Keys) string {
	t.Helper()
	s, err := k.Sign(token.Claims{Session: "s1", Expires: time.Now().Add(48 * time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func good(k *token.Keys, s string) bool {
	_, err := k.Verify(s)
	return err == nil
}

// TestGeneratedKeySurvives: the first start makes a key, and it is the same at the
// next. Another file has another.
func TestGeneratedKeySurvives(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys")
	s := signed(t, open(t, path, "", time.Hour))
	if !good(open(t, path, "", time.Hour), s) {
		t.Error("a token is void after a restart")
	}
	if good(open(t, filepath.Join(t.TempDir(), "keys"), "", 0), s) {
		t.Error("a token of one daemon is another's")
	}
}

// TestRotationOverRestarts: the operator sets another key and starts the daemon
// again; tokens of the one before stay good for the overlap, which goes on over
// further starts. A key that comes back is good at once.
func TestRotationOverRestarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "keys")
		generated := signed(t, open(t, path, "", time.Hour))
		first := open(t, path, "the-first-signing-key", time.Hour)
		if !good(first, generated) {
			t.Error("within the overlap the generated key is void")
		}
		a := signed(t, first)
		time.Sleep(30 * time.Minute)
		k := open(t, path, "the-second-signing-key", time.Hour)
		b := signed(t, k)
		if !good(k, generated) || !good(k, a) || !good(k, b) {
			t.Error("within the overlaps a key is void")
		}
		time.Sleep(31 * time.Minute)
		k = open(t, path, "the-second-signing-key", time.Hour)
		if good(k, generated) || !good(k, a) || !good(k, b) {
			t.Error("a restart moves the end of an overlap")
		}
		k = open(t, path, "", time.Hour) // the variable is gone: the last one stays
		if got := signed(t, k); !good(k, b) || got != b && !good(k, got) {
			t.Error("the key before is not in force")
		}
		k = open(t, path, "the-first-signing-key", 0) // back, and the other is not trusted any more
		if !good(k, a) || good(k, b) {
			t.Error("an overlap of 0 leaves the key in force")
		}
		time.Sleep(100 * time.Hour)
		if k = open(t, path, "", 0); !good(k, signed(t, k)) {
			t.Error("the newest key has an end")
		}
	})
}

// TestKeyFileIsGuarded: what others can read, or what is damaged, is refused, and
// the error has nothing of it.
func TestKeyFileIsGuarded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys")
	open(t, path, "", 0)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	secret := strings.Split(string(whole), `"`)[3]
	for what, content := range map[string]string{
		"empty": "", "cut": string(whole[:len(whole)/2]), "no list": `"` + secret + `"`, "no key": "[]", "null": "null",
		"short": `[{"secret":"c2hvcnQ="}]`, "ended newest": strings.Replace(string(whole), "}", `,"until":"2020-01-01T00:00:00Z"}`, 1),
		"no end": strings.Replace(string(whole), "[", "["+string(whole[1:len(whole)-2])+",", 1), "more behind it": string(whole) + "[]", "an end more": string(whole) + "]", "too long": string(whole) + strings.Repeat(" ", 64<<10), "a field more": strings.Replace(string(whole), "}", `,"x":1}`, 1),
	} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := token.Open(path, "", 0); err == nil || strings.Contains(err.Error(), secret) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := os.WriteFile(path, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, mode := range []os.FileMode{0o640, 0o604} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		if _, err := token.Open(path, "", 0); err == nil || !strings.Contains(err.Error(), "0600") {
			t.Errorf("mode %o: %v", mode, err)
		}
	}
	if _, err := token.Open(filepath.Join(t.TempDir(), "keys"), "too-short", 0); err == nil || strings.Contains(err.Error(), "too-short") {
		t.Errorf("a short key: %v", err)
	}
	if _, err := token.Open(filepath.Join(t.TempDir(), "none", "keys"), "", 0); err == nil {
		t.Error("a file that can't be written")
	}
}

// FuzzKeyFile: a file of keys is refused, or gives keys that sign, and what is
// written then is read again.
func FuzzKeyFile(f *testing.F) {
	f.Add([]byte(`[{"secret":"YS1zaWduaW5nLWtleS1vZi0xOA=="}]`))
	f.Add([]byte(`[{"secret":"YS1zaWduaW5nLWtleS1vZi0xOA==","until":"2100-01-01T00:00:00Z"},{"secret":"YS1zaWduaW5nLWtleS1vZi0xOQ=="}]`))
	f.Add([]byte(`[{"secret":"c2hvcnQ="}]`))
	f.Add([]byte(`null`))
	path := filepath.Join(f.TempDir(), "keys")
	f.Fuzz(func(t *testing.T, content []byte) {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		k, err := token.Open(path, "", 0)
		if err != nil {
			return
		}
		s := signed(t, k)
		if again, err := token.Open(path, "", 0); err != nil || !good(again, s) {
			t.Fatalf("%q gives keys that are lost: %v", content, err)
		}
	})
}
