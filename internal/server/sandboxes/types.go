package sandboxes

import (
	"strconv"
	"time"

	"agentbox/internal/sandbox"
)

// Labels that the door gives a sandbox: those of autocoder, and two in which limits
// stand as they were given.
const (
	labelSandbox = "autocoder.sandbox"
	labelProject = "autocoder.project"
	labelID      = "autocoder.sandbox_id"
	labelMemory  = "autocoder.memory_limit"
	labelCPU     = "autocoder.cpu_limit"
)

// Sandbox is a sandbox as the door shows it.
type Sandbox struct {
	SandboxID      string         `json:"sandbox_id"`
	ContainerID    string         `json:"container_id"` // its 64 hex digits
	ProjectName    string         `json:"project_name"`
	Status         string         `json:"status"`
	CreatedAt      time.Time      `json:"created_at"`
	WorkspacePath  string         `json:"workspace_path"`
	Ports          map[string]int `json:"ports"` // of the host, by those of the sandbox
	ResourceLimits Resources      `json:"resource_limits"`
	// ErrorReason tells why Status is error.
	ErrorReason string `json:"error_reason,omitempty"`
}

// Resources are limits in the form in which they were given.
type Resources struct {
	Memory string `json:"memory"`
	CPU    string `json:"cpu"`
}

// done is the answer to what has no other.
type done struct {
	Success bool   `json:"success"`
	Message string `json:"message"`
}

func sandboxOf(sb *sandbox.Sandbox) Sandbox {
	s := Sandbox{
		SandboxID: idOf(sb), ContainerID: sb.UID, ProjectName: projectOf(sb), Status: statusOf(sb.Status), CreatedAt: sb.Created.UTC(),
		WorkspacePath: sandbox.WorkspacePath, Ports: map[string]int{}, ResourceLimits: resourcesOf(sb),
	}
	for _, p := range sb.Ports {
		s.Ports[strconv.Itoa(int(p.Guest))] = int(p.Host)
	}
	if sb.Status == sandbox.Failed {
		s.ErrorReason = string(sb.Reason)
	}
	return s
}

// idOf is the door's id, of sandboxes of other doors the short one.
func idOf(sb *sandbox.Sandbox) string {
	for _, a := range sb.Aliases {
		if a.Kind == Kind {
			return a.Value
		}
	}
	return sb.Short
}

// isOurs tells the sandboxes that were made by this door.
func isOurs(sb *sandbox.Sandbox) bool { return idOf(sb) != sb.Short }

// projectOf is the project's name, of sandboxes of other doors their own.
func projectOf(sb *sandbox.Sandbox) string {
	if project, ok := sb.Labels[labelProject]; ok {
		return project
	}
	return sb.Name
}

// statusOf is the state in the four words of the contract.
func statusOf(s sandbox.State) string {
	switch s {
	case sandbox.Creating, sandbox.Created:
		return "creating"
	case sandbox.Live, sandbox.Stopping:
		return "running"
	case sandbox.Failed:
		return "error"
	default:
		return "stopped"
	}
}

// resourcesOf are the limits as they were given, unless they are others by now.
func resourcesOf(sb *sandbox.Sandbox) Resources {
	r := Resources{sb.Labels[labelMemory], sb.Labels[labelCPU]}
	if n, err := sandbox.ParseSize("", r.Memory); err != nil || n != sb.Limits.Memory {
		r.Memory = sandbox.FormatSize(sb.Limits.Memory)
	}
	if n, err := strconv.ParseFloat(r.CPU, 64); err != nil || n != sb.Limits.CPUs {
		r.CPU = strconv.FormatFloat(sb.Limits.CPUs, 'f', -1, 64)
	}
	return r
}
