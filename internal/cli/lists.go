package cli

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"

	"github.com/spf13/cobra"
)

// listFlags are the options of commands that list something.
type listFlags struct{ json, quiet bool }

func (f *listFlags) add(cmd *cobra.Command) {
	f.addJSON(cmd)
	cmd.Flags().BoolVarP(&f.quiet, "quiet", "q", false, "print ids only")
	cmd.MarkFlagsMutuallyExclusive("json", "quiet")
}

func (f *listFlags) addJSON(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.json, "json", false, "print JSON, as the server has it")
}

// listed prints a list of the server: its own objects, ids, or a table.
func listed[T any](a *App, cmd *cobra.Command, f *listFlags, path string, query url.Values, id func(*T) string, headers []string, cells func(*T) []string) error {
	r, err := a.remote(cmd)
	if err != nil {
		return err
	}
	raw, err := pages[json.RawMessage](cmd.Context(), r, path, query)
	if err != nil {
		return err
	}
	return printList(a, f, raw, id, headers, cells)
}

func printList[T any](a *App, f *listFlags, raw []json.RawMessage, id func(*T) string, headers []string, cells func(*T) []string) error {
	if f.json {
		return a.printJSON(raw)
	}
	rows := make([]T, len(raw))
	for i := range raw {
		if err := json.Unmarshal(raw[i], &rows[i]); err != nil {
			return fmt.Errorf("read the server's answer: %w", err)
		}
	}
	if f.quiet {
		for i := range rows {
			fmt.Fprintln(a.Stdout, visible(id(&rows[i])))
		}
		return nil
	}
	t := a.table(headers...)
	for i := range rows {
		t.row(cells(&rows[i])...)
	}
	return t.flush()
}

// shown prints one object of the server as JSON, or decodes it into v.
func (a *App) shown(cmd *cobra.Command, r *remote, path string, asJSON bool, v any) error {
	var raw json.RawMessage
	if err := r.call(cmd.Context(), http.MethodGet, path, nil, &raw); err != nil {
		return err
	}
	if asJSON {
		return a.printJSON(raw)
	}
	if err := json.Unmarshal(raw, v); err != nil {
		return fmt.Errorf("read the answer of %s: %w", r.where, err)
	}
	return nil
}
