package cli

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// completeWithin is how long the shell waits for what could come next.
const completeWithin = 2 * time.Second

type completer = func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective)

// completeSandboxes offers the names of the server's sandboxes for the first n
// arguments; 0: for all.
func (a *App) completeSandboxes(n int) completer {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if n > 0 && len(args) >= n {
			return nil, cobra.ShellCompDirectiveDefault
		}
		r, err := a.remote(cmd)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(context.Background(), completeWithin)
		defer cancel()
		names, _ := r.names(ctx)                                                         // none is no completion
		names = slices.DeleteFunc(names, func(n string) bool { return n != visible(n) }) // not for a shell to see
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// completeHosts offers a sandbox, then the requests that it was denied and nobody
// decided on; with listed also what is on its list.
func (a *App) completeHosts(listed bool) completer {
	return func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
		if len(args) == 0 {
			return a.completeSandboxes(1)(cmd, args, word)
		}
		r, err := a.remote(cmd)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(context.Background(), completeWithin)
		defer cancel()
		var n networkRow
		_ = r.call(ctx, http.MethodGet, inSandbox(args[0], "network"), nil, &n) // none is no completion
		var words []string
		for _, q := range n.Requests {
			words = append(words, visible(q.ID)+"\t"+visible(q.Host))
		}
		for _, host := range n.Allow {
			if listed && host == visible(host) { // not for a shell to see
				words = append(words, host)
			}
		}
		return words, cobra.ShellCompDirectiveNoFileComp
	}
}

// completeServerImages offers the images that the server has.
func (a *App) completeServerImages(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return completeNames(a, cmd, "/images", func(i *imageRow) string { return i.Name })
}

// completeNames offers the names of what is in a list of the server.
func completeNames[T any](a *App, cmd *cobra.Command, path string, name func(*T) string) ([]string, cobra.ShellCompDirective) {
	r, err := a.remote(cmd)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := context.WithTimeout(context.Background(), completeWithin)
	defer cancel()
	all, _ := pages[T](ctx, r, path, url.Values{}) // none is no completion
	var names []string
	for i := range all {
		if n := name(&all[i]); n == visible(n) { // not for a shell to see
			names = append(names, n)
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// completeWords offers the values that a flag may have, and never files.
func completeWords(cmd *cobra.Command, flag string, words ...string) {
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)) // the flag is there
}

// completeExecs offers a sandbox, then the ids of its commands.
func (a *App) completeExecs(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return a.completeSandboxes(1)(cmd, args, word)
	}
	r, err := a.remote(cmd)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := context.WithTimeout(context.Background(), completeWithin)
	defer cancel()
	all, _ := pages[execRow](ctx, r, inSandbox(args[0], "execs"), url.Values{}) // none is no completion
	var words []string
	for i := range all {
		if id := all[i].ExecID; id != visible(id) { // not for a shell to see
			continue
		}
		words = append(words, all[i].ExecID+"\t"+visible(clip(strings.Join(all[i].Command, " "), maxCell)))
	}
	return words, cobra.ShellCompDirectiveNoFileComp
}

// completeFiles offers a sandbox, then the files in it.
func (a *App) completeFiles(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return a.completeSandboxes(1)(cmd, args, word)
	}
	r, err := a.remote(cmd)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	dir := word[:strings.LastIndexByte(word, '/')+1]
	query := url.Values{}
	if dir != "" {
		query.Set("path", dir)
	}
	ctx, cancel := context.WithTimeout(context.Background(), completeWithin)
	defer cancel()
	var page struct{ Items []fileRow }
	_ = r.call(ctx, http.MethodGet, inSandbox(args[0], "files", "list")+"?"+query.Encode(), nil, &page) // none is no completion
	var words []string
	for i := range page.Items {
		f := &page.Items[i]
		if f.Name != visible(f.Name) { // not for a shell to see
			continue
		}
		end := ""
		if f.Type == "dir" {
			end = "/"
		}
		words = append(words, dir+f.Name+end)
	}
	return words, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}

// completeCopy offers SANDBOX: beside files of this machine.
func (a *App) completeCopy(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	if strings.ContainsAny(word, "/.:") {
		return nil, cobra.ShellCompDirectiveDefault
	}
	names, _ := a.completeSandboxes(0)(cmd, args, word)
	var words []string
	for _, n := range names {
		if strings.HasPrefix(n, word) {
			words = append(words, n+":")
		}
	}
	if len(words) == 0 {
		return nil, cobra.ShellCompDirectiveDefault
	}
	return words, cobra.ShellCompDirectiveNoSpace
}
