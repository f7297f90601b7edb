package image

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"

	"agentbox/images"

	"github.com/containerd/errdefs"
)

// Recipe says what is in an image. Package images describes the text form.
type Recipe struct {
	Description string
	Suite       string
	Components  []string
	Packages    []string
	Env         []string
	Workdir     string
	Setup       string
	// id changes with every change of the text.
	id string
}

const recipeSuffix = ".recipe"

// maxRecipe bounds the size of a recipe file.
const maxRecipe = 1 << 20

// Recipes returns the names of the built-in recipes, sorted.
func Recipes() []string {
	files, _ := fs.Glob(images.FS, "*"+recipeSuffix) // the pattern is good
	for i, f := range files {
		files[i] = strings.TrimSuffix(f, recipeSuffix)
	}
	return files
}

// HasRecipe reports whether there is a built-in recipe of that name.
func HasRecipe(name string) bool { return slices.Contains(Recipes(), name) }

// LoadRecipe reads a recipe: the built-in one called name, or the one in file.
// NotFound when there is none, InvalidArgument when it makes no sense.
func LoadRecipe(name, file string) (Recipe, error) {
	text, err := recipeText(name, file)
	if err != nil {
		return Recipe{}, err
	}
	r, err := ParseRecipe(string(text))
	if err != nil {
		return Recipe{}, fmt.Errorf("recipe of image %q: %w", name, err)
	}
	return r, nil
}

func recipeText(name, file string) ([]byte, error) {
	if file == "" {
		text, err := images.FS.ReadFile(name + recipeSuffix)
		if err != nil {
			return nil, fmt.Errorf("no recipe for image %q, there are %s; name a file with --recipe: %w",
				name, strings.Join(Recipes(), ", "), errdefs.ErrNotFound)
		}
		return text, nil
	}
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("open recipe: %w: %w", err, errdefs.ErrNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("open recipe: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxRecipe+1))
	if err != nil {
		return nil, fmt.Errorf("read recipe: %w", err)
	}
	if len(text) > maxRecipe {
		return nil, fmt.Errorf("recipe %s is longer than %d bytes: %w", file, maxRecipe, errdefs.ErrInvalidArgument)
	}
	return text, nil
}

var (
	suiteName   = regexp.MustCompile(`^[a-z][a-z0-9-]*$`)
	packageName = regexp.MustCompile(`^[a-z0-9][a-z0-9+.:=~-]*$`)
	envEntry    = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*=`)
)

// defaultEnv is what commands get when the recipe does not say. It has no PATH:
// the agent sets one for each user, and root's must not begin with a directory
// that somebody else may write to.
var defaultEnv = []string{"LANG=C.UTF-8"}

// ParseRecipe reads the text form of a recipe.
func ParseRecipe(text string) (Recipe, error) {
	r := Recipe{Components: []string{"main"}, Env: defaultEnv, Workdir: "/workspace"}
	sum := sha256.Sum256([]byte(text))
	r.id = hex.EncodeToString(sum[:])
	fields, err := parseFields(text)
	if err != nil {
		return Recipe{}, err
	}
	for name, value := range fields {
		line := strings.TrimSpace(value)
		switch name {
		case "Description":
			r.Description = line
		case "Suite":
			r.Suite = line
		case "Components":
			r.Components = strings.Fields(value)
		case "Packages":
			r.Packages = strings.Fields(value)
		case "Env":
			r.Env = splitLines(value)
		case "Workdir":
			r.Workdir = line
		case "Setup":
			r.Setup = value
		default:
			return Recipe{}, fmt.Errorf("unknown field %q: %w", name, errdefs.ErrInvalidArgument)
		}
	}
	return r, r.check()
}

// check keeps values from being taken for options or further source lines by
// the programs that they are handed to.
func (r Recipe) check() error {
	bad := func(what, value string) error {
		return fmt.Errorf("bad %s %q: %w", what, value, errdefs.ErrInvalidArgument)
	}
	if !suiteName.MatchString(r.Suite) {
		return bad("Suite", r.Suite)
	}
	for _, c := range r.Components {
		if !suiteName.MatchString(c) {
			return bad("component", c)
		}
	}
	for _, p := range r.Packages {
		if !packageName.MatchString(p) {
			return bad("package", p)
		}
	}
	for _, e := range r.Env {
		if !envEntry.MatchString(e) {
			return bad("Env", e)
		}
	}
	if !strings.HasPrefix(r.Workdir, "/") {
		return bad("Workdir", r.Workdir)
	}
	return nil
}

// parseFields reads "Name: value" fields. The common indentation of a value's
// further lines is taken away.
func parseFields(text string) (map[string]string, error) {
	fields := map[string]string{}
	name := ""
	for n, line := range strings.Split(text, "\n") {
		line = strings.TrimRight(line, "\r")
		switch {
		case strings.HasPrefix(line, "#"):
		case line == "" || line[0] == ' ' || line[0] == '\t':
			if name != "" {
				fields[name] += "\n" + line
			} else if strings.TrimSpace(line) != "" {
				return nil, fmt.Errorf("line %d continues nothing: %w", n+1, errdefs.ErrInvalidArgument)
			}
		default:
			key, value, ok := strings.Cut(line, ":")
			if _, twice := fields[key]; !ok || twice || key == "" {
				return nil, fmt.Errorf("line %d is no field, or one that is there already: %w", n+1, errdefs.ErrInvalidArgument)
			}
			name = key
			fields[name] = strings.TrimSpace(value)
		}
	}
	for name, value := range fields {
		fields[name] = dedent(value)
	}
	return fields, nil
}

// dedent takes the indentation of the first indented line from all lines.
func dedent(value string) string {
	lines := strings.Split(value, "\n")
	indent := ""
	for _, l := range lines[1:] {
		if t := strings.TrimLeft(l, " \t"); t != "" {
			indent = l[:len(l)-len(t)]
			break
		}
	}
	for i, l := range lines[1:] {
		lines[i+1] = strings.TrimPrefix(l, indent)
	}
	return strings.Trim(strings.Join(lines, "\n"), "\n") + "\n"
}

func splitLines(value string) []string {
	var lines []string
	for l := range strings.SplitSeq(value, "\n") {
		if l = strings.TrimSpace(l); l != "" {
			lines = append(lines, l)
		}
	}
	return lines
}
