// Package pid1 is the first process of a Linux sandbox: it gives the agent its
// launcher and its files, reaps every process and takes streams from the host.
//
// # What the sandbox must provide
//
// Process: arguments "guest init", file descriptor 3 = the host's socket,
// noNewPrivileges false (the agent sets it for each command), working directory
// "/". Capabilities, permitted and effective: SETUID, SETGID, SETPCAP, KILL,
// CHOWN, FOWNER, DAC_OVERRIDE, SYS_ADMIN (host name after a restore, hiding the
// cgroup tree, no RLIMIT_NPROC for the agent itself), SYS_PTRACE (whose sockets
// listen) and SYS_RESOURCE (limits of commands that are above those of the
// agent). No command gets SYS_ADMIN, SYS_PTRACE or SYS_RESOURCE. Bounding set: the same and what
// a command of guest root may have (RootCapabilities). Inheritable and ambient:
// none.
//
// Mounts: /proc, /dev with devpts, /run as tmpfs, and a cgroup file system of
// version 2 at /sys/fs/cgroup (gVisor: type "cgroup", in-sandbox-cgroup=v2, a
// cgroup namespace of its own). The agent hides that mount once it holds it.
//
// Resource limits: RLIMIT_NOFILE (soft and hard) = the limit of open files, at
// least 1,024; no RLIMIT_NPROC.
package pid1
