package rest_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"agentbox/internal/server"
	"agentbox/internal/server/rest"
)

const secretText = "sk-0123456789abcdef"

func (w *world) setSecret(key, name string) int {
	w.t.Helper()
	resp, text := w.do(key, "POST", "/api/v1/secrets", "application/json", `{"name":"`+name+`","value":"`+secretText+`","hosts":["API.example.com"],"format":"Bearer {}"}`)
	if strings.Contains(text, secretText) {
		w.t.Errorf("the answer has the value: %s", text)
	}
	return resp.StatusCode
}

// TestSecrets: values go in and never out.
func TestSecrets(t *testing.T) {
	w := start(t)
	if first, again := w.setSecret(w.user, "KEY"), w.setSecret(w.user, "KEY"); first != 201 || again != 200 {
		t.Errorf("set: %d, and again: %d", first, again)
	}
	w.setSecret(w.user, "B")
	_, text := w.do(w.user, "GET", "/api/v1/secrets?limit=1", "", "")
	page := read[rest.List[rest.Secret]](t, text)
	if len(page.Items) != 1 || page.Items[0].Name != "B" || page.NextCursor == nil {
		t.Fatalf("the first page: %s", text)
	}
	_, text = w.do(w.user, "GET", "/api/v1/secrets?cursor="+*page.NextCursor, "", "")
	if got := read[rest.List[rest.Secret]](t, text); len(got.Items) != 1 || got.Items[0].Name != "KEY" || fmt.Sprint(got.Items[0].Hosts) != "[api.example.com]" || got.Items[0].Header != "Authorization" || got.Items[0].Format != "Bearer {}" {
		t.Errorf("the second page: %s", text)
	}
	sb := w.create(w.user, `{"secrets":["KEY","B"],"env":{"OTHER":"x"}}`)
	if fmt.Sprint(sb.Secrets) != "[KEY B]" {
		t.Errorf("the sandbox has %v", sb.Secrets)
	}
	_, text = w.do(w.user, "POST", "/api/v1/sandboxes/"+sb.ID+"/execute", "application/json", `{"command":"env"}`)
	if env := read[rest.ExecResult](t, text).Stdout; strings.Count(env, "KEY=abx-secret-") != 1 || strings.Count(env, "B=abx-secret-") != 1 {
		t.Errorf("its environment: %s", env)
	}
	for body, want := range map[string]string{
		`{"secrets":["NONE"]}`: "secrets", `{"secrets":["KEY","KEY"]}`: "secrets", `{"secrets":["KEY"],"env":{"KEY":"x"}}`: "secrets", `{"secrets":["a b"]}`: "secrets",
	} {
		resp, text := w.do(w.user, "POST", "/api/v1/sandboxes", "application/json", body)
		if p := read[server.Problem](t, text); resp.StatusCode != 400 || p.Field != want {
			t.Errorf("%s: %s", body, text)
		}
	}
	for _, want := range []int{204, 404} {
		if resp, text := w.do(w.user, "DELETE", "/api/v1/secrets/KEY", "", ""); resp.StatusCode != want {
			t.Errorf("remove: %d %s, want %d", resp.StatusCode, text, want)
		}
	}
	if _, text := w.do(w.user, "GET", "/api/v1/audit", "", ""); strings.Contains(text, secretText) || strings.Count(text, `"action":"secret"`) != 5 || !strings.Contains(text, `"set":"KEY"`) || !strings.Contains(text, `"hosts":"api.example.com"`) || !strings.Contains(text, `"header":"Authorization"`) {
		t.Errorf("the audit log: %s", text)
	}
}

