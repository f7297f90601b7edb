package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// eventRow is one thing that happened to a sandbox.
type eventRow struct {
	Time   time.Time `json:"time"`
	Type   string    `json:"type"`
	Status string    `json:"status"`
	Reason string    `json:"reason"`
	Detail string    `json:"detail"`
}

func (e *eventRow) cells() []string {
	return []string{e.Time.Local().Format(time.DateTime), e.Type, e.Status, e.Reason, e.Detail}
}

func (a *App) eventsCommand() *cobra.Command {
	var f listFlags
	var follow bool
	cmd := &cobra.Command{
		Use:   "events SANDBOX",
		Short: "Show what happened to a sandbox of the server",
		Long: `Show what happened to a sandbox of the server: its states, failures, the memory limit, and
that another server took it over; oldest first. --follow goes on until it is gone.`,
		Example:           "  agentbox events dev\n  agentbox events -f --json dev",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeSandboxes(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			path := inSandbox(args[0], "events")
			if !follow {
				return listed(a, cmd, &f, path, url.Values{}, nil, []string{"TIME", "EVENT", "STATUS", "REASON", "DETAIL"}, (*eventRow).cells)
			}
			r, err := a.remote(cmd)
			if err != nil {
				return err
			}
			ctx, stop := untilSignal(cmd.Context())
			defer stop()
			return a.orInterrupted(ctx, a.followEvents(ctx, r, path, f.json))
		},
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on until the sandbox is gone")
	f.addJSON(cmd)
	return cmd
}

// followEvents prints a line for each event, also of a server that was away.
func (a *App) followEvents(ctx context.Context, r *remote, path string, asJSON bool) error {
	q := request{method: http.MethodGet, path: path + "?follow=1", header: http.Header{}}
	take := func(e event) (bool, error) {
		if e.name == "error" {
			return false, eventError(e.data)
		}
		q.header.Set("Last-Event-ID", e.id)
		var row eventRow
		if err := json.Unmarshal(e.data, &row); err != nil {
			return false, fmt.Errorf("read an event of the server: %w", err)
		}
		gone := row.Status == "destroyed"
		if asJSON {
			return gone, a.printLine(e.data)
		}
		return gone, a.printCells(row.cells())
	}
	err := r.events(ctx, q, take)
	for goesOn(err) && ctx.Err() == nil {
		err = r.eventsAgain(ctx, q, take)
	}
	return err
}

// printCells prints one line of a list that goes on.
func (a *App) printCells(cells []string) error {
	for i := range cells {
		cells[i] = visible(cells[i])
	}
	_, err := fmt.Fprintln(a.Stdout, strings.TrimRight(strings.Join(cells, "   "), " "))
	return err
}
