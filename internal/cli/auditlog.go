package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// auditRow is a record of the audit log.
type auditRow struct {
	Time    time.Time         `json:"time"`
	Action  string            `json:"action"`
	Owner   string            `json:"owner"`
	KeyID   string            `json:"key_id"`
	Sandbox string            `json:"sandbox"`
	Details map[string]string `json:"details"`
	Result  string            `json:"result"`
}

var auditHeaders = []string{"TIME", "ACTION", "OWNER", "KEY", "SANDBOX", "RESULT", "DETAILS"}

func (r *auditRow) cells() []string {
	var details []string
	for _, name := range slices.Sorted(maps.Keys(r.Details)) {
		details = append(details, name+"="+r.Details[name])
	}
	return []string{r.Time.Local().Format(time.DateTime), r.Action, r.Owner, r.KeyID, r.Sandbox[:min(len(r.Sandbox), shortID)], r.Result, clip(strings.Join(details, " "), maxDetails)}
}

const (
	// shortID is the length of a short id.
	shortID = 12
	// maxDetails bounds the details in a table, in bytes.
	maxDetails = 120
	// auditEvery is how often --follow asks for new records.
	auditEvery = time.Second
)

// auditFlags are the options of agentbox audit.
type auditFlags struct {
	listFlags
	since, action, sandbox string
	limit                  int
	all, follow            bool
}

func (a *App) auditCommand() *cobra.Command {
	var f auditFlags
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "Show who did what on the server",
		Long: `Show the server's records of your key's owner: who made, used, stopped and destroyed
sandboxes, read and wrote files, and what was refused; oldest first. An admin's key
shows those of all owners with --all. --follow goes on.`,
		Example: `  agentbox audit --since 1h
  agentbox audit --action exec --sandbox dev
  agentbox audit -f --json | jq .action`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, err := a.remote(cmd)
			if err != nil {
				return err
			}
			ctx, stop := untilSignal(cmd.Context())
			defer stop()
			return a.orInterrupted(ctx, a.audit(ctx, r, &f))
		},
	}
	fl := cmd.Flags()
	fl.SortFlags = false
	fl.StringVar(&f.since, "since", "", "only since this time: 30m and 24h ago, or 2026-01-31T12:00:00Z")
	fl.StringVar(&f.action, "action", "", "only this action, such as create, exec, file_write, auth_refused")
	fl.StringVar(&f.sandbox, "sandbox", "", "only what concerns this sandbox, by its name or id")
	fl.IntVarP(&f.limit, "limit", "n", 100, "the last so many; 0: all")
	fl.BoolVar(&f.all, "all", false, "of all owners, for admins")
	fl.BoolVarP(&f.follow, "follow", "f", false, "go on with what comes")
	f.addJSON(cmd)
	_ = cmd.RegisterFlagCompletionFunc("sandbox", a.completeSandboxes(0)) // the flag is there
	return cmd
}

// query is what to ask for.
func (f *auditFlags) query(ctx context.Context, r *remote, now time.Time) (url.Values, error) {
	q := url.Values{}
	if f.since != "" {
		t, err := parseSince(f.since, now)
		if err != nil {
			return nil, err
		}
		q.Set("since", t.UTC().Format(time.RFC3339Nano))
	}
	if f.action != "" {
		q.Set("action", f.action)
	}
	if f.all {
		q.Set("all", "true")
	}
	if f.sandbox != "" {
		q.Set("sandbox", f.sandbox)
		var b sandboxRow // records have the id, also of what is gone
		if err := r.call(ctx, http.MethodGet, inSandbox(f.sandbox), nil, &b); err == nil {
			q.Set("sandbox", b.ID)
		}
	}
	return q, nil
}

// parseSince reads a time, or how long it is ago.
func parseSince(s string, now time.Time) (time.Time, error) {
	if d, err := time.ParseDuration(s); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	for _, layout := range []string{time.RFC3339, time.DateTime, time.DateOnly} {
		if t, err := time.ParseInLocation(layout, s, time.Local); err == nil {
			return t, nil
		}
	}
	return time.Time{}, fmt.Errorf("invalid --since %q: allowed is a time such as 2026-01-31T12:00:00Z, or how long ago, such as 30m", s)
}

func (a *App) audit(ctx context.Context, r *remote, f *auditFlags) error {
	q, err := f.query(ctx, r, time.Now())
	if err != nil {
		return err
	}
	newest, from, err := newestRecords(ctx, r, q, f.limit)
	if err != nil {
		return err
	}
	last := newest
	if f.limit > 0 {
		last = last[:min(len(last), f.limit)]
	}
	last = slices.Clone(last)
	slices.Reverse(last)
	if !f.follow {
		return printList(a, &f.listFlags, last, nil, auditHeaders, (*auditRow).cells)
	}
	if err := a.printRecords(last, f.json); err != nil {
		return err
	}
	q.Del("cursor")
	if from != "" {
		q.Set("cursor", from)
	}
	return a.followAudit(ctx, r, q, newest, f.json)
}

// newestRecords are the newest, newest first, with at least limit of them if there
// are so many; all for a limit of 0. from is the place behind the first page, which
// all that comes later follows. A page may be empty and not the last.
func newestRecords(ctx context.Context, r *remote, q url.Values, limit int) (all []json.RawMessage, from string, err error) {
	q.Set("order", "newest")
	q.Set("limit", fmt.Sprint(maxPage))
	all = []json.RawMessage{}
	for first := true; ; first = false {
		page, next, err := onePage[json.RawMessage](ctx, r, "/audit", q)
		if err != nil {
			return nil, "", err
		}
		if first {
			from = next
		}
		all = append(all, page...)
		if next == "" || limit > 0 && len(all) >= limit {
			return all, from, nil
		}
		q.Set("cursor", next)
	}
}

// followAudit prints what comes behind the place in q, as lines, but for what is
// known. It asks again for the last page until that is full, and then for the next
// one, so that what it reads does not grow with the log.
func (a *App) followAudit(ctx context.Context, r *remote, q url.Values, known []json.RawMessage, asJSON bool) error {
	q.Set("order", "oldest")
	seen := map[string]bool{}
	for _, raw := range known {
		seen[string(raw)] = true
	}
	for {
		page, next, err := onePage[json.RawMessage](ctx, r, "/audit", q)
		if err != nil {
			return err
		}
		fresh := slices.DeleteFunc(slices.Clone(page), func(raw json.RawMessage) bool { return seen[string(raw)] })
		if err := a.printRecords(fresh, asJSON); err != nil {
			return err
		}
		if next != "" {
			q.Set("cursor", next)
			continue
		}
		clear(seen) // of the pages before
		for _, raw := range page {
			seen[string(raw)] = true
		}
		select {
		case <-time.After(auditEvery):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// printRecords prints records as lines.
func (a *App) printRecords(all []json.RawMessage, asJSON bool) error {
	for _, raw := range all {
		var row auditRow
		if err := json.Unmarshal(raw, &row); err != nil {
			return fmt.Errorf("read the server's answer: %w", err)
		}
		if err := a.printRecord(raw, &row, asJSON); err != nil {
			return err
		}
	}
	return nil
}

func (a *App) printRecord(raw json.RawMessage, row *auditRow, asJSON bool) error {
	if asJSON {
		return a.printLine(raw)
	}
	return a.printCells(row.cells())
}
