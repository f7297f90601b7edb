// Package cgroup limits and measures sandboxes with the host's control groups,
// version 1 and 2, as root and as an ordinary user inside a delegated systemd
// unit.
//
// [Detect] finds out what the host allows. [Host.Create] makes one group per
// sandbox, in which its processes are born ([Group.Enter], version 1) or to
// which they are moved before any user code runs ([Group.Add], version 2).
// Whatever the guest does, these limits hold.
package cgroup
