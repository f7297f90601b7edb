package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/spf13/cobra"
)

// findFlags bound a search.
type findFlags struct {
	filesFlags
	listFlags
	exclude []string
	limit   int
}

func (f *findFlags) add(cmd *cobra.Command) {
	f.filesFlags.add(cmd)
	f.addPaths(cmd)
	cmd.Flags().StringArrayVar(&f.exclude, "exclude", nil, "leave out what matches, with what is in it (repeatable)")
	cmd.Flags().IntVarP(&f.limit, "limit", "n", 1000, "how much is found, at most; up to 10000")
}

func (f *findFlags) query(path string) url.Values {
	q := f.filesFlags.query(path)
	q["exclude"] = f.exclude
	q.Set("limit", strconv.Itoa(f.limit))
	return q
}

// found is what a search gives.
type found struct {
	Items     []json.RawMessage `json:"items"`
	Truncated string            `json:"truncated"`
}

// search asks for what matches and says when that is not all.
func (a *App) search(cmd *cobra.Command, path string, f *findFlags, print func(items []json.RawMessage) error) error {
	r, err := a.remote(cmd)
	if err != nil {
		return err
	}
	var raw json.RawMessage
	if err := r.call(cmd.Context(), http.MethodGet, path, nil, &raw); err != nil {
		return err
	}
	if f.json {
		return a.printJSON(raw)
	}
	var all found
	if err := json.Unmarshal(raw, &all); err != nil {
		return fmt.Errorf("read the answer of %s: %w", r.where, err)
	}
	if err := print(all.Items); err != nil {
		return err
	}
	if all.Truncated != "" {
		a.warn(fmt.Errorf("there may be more: the bound of %s was reached", all.Truncated))
	}
	return nil
}

func (a *App) filesFind() *cobra.Command {
	var f findFlags
	cmd := &cobra.Command{
		Use: "find SANDBOX PATTERN [DIR]", Short: "Find files by their names",
		Long:    "Find files below a directory by their names: * and ? stand for anything but /, ** for any\ndirectories; there are [a-z], [!a-z] and {one,other}.",
		Example: "  agentbox files find dev '**/*.{py,toml}' src --exclude node_modules",
		Args:    cobra.RangeArgs(2, 3),
		RunE: func(cmd *cobra.Command, args []string) error {
			q := f.query(second(args[1:]))
			q.Set("pattern", args[1])
			return a.search(cmd, inSandbox(args[0], "files", "glob")+"?"+q.Encode(), &f, func(items []json.RawMessage) error {
				return printList(a, &f.listFlags, items, (*fileRow).path, fileHeaders, func(e *fileRow) []string { return e.cells(e.Path) })
			})
		},
	}
	f.add(cmd)
	return cmd
}

// lineRow is a line that matches.
type lineRow struct {
	Path   string   `json:"path"`
	Line   int      `json:"line"`
	Text   string   `json:"text"`
	Before []string `json:"before"`
	After  []string `json:"after"`
}

func (a *App) filesGrep() *cobra.Command {
	var f findFlags
	var include []string
	var literal, ignoreCase bool
	var around int
	cmd := &cobra.Command{
		Use: "grep SANDBOX PATTERN [DIR]", Short: "Find lines in files",
		Long: `Find lines that match an expression of RE2 in the files below a directory. Binary files
are left out. The exit status is 1 when nothing was found.`,
		Example: "  agentbox files grep dev 'TODO|FIXME' src --include '*.go' -C 2",
		Args:    cobra.RangeArgs(2, 3),
		RunE: func(cmd *cobra.Command, args []string) error {
			q := f.query(second(args[1:]))
			q.Set("pattern", args[1])
			q["include"] = include
			for name, on := range map[string]bool{"literal": literal, "ignore_case": ignoreCase} {
				if on {
					q.Set(name, "1")
				}
			}
			if around > 0 {
				q.Set("context", strconv.Itoa(around))
			}
			if f.quiet {
				q.Set("limit_per_file", "1")
			}
			return a.search(cmd, inSandbox(args[0], "files", "search")+"?"+q.Encode(), &f, func(items []json.RawMessage) error {
				return a.printLines(items, f.quiet, around > 0)
			})
		},
	}
	f.add(cmd)
	fl := cmd.Flags()
	fl.StringArrayVar(&include, "include", nil, "only files that match (repeatable)")
	fl.BoolVarP(&literal, "fixed-strings", "F", false, "the pattern is no expression")
	fl.BoolVarP(&ignoreCase, "ignore-case", "i", false, "capital letters are as small ones")
	fl.IntVarP(&around, "context", "C", 0, "lines before and after, up to 10")
	return cmd
}

