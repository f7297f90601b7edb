package rest_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"agentbox/internal/server"
	"agentbox/internal/server/rest"
)

// create makes a sandbox of the key's owner.
func (w *world) create(key, body string) rest.Sandbox {
	w.t.Helper()
	resp, text := w.do(key, "POST", "/api/v1/sandboxes", "application/json", body)
	if resp.StatusCode != 201 {
		w.t.Fatalf("create %s: %d %s", body, resp.StatusCode, text)
	}
	return read[rest.Sandbox](w.t, text)
}

// problem wants an error and returns it.
func (w *world) problem(key, method, path, body string, status int, code server.Code) server.Problem {
	w.t.Helper()
	resp, text := w.do(key, method, "/api/v1"+path, "application/json", body)
	var p server.Problem
	if err := json.Unmarshal([]byte(text), &p); err != nil || resp.StatusCode != status || p.Code != code {
		w.t.Errorf("%s %s %s: %d %s, want %d %s", method, path, body, resp.StatusCode, text, status, code)
	}
	return p
}

// TestSandboxLife: Q1, Q7, Q12.
func TestSandboxLife(t *testing.T) {
	w := start(t)
	sb := w.create(w.user, `{"name":"dev","labels":{"a":"1"},"env":{"SECRET":"hunter2"},"memory":"128m","idle_timeout":"10m","lifetime":0}`)
	if !regexp.MustCompile(`^[0-9a-f]{64}$`).MatchString(sb.ID) || sb.ShortID != sb.ID[:12] || sb.Status != "running" || *sb.Name != "dev" ||
		sb.Limits.Memory != 128<<20 || *sb.IdleTimeout != 600 || sb.ExpiresAt != nil || sb.Labels["a"] != "1" || sb.OnIdle != "destroy" ||
		sb.Network.Mode != "none" || sb.StartedAt == nil || sb.StoppedAt != nil || fmt.Sprint(sb.NotEnforced) != "[cpus]" {
		t.Errorf("created %+v", sb)
	}
	for _, id := range []string{sb.ID, sb.ShortID, sb.Label, "dev"} {
		resp, text := w.do(w.user, "GET", "/api/v1/sandboxes/"+id, "", "")
		if got := read[rest.Sandbox](t, text); resp.StatusCode != 200 || got.ID != sb.ID || strings.Contains(text, "hunter2") {
			t.Errorf("%s: %d %s", id, resp.StatusCode, text)
		}
	}
	for _, id := range []string{sb.ID[:6], sb.ID[:11], sb.ID + "0", strings.ToUpper(sb.ID), "nothing"} {
		for _, c := range [][2]string{{"GET", ""}, {"PATCH", ""}, {"DELETE", ""}, {"POST", "/stop"}, {"POST", "/start"}, {"GET", "/stats"}, {"GET", "/isolation"}, {"GET", "/events"}, {"GET", "/events?follow=1"}} {
			if p := w.problem(w.user, c[0], "/sandboxes/"+id+c[1], "{}", 404, server.CodeNotFound); p.Detail != "Sandbox not found" {
				t.Errorf("%s %s: %q", id, c, p.Detail)
			}
		}
	}
	for range 2 {
		w.problem(w.user, "POST", "/sandboxes", `{"name":"dev"}`, 409, server.CodeAlreadyExists)
	}
	resp, text := w.do(w.user, "DELETE", "/api/v1/sandboxes/dev", "", "")
	if resp.StatusCode != 204 || text != "" {
		t.Errorf("destroy: %d %s", resp.StatusCode, text)
	}
	for _, c := range [][2]string{{"DELETE", ""}, {"GET", ""}, {"POST", "/stop"}, {"GET", "/stats"}} {
		p := w.problem(w.user, c[0], "/sandboxes/"+sb.ID+c[1], "", 404, server.CodeSandboxDestroyed)
		if p.Detail != "Sandbox not found" || p.Reason != "destroyed" {
			t.Errorf("%s after the end: %+v", c, p)
		}
	}
	w.problem(w.admin, "GET", "/sandboxes/"+sb.ID, "", 404, server.CodeNotFound) // the reason is its owner's
}

