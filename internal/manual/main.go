// Command manual writes what a package ships beside the program, from the commands
// themselves: pages of the manual and completions of three shells.
//
//	go run ./internal/manual DIR
//
// makes DIR/man1/*.1 and DIR/agentbox.bash, DIR/_agentbox, DIR/agentbox.fish. The pages
// have the date of SOURCE_DATE_EPOCH, so that the same source gives the same bytes.
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"agentbox/internal/cli"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: manual DIR")
		os.Exit(2)
	}
	if err := write(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "manual:", err)
		os.Exit(1)
	}
}

func write(dir string) error {
	pages := filepath.Join(dir, "man1")
	if err := os.MkdirAll(pages, 0o755); err != nil {
		return err
	}
	root := (&cli.App{}).Command()
	root.InitDefaultCompletionCmd()
	root.DisableAutoGenTag = true // it says when it was made
	if err := doc.GenManTree(root, &doc.GenManHeader{Section: "1", Source: "agentbox", Manual: "agentbox"}, pages); err != nil {
		return fmt.Errorf("write the manual: %w", err)
	}
	return completions(root, dir)
}

func completions(root *cobra.Command, dir string) error {
	return errors.Join(
		root.GenBashCompletionFileV2(filepath.Join(dir, "agentbox.bash"), true),
		root.GenZshCompletionFile(filepath.Join(dir, "_agentbox")),
		root.GenFishCompletionFile(filepath.Join(dir, "agentbox.fish"), true),
	)
}
