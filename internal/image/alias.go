package image

import "strings"

// Alias is a name under which commands run in an image of another name, with a
// user, a directory and an environment of its own: names that clients of other
// systems ask for, and what those promise.
type Alias struct {
	Name    string
	Image   string // name of an image, with a recipe of its own
	User    string // owns /workspace and the directories of user data
	Workdir string
	Env     []string // replaces entries of the image's
}

const tools = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// aliases is the one table of them. The users are made by images/base.sh.
var aliases = []Alias{
	// Python, pip, git and curl; user agent.
	{
		Name: "qagi/agent-sandbox:latest", Image: "default", User: "agent", Workdir: "/workspace",
		Env: []string{"PATH=/home/agent/.local/bin:" + tools},
	},
	// Python 3.13, the GNU tools, git, jq, tree, vim, less; root inside.
	{
		Name: "agentbox-sandbox:latest", Image: "default", User: "root", Workdir: "/workspace",
		Env: []string{"PATH=/root/.local/bin:" + tools},
	},
	// Node 20, npm, pnpm, Python, build tools, CMake, editors, network tools.
	{
		Name: "autocoder-sandbox:latest", Image: "workbench", User: "sandbox", Workdir: "/workspace",
		Env: []string{"PATH=/home/sandbox/.local/bin:" + tools},
	},
	// Node 20, Python, make, g++, jq, an English locale; for jobs without a
	// terminal.
	{
		Name: "vana-agent-sandbox:latest", Image: "workbench", User: "appuser", Workdir: "/workspace",
		Env: []string{
			"PATH=/home/appuser/.local/bin:" + tools, "HOME=/home/appuser", "USER=appuser", "LANG=en_US.UTF-8",
			"CI=1", "NO_COLOR=1", "NPM_CONFIG_UPDATE_NOTIFIER=false",
		},
	},
}

// Aliases are all of them.
func Aliases() []Alias { return append([]Alias(nil), aliases...) }

// FindAlias finds the alias that a name stands for. A name without a tag is that
// of the tag latest.
func FindAlias(name string) (Alias, bool) {
	if i := strings.LastIndexByte(name, ':'); i < 0 || strings.Contains(name[i:], "/") {
		name += ":latest"
	}
	for _, a := range aliases {
		if a.Name == name {
			return a, true
		}
	}
	return Alias{}, false
}

// OwnedDirs are the directories of every image that belong to the user that
// commands run as. In an image they are UserID's.
var OwnedDirs = []string{"/workspace", "/mnt/user-data/outputs", "/mnt/user-data/uploads"}