// TestTEN01Sandboxes: what is another owner's is not there, whoever asks.
func TestTEN01Sandboxes(t *testing.T) {
	w := start(t)
	sb := w.create(w.user, `{"name":"dev","labels":{"x":"y"}}`)
	for _, id := range []string{sb.ID, sb.ShortID, sb.Label, "dev"} {
		for _, c := range [][2]string{{"GET", ""}, {"PATCH", ""}, {"DELETE", ""}, {"POST", "/stop"}, {"POST", "/start"}, {"GET", "/stats"}, {"GET", "/isolation"}, {"GET", "/events"}, {"GET", "/events?follow=1"}} {
			p := w.problem(w.admin, c[0], "/sandboxes/"+id+c[1], "{}", 404, server.CodeNotFound)
			none := w.problem(w.admin, c[0], "/sandboxes/none"+c[1], "{}", 404, server.CodeNotFound)
			if p.RequestID, none.RequestID = "", ""; fmt.Sprint(p) != fmt.Sprint(none) {
				t.Errorf("%s %s tells that there is one: %+v", c, id, p)
			}
		}
	}
	if _, text := w.do(w.admin, "GET", "/api/v1/sandboxes?label=x=y", "", ""); len(read[rest.List[rest.Sandbox]](t, text).Items) != 0 {
		t.Errorf("the list has it: %s", text)
	}
	other := w.create(w.admin, `{"name":"dev"}`) // names are an owner's own
	if resp, text := w.do(w.user, "GET", "/api/v1/sandboxes/dev", "", ""); read[rest.Sandbox](t, text).ID != sb.ID || other.ID == sb.ID {
		t.Errorf("%d %s", resp.StatusCode, text)
	}
}

func TestSandboxList(t *testing.T) {
	w := start(t)
	var made []string
	for i := range 5 {
		made = append(made, w.create(w.user, fmt.Sprintf(`{"name":"n%d","labels":{"odd":"%d"}}`, i, i%2)).ID)
	}
	get := func(query string) (ids []string, next string) {
		t.Helper()
		resp, text := w.do(w.user, "GET", "/api/v1/sandboxes?"+query, "", "")
		if resp.StatusCode != 200 {
			t.Fatalf("%s: %d %s", query, resp.StatusCode, text)
		}
		page := read[rest.List[rest.Sandbox]](t, text)
		for _, sb := range page.Items {
			ids = append(ids, sb.ID)
		}
		if page.NextCursor != nil {
			next = *page.NextCursor
		}
		return ids, next
	}
	var all []string
	for cursor, rounds := "", 0; ; rounds++ {
		ids, next := get("limit=2&cursor=" + cursor)
		all = append(all, ids...)
		if cursor = next; next == "" || rounds > 5 {
			break
		}
	}
	if fmt.Sprint(all) != fmt.Sprint(made) {
		t.Errorf("in pages %v, want %v", all, made)
	}
	for query, want := range map[string][]string{
		"label=odd%3D1": {made[1], made[3]}, "name=n2": {made[2]}, "status=stopped": nil,
		"status=stopped&status=running": made, "label=odd=0&name=n1": nil,
	} {
		if got, _ := get(query); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s gives %v, want %v", query, got, want)
		}
	}
	for _, query := range []string{"label=odd", "label=odd=0&label=odd=1", "label==x", "status=rnning", "limit=0", "cursor=x"} {
		w.problem(w.user, "GET", "/sandboxes?"+query, "", 400, server.CodeInvalidValue)
	}
}