// printLines prints matches in the form of grep -n.
func (a *App) printLines(items []json.RawMessage, pathsOnly, apart bool) error {
	for i, raw := range items {
		var l lineRow
		if err := json.Unmarshal(raw, &l); err != nil {
			return fmt.Errorf("read the server's answer: %w", err)
		}
		if pathsOnly {
			fmt.Fprintln(a.Stdout, visible(l.Path))
			continue
		}
		if apart && i > 0 {
			fmt.Fprintln(a.Stdout, "--")
		}
		line := func(n int, mark, text string) {
			fmt.Fprintf(a.Stdout, "%s%s%d%s%s\n", visible(l.Path), mark, n, mark, visible(text))
		}
		for j, text := range l.Before {
			line(l.Line-len(l.Before)+j, "-", text)
		}
		line(l.Line, ":", l.Text)
		for j, text := range l.After {
			line(l.Line+1+j, "-", text)
		}
	}
	if len(items) == 0 {
		return exitStatus(1)
	}
	return nil
}

func (a *App) filesWatch() *cobra.Command {
	var f filesFlags
	var l listFlags
	var recursive bool
	cmd := &cobra.Command{
		Use: "watch SANDBOX [DIR]", Short: "Follow the changes in a directory",
		Long: "Follow the changes in a directory until Ctrl-C, or until it is gone. \"overflow\" says that\nsomething was missed.",
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := a.remote(cmd)
			if err != nil {
				return err
			}
			q := f.query(second(args))
			if recursive {
				q.Set("recursive", "1")
			}
			ctx, stop := untilSignal(cmd.Context())
			defer stop()
			return a.orInterrupted(ctx, a.watchFiles(ctx, r, inSandbox(args[0], "files", "watch")+"?"+q.Encode(), l.json))
		},
	}
	f.add(cmd)
	l.addJSON(cmd)
	cmd.Flags().BoolVarP(&recursive, "recursive", "r", false, "directories below, too")
	return cmd
}

func (a *App) watchFiles(ctx context.Context, r *remote, path string, asJSON bool) error {
	err := r.events(ctx, request{method: http.MethodGet, path: path}, func(e event) (bool, error) {
		var c struct {
			Path string          `json:"path"`
			Name string          `json:"name"`
			File json.RawMessage `json:"file"`
		}
		switch e.name {
		case "error":
			return false, eventError(e.data)
		case "ready":
			fmt.Fprintln(a.Stderr, "agentbox: watching; Ctrl-C ends")
			return false, nil
		case "end":
			return true, nil
		}
		if err := json.Unmarshal(e.data, &c); err != nil {
			return false, fmt.Errorf("read an event of the server: %w", err)
		}
		if asJSON {
			text, err := json.Marshal(map[string]any{"event": e.name, "path": c.Path, "name": c.Name, "file": c.File})
			if err != nil {
				return false, err
			}
			return false, a.printLine(text)
		}
		return false, a.printCells([]string{time.Now().Format(time.TimeOnly), e.name, c.Path})
	})
	if goesOn(err) {
		err = errors.New("the server went away; what changed meanwhile is not known: watch again")
	}
	return err
}
