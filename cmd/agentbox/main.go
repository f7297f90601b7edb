// Command agentbox is the command line.
package main

import (
	"context"
	"io"
	"log"
	"os"

	"agentbox/internal/cli"
)

func main() {
	keepFiles()
	// net/http logs by itself what a server says out of turn, and a sandbox chooses
	// the server. What agentbox has to say has loggers of its own.
	log.SetOutput(io.Discard)
	app := &cli.App{Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Local: backend()}
	os.Exit(app.Main(context.Background(), os.Args[1:]))
}
