// Session does with the gRPC interface what its documented examples do. The first argument
// is the server's URL; without one it is http://localhost:50051.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"strings"

	"agentbox/sdk/go/sandbox"
	sandboxv1 "agentbox/sdk/go/sandbox/v1"
)

func main() {
	url := ""
	if len(os.Args) > 1 {
		url = os.Args[1]
	}
	if err := run(context.Background(), url); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, url string) error {
	box := sandbox.New(url)
	defer box.Close()
	info, err := box.Create(ctx, sandbox.Options{})
	if err != nil {
		return err
	}
	defer box.Destroy(ctx) //nolint:errcheck // it would end by itself
	fmt.Println("session", info.GetSessionId(), "container", info.GetContainerId(), "hosts", strings.Join(info.GetAllowedHosts(), " "))

	version, err := box.Exec(ctx, "python3 --version", sandbox.ExecOptions{})
	if err != nil {
		return err
	}
	fmt.Print(version.GetStdout())

	if err := box.WriteFile(ctx, "hello.py", "print('Hello from the sandbox!')\n", "w"); err != nil {
		return err
	}
	text, err := box.ReadFile(ctx, "hello.py")
	if err != nil {
		return err
	}
	fmt.Print(text)
	for message, err := range box.ExecStream(ctx, "python3 hello.py; uname -r", "") {
		if err != nil {
			return err
		}
		fmt.Print(message.GetData())
	}
	all, err := box.Client().ListSessions(ctx, &sandboxv1.ListSessionsRequest{})
	if err != nil {
		return err
	}
	fmt.Println(len(all.GetSessions()) > 0)
	return nil
}
