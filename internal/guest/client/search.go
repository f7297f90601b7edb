package client

import (
	"context"
	"fmt"
	"time"

	guestv1 "agentbox/internal/gen/guest/v1"
)

// Truncation tells why an answer may not be complete.
type Truncation string

// Truncations.
const (
	Complete       Truncation = ""
	TruncatedCount Truncation = "count" // the limit was reached
	TruncatedSize  Truncation = "size"  // the answer would be larger than 8 MiB
	TruncatedTime  Truncation = "time"  // the time limit was reached
)

// GlobOptions govern Glob.
type GlobOptions struct {
	User    string
	Exclude []string      // what matches is left out, with what is in it; without "/" of names
	Limit   int           // entries; 0: 1,000; at most 10,000
	Timeout time.Duration // 0: 10 s; at most 30 s
}

// GlobResult is what Glob found.
type GlobResult struct {
	Entries   []FileInfo // in the order of List
	Truncated Truncation
	Skipped   Skipped // directories that the user may not read
}

// Glob finds files below a directory whose path, relative to it, matches one of
// the patterns. "*" and "?" stand for anything but "/", "**" as an element for
// any directories, and there are [a-z], [!a-z], {one,other} and \ before a
// character that is meant itself. Names that begin with a dot are names like
// others. Links are found, not followed. Up to 100 patterns of 1 KiB; a wrong one
// is InvalidArgument.
func (s *Session) Glob(ctx context.Context, dir string, patterns []string, o GlobOptions) (*GlobResult, error) {
	a := new(guestv1.GlobResponse)
	q := &guestv1.GlobRequest{
		Path: []byte(dir), User: o.User, Patterns: patterns, Exclude: o.Exclude, Limit: uint32(max(o.Limit, 0)), TimeoutNs: int64(o.Timeout),
	}
	if err := s.call(ctx, "Glob", q, a); err != nil {
		return nil, fmt.Errorf("find files in %q: %w", dir, err)
	}
	return &GlobResult{infosBelow(dir, a.GetEntries()), Truncation(a.GetTruncated()), skipped(a.GetSkipped())}, nil
}

// SearchOptions govern Search.
type SearchOptions struct {
	User       string
	Literal    bool // the pattern is no expression
	IgnoreCase bool
	// Include and Exclude are patterns as those of Glob; without "/" they are of
	// names. No Include: all files. An excluded directory is not entered.
	Include, Exclude []string
	Limit            int           // matching lines; 0: 1,000; at most 10,000
	LimitPerFile     int           // 0: none of its own; 1 finds which files match
	MaxLine          int           // bytes of a line that come back; 0: 500; at most 4,096
	Context          int           // lines before and after a match; at most 10
	Timeout          time.Duration // 0: 10 s; at most 30 s
	MaxFileSize      int64         // bytes; larger files are skipped; 0: 32 MiB
}

// Match is one line that matches. Text and context are bytes.
type Match struct {
	Path       string
	Line       int   // from 1
	Offset     int64 // of the line in the file, in bytes
	Start, End int   // of the first match in the line, in bytes
	Text       string
	TextStart  int  // where Text begins in the line; not 0 for a match far inside a long line
	Cut        bool // Text is not the whole line
	// Before and After are the lines around it, each cut to MaxLine.
	Before, After []string
}

// SearchResult is what Search found.
type SearchResult struct {
	Matches   []Match // by file in the order of List, then by line
	Truncated Truncation
	Files     int // that were searched
	Binary    int // that were left out because they hold NUL
	LongLines int // lines of which only the first 64 KiB were searched
	Skipped   Skipped
}

// Search looks for lines that match an expression of RE2, in one file or in all
// regular files below a directory. Links are not followed, binary files are left
// out. The pattern has at most 1 KiB; one that is wrong or would be slow is
// InvalidArgument.
func (s *Session) Search(ctx context.Context, name, pattern string, o SearchOptions) (*SearchResult, error) {
	a := new(guestv1.SearchResponse)
	q := &guestv1.SearchRequest{
		Path: []byte(name), User: o.User, Pattern: pattern, Literal: o.Literal, IgnoreCase: o.IgnoreCase,
		Include: o.Include, Exclude: o.Exclude, Limit: uint32(max(o.Limit, 0)), LimitPerFile: uint32(max(o.LimitPerFile, 0)),
		MaxLine: uint32(max(o.MaxLine, 0)), Context: uint32(max(o.Context, 0)), TimeoutNs: int64(o.Timeout), MaxFileSize: o.MaxFileSize,
	}
	if err := s.call(ctx, "Search", q, a); err != nil {
		return nil, fmt.Errorf("search in %q: %w", name, err)
	}
	r := &SearchResult{
		Truncated: Truncation(a.GetTruncated()), Files: int(a.GetFiles()), Binary: int(a.GetBinary()), LongLines: int(a.GetLongLines()),
		Skipped: skipped(a.GetSkipped()),
	}
	for _, m := range a.GetMatches() {
		r.Matches = append(r.Matches, Match{
			Path: below(name, string(m.GetPath())), Line: int(m.GetLine()), Offset: int64(m.GetOffset()), Start: int(m.GetStart()), End: int(m.GetEnd()),
			Text: string(m.GetText()), TextStart: int(m.GetTextStart()), Cut: m.GetCut(), Before: texts(m.GetBefore()), After: texts(m.GetAfter()),
		})
	}
	return r, nil
}

func texts(list [][]byte) []string {
	var s []string
	for _, b := range list {
		s = append(s, string(b))
	}
	return s
}