// TestCreateRefuses: what can't be is refused, and nothing is made.
func TestCreateRefuses(t *testing.T) {
	w := start(t)
	for body, field := range map[string]string{
		`{"memory":"1000g"}`: "memory", `{"memory":0}`: "memory", `{"memory":-1}`: "memory", `{"cpus":0}`: "cpus", `{"cpus":1e9}`: "cpus", `{"pids":0}`: "pids",
		`{"pids":1000000}`: "pids", `{"disk":1}`: "disk", `{"image":"missing"}`: "image", `{"image":"no name"}`: "image", `{"image":"team/Upper"}`: "image", `{"name":"-x"}`: "name", `{"env":{"A=B":"x"}}`: "env", `{"env":{"":"x"}}`: "env",
		`{"workdir":"x"}`: "workdir", `{"on_idle":"sleep"}`: "on_idle", `{"idle_timeout":-1}`: "idle_timeout", `{"lifetime":0.001}`: "lifetime",
		`{"labels":{"":"x"}}`: "labels", `{"network":{"mode":"most"}}`: "network.mode", `{"ports":[{"guest":70000}]}`: "ports[0].guest", `{"ports":[{"guest":1,"host":80}]}`: "ports", `{"ports":[{"guest":1,"host":65536}]}`: "ports[0].host", `{"ports":[{"guest":0}]}`: "ports[0].guest",
	} {
		if p := w.problem(w.user, "POST", "/sandboxes", body, 400, server.CodeInvalidValue); p.Field != field || p.Allowed == "" {
			t.Errorf("%s: %+v", body, p)
		}
	}
	for _, body := range []string{
		`{"network_enabled":true}`, `{"network":{"mode":"full"}}`, `{"network":{"mode":"allowlist","allow":["a.example"]}}`, `{"network":{"allow":["a.example"]}}`,
		`{"tenant_id":"t","network_enabled":true}`, `{"cpus":1}`, // this host can't enforce it
	} {
		w.problem(w.user, "POST", "/sandboxes", body, 400, server.CodeUnsupported)
	}
	for body, loc := range map[string]string{
		`{"memory":"lots"}`: `["body","memory"]`, `{"cpus":"two"}`: `["body","cpus"]`, `{"lifetime":"soon"}`: `["body","lifetime"]`, `{"network_enabled":"maybe"}`: `["body","network_enabled"]`,
		`{"env":{"A":1}}`: `["body","env","A"]`, `{"memry":1}`: `["body","memry"]`, ``: `["body"]`, `{"pids":1.5}`: `["body","pids"]`,
		`{"volumes":[{"name":"v","path":"/v","read_only":"maybe"}]}`: `["body","volumes",0,"read_only"]`,
	} {
		resp, text := w.do(w.user, "POST", "/api/v1/sandboxes", "application/json", body)
		var p rest.FormProblem
		if err := json.Unmarshal([]byte(text), &p); err != nil || resp.StatusCode != 422 || len(p.Detail) != 1 {
			t.Errorf("%s: %d %s", body, resp.StatusCode, text)
			continue
		}
		if got, _ := json.Marshal(p.Detail[0].Loc); string(got) != loc {
			t.Errorf("%s: %s, want %s", body, got, loc)
		}
	}
	if _, text := w.do(w.user, "GET", "/api/v1/sandboxes", "", ""); len(read[rest.List[rest.Sandbox]](t, text).Items) != 0 {
		t.Errorf("something was made: %s", text)
	}
	for range 8 {
		w.create(w.user, `{"network_enabled":"no","network":{"mode":"none"}}`)
	}
	resp, text := w.do(w.user, "POST", "/api/v1/sandboxes", "application/json", `{}`)
	if p := read[server.Problem](t, text); resp.StatusCode != 429 || p.Code != server.CodeQuotaExceeded || p.Detail != "Maximum number of sandboxes (8) reached" || resp.Header.Get("Retry-After") == "" {
		t.Errorf("one too many: %d %s", resp.StatusCode, text)
	}
}

func TestUpdate(t *testing.T) {
	w := start(t)
	sb := w.create(w.user, `{"labels":{"a":"1","b":"2"}}`)
	resp, text := w.do(w.user, "PATCH", "/api/v1/sandboxes/"+sb.ID, "application/json", `{"labels":{"a":null,"c":"3"},"lifetime":"1h","idle_timeout":0}`)
	if resp.StatusCode != 200 {
		t.Fatalf("%d %s", resp.StatusCode, text)
	}
	got := read[rest.Sandbox](t, text)
	if fmt.Sprint(got.Labels) != "map[b:2 c:3]" || got.IdleTimeout != nil || time.Until(*got.ExpiresAt) > time.Hour {
		t.Errorf("%s", text)
	}
	resp, text = w.do(w.user, "PATCH", "/api/v1/sandboxes/"+sb.ID, "application/json", `{"memory":"1g","pids":64}`)
	if resp.StatusCode != 200 {
		t.Fatalf("limits: %d %s", resp.StatusCode, text)
	}
	if l := read[rest.Sandbox](t, text).Limits; l.Memory != 1<<30 || l.Pids != 64 || l.Disk != sb.Limits.Disk {
		t.Errorf("limits: %+v", l)
	}
	for _, body := range []string{`{"disk":"1g"}`, `{"shm":"1m"}`, `{"memory":"1g","disk":"1g"}`, `{"cpus":1}`} { // cpus can't be enforced here
		w.problem(w.user, "PATCH", "/sandboxes/"+sb.ID, body, 400, server.CodeUnsupported)
	}
	for body, field := range map[string]string{`{"memory":"1000g"}`: "memory", `{"memory":0}`: "memory", `{"pids":1}`: "pids", `{"memory":"1m"}`: "memory"} {
		if p := w.problem(w.user, "PATCH", "/sandboxes/"+sb.ID, body, 400, server.CodeInvalidValue); p.Field != field {
			t.Errorf("%s: %+v", body, p)
		}
	}
	w.problem(w.user, "PATCH", "/sandboxes/"+sb.ID, `{"lifetime":-5}`, 400, server.CodeInvalidValue)
	if resp, text = w.do(w.user, "PATCH", "/api/v1/sandboxes/"+sb.ID, "application/json", `{"memory":"much"}`); resp.StatusCode != 422 {
		t.Errorf("%d %s", resp.StatusCode, text)
	}
}

