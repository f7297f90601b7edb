// Package toyos is a toy Unix that lives in memory: a file system with owners
// and permissions, processes with pipes, signals and a terminal, a small shell
// and a few commands. It is what a guest agent finds in a fake sandbox. It
// never runs a program of the host and never touches its files.
//
// A process is a goroutine. Killing one cancels its context, so each thing that
// can block takes it.
package toyos
