package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"agentbox/internal/cli"
)

// TestCLI runs testdata/script: what the command line prints and returns.
//
// Beside testscript's own commands there are
//
//	code N PROGRAM ARG...   run it; the exit status must be N
//	refuse FLAG VALUE WHAT  agentbox run does not take the flag's value; allowed is WHAT, a pattern
//	field NAME VALUE        a field of the JSON object on stdout; a.b is nested, \n a newline
//	field -type NAME TYPE   the field is a string, number, boolean, array or object
//
// $IMAGE is the image of the tests, $OWN a data directory of the script's own.
func TestCLI(t *testing.T) {
	bin, shared := Binary(t), SharedDir(t)
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("PATH", filepath.Dir(bin)+":"+env.Getenv("PATH"))
			env.Setenv("AGENTBOX_DATA_DIR", shared)
			env.Setenv("IMAGE", Image)
			own, err := os.MkdirTemp("", "ab") // short, for the paths of sockets
			if err != nil {
				return err
			}
			env.Defer(func() { _ = os.RemoveAll(own) })
			env.Setenv("OWN", own)
			env.Setenv("SHARED", shared)
			return nil
		},
		Cmds: scriptCommands,
	})
}

var scriptCommands = map[string]func(*testscript.TestScript, bool, []string){"code": cmdCode, "field": cmdField, "refuse": cmdRefuse}

// TestServerCLI runs testdata/server: the command line as a client of one daemon.
// $URL and $KEY are its address and an admin's key; without them the scripts use
// the local socket. $BOX is a sandbox of the script's own.
func TestServerCLI(t *testing.T) {
	t.Parallel()
	d := StartDaemon(t)
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/server",
		RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			name := "box-" + filepath.Base(env.WorkDir)
			if out := d.Run("create", "--name", name); out.Code != 0 {
				return fmt.Errorf("make a sandbox: %s", out.Stderr)
			}
			env.Defer(func() { d.Run("rm", name) })
			for k, v := range map[string]string{
				"PATH": filepath.Dir(Binary(t)) + ":" + env.Getenv("PATH"), "AGENTBOX_DATA_DIR": d.Dir, "XDG_CONFIG_HOME": env.WorkDir + "/config",
				"BOX": name, "DATA": d.Dir, "URL": d.URL, "KEY": d.Key, "IMAGE": Image,
			} {
				env.Setenv(k, v)
			}
			return nil
		},
		Cmds: scriptCommands,
	})
}

func cmdCode(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: code N PROGRAM ARG...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			ts.Fatalf("%v", err)
		}
		got = exit.ExitCode()
	}
	if got != want {
		ts.Fatalf("exit status %d, want %d", got, want)
	}
}

func cmdRefuse(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: refuse FLAG VALUE WHAT")
	}
	cmdCode(ts, false, []string{strconv.Itoa(cli.ExitFailure), "agentbox", "run", args[0] + "=" + args[1], ts.Getenv("IMAGE"), "--", "true"})
	want := fmt.Sprintf(`^agentbox: invalid %s %s: allowed is (%s)`, strings.TrimLeft(args[0], "-"), regexp.QuoteMeta(strconv.Quote(args[1])), args[2])
	if text := ts.ReadFile("stderr"); !regexp.MustCompile(want).MatchString(text) || ts.ReadFile("stdout") != "" {
		ts.Fatalf("%q does not match %s", text, want)
	}
}

func cmdField(ts *testscript.TestScript, neg bool, args []string) {
	kind := len(args) == 3 && args[0] == "-type"
	if kind {
		args = args[1:]
	}
	if neg || len(args) != 2 {
		ts.Fatalf("usage: field [-type] NAME VALUE")
	}
	var v any
	if err := json.Unmarshal([]byte(ts.ReadFile("stdout")), &v); err != nil {
		ts.Fatalf("stdout is no JSON: %v", err)
	}
	for name := range strings.SplitSeq(args[0], ".") {
		object, _ := v.(map[string]any)
		has := false
		if v, has = object[name]; !has {
			ts.Fatalf("no field %s", args[0])
		}
	}
	got := fmt.Sprint(v)
	if kind {
		got = map[string]string{"string": "string", "float64": "number", "bool": "boolean", "[]interface {}": "array", "map[string]interface {}": "object"}[fmt.Sprintf("%T", v)]
	}
	if want := strings.ReplaceAll(args[1], `\n`, "\n"); got != want {
		ts.Fatalf("field %s is %q, want %q", args[0], got, want)
	}
}
