// Package cgroup limits and measures sandboxes with the host's control groups,
// version 1 and 2, as root and as an ordinary user inside a delegated systemd
// unit.
//
// [Detect] finds out what the host allows. [Host.Create] makes one group per
// sandbox, which the sandbox's first process joins ([Group.JoinFiles]) before
// any user code runs. Whatever the guest does, these limits hold.
package cgroup
