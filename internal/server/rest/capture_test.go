package rest

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"

	"agentbox/internal/sandbox"
)

// TestCapture: a result reads as if its output had been one text, wherever that
// was cut on its way and however the streams came by turns.
func TestCapture(t *testing.T) {
	texts := []string{"", "a", "é", "\xff\xfe", "日本\n", "<&>\u2028\"\\", strings.Repeat("xé", 50_000)}
	rounds := 300
	if testing.Short() { // each decodes and encodes up to a megabyte six times
		rounds = 30
	}
	for range rounds {
		var c capture
		var want [3]bytes.Buffer
		out := c.output()
		for range rand.N(12) {
			text, stream := texts[rand.N(len(texts))], rand.N(2)
			for len(text) > 0 {
				n := 1 + rand.N(min(len(text), 70_000))
				w := out.Stdout
				if stream == 1 {
					w = out.Stderr
				}
				if m, err := w.Write([]byte(text[:n])); m != n || err != nil {
					t.Fatal(m, err)
				}
				want[0].WriteString(text[:n])
				want[1+stream].WriteString(text[:n])
				text = text[n:]
			}
		}
		for _, exact := range []bool{false, true} {
			r := ExecResult{ExecID: `"output":"","stdout":""`, Truncated: Truncated{Stderr: true}}
			c.fill(&r, exact)
			var b bytes.Buffer
			if err := marshal(&b, r); err != nil {
				t.Fatal(err)
			}
			var got ExecResult
			if err := json.Unmarshal(b.Bytes(), &got); err != nil {
				t.Fatal(err)
			}
			for i, text := range []string{got.Output, got.Stdout, got.Stderr} {
				// The decoder and the encoder of the standard library agree on what is no UTF-8.
				whole, _ := json.Marshal(textOrBase64(want[i].Bytes(), i != 1, exact))
				var expect string
				_ = json.Unmarshal(whole, &expect)
				if text != expect {
					t.Fatalf("field %d, exact %v: %d bytes, want %d", i, exact, len(text), len(expect))
				}
			}
			if got.ExecID != r.ExecID {
				t.Errorf("exec_id is %s", got.ExecID)
			}
		}
	}
}

// TestToKeep: what is kept of an answer fits, whatever the output is.
func TestToKeep(t *testing.T) {
	for _, text := range []string{"", "a\n", strings.Repeat("\x01", 1<<20), strings.Repeat("é", 1<<20), strings.Repeat("<", 20<<10), strings.Repeat("\xff", 1<<20)} {
		for _, exact := range []bool{false, true} {
			var c capture
			out := c.output()
			_, _ = out.Stdout.Write([]byte("one\n"))
			_, _ = out.Stderr.Write([]byte(text))
			o := executeOutput{200, ExecResult{ExecID: "e"}}
			c.fill(&o.Body, exact)
			kept, err := o.toKeep()
			if err != nil || len(kept) > int(sandbox.MaxAnswer) {
				t.Errorf("%.4q: %d bytes are kept, %v", text, len(kept), err)
			}
			var got executeOutput
			if err := json.Unmarshal(kept, &got); err != nil {
				t.Fatal(err)
			}
			if got.Status != 200 || got.Body.Stdout != textOrBase64([]byte("one\n"), false, exact) || got.Body.Truncated.Stdout || got.Body.Truncated.Stderr != (len(text) > 20<<10) {
				t.Errorf("%.4q: kept is %d %q %+v", text, got.Status, got.Body.Stdout, got.Body.Truncated)
			}
		}
	}
	key := newKeyOutput{NewKey{Key: Key{ID: "key_1"}, Secret: "abx_secret"}}
	if kept, err := key.toKeep(); err != nil || strings.Contains(string(kept), "secret") || !strings.Contains(string(kept), "key_1") {
		t.Errorf("of a key is kept %s, %v", kept, err)
	}
}
