// Quickstart makes a sandbox, runs a program in it, follows another one, and moves files.
// AGENTBOX_URL and AGENTBOX_API_KEY say which server it is.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	agentbox "agentbox/sdk/go"
)

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	client, err := agentbox.NewClient()
	if err != nil {
		return err
	}
	defer client.Close()
	box, err := client.Create(ctx, agentbox.CreateOptions{IdleTimeout: 10 * time.Minute})
	if err != nil {
		return err
	}
	defer box.Destroy(ctx) //nolint:errcheck // it would end by itself

	program := []byte("import sys\nprint('hello from', sys.version.split()[0])\n")
	if err := box.Files.Write(ctx, "hello.py", program, agentbox.WriteOptions{}); err != nil {
		return err
	}
	result, err := box.Exec(ctx, agentbox.Program("python3", "hello.py"))
	if err != nil {
		return err
	}
	if err := result.Err(); err != nil {
		return fmt.Errorf("%w: %s", err, result.Stderr)
	}
	fmt.Print(result.Stdout)

	// The output of a longer command comes as it is written.
	if _, err := box.Run(ctx, agentbox.Sh("for i in 1 2 3; do echo step $i; sleep 0.1; done"), os.Stdout, os.Stderr); err != nil {
		return err
	}

	// A command in the background, whose end is waited for later.
	job, err := box.Background(ctx, agentbox.Sh("uname -s >kernel.txt"))
	if err != nil {
		return err
	}
	if _, err := job.Wait(ctx); err != nil {
		return err
	}
	kernel, err := box.Files.ReadText(ctx, "kernel.txt")
	if err != nil {
		return err
	}
	fmt.Print("it runs ", kernel)
	return nil
}