// TestLEAK08_Refused: a body that is refused is not repeated, wherever the value
// stands in it.
func TestLEAK08_Refused(t *testing.T) {
	w := start(t)
	bad := []string{
		`{"name":"K","value":"%s\n","hosts":["a.example"]}`, `{"name":"K","value":["%s"],"hosts":["a.example"]}`, `{"name":"K","value":{"v":"%s"},"hosts":["a.example"]}`,
		`{"name":"K","valeu":"%s","hosts":["a.example"]}`, `{"value":"%s","hosts":["a.example"]}`, `{"name":"K","value":"%s"}`, `{"name":"K","value":"%s","hosts":"a"}`,
		`{"name":"K","value":"%s","hosts":["a.example"],"header":"X Y"}`, `{"name":1,"value":"%s","hosts":[]}`, `{"name":"K","value":"%s","hosts":[]}`, `["%s"]`, `"%s"`, `{"value":"%s"`,
		`{"name":"%s","value":"x","hosts":["a.example"]}`, `{"name":"K","value":"%s","hosts":["a.example"],"extra":1}`, `{"name":"K","value":"x2345678","hosts":["a.example"],"format":"Bearer %s"}`,
		`{"name":"K","value":"x2345678","hosts":["%s"]}`, `{"name":"K","value":"x2345678","hosts":["%s/"]}`, `{"name":"K","value":"x2345678","hosts":["%s:x"]}`, `{"name":"K","value":"x2345678","hosts":["a.example:%s"]}`, `{"name":"K","value":"x2345678","hosts":["*.%s.a_b!.example"]}`, `{"name":"K","value":"x2345678","hosts":["a.example"],"header":"X %s"}`, `{"name":"K","value":"%s","value":"%[1]s","hosts":["a.example"]}`,
	}
	for _, body := range bad {
		body = fmt.Sprintf(body, secretText)
		resp, text := w.do(w.user, "POST", "/api/v1/secrets", "application/json", body)
		if resp.StatusCode/100 != 4 || strings.Contains(text, secretText) {
			t.Errorf("%s: %d %s", body, resp.StatusCode, text)
		}
	}
	// The control: other routes repeat what was wrong.
	if _, text := w.do(w.user, "POST", "/api/v1/sandboxes", "application/json", `{"user":["`+secretText+`"]}`); !strings.Contains(text, secretText) {
		t.Errorf("the control: %s", text)
	}
	if _, text := w.do(w.user, "GET", "/api/v1/audit", "", ""); strings.Contains(text, secretText) {
		t.Errorf("the audit log: %s", text)
	}
}

// TestTEN09Secrets: another owner's secret is not there, for an admin either.
func TestTEN09Secrets(t *testing.T) {
	w := start(t)
	w.setSecret(w.user, "KEY")
	if _, text := w.do(w.admin, "GET", "/api/v1/secrets", "", ""); len(read[rest.List[json.RawMessage]](t, text).Items) != 0 {
		t.Errorf("another's list: %s", text)
	}
	_, none := w.do(w.admin, "DELETE", "/api/v1/secrets/NONE", "", "")
	if resp, text := w.do(w.admin, "DELETE", "/api/v1/secrets/KEY", "", ""); resp.StatusCode != 404 || read[server.Problem](t, text).Detail != read[server.Problem](t, none).Detail {
		t.Errorf("another removes it: %d %s", resp.StatusCode, text)
	}
	if resp, text := w.do(w.admin, "POST", "/api/v1/sandboxes", "application/json", `{"secrets":["KEY"]}`); resp.StatusCode != 400 {
		t.Errorf("another's sandbox has it: %s", text)
	}
	if got := w.setSecret(w.admin, "KEY"); got != 201 {
		t.Errorf("a secret of the same name: %d", got)
	}
	if resp, _ := w.do(w.admin, "DELETE", "/api/v1/secrets/KEY", "", ""); resp.StatusCode != 204 {
		t.Errorf("remove one's own: %d", resp.StatusCode)
	}
	if _, text := w.do(w.user, "GET", "/api/v1/secrets", "", ""); len(read[rest.List[rest.Secret]](t, text).Items) != 1 {
		t.Errorf("its owner has lost it: %s", text)
	}
}
