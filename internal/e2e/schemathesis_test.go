package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// Environment of TestAPI04, set by scripts/api.sh.
const (
	envSchemathesis = "AGENTBOX_SCHEMATHESIS" // the program
	envCases        = "AGENTBOX_API_CASES"    // how many requests, at least
)

// apiCap is how many sandboxes there may be at once.
const apiCap = 6

// notTried are operations that would break the test itself: they reach for the
// network, remove the image that other tests use or the key of this one, or never
// end.
var notTried = []string{"pull-image", "remove-image", "revoke-key", "open-terminal", "watch-files"}

// TestAPI04 sends the server requests that are made from its OpenAPI document. No
// answer is an error of the server's own, and each is as the document says.
func TestAPI04(t *testing.T) {
	program := os.Getenv(envSchemathesis)
	if program == "" {
		t.Skip("Schemathesis is not installed: scripts/api.sh does that and runs this test")
	}
	cases, err := strconv.Atoi(os.Getenv(envCases))
	if err != nil {
		t.Fatal(err)
	}
	d := StartDaemon(t, "--limits-sandboxes", strconv.Itoa(apiCap), "--sandbox-memory", "160m")
	ctx, cancel := context.WithCancel(t.Context())
	var busy sync.WaitGroup
	busy.Go(func() { d.keepAlive(ctx, "a", "b") })
	defer busy.Wait()
	defer cancel()
	sent := 0
	for round := 1; sent < cases && !t.Failed(); round++ {
		n := d.generated(program, round, cases)
		sent += n
		t.Logf("%d requests, %d in all", n, sent)
	}
	if log := d.Log(); strings.Contains(log, "panic") {
		t.Error("the server panicked")
	}
}

// generated lets Schemathesis work with one seed and returns how many requests it
// made.
func (d *Daemon) generated(program string, round, cases int) int {
	d.t.Helper()
	root := filepath.Join("..", "..")
	// The coverage phase is the same each time: some 3,000 requests.
	phases, examples := "fuzzing,stateful", 40
	if round == 1 {
		phases, examples = "coverage,fuzzing", min(40, 1+cases/300)
	}
	// One worker: Python 3.11 can't parse source in two threads at once, which ends a
	// run with an error of its own.
	args := []string{
		"run", d.URL + "/openapi.json", "--header", "Authorization: Bearer " + d.Key, "--phases", phases, "--max-examples", strconv.Itoa(examples),
		"--seed", strconv.Itoa(round), "--workers", "1", "--continue-on-failure", "--request-timeout", "60", "--suppress-health-check", "all",
		"--checks", "not_a_server_error,status_code_conformance,content_type_conformance,response_headers_conformance,response_schema_conformance",
		"--warnings", "off", "--no-color",
	}
	for _, op := range notTried {
		args = append(args, "--exclude-operation-id", op)
	}
	ctx, cancel := context.WithTimeout(d.t.Context(), 30*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = d.t.TempDir() // it notes examples there
	hooks, err := filepath.Abs(filepath.Join(root, "scripts", "api"))
	if err != nil {
		d.t.Fatal(err)
	}
	cmd.Env = append(os.Environ(), "SCHEMATHESIS_HOOKS=hooks", "PYTHONPATH="+hooks, "PYTHONDONTWRITEBYTECODE=1")
	out, err := cmd.CombinedOutput()
	found := regexp.MustCompile(`(\d+) generated`).FindSubmatch(out)
	if err != nil || found == nil {
		d.t.Fatalf("round %d: %v\n%s", round, err, out)
	}
	n, err := strconv.Atoi(string(found[1]))
	if err != nil || n == 0 {
		d.t.Fatalf("it made no request: %s", out)
	}
	return n
}

// keepAlive sees to it that sandboxes of these names run, whatever is done to them, and
// removes others.
func (d *Daemon) keepAlive(ctx context.Context, names ...string) {
	for ctx.Err() == nil {
		if err := d.keepOnce(names); err != nil && ctx.Err() == nil {
			d.t.Error(err)
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond): // often enough for most requests to find them
		}
	}
}

func (d *Daemon) keepOnce(names []string) error {
	call := func(method, path, body string) (Answer, error) {
		return d.Admin().Try(method, api+path, strings.NewReader(body))
	}
	var all struct {
		Items []struct{ ID, Name, Status string }
	}
	a, err := call("GET", "/sandboxes?limit=1000", "")
	if err == nil {
		err = json.Unmarshal([]byte(a.Text), &all)
	}
	if err != nil || a.Code != http.StatusOK {
		return fmt.Errorf("list the sandboxes: %v, %w", a, err)
	}
	if len(all.Items) > apiCap {
		return errors.New("there are more sandboxes than may be")
	}
	state := map[string]string{}
	for _, sb := range all.Items {
		state[sb.Name] = sb.Status
	}
	for _, sb := range all.Items {
		if !slices.Contains(names, sb.Name) {
			_, err = call("DELETE", "/sandboxes/"+sb.ID, "") // somebody may have done it
		}
	}
	for _, name := range names {
		switch state[name] {
		case "":
			_, err = call("POST", "/sandboxes", `{"name":"`+name+`"}`) // the next time, if there was no room
		case "stopped":
			_, err = call("POST", "/sandboxes/"+name+"/start", "")
		}
	}
	return err
}
