// Package agentbox is the client of an agentbox server: it makes sandboxes and runs
// commands, moves files and opens ports in them.
//
//	client, err := agentbox.NewClient() // AGENTBOX_URL and AGENTBOX_API_KEY
//	box, err := client.Create(ctx, agentbox.CreateOptions{})
//	defer box.Destroy(ctx)
//	result, err := box.Exec(ctx, agentbox.Sh("python3 -c 'print(6*7)'"))
//	fmt.Print(result.Stdout)
//
// A command that fails is a result and no error: see [Result.Err]. What the server
// refuses is an [*Error], which errors.Is compares with [ErrNotFound] and the like.
//
// A request is sent again only where that can't do a thing twice: questions, what is
// sent with a key of idempotency (the client makes one for what creates and for commands in
// the background, for others where they ask for it), and what the server says it did not do. Contents, such as uploads, are
// sent once.
//
// The documented gRPC interface, with sessions, is the package agentbox/sdk/go/sandbox.
package agentbox
