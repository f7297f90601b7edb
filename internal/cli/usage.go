package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// usageRow is what a sandbox uses.
type usageRow struct {
	Time       time.Time `json:"time"`
	CPU        float64   `json:"cpu"`
	Memory     int64     `json:"memory"`
	PeakMemory int64     `json:"peak_memory"`
	OOMKills   int64     `json:"oom_kills"`
	Disk       int64     `json:"disk"`
	Processes  int64     `json:"processes"`
}

func (a *App) statsCommand() *cobra.Command {
	var stream bool
	var f listFlags
	cmd := &cobra.Command{
		Use:   "stats SANDBOX",
		Short: "Show what a sandbox of the server uses",
		Long: `Show what a sandbox of the server uses, measured from outside of it. --stream goes on,
once a second. For all sandboxes side by side there is agentbox top.`,
		Example:           "  agentbox stats dev\n  agentbox stats --stream --json dev",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeSandboxes(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := a.remote(cmd)
			if err != nil {
				return err
			}
			if stream {
				ctx, stop := untilSignal(cmd.Context())
				defer stop()
				return a.orInterrupted(ctx, a.streamStats(ctx, r, args[0], f.json))
			}
			var u usageRow
			if err := a.shown(cmd, r, inSandbox(args[0], "stats"), f.json, &u); err != nil || f.json {
				return err
			}
			t := a.table(usageHeaders...)
			t.row(u.cells()...)
			return t.flush()
		},
	}
	cmd.Flags().BoolVar(&stream, "stream", false, "go on, once a second")
	f.addJSON(cmd)
	return cmd
}

var usageHeaders = []string{"CPU TIME", "MEMORY", "PEAK", "DISK", "PROCESSES", "OOM KILLS"}

func (u *usageRow) cells() []string {
	return []string{
		span(time.Duration(u.CPU * float64(time.Second))), size(u.Memory), size(u.PeakMemory), size(u.Disk), strconv.FormatInt(u.Processes, 10), strconv.FormatInt(u.OOMKills, 10),
	}
}

// streamStats prints a line for each event: JSON, or columns of a fixed width.
func (a *App) streamStats(ctx context.Context, r *remote, box string, asJSON bool) error {
	const line = "%-10s %8s %8s %8s %10s %10s\n"
	if !asJSON {
		fmt.Fprintf(a.Stdout, line, toAny(usageHeaders)...)
	}
	return r.events(ctx, request{method: http.MethodGet, path: inSandbox(box, "stats") + "?stream=1"}, func(e event) (bool, error) {
		var u usageRow
		switch {
		case e.name == "error":
			return false, eventError(e.data)
		case asJSON:
			return false, a.printLine(e.data)
		}
		if err := json.Unmarshal(e.data, &u); err != nil {
			return false, fmt.Errorf("read an event of the server: %w", err)
		}
		_, err := fmt.Fprintf(a.Stdout, line, toAny(u.cells())...)
		return false, err
	})
}

func toAny(list []string) []any {
	all := make([]any, len(list))
	for i := range list {
		all[i] = list[i]
	}
	return all
}

func (a *App) topCommand() *cobra.Command {
	var every time.Duration
	var f listFlags
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Show what all your sandboxes on the server use",
		Long: `Show what all your running sandboxes on the server use. On a terminal the table is drawn
anew until Ctrl-C; elsewhere, and with --json, it is printed once. CPU is that of the
last moments, at first the average since the sandbox's start.`,
		Example: "  agentbox top\n  agentbox top | cat",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, err := a.remote(cmd)
			if err != nil {
				return err
			}
			ctx, stop := untilSignal(cmd.Context())
			defer stop()
			t := &top{app: a, r: r, last: map[string]usageRow{}}
			if out, ok := a.Stdout.(*os.File); ok && term.IsTerminal(int(out.Fd())) && !f.json {
				return t.redraw(ctx, max(every, 200*time.Millisecond))
			}
			rows, err := t.read(ctx)
			if err != nil {
				return a.orInterrupted(ctx, err)
			}
			if f.json {
				return a.printJSON(rows)
			}
			return t.print(rows)
		},
	}
	cmd.Flags().DurationVar(&every, "interval", 2*time.Second, "time between two tables")
	f.addJSON(cmd)
	return cmd
}

