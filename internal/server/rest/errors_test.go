package rest_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"agentbox/internal/server"
	"agentbox/internal/server/rest"
)

// TestWrongForm wants 422 in the form that clients of other services know.
func TestWrongForm(t *testing.T) {
	w := start(t)
	for name, c := range map[string]struct {
		method, path, body string
		kind, loc, msg     string
	}{
		"Q2: no body":           {"POST", "/keys", ``, "missing", `["body"]`, "missing"},
		"Q3: no boolean":        {"POST", "/keys", `{"admin":"maybe"}`, "bool_parsing", `["body","admin"]`, "true or false"},
		"object for a boolean":  {"POST", "/keys", `{"admin":{"x":1}}`, "bool_parsing", `["body","admin"]`, ""},
		"null for a boolean":    {"POST", "/keys", `{"admin":null}`, "bool_parsing", `["body","admin"]`, ""},
		"number for a text":     {"POST", "/keys", `{"name":5}`, "string_type", `["body","name"]`, ""},
		"unknown field":         {"POST", "/keys", `{"onwer":"x"}`, "extra_forbidden", `["body","onwer"]`, "did you mean owner?"},
		"unknown, unlike any":   {"POST", "/keys", `{"zzzzzzzz":1}`, "extra_forbidden", `["body","zzzzzzzz"]`, "no such field"},
		"list for an object":    {"POST", "/keys", `[]`, "dict_type", `["body"]`, ""},
		"null":                  {"POST", "/keys", `null`, "dict_type", `["body"]`, ""},
		"no JSON":               {"POST", "/keys", `{"name":`, "json_invalid", `["body"]`, "not valid JSON"},
		"more than one value":   {"POST", "/keys", `{} {}`, "json_invalid", `["body"]`, ""},
		"byte order mark":       {"POST", "/keys", "\ufeff{}", "json_invalid", `["body"]`, ""},
		"no UTF-8":              {"POST", "/keys", "{\"name\":\"\xff\"}", "json_invalid", `["body"]`, "UTF-8"},
		"NUL":                   {"POST", "/keys", "{\"name\":\"\x00\"}", "json_invalid", `["body"]`, ""},
		"a name twice":          {"POST", "/keys", `{"name":"a","name":"b"}`, "json_invalid", `["body"]`, "twice"},
		"a name twice, escaped": {"POST", "/keys", `{"name":"a","n\u0061me":"b"}`, "json_invalid", `["body"]`, "twice"},
		"deep lists":            {"POST", "/keys", strings.Repeat("[", 400_000), "json_invalid", `["body"]`, "deep"},
		"deep objects":          {"POST", "/keys", strings.Repeat(`{"a":`, 150_000), "json_invalid", `["body"]`, "deep"},
		"a giant number":        {"POST", "/keys", `{"name":1e400}`, "string_type", `["body","name"]`, ""},
		"no number":             {"GET", "/keys?limit=ten", ``, "int_parsing", `["query","limit"]`, ""},
		"unknown parameter":     {"GET", "/keys?limt=1", ``, "extra_forbidden", `["query","limt"]`, "did you mean limit?"},
		"no time":               {"GET", "/audit?since=yesterday", ``, "datetime_parsing", `["query","since"]`, ""},
		"no boolean parameter":  {"GET", "/audit?all=maybe", ``, "value_error", `["query","all"]`, "true or false"},
	} {
		t.Run(name, func(t *testing.T) {
			resp, body := w.do(w.admin, c.method, "/api/v1"+c.path, "application/json", c.body)
			p := read[rest.FormProblem](t, body)
			if resp.StatusCode != 422 || len(p.Detail) != 1 {
				t.Fatalf("%d %s", resp.StatusCode, body)
			}
			loc, err := json.Marshal(p.Detail[0].Loc)
			if err != nil || p.Detail[0].Type != c.kind || string(loc) != c.loc || !strings.Contains(p.Detail[0].Msg, c.msg) || p.Detail[0].Msg == "" {
				t.Errorf("%s", body)
			}
			if len(body) > 1000 || strings.Contains(body, "Go ") || strings.Contains(body, "struct") {
				t.Errorf("the answer tells too much: %s", body)
			}
		})
	}
	resp, body := w.post("/api/v1/keys", `{"name":1,"owner":2,"x":3}`)
	if p := read[rest.FormProblem](t, body); resp.StatusCode != 422 || len(p.Detail) != 3 {
		t.Errorf("three mistakes at once: %d %s", resp.StatusCode, body)
	}
}

