package agentbox_test

import (
	"encoding/json"
	"errors"
	"os"
	"regexp"
	"strconv"
	"testing"

	agentbox "agentbox/sdk/go"
)

// classes are the kinds of what the clients of all languages call so.
var classes = map[string]error{
	"InvalidArgument": agentbox.ErrInvalidArgument, "TooLarge": agentbox.ErrTooLarge, "OutOfRange": agentbox.ErrOutOfRange, "Unsupported": agentbox.ErrUnsupported,
	"Unauthenticated": agentbox.ErrUnauthenticated, "PermissionDenied": agentbox.ErrPermissionDenied, "NotFound": agentbox.ErrNotFound,
	"SandboxGone": agentbox.ErrSandboxGone, "Conflict": agentbox.ErrConflict, "AlreadyExists": agentbox.ErrAlreadyExists, "NotRunning": agentbox.ErrNotRunning,
	"RateLimited": agentbox.ErrRateLimited, "Unavailable": agentbox.ErrUnavailable, "ServerError": agentbox.ErrInternal,
}

// more are those that an error may be of beside its own.
var more = map[string][]string{
	"TooLarge": {"InvalidArgument"}, "OutOfRange": {"InvalidArgument"}, "SandboxGone": {"NotFound"}, "AlreadyExists": {"Conflict"}, "NotRunning": {"Conflict"},
}

// errorTable is what the clients of all languages make of codes and statuses.
func errorTable(t *testing.T) (table struct{ Codes, Statuses map[string]string }) {
	t.Helper()
	text, err := os.ReadFile("../errors.json")
	if err != nil {
		t.Skip("this is not the project's tree:", err)
	}
	if err := json.Unmarshal(text, &table); err != nil {
		t.Fatal(err)
	}
	return table
}

// TestKindsOfErrors: an error is of the kind of its code, else of its status, and of no
// other.
func TestKindsOfErrors(t *testing.T) {
	check := func(e agentbox.Error, want string) {
		t.Helper()
		for name, kind := range classes {
			should := name == want
			for _, other := range more[want] {
				should = should || name == other
			}
			if errors.Is(&e, kind) != should {
				t.Errorf("%d %s: that it is %s is %v, and it should be %s", e.Status, e.Code, name, !should, want)
			}
		}
	}
	table := errorTable(t)
	for code, want := range table.Codes {
		check(agentbox.Error{Status: 400, Code: code}, want)
	}
	for status, want := range table.Statuses {
		n, err := strconv.Atoi(status)
		if err != nil {
			t.Fatal(err)
		}
		check(agentbox.Error{Status: n}, want)
		check(agentbox.Error{Status: n, Code: "of_a_later_version"}, want)
	}
}

// TestCodesAreCurrent: the table has each code of the server's.
func TestCodesAreCurrent(t *testing.T) {
	table := errorTable(t)
	text, err := os.ReadFile("../../internal/server/errors.go")
	if err != nil {
		t.Fatal(err)
	}
	codes := regexp.MustCompile(`(?m)^\tCode\w+ +Code = "(\w+)"`).FindAllStringSubmatch(string(text), -1)
	for _, c := range codes {
		if table.Codes[c[1]] == "" {
			t.Errorf("%s is not in it", c[1])
		}
	}
	if len(codes) != len(table.Codes) {
		t.Errorf("it has %d codes, the server %d", len(table.Codes), len(codes))
	}
}