// top reads the usage of all sandboxes, again and again.
type top struct {
	app  *App
	r    *remote
	mu   sync.Mutex
	last map[string]usageRow // by id, of the read before
}

// topRow is a line of the table, and an object of its JSON.
type topRow struct {
	ID      string          `json:"id"`
	ShortID string          `json:"short_id"`
	Name    *string         `json:"name"`
	Limits  json.RawMessage `json:"limits"`
	Stats   json.RawMessage `json:"stats"`

	box   sandboxRow
	usage usageRow
	cpu   float64 // share of one core
}

// topAtOnce is how many sandboxes are asked at once.
const topAtOnce = 8

func (t *top) read(ctx context.Context) ([]topRow, error) {
	boxes, err := pages[sandboxRow](ctx, t.r, "/sandboxes", url.Values{"status": {"running"}})
	if err != nil {
		return nil, err
	}
	rows := make([]topRow, len(boxes))
	places, wg := make(chan struct{}, topAtOnce), sync.WaitGroup{}
	for i := range boxes {
		places <- struct{}{}
		wg.Go(func() {
			defer func() { <-places }()
			rows[i] = t.usage(ctx, boxes[i])
		})
	}
	wg.Wait()
	rows = slices.DeleteFunc(rows, func(r topRow) bool { return r.Stats == nil })
	slices.SortStableFunc(rows, func(a, b topRow) int { return cmp.Compare(b.cpu, a.cpu) })
	return rows, ctx.Err()
}

// usage asks for one; a sandbox that is gone meanwhile has none.
func (t *top) usage(ctx context.Context, b sandboxRow) topRow {
	row := topRow{ID: b.ID, ShortID: b.ShortID, Name: b.Name, Limits: b.Limits, box: b}
	if err := t.r.call(ctx, http.MethodGet, inSandbox(b.ID, "stats"), nil, &row.Stats); err != nil {
		return topRow{}
	}
	if json.Unmarshal(row.Stats, &row.usage) != nil {
		return topRow{}
	}
	t.mu.Lock()
	before, known := t.last[b.ID]
	t.last[b.ID] = row.usage
	t.mu.Unlock()
	if !known && b.StartedAt != nil {
		before = usageRow{Time: *b.StartedAt}
	}
	if took := row.usage.Time.Sub(before.Time).Seconds(); took > 0 && !before.Time.IsZero() {
		row.cpu = max(row.usage.CPU-before.CPU, 0) / took
	}
	return row
}

func (t *top) print(rows []topRow) error {
	w := t.app.table("ID", "NAME", "CPU", "MEMORY", "LIMIT", "DISK", "PROCESSES", "CPU TIME", "AGE")
	for i := range rows {
		r := &rows[i]
		var limits struct{ Memory int64 }
		_ = json.Unmarshal(r.Limits, &limits) // then there is none to show
		name := ""
		if r.Name != nil {
			name = *r.Name
		}
		w.row(r.ShortID, name, fmt.Sprintf("%.0f%%", r.cpu*100), size(r.usage.Memory), size(limits.Memory), size(r.usage.Disk),
			strconv.FormatInt(r.usage.Processes, 10), span(time.Duration(r.usage.CPU*float64(time.Second))), span(time.Since(r.box.CreatedAt)))
	}
	return w.flush()
}

// redraw draws the table until ctx is done, which is the way to leave it.
func (t *top) redraw(ctx context.Context, every time.Duration) error {
	for {
		rows, err := t.read(ctx)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // it was told to end
		}
		if err != nil {
			return err
		}
		fmt.Fprintf(t.app.Stdout, "\033[H\033[J%d sandboxes on %s at %s; Ctrl-C ends\n\n", len(rows), visible(t.r.where), time.Now().Format(time.TimeOnly))
		if err := t.print(rows); err != nil {
			return err
		}
		select {
		case <-time.After(every):
		case <-ctx.Done():
			return nil
		}
	}
}
