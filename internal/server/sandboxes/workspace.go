package sandboxes

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"

	"github.com/containerd/errdefs"

	"agentbox/internal/sandbox"
)

// A workspace is a volume of its owner. Its name tells the project, so that it is
// found again: autocoder-PROJECT-sandbox-XXXXXXXX.
const (
	workspacePrefix = "autocoder-"
	idLen           = len("sandbox-00000000")
	// maxProject is the longest name of a project that stands there as it is: names
	// of volumes have at most 128 bytes.
	maxProject = 96
)

func workspaceName(project, id string) string { return workspacePrefix + short(project) + "-" + id }

// short is a project's name, with a hash in place of the end of a long one.
func short(project string) string {
	if len(project) <= maxProject {
		return project
	}
	sum := sha256.Sum256([]byte(project))
	return project[:maxProject-33] + "." + hex.EncodeToString(sum[:16])
}

// isWorkspace reports whether a volume is one of a project.
func isWorkspace(name, project string) bool {
	rest, ok := strings.CutPrefix(name, workspacePrefix+short(project)+"-")
	return ok && isID(rest)
}

// isID: "sandbox-" and 8 hex digits.
func isID(s string) bool {
	digits, ok := strings.CutPrefix(s, "sandbox-")
	return ok && len(s) == idLen && strings.Trim(digits, "0123456789abcdef") == ""
}

// kept are the workspaces of a project that no sandbox has, the newest first.
func (d *door) kept(ctx context.Context, owner, project string) ([]string, error) {
	all, err := d.Volumes.List(ctx, owner)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(all, func(a, b sandbox.Volume) int { return b.Created.Compare(a.Created) })
	var names []string
	for _, v := range all {
		if !isWorkspace(v.Name, project) {
			continue
		}
		holders, err := d.Volumes.Holders(ctx, owner, v.Name)
		if err != nil && !errdefs.IsNotFound(err) {
			return nil, err
		}
		if err == nil && len(holders) == 0 {
			names = append(names, v.Name)
		}
	}
	return names, nil
}

// workspaceOf is the volume that is a sandbox's workspace, and was made for that;
// empty: it has none. What another door mounted there is not this door's to remove.
func workspaceOf(sb *sandbox.Sandbox) string {
	for _, v := range sb.Volumes {
		if project, ok := sb.Labels[labelProject]; ok && v.Path == sandbox.WorkspacePath && isWorkspace(v.Name, project) {
			return v.Name
		}
	}
	return ""
}
