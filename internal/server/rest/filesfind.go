package rest

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"agentbox/internal/guest/client"
	"agentbox/internal/sandbox"
	"agentbox/internal/server"
)

func (f *fileRoutes) registerFind(tags []string) {
	route(f.API, huma.Operation{
		OperationID: "glob-files", Method: http.MethodGet, Path: "/sandboxes/{id}/files/glob", Summary: "Find files by their names", Tags: tags,
		Description: "* and ? stand for anything but /, ** for any directories; there are [a-z], [!a-z] and {one,other}.",
	}, server.Route{}, f.glob)
	route(f.API, huma.Operation{
		OperationID: "search-files", Method: http.MethodGet, Path: "/sandboxes/{id}/files/search", Summary: "Find lines in files", Tags: tags,
		Description: "Binary files are left out; links are not followed.",
	}, server.Route{}, f.search)
}

// maxFind bounds how long a search may take.
const maxFind = 30 * time.Second

// Bounds are those of a search.
type Bounds struct {
	Exclude []string `query:"exclude,explode" maxItems:"100" doc:"Leave out what matches, with what is in it; a pattern without / is for names."`
	Limit   int      `query:"limit" minimum:"1" maximum:"10000" default:"1000" doc:"How much is found, at most."`
	Timeout Duration `query:"timeout" doc:"Then what was found is all; default 10 s, at most 30 s."`
}

func (b *Bounds) check() error {
	if b.Timeout.Value > maxFind {
		return &sandbox.InvalidError{Field: "timeout", Value: b.Timeout.Value.String(), Allowed: "at most 30s"}
	}
	return nil
}

type globInput struct {
	DirPath
	Bounds
	Pattern []string `query:"pattern,explode" required:"true" minItems:"1" maxItems:"100" doc:"Of paths below the directory; more than one: any of them."`
}

// Found are the files that match.
type Found struct {
	Items     []File `json:"items" nullable:"false"`
	Truncated string `json:"truncated" enum:",count,size,time" doc:"Why there may be more; empty: that is all."`
	Skipped   int    `json:"skipped" doc:"Directories that the user may not read."`
}

type globOutput struct{ Body Found }

func (f *fileRoutes) glob(ctx context.Context, c sandbox.Caller, in *globInput) (out *globOutput, err error) {
	if err := in.check(); err != nil {
		return nil, err
	}
	o := client.GlobOptions{User: in.User, Exclude: in.Exclude, Limit: in.Limit, Timeout: in.Timeout.Value}
	err = f.use(ctx, c, in.ID, reads("glob", in.Path), func(s *client.Session) error {
		r, err := s.Glob(ctx, in.Path, in.Pattern, o)
		if err == nil {
			out = &globOutput{Found{list(filesOf(r.Entries), "").Items, string(r.Truncated), r.Skipped.Total}}
		}
		return err
	})
	return out, err
}

type searchInput struct {
	DirPath
	Bounds
	Pattern      string   `query:"pattern" required:"true" maxLength:"1024" doc:"An expression of RE2."`
	Literal      Bool     `query:"literal" doc:"The pattern is no expression."`
	IgnoreCase   Bool     `query:"ignore_case"`
	Include      []string `query:"include,explode" maxItems:"100" doc:"Only files that match; a pattern without / is for names."`
	Context      int      `query:"context" minimum:"0" maximum:"10" doc:"Lines before and after a match."`
	LimitPerFile int      `query:"limit_per_file" minimum:"0" doc:"1 finds which files match; 0: no limit of its own."`
}

// Line is a line that matches.
type Line struct {
	Path   string   `json:"path"`
	Line   int      `json:"line" doc:"From 1."`
	Offset int64    `json:"offset" doc:"Of the line in the file, in bytes."`
	Start  int      `json:"start" doc:"Of the first match in the line, in bytes."`
	End    int      `json:"end"`
	Text   string   `json:"text"`
	Begin  int      `json:"text_start" doc:"Where text begins in the line, in bytes."`
	Cut    bool     `json:"cut" doc:"text is not the whole line."`
	Before []string `json:"before" nullable:"false"`
	After  []string `json:"after" nullable:"false"`
}

// FoundLines are the lines that match.
type FoundLines struct {
	Items     []Line `json:"items" nullable:"false"`
	Truncated string `json:"truncated" enum:",count,size,time" doc:"Why there may be more; empty: that is all."`
	Files     int    `json:"files" doc:"That were searched."`
	Binary    int    `json:"binary" doc:"That were left out because they are binary."`
	LongLines int    `json:"long_lines" doc:"Of which only the first 64 KiB were searched."`
	Skipped   int    `json:"skipped" doc:"Files and directories that were left out otherwise."`
}

type searchOutput struct{ Body FoundLines }

func (f *fileRoutes) search(ctx context.Context, c sandbox.Caller, in *searchInput) (out *searchOutput, err error) {
	if err := in.check(); err != nil {
		return nil, err
	}
	o := client.SearchOptions{
		User: in.User, Literal: in.Literal.Value, IgnoreCase: in.IgnoreCase.Value, Include: in.Include, Exclude: in.Exclude,
		Limit: in.Limit, LimitPerFile: in.LimitPerFile, Context: in.Context, Timeout: in.Timeout.Value,
	}
	err = f.use(ctx, c, in.ID, reads("search", in.Path), func(s *client.Session) error {
		r, err := s.Search(ctx, in.Path, in.Pattern, o)
		if err == nil {
			out = &searchOutput{linesOf(r)}
		}
		return err
	})
	return out, err
}

func linesOf(r *client.SearchResult) FoundLines {
	b := FoundLines{
		Items: []Line{}, Truncated: string(r.Truncated), Files: r.Files, Binary: r.Binary, LongLines: r.LongLines, Skipped: r.Skipped.Total,
	}
	for _, m := range r.Matches {
		b.Items = append(b.Items, Line{
			m.Path, m.Line, m.Offset, m.Start, m.End, m.Text, m.TextStart, m.Cut, append([]string{}, m.Before...), append([]string{}, m.After...),
		})
	}
	return b
}
