package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version is set by the linker.
var version = "dev"

// Programs are the two programs that a build has for sandboxes.
type Programs struct {
	// Engine and Guest are their builds, by which they are told apart on the disk.
	Engine, Guest string
	// Embedded: they are in this executable, and not files beside it.
	Embedded bool
}

// versionInfo is what version tells.
type versionInfo struct {
	Version  string `json:"version"`
	Engine   string `json:"engine"` // version of gVisor
	Go       string `json:"go"`
	Platform string `json:"platform"`
	// Builds of the two programs; empty: this build has none.
	EngineBuild string `json:"engine_build"`
	GuestBuild  string `json:"guest_build"`
	Embedded    bool   `json:"embedded"`
}

func (a *App) versionCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the versions of agentbox, of its engine and of its guest agent",
		Long: `Print the version of agentbox, that of gVisor in its engine, the builds of the two
programs that it lays out below its data directory for sandboxes (engine/BUILD and
guest/BUILD there), and whether they are embedded in this executable. A sandbox keeps
the builds that it was started with.`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			v := a.versionInfo()
			if asJSON {
				return a.printJSON(v)
			}
			_, err := fmt.Fprint(a.Stdout, v.text())
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func (a *App) versionInfo() *versionInfo {
	v := &versionInfo{Version: version, Engine: engineVersion(), Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if a.Local == nil {
		return v
	}
	p, err := a.Local.Programs()
	if err != nil { // a build without its programs has a version, too
		return v
	}
	v.EngineBuild, v.GuestBuild, v.Embedded = p.Engine, p.Guest, p.Embedded
	return v
}

func (v *versionInfo) text() string {
	where := func(build string) string {
		switch {
		case build == "":
			return "not here"
		case v.Embedded:
			return "build " + build + ", embedded"
		default:
			return "build " + build + ", not embedded"
		}
	}
	return fmt.Sprintf("agentbox %s (%s)\nengine   gVisor %s, %s\nguest    %s\nbuilt by %s\n", v.Version, v.Platform, v.Engine, where(v.EngineBuild), where(v.GuestBuild), v.Go)
}

// engineVersion is that of the gVisor module this binary was built with.
func engineVersion() string {
	bi, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	for _, m := range bi.Deps {
		if m.Path == "gvisor.dev/gvisor" {
			return m.Version
		}
	}
	return "none"
}
