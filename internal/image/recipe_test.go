package image_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"agentbox/internal/image"

	"github.com/containerd/errdefs"
)

func TestBuiltInRecipesAreGood(t *testing.T) {
	names := image.Recipes()
	for _, name := range []string{"default", "small"} {
		if !slices.Contains(names, name) || !image.HasRecipe(name) {
			t.Errorf("no recipe %q in %v", name, names)
		}
	}
	for _, name := range names {
		r, err := image.LoadRecipe(name, "")
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, p := range []string{"python3", "python3-pip", "python3-venv", "git", "curl", "ca-certificates", "procps"} {
			if !slices.Contains(r.Packages, p) {
				t.Errorf("%s has no package %s", name, p)
			}
		}
		if r.Description == "" || r.Suite != "trixie" || r.Workdir != "/workspace" {
			t.Errorf("%s is %+v", name, r)
		}
	}
	if image.HasRecipe("../small") || image.HasRecipe("base.sh") {
		t.Error("a file that is no recipe counts as one")
	}
}

func TestParseRecipe(t *testing.T) {
	r, err := image.ParseRecipe(`# comment
Description: a test
Suite: sid
Components: main contrib
Packages: a
 b c
# between

 d+e
Env: A=1
  B=two words
Workdir: /w
Setup:
	if true; then

		echo '# kept: yes'
	fi
`)
	if err != nil {
		t.Fatal(err)
	}
	if want := "if true; then\n\n\techo '# kept: yes'\nfi\n"; r.Setup != want {
		t.Errorf("Setup is %q, want %q", r.Setup, want)
	}
	for what, ok := range map[string]bool{
		"Description": r.Description == "a test", "Suite": r.Suite == "sid", "Workdir": r.Workdir == "/w",
		"Components": slices.Equal(r.Components, []string{"main", "contrib"}),
		"Packages":   slices.Equal(r.Packages, []string{"a", "b", "c", "d+e"}),
		"Env":        slices.Equal(r.Env, []string{"A=1", "B=two words"}),
	} {
		if !ok {
			t.Errorf("%s is wrong: %+v", what, r)
		}
	}
}

func TestRecipesThatMakeNoSense(t *testing.T) {
	for text, says := range map[string]string{
		"":                                   "Suite",
		"Suite: --help":                      "--help",
		"Suite: trixie\nPackages: -x":        "-x",
		"Suite: trixie\nPackages: a,b":       "a,b",
		"Suite: trixie\nComponents: a]b":     "a]b",
		"Suite: trixie\nEnv: =x":             "=x",
		"Suite: trixie\nWorkdir: here":       "here",
		"Suite: trixie\nMirror: http://x/":   "Mirror",
		"Suite: trixie\nSuite: sid":          "line 2",
		" begins with a continuation":        "line 1",
		"Suite: trixie\nnot a field at all ": "line 2",
	} {
		if _, err := image.ParseRecipe(text); !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: got error %v", text, err)
		}
	}
}

func TestLoadRecipe(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "r")
	if err := os.WriteFile(file, []byte("Suite: trixie\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := image.LoadRecipe("mine", file); err != nil {
		t.Error(err)
	}
	if _, err := image.LoadRecipe("mine", file+"x"); !errdefs.IsNotFound(err) {
		t.Errorf("missing file: %v", err)
	}
	if _, err := image.LoadRecipe("mine", ""); !errdefs.IsNotFound(err) || !strings.Contains(err.Error(), "default, small") {
		t.Errorf("unknown name: %v", err)
	}
	if err := os.WriteFile(file, make([]byte, 2<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := image.LoadRecipe("mine", file); !errdefs.IsInvalidArgument(err) {
		t.Errorf("huge file: %v", err)
	}
}

// The agent gives each user a PATH; one of the image's would be root's as well.
func TestRecipeHasNoPath(t *testing.T) {
	r, err := image.ParseRecipe("Suite: trixie\n")
	if err != nil {
		t.Fatal(err)
	}
	if slices.ContainsFunc(r.Env, func(e string) bool { return strings.HasPrefix(e, "PATH=") }) {
		t.Errorf("the environment is %q", r.Env)
	}
}

func FuzzParseRecipe(f *testing.F) {
	f.Add("Suite: trixie\nPackages: a\n b\nSetup:\n  x\n")
	f.Fuzz(func(t *testing.T, text string) {
		r, err := image.ParseRecipe(text)
		if err != nil {
			if !errdefs.IsInvalidArgument(err) {
				t.Errorf("error without a class: %v", err)
			}
			return
		}
		for _, word := range append(append([]string{r.Suite}, r.Components...), r.Packages...) {
			if word == "" || strings.HasPrefix(word, "-") || strings.ContainsAny(word, " \t\r\n,[]'\"$") {
				t.Errorf("%q would be misread", word)
			}
		}
	})
}
