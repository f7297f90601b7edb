package rest

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"
)

// oneQuery refuses a query that two readers could understand differently: one
// takes the first of two values, another the last; one passes over what has no
// good form, another stops there.
func (a *API) oneQuery(ctx huma.Context, next func(huma.Context)) {
	u := ctx.URL()
	times := map[string]int{}
	for part := range strings.SplitSeq(u.RawQuery, "&") { // a semicolon is a part of a value, as browsers have it
		key, value, _ := strings.Cut(part, "=")
		name, err := url.QueryUnescape(key)
		if _, bad := url.QueryUnescape(value); err != nil || bad != nil {
			a.badQuery(ctx, &FieldError{Type: "query_parsing", Loc: []any{"query"}, Msg: "a percent sign must stand before two hexadecimal digits"})
			return
		}
		if times[name]++; times[name] > 1 && name != "" && !isList(ctx.Operation(), name) {
			a.badQuery(ctx, &FieldError{Type: "duplicate", Loc: []any{"query", name}, Msg: "it may stand in the query once"})
			return
		}
	}
	next(ctx)
}

func (a *API) badQuery(ctx huma.Context, err *FieldError) {
	_ = huma.WriteErr(a.huma, ctx, http.StatusUnprocessableEntity, "", err) // a client that is gone needs no answer
}

// isList reports whether a parameter may stand in a query several times. What no
// parameter is, is refused later.
func isList(op *huma.Operation, name string) bool {
	i := slices.IndexFunc(op.Parameters, func(p *huma.Param) bool { return p.In == "query" && p.Name == name })
	return i < 0 || op.Parameters[i].Schema.Type == huma.TypeArray
}