// TestEvents: a follower hears the whole life, with what it was told before, and
// the stream ends with the sandbox.
func TestEvents(t *testing.T) {
	w := start(t)
	sb := w.create(w.user, `{}`)
	w.do(w.user, "PATCH", "/api/v1/sandboxes/"+sb.ID, "application/json", `{"labels":{"a":"1"}}`)
	r, err := http.NewRequest("GET", w.url+"/api/v1/sandboxes/"+sb.ID+"/events?follow=1", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-API-Key", w.user)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if ct := resp.Header.Get("Content-Type"); resp.StatusCode != 200 || ct != "text/event-stream" {
		t.Fatalf("%d %s", resp.StatusCode, ct)
	}
	var heard []string
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			continue
		}
		e := read[rest.Event](t, data)
		heard = append(heard, e.Type+":"+e.Status)
		if e.Type == "update" {
			w.do(w.user, "DELETE", "/api/v1/sandboxes/"+sb.ID, "", "")
		}
	}
	if got := strings.Join(heard, " "); got != "state:creating state:running update:running state:destroying state:destroyed" {
		t.Errorf("heard %s", got)
	}

	other := w.create(w.user, `{}`)
	var page rest.List[rest.Event]
	for cursor := ""; ; cursor = *page.NextCursor {
		_, text := w.do(w.user, "GET", "/api/v1/sandboxes/"+other.ID+"/events?limit=1&cursor="+cursor, "", "")
		page = read[rest.List[rest.Event]](t, text)
		if page.NextCursor == nil {
			break
		}
	}
	if len(page.Items) != 1 || page.Items[0].Status != "running" {
		t.Errorf("the last page is %+v", page)
	}
	w.problem(w.user, "GET", "/sandboxes/"+other.ID+"/events?cursor=x", "", 400, server.CodeInvalidValue)
}

func TestIsolationAndStats(t *testing.T) {
	w := start(t)
	sb := w.create(w.user, `{}`)
	_, text := w.do(w.user, "GET", "/api/v1/sandboxes/"+sb.ID+"/isolation", "", "")
	if i := read[rest.Isolation](t, text); i.Backend != "fake" || fmt.Sprint(i.NotEnforced, i.Enforced) != "[cpus] [memory pids disk]" || i.Limits.Memory != 256<<20 {
		t.Errorf("%s", text)
	}
	w.problem(w.user, "GET", "/sandboxes/"+sb.ID+"/stats", "", 400, server.CodeUnsupported) // the back end of this test can't
}

