package e2e

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestEveryCaseHasItsTest holds testdata/cases.tsv and the tests together: each
// line is a case's id, its severity or class, and "test", "waits: what for" or
// "exception: why". A case with a test has a Test function that bears its id; one whose
// test shows a part of it says behind "test; waits: " what the rest waits for.
func TestEveryCaseHasItsTest(t *testing.T) {
	b, err := os.ReadFile("testdata/cases.tsv")
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("grep", "-rhoE", "--include=*_test.go", `^func Test[A-Za-z0-9_]+`, "..", "../../cmd").Output()
	if err != nil {
		t.Fatal(err)
	}
	tests := string(out)
	total, exceptions := 0, 0
	for _, line := range strings.Split(strings.TrimSpace(string(b)), "\n") {
		if strings.HasPrefix(line, "#") {
			continue
		}
		f := strings.SplitN(line, "\t", 3)
		if len(f) != 3 {
			t.Errorf("not three fields: %q", line)
			continue
		}
		id, severity, how := f[0], f[1], f[2]
		has := regexp.MustCompile(`(?m)^func Test` + strings.ReplaceAll(id, "-", "") + `([A-Z_]|$)`).MatchString(tests)
		if shown, rest, partly := strings.Cut(how, "; waits: "); partly {
			if shown != "test" || rest == "" {
				t.Errorf("%s: %q does not say what the rest waits for", id, how)
			}
			how = shown
		}
		kind, reason, _ := strings.Cut(how, ": ")
		switch kind {
		case "test":
			total++
			if !has {
				t.Errorf("%s has no test", id)
			}
		case "waits":
			if reason == "" {
				t.Errorf("%s does not say what it waits for", id)
			}
		case "exception":
			total++
			exceptions++
			if slices.Contains([]string{"S1", "ESC", "TEN", "NET", "JWT"}, severity) {
				t.Errorf("%s is %s: no exception is possible", id, severity)
			}
			if !has || reason == "" {
				t.Errorf("%s needs a test that pins what happens today, and a reason", id)
			}
		default:
			t.Errorf("%s: %q is neither test, waits nor exception", id, how)
		}
	}
	if exceptions*20 > total {
		t.Errorf("%d exceptions of %d cases are more than 5 %%", exceptions, total)
	}
	t.Logf("%d cases, %d exceptions", total, exceptions)
}
