package rest_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"agentbox/internal/server"
	"agentbox/internal/server/rest"
	"agentbox/internal/server/rest/resttest"
)

// quantity is a field that takes a number, as the document has it.
type quantity struct {
	method, path string
	in           []string // query or body, then names
}

// quantities finds every number, size and duration that a request can have.
func quantities(t *testing.T, document string) (all []quantity) {
	t.Helper()
	type schema struct {
		Type       any
		Ref        string `json:"$ref"`
		Items      json.RawMessage
		AnyOf      []struct{ Type string }
		Properties map[string]json.RawMessage
	}
	var doc struct {
		Paths map[string]map[string]struct {
			Parameters []struct {
				Name, In string
				Schema   json.RawMessage
			}
			RequestBody struct {
				Content map[string]struct{ Schema json.RawMessage }
			}
		}
		Components struct{ Schemas map[string]json.RawMessage }
	}
	if err := json.Unmarshal([]byte(document), &doc); err != nil {
		t.Fatal(err)
	}
	var walk func(q quantity, text json.RawMessage)
	walk = func(q quantity, text json.RawMessage) {
		var s schema
		if len(text) == 0 {
			return
		}
		if err := json.Unmarshal(text, &s); err != nil {
			t.Fatal(err)
		}
		if s.Ref != "" {
			walk(q, doc.Components.Schemas[s.Ref[strings.LastIndex(s.Ref, "/")+1:]])
			return
		}
		number := s.Type == "integer" || s.Type == "number"
		for _, a := range s.AnyOf {
			number = number || a.Type == "integer" || a.Type == "number"
		}
		if number && (len(s.AnyOf) == 0 || s.AnyOf[0].Type != "boolean") {
			all = append(all, q)
		}
		walk(quantity{q.method, q.path, append(slices.Clone(q.in), "0")}, s.Items)
		for name, p := range s.Properties {
			walk(quantity{q.method, q.path, append(slices.Clone(q.in), name)}, p)
		}
	}
	for path, operations := range doc.Paths {
		for method, op := range operations {
			for _, p := range op.Parameters {
				walk(quantity{strings.ToUpper(method), path, []string{p.In, p.Name}}, p.Schema)
			}
			walk(quantity{strings.ToUpper(method), path, []string{"body"}}, op.RequestBody.Content["application/json"].Schema)
		}
	}
	return all
}

// body is a request that is right but for one number.
func (q quantity) body(number string) string {
	whole := map[string]string{}
	switch q.path[strings.LastIndex(q.path, "/")+1:] {
	case "resize":
		whole["cols"], whole["rows"] = "80", "24"
	case "signal":
		whole["signal"] = "15"
	case "execute", "stream":
		whole["command"] = `"true"`
	case "volumes":
		whole["name"] = `"v"`
	}
	for i := len(q.in) - 1; i > 1; i-- {
		if q.in[i] == "0" {
			number = "[" + number + "]"
			continue
		}
		more := ""
		if q.in[i] == "host" {
			more = `,"guest":1`
		}
		number = fmt.Sprintf("{%q:%s%s}", q.in[i], number, more)
	}
	whole[q.in[1]] = number
	var fields []string
	for name, v := range whole {
		fields = append(fields, fmt.Sprintf("%q:%s", name, v))
	}
	return "{" + strings.Join(fields, ",") + "}"
}

// TestAPI08_EveryNumber: a number that is too large for a field is refused, and
// the field named, wherever it stands; it never wraps around, or becomes none.
func TestAPI08_EveryNumber(t *testing.T) {
	w := start(t)
	box := w.create(w.admin, `{}`).ID
	_, text := w.do(w.admin, "POST", "/api/v1/sandboxes/"+box+"/execute", "application/json", `{"command":"sleep 1000","tty":true,"detach":true}`)
	exec := read[rest.ExecResult](t, text).ExecID
	_, document := w.do(w.user, "GET", "/openapi.json", "", "")
	all := quantities(t, document)
	if len(all) < 30 {
		t.Fatalf("the document has %d numbers", len(all))
	}
	for _, q := range all {
		field := q.in[len(q.in)-1]
		whole := strings.ReplaceAll(strings.Join(q.in[1:], "."), ".0.", "[0].")
		path := strings.NewReplacer("{id}", box, "{exec}", exec, "{port}", "PORT").Replace(q.path)
		for _, n := range []string{"1e400", "-1e400", "1e30", "-1e30", "99999999999999999999", "-99999999999999999999", "18446744073709551617", "4294967297000000000000"} {
			url, body := path, ""
			switch q.in[0] {
			case "query":
				url += "?" + neturl(q.path, field, n)
			case "path":
				url = strings.Replace(url, "PORT", n, 1)
			default:
				body = q.body(n)
			}
			resp, text := w.ask(w.admin, q.method+" ", url, resttest.Request{Type: "application/json", Body: body})
			var value server.Problem
			var form rest.FormProblem
			switch resp.StatusCode {
			case 400:
				if q.method == "PATCH" && (field == "disk" || field == "shm") {
					continue // never changed
				}
				if err := json.Unmarshal([]byte(text), &value); err != nil || value.Code != server.CodeInvalidValue || value.Field != whole {
					t.Errorf("%s %s %v %s: %s", q.method, q.path, q.in, n, text)
				}
			case 422:
				if err := json.Unmarshal([]byte(text), &form); err != nil || len(form.Detail) != 1 || form.Detail[0].Loc[len(form.Detail[0].Loc)-1] != field {
					t.Errorf("%s %s %v %s: %s", q.method, q.path, q.in, n, text)
				}
			default:
				t.Errorf("%s %s %v %s: %d %.300s", q.method, q.path, q.in, n, resp.StatusCode, text)
			}
		}
	}
	// Other spellings of good numbers are good.
	sb := w.create(w.user, `{"pids":1e2,"memory":1.34217728e8,"ports":[{"guest":8.0e1}]}`)
	if sb.Limits.Pids != 100 || sb.Limits.Memory != 128<<20 || sb.Ports[0].Guest.Value != 80 {
		t.Errorf("%+v %+v", sb.Limits, sb.Ports)
	}
}

// neturl is a query that is right but for one number.
func neturl(path, field, n string) string {
	q := url.Values{field: {n}}
	switch {
	case strings.HasSuffix(path, "/glob"):
		q.Set("pattern", "*")
	case strings.HasSuffix(path, "/search"):
		q.Set("pattern", "x")
	case strings.HasSuffix(path, "/stat"), strings.HasSuffix(path, "/list"):
		q.Set("path", ".")
	}
	return q.Encode()
}
