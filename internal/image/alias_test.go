package image

import (
	"os"
	"path"
	"strings"
	"testing"
)

func TestFindAlias(t *testing.T) {
	for name, want := range map[string]string{
		"qagi/agent-sandbox:latest": "default agent", "qagi/agent-sandbox": "default agent",
		"agentbox-sandbox:latest": "default root", "agentbox-sandbox": "default root",
		"autocoder-sandbox:latest": "workbench sandbox", "vana-agent-sandbox": "workbench appuser",
		"agentbox-sandbox:1": "", "agent-sandbox": "", "default": "", "x:5000/agentbox-sandbox": "", "": "",
	} {
		a, ok := FindAlias(name)
		if got := strings.TrimSpace(a.Image + " " + a.User); got != want || ok != (want != "") {
			t.Errorf("%q is %q, want %q", name, got, want)
		}
	}
}

// An alias can be used on a machine that has nothing yet, and promises nothing
// that its image does not have.
func TestAliasesFitTheirImages(t *testing.T) {
	base, err := os.ReadFile("../../images/base.sh")
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range Aliases() {
		if !HasRecipe(a.Image) {
			t.Errorf("%s: there is no recipe for %s", a.Name, a.Image)
		}
		if a.User != "root" && !strings.Contains(string(base), "\nadd_user "+a.User+" ") {
			t.Errorf("%s: base.sh makes no user %s", a.Name, a.User)
		}
		if !path.IsAbs(a.Workdir) {
			t.Errorf("%s: the directory is %q", a.Name, a.Workdir)
		}
		for _, e := range a.Env {
			if !envEntry.MatchString(e) {
				t.Errorf("%s: bad environment %q", a.Name, e)
			}
		}
	}
}