func TestImages(t *testing.T) {
	w := start(t)
	var names []string
	for cursor := ""; ; {
		_, text := w.do(w.user, "GET", "/api/v1/images?limit=1&cursor="+cursor, "", "")
		page := read[rest.List[rest.Image]](t, text)
		for _, i := range page.Items {
			names = append(names, i.Name)
		}
		if page.NextCursor == nil {
			break
		}
		cursor = *page.NextCursor
	}
	if got := strings.Join(names, " "); got != "default other.example/team/tool:v1" {
		t.Errorf("the list is %s", got)
	}
	for _, ref := range []string{"other.example/team/tool:v1", "other.example%2Fteam%2Ftool:v1"} {
		if resp, text := w.do(w.user, "GET", "/api/v1/images/"+ref, "", ""); resp.StatusCode != 200 || read[rest.Image](t, text).Name != names[1] {
			t.Errorf("%s: %d %s", ref, resp.StatusCode, text)
		}
	}
	w.problem(w.user, "DELETE", "/images/default", "", 403, server.CodeForbidden)
	w.problem(w.user, "POST", "/images/pull", `{"reference":"x"}`, 403, server.CodeForbidden)
	w.problem(w.admin, "DELETE", "/images/default", "", 409, server.CodeConflict)
	w.problem(w.admin, "DELETE", "/images/none", "", 404, server.CodeNotFound)
	w.problem(w.user, "GET", "/images/none", "", 404, server.CodeNotFound)
	w.problem(w.admin, "POST", "/images/pull", `{"reference":"private"}`, 409, server.CodeConflict)
	if resp, text := w.do(w.admin, "POST", "/api/v1/images/pull", "application/json", `{"reference":"new:1"}`); resp.StatusCode != 200 || read[rest.Image](t, text).Name != "new:1" {
		t.Errorf("%d %s", resp.StatusCode, text)
	}
	if resp, text := w.do(w.admin, "DELETE", "/api/v1/images/new:1", "", ""); resp.StatusCode != 204 {
		t.Errorf("%d %s", resp.StatusCode, text)
	}
}

// TestSandboxAudit: each change is on record, with the sandbox's id whichever id
// was used, and so is each refusal.
func TestSandboxAudit(t *testing.T) {
	w := start(t)
	sb := w.create(w.user, `{"name":"dev"}`)
	w.do(w.user, "PATCH", "/api/v1/sandboxes/dev", "application/json", `{"labels":{"a":"1"}}`)
	w.do(w.user, "POST", "/api/v1/sandboxes/dev/stop", "", "")
	w.do(w.user, "DELETE", "/api/v1/sandboxes/dev", "", "")
	w.do(w.user, "DELETE", "/api/v1/sandboxes/dev", "", "")
	w.do(w.user, "POST", "/api/v1/sandboxes", "application/json", `{"memory":1}`)
	_, text := w.do(w.user, "GET", "/api/v1/audit?order=oldest", "", "")
	var got []string
	for _, r := range read[rest.List[rest.AuditRecord]](t, text).Items {
		got = append(got, fmt.Sprintf("%s:%s:%t", r.Action, r.Result, r.Sandbox == sb.ID))
	}
	if s := strings.Join(got, " "); s != "create:ok:true update:ok:true stop:ok:true destroy:ok:true destroy:sandbox_destroyed:false create:invalid_value:false" {
		t.Errorf("the record is %s", s)
	}
}

// TestNobodyWorksUnseen: without an audit log nothing begins; what is there can
// be ended.
func TestNobodyWorksUnseen(t *testing.T) {
	w := start(t)
	sb := w.create(w.user, `{}`)
	w.full.Store(true)
	if resp, text := w.do(w.user, "DELETE", "/api/v1/sandboxes/"+sb.ID, "", ""); resp.StatusCode != 204 {
		t.Errorf("destroy: %d %s", resp.StatusCode, text)
	}
	w.problem(w.user, "POST", "/sandboxes", `{}`, 503, server.CodeUnavailable)
	w.full.Store(false)
	w.problem(w.user, "POST", "/sandboxes", `{}`, 503, server.CodeUnavailable) // which is on record again
	w.create(w.user, `{}`)
}

// TestOneQuery: API-09, a query has one reading.
func TestOneQuery(t *testing.T) {
	w := start(t)
	for _, query := range []string{"limit=1&limit=2", "name=a&name=b", "name=a&name=a", "limit=%zz", "%=1", "name=%2", "cursor=&cursor=x"} {
		resp, text := w.do(w.user, "GET", "/api/v1/sandboxes?"+query, "", "")
		if p := read[rest.FormProblem](t, text); resp.StatusCode != 422 || p.Detail[0].Loc[0] != "query" {
			t.Errorf("%s: %d %s", query, resp.StatusCode, text)
		}
	}
	for _, query := range []string{"label=a=1&label=b=2", "status=running&status=stopped", "name=a;b", "", "&", "limit=1&"} {
		if resp, text := w.do(w.user, "GET", "/api/v1/sandboxes?"+query, "", ""); resp.StatusCode != 200 {
			t.Errorf("%s: %d %s", query, resp.StatusCode, text)
		}
	}
}
