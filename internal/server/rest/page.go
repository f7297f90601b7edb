package rest

import (
	"slices"
	"strings"

	"agentbox/internal/sandbox"
)

// pageOf cuts a page out of a list whose cursors are ids of entries.
func pageOf[T any](all []T, p Page, id func(T) string) (page []T, next string, err error) {
	if p.Cursor != "" {
		at := -1
		for i := range all {
			if id(all[i]) == p.Cursor {
				at = i
			}
		}
		if at < 0 {
			return nil, "", &sandbox.InvalidError{Field: "cursor", Value: p.Cursor, Allowed: "next_cursor of the page before"}
		}
		all = all[at+1:]
	}
	if len(all) > p.Limit {
		all = all[:p.Limit]
		next = id(all[p.Limit-1])
	}
	return all, next, nil
}

// pageByName cuts a page out of a list that is sorted by name. It goes on behind
// the cursor also when the entry of that name is gone.
func pageByName[T any](all []T, p Page, name func(*T) string) (page []T, next string) {
	if p.Cursor != "" {
		i, _ := slices.BinarySearchFunc(all, p.Cursor+"\x00", func(one T, s string) int { return strings.Compare(name(&one), s) })
		all = all[i:]
	}
	if len(all) > p.Limit {
		all = all[:p.Limit]
		next = name(&all[p.Limit-1])
	}
	return all, next
}
