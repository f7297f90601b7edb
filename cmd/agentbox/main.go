// Command agentbox is the command line.
package main

import (
	"context"
	"os"

	"agentbox/internal/cli"
)

func main() {
	keepFiles()
	app := &cli.App{Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Local: backend()}
	os.Exit(app.Main(context.Background(), os.Args[1:]))
}
