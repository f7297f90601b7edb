package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// called is what one call of the command line did.
type called struct {
	code           int
	stdout, stderr string
}

// call runs the command line in a process without variables of its own, with a
// file as its standard input.
func call(t *testing.T, stdin string, args ...string) called {
	t.Helper()
	in := filepath.Join(t.TempDir(), "stdin")
	if err := os.WriteFile(in, []byte(stdin), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(in)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var out, errs bytes.Buffer
	a := &App{Stdin: f, Stdout: &out, Stderr: &errs}
	code := a.Main(t.Context(), args)
	return called{code, out.String(), errs.String()}
}

// noServer makes sure that no variable and no file names a server.
func noServer(t *testing.T) {
	t.Helper()
	for _, name := range []string{urlVariable, keyVariable, profileVariable, cacertVariable, "AGENTBOX_CONFIG", "AGENTBOX_SOCKET"} {
		t.Setenv(name, "")
	}
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	t.Setenv("AGENTBOX_DATA_DIR", t.TempDir())
}

func wantIn(t *testing.T, text, want string) {
	t.Helper()
	if !strings.Contains(text, want) {
		t.Errorf("%q has no %q", text, want)
	}
}