// TestWrongValue wants 400 with the field and what is allowed.
func TestWrongValue(t *testing.T) {
	w := start(t)
	for name, c := range map[string]struct{ method, path, body, field string }{
		"owner":             {"POST", "/keys", `{"owner":"../x"}`, "owner"},
		"owner, too long":   {"POST", "/keys", `{"owner":"` + strings.Repeat("a", 64) + `"}`, "owner"},
		"name":              {"POST", "/keys", `{"name":"a\u001b[31m"}`, "name"},
		"limit, too small":  {"GET", "/keys?limit=0", ``, "limit"},
		"limit, negative":   {"GET", "/keys?limit=-1", ``, "limit"},
		"limit, too large":  {"GET", "/keys?limit=1001", ``, "limit"},
		"limit, giant":      {"GET", "/keys?limit=9223372036854775808", ``, "limit"},
		"cursor of nothing": {"GET", "/keys?cursor=key_none", ``, "cursor"},
		"order":             {"GET", "/audit?order=random", ``, "order"},
		"sandbox of a mile": {"GET", "/audit?sandbox=" + strings.Repeat("a", 1000), ``, "sandbox"},
		"value before form": {"GET", "/keys?limit=0&cursor=" + strings.Repeat("a", 1000), ``, "limit"},
	} {
		t.Run(name, func(t *testing.T) {
			resp, body := w.do(w.admin, c.method, "/api/v1"+c.path, "application/json", c.body)
			p := read[server.Problem](t, body)
			if resp.StatusCode != 400 || p.Code != server.CodeInvalidValue || p.Field != c.field || p.Allowed == "" || p.RequestID != resp.Header.Get("X-Request-ID") {
				t.Errorf("%d %s", resp.StatusCode, body)
			}
		})
	}
}

func TestOtherErrors(t *testing.T) {
	w := start(t)
	for name, c := range map[string]struct {
		contentType, body string
		status            int
		code              server.Code
	}{
		"WEB-01: text":                   {"text/plain", `{}`, 415, server.CodeUnsupportedMedia},
		"WEB-01: form":                   {"application/x-www-form-urlencoded", `{}`, 415, server.CodeUnsupportedMedia},
		"WEB-01: multipart":              {"multipart/form-data; boundary=x", `{}`, 415, server.CodeUnsupportedMedia},
		"API-01: 100 MiB":                {"application/json", strings.Repeat(" ", 100<<20), 413, server.CodeTooLarge},
		"API-01: as long as allowed, +1": {"application/json", strings.Repeat(" ", server.MaxBody+1), 413, server.CodeTooLarge},
	} {
		resp, body := w.do(w.admin, "POST", "/api/v1/keys", c.contentType, c.body)
		if p := read[server.Problem](t, body); resp.StatusCode != c.status || p.Code != c.code {
			t.Errorf("%s: %d %s", name, resp.StatusCode, body)
		}
	}
	r, err := http.NewRequest("POST", w.url+"/api/v1/keys", struct{ io.Reader }{strings.NewReader(strings.Repeat(" ", server.MaxBody+1))})
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-API-Key", w.admin)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 413 {
		t.Errorf("a body without a length: %d", resp.StatusCode)
	}
	if resp, body := w.do(w.admin, "PUT", "/api/v1/keys", "", ""); resp.StatusCode != 405 || read[server.Problem](t, body).Code != server.CodeMethodNotAllowed {
		t.Errorf("another method: %d %s", resp.StatusCode, body)
	}
}
