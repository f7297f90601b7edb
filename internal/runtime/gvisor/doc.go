// Package gvisor is the back end that isolates sandboxes with gVisor, a kernel
// in user space. It makes them in the calling process with gVisor's library;
// only the sandbox process itself executes another program, the engine ELF.
//
// # What is on the host
//
//	<Dir>/run/                       gVisor's state files and control sockets
//	<Dir>/sandboxes/<id>/            record.json, the OCI bundle, the panic log
//	<Dir>/sandboxes/<id>/save-<n>/   files of the last stop
//	<Dir>/crashes/                   panic logs of sandboxes that are gone
//
// A sandbox is one process tree in a user namespace of its own, without
// capabilities on the host, without a network device, in its own control group.
// Its root is an EROFS file, its writable layer an unlinked file of limited
// size.
//
// # Who is believed
//
// A record is written before the side effect that it describes, so that a new
// process finds everything that a killed one left. What is alive is told by the
// kernel: a process is held by a pidfd and compared with the recorded start
// time before anything is sent to it.
//
// # The caller's streams
//
// gVisor's library hands the variables os.Stdin, os.Stdout and os.Stderr to
// the sandboxes and changes the owner of the files behind them. For the time of
// Create, Resume and Start these variables therefore name an
// empty file. A program that uses them at the same time keeps copies of its own.
package gvisor
