package cli

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestSecretValue: a value comes from standard input, a file or a variable,
// without the newline at its end, and no complaint repeats it.
func TestSecretValue(t *testing.T) {
	const value = "sk-0123456789"
	file := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, []byte(value+"\r\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("MY_KEY", value)
	var got []map[string]any
	s := answering(t, func(_ int, w http.ResponseWriter, r *http.Request) {
		var in map[string]any
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil || r.Method != http.MethodPost || !strings.HasSuffix(r.URL.Path, "/secrets") {
			refuse(w, 500, "internal", "not what was to be sent")
			return
		}
		got = append(got, in)
		if in["name"] == "BAD" {
			refuse(w, 400, "invalid_value", "no")
			return
		}
		w.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(w).Encode(map[string]string{"name": "KEY"})
	})
	noServer(t)
	t.Setenv(urlVariable, s.URL)
	run := func(stdin string, args ...string) (code int, out string) {
		c := call(t, stdin, append([]string{"secret", "set", "--host", "a.example"}, args...)...)
		return c.code, c.stdout + c.stderr
	}
	// What belongs to the network is found there, too.
	if c := call(t, value, "egress", "secret", "set", "--host", "a.example", "KEY"); c.code != 0 || c.stdout != "KEY\n" || len(got) != 1 {
		t.Errorf("below egress: %+v, sent %v", c, got)
	}
	for _, c := range []struct {
		stdin string
		args  []string
	}{
		{value + "\n", []string{"KEY"}}, {value, []string{"KEY", "--header", "X-Key", "--format", "v {}"}}, {"", []string{"KEY", "--env", "MY_KEY"}}, {"other", []string{"KEY", "--file", file}},
	} {
		code, out := run(c.stdin, c.args...)
		if code != 0 || out != "KEY\n" || got[len(got)-1]["value"] != value {
			t.Errorf("%q: %d %q, sent %v", c.args, code, out, got)
		}
	}
	sent := len(got)
	for _, args := range [][]string{{"KEY"}, {"KEY", value}, {"KEY", "--env", "NOT_SET"}, {"KEY", "--file", file + "x"}, {"KEY", "--env", "MY_KEY", "--file", file}} {
		if code, out := run("", args...); code == 0 || strings.Contains(out, value) && len(args) != 2 {
			t.Errorf("%q: %d %q", args, code, out)
		}
	}
	if len(got) != sent {
		t.Errorf("sent: %v", got[sent:])
	}
	if code, out := run(value, "BAD"); code == 0 || strings.Contains(out, value) {
		t.Errorf("refused: %d %q", code, out)
	}
}
