package audit

import (
	"context"
	"fmt"
	"time"
)

// Query says which records are wanted.
type Query struct {
	// Owner's records only, unless AllOwners.
	Owner     string
	AllOwners bool
	// Sandbox and Action leave out all others. Empty: any.
	Sandbox string
	Action  Action
	// Since leaves out what was before.
	Since time.Time
	// OldestFirst turns the order round; else the newest come first.
	OldestFirst bool
	// Limit is the largest number of records. Default 100, at most 1,000.
	Limit int
	// Cursor is a page's Next, from where a query goes on in either order; what leaves
	// records out must be the same.
	Cursor string
}

// Page is a part of the answer.
type Page struct {
	Records []Record
	// Next continues; empty: that was all. A page can be empty and have a Next,
	// because one call reads a bounded part of the log.
	Next string
}

const (
	defaultLimit = 100
	maxLimit     = 1_000
	// window is read at once and holds at least one whole record.
	window = 1 << 20
	// disorder is how much older than a record the one after it may be: the time of
	// a record is the action's end, and it is written a little later.
	disorder = time.Minute
	// maxWindows bounds what one query reads.
	maxWindows = 8
)

// Query gives the next records.
func (l *Log) Query(ctx context.Context, q Query) (Page, error) {
	if q.Limit <= 0 {
		q.Limit = defaultLimit
	}
	q.Limit = min(q.Limit, maxLimit)
	s, err := l.scanAt(q)
	if err != nil {
		return Page{}, err
	}
	var page Page
	over := false // the rest is older than what is wanted
	for range maxWindows {
		if err := ctx.Err(); err != nil {
			return Page{}, err
		}
		if err := s.next(func(r Record) (enough bool) {
			if q.matches(r) {
				page.Records = append(page.Records, r)
			}
			over = !q.OldestFirst && !q.Since.IsZero() && r.Time.Before(q.Since.Add(-disorder))
			return over || len(page.Records) == q.Limit
		}); err != nil {
			return Page{}, fmt.Errorf("read the audit log: %w", err)
		}
		if over {
			return page, nil
		}
		if len(page.Records) == q.Limit {
			break
		}
	}
	_, _, more, err := s.bounds()
	if err != nil {
		return Page{}, fmt.Errorf("read the audit log: %w", err)
	}
	if more {
		page.Next = fmt.Sprintf("%d.%d", s.seqs[s.at], s.offset)
	}
	return page, nil
}

func (q Query) matches(r Record) bool {
	return (q.AllOwners || r.Owner == q.Owner) && (q.Sandbox == "" || r.Sandbox == q.Sandbox) &&
		(q.Action == "" || r.Action == q.Action) && !r.Time.Before(q.Since)
}
