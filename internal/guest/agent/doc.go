// Package agent is the agent in a sandbox, free of any platform: it serves the
// guest protocol over a Launcher that starts commands and Files that it reads
// and writes. Package pid1 gives it those of a Linux sandbox; a fake back end
// gives it an in-memory file system and a few built-in commands.
//
// The agent holds every command with its output and result, whoever is
// connected. A session is one connection of the host; it comes and goes.
package agent
