package agentbox_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	agentbox "agentbox/sdk/go"
)

// newBox is what the examples begin with, and end is how they end.
func newBox(ctx context.Context) (box *agentbox.Box, end func()) {
	client, err := agentbox.NewClient()
	if err != nil {
		log.Fatal(err)
	}
	if box, err = client.Create(ctx, agentbox.CreateOptions{}); err != nil {
		log.Fatal(err)
	}
	return box, func() {
		if err := box.Destroy(ctx); err != nil {
			log.Fatal(err)
		}
		client.Close()
	}
}

func ExampleBox_Exec() {
	ctx := context.Background()
	box, end := newBox(ctx)
	defer end()
	result, err := box.Exec(ctx, agentbox.Command{Line: "python3 -c 'print(6*7)'; exit 3", Timeout: time.Minute})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Print(result.Stdout, result.Err())
	// Output:
	// 42
	// the command ended with 3
}

func ExampleBox_Stream() {
	ctx := context.Background()
	box, end := newBox(ctx)
	defer end()
	for event, err := range box.Stream(ctx, agentbox.Sh("for i in 1 2 3; do echo $i; done")) {
		if err != nil {
			log.Fatal(err)
		}
		switch event.Kind {
		case agentbox.Stdout:
			os.Stdout.Write(event.Data)
		case agentbox.Exited:
			fmt.Println("ended with", event.Result.ExitCode)
		}
	}
	// Output:
	// 1
	// 2
	// 3
	// ended with 0
}

func ExampleBox_Background() {
	ctx := context.Background()
	box, end := newBox(ctx)
	defer end()
	process, err := box.Background(ctx, agentbox.Sh("echo working; sleep 1; echo done"))
	if err != nil {
		log.Fatal(err)
	}
	var seen agentbox.Position
	for event, err := range process.Attach(ctx, agentbox.Position{}) {
		if err != nil {
			log.Fatal(err)
		}
		if seen = event.At; event.Kind == agentbox.Stdout {
			break // the command goes on
		}
	}
	// Later, maybe in another program: the id and how much of the output was seen are enough.
	result, err := box.Process(process.ID()).Copy(ctx, seen, os.Stdout, os.Stderr)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(result.ExitCode)
	// Output:
	// done
	// 0
}

func ExampleFiles() {
	ctx := context.Background()
	box, end := newBox(ctx)
	defer end()
	if err := box.Files.Write(ctx, "notes/a.txt", []byte("hello\n"), agentbox.WriteOptions{}); err != nil {
		log.Fatal(err)
	}
	text, err := box.Files.ReadText(ctx, "notes/a.txt")
	if err != nil {
		log.Fatal(err)
	}
	_, err = box.Files.Read(ctx, "notes/b.txt")
	fmt.Print(text, errors.Is(err, agentbox.ErrNotFound))
	// Output:
	// hello
	// true
}
