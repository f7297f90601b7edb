package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
)

// TestNetworkChanges: of many changes of a list at once none is lost, by the API and
// by commands; one of two things that can't be is refused, and nothing of it holds.
func TestNetworkChanges(t *testing.T) {
	t.Parallel()
	l := sharedLab(t)
	c := l.Admin()
	c.Create(`{"name":"changes"}`)
	change := func(body string) Answer { return c.Send("PATCH", api+"/sandboxes/changes/network", body) }
	const n = 20
	var tasks sync.WaitGroup
	for i := range n {
		tasks.Go(func() {
			if a, err := c.Try("PATCH", api+"/sandboxes/changes/network", strings.NewReader(fmt.Sprintf(`{"add":["host-%d.allowed.test"]}`, i))); err != nil || a.Code != http.StatusOK {
				t.Errorf("change %d: %v %v", i, a, err)
			}
		})
	}
	if o := l.Run("egress", "allow", "changes", "allowed.test"); o.Code != 0 {
		t.Errorf("agentbox egress allow: %+v", o)
	}
	tasks.Wait()
	if got := c.network("changes"); len(got.Allow) != n+1 || got.Mode != "allowlist" {
		t.Errorf("of %d changes there are %v", n+1, got)
	}
	want(t, "given", c.Sh("changes", curl("http://allowed.test/")), "lab:")
	for _, body := range []string{`{"add":["fine.test"],"remove":["not-there.test"]}`, `{"add":["fine.test","a b"]}`} {
		if a := change(body); !a.Refused() || slices.Contains(c.network("changes").Allow, "fine.test") {
			t.Errorf("%s: %v", body, a)
		}
	}
	remove, _ := json.Marshal(c.network("changes").Allow)
	if a := change(`{"remove":` + string(remove) + `}`); a.Code != http.StatusOK || c.network("changes").Mode != "none" {
		t.Errorf("take all off: %v", a)
	}
	c.setNetwork("changes", `{"mode":"full"}`)
	if a := change(`{"add":["a.test"]}`); !a.Refused() {
		t.Errorf("a list beside full: %v", a)
	}
	// The audit log has of a long list how long it was, and its digest.
	a := c.Send("GET", api+"/audit?action=policy&limit=100", "")
	if !strings.Contains(a.Text, fmt.Sprintf(`"allow_count":"%d"`, n+1)) || !strings.Contains(a.Text, `"allow_sha256":"`) {
		t.Errorf("the audit log: %v", a)
	}
	l.clean()
}

// TestNetworkOfOthers: an admin sees what sandboxes of all owners were denied, and
// decides; nobody else does, and an admin sees no more of them than that.
func TestNetworkOfOthers(t *testing.T) {
	t.Parallel()
	l := sharedLab(t)
	admin, tenant := l.Admin(), l.Tenant("net-tenant")
	sb := tenant.Create(`{"name":"theirs","network":{"allow":["a.allowed.test"]}}`)
	want(t, "denied", tenant.Sh("theirs", curl("http://allowed.test/")), "Host not allowed")
	if a := tenant.Send("GET", api+"/network/requests", ""); a.Code != http.StatusForbidden {
		t.Errorf("a tenant asks for those of all: %v", a)
	}
	var list struct {
		Items []struct {
			ID, Owner, Sandbox, Host string
			Port                     int
		}
	}
	if code := l.Do(l.Key, "GET", "/network/requests", "", &list); code != http.StatusOK {
		t.Fatalf("the requests of all owners: %d", code)
	}
	i := slices.IndexFunc(list.Items, func(r struct {
		ID, Owner, Sandbox, Host string
		Port                     int
	}) bool {
		return r.Sandbox == sb.ID
	})
	if i < 0 || list.Items[i].Owner != "net-tenant" || list.Items[i].Host != "allowed.test" || list.Items[i].Port != 80 {
		t.Fatalf("the requests of all owners: %+v", list.Items)
	}
	decide := "/network/requests/" + list.Items[i].ID
	if a := tenant.Send("POST", api+"/sandboxes/theirs"+decide, `{"decision":"allow"}`); a.Code != http.StatusForbidden {
		t.Errorf("the tenant decides: %v", a)
	}
	if a := admin.Send("POST", api+"/sandboxes/theirs"+decide, `{"decision":"allow"}`); a.Code != http.StatusNotFound {
		t.Errorf("an admin decides by another owner's name: %v", a)
	}
	if a := admin.Send("POST", api+"/sandboxes/"+sb.ID+decide, `{"decision":"allow"}`); a.Code != http.StatusOK {
		t.Errorf("an admin decides: %v", a)
	}
	want(t, "allowed", tenant.Sh("theirs", curl("http://allowed.test/")), "lab:")
	for method, path := range map[string]string{"GET": "/network", "PUT": "/network", "PATCH": "/network", "DELETE": ""} {
		if a := admin.Send(method, api+"/sandboxes/"+sb.ID+path, `{}`); a.Code != http.StatusNotFound {
			t.Errorf("an admin's %s %s of another owner: %v", method, path, a)
		}
	}

	// The log of what a sandbox reached is its owner's also when it is gone.
	if a := tenant.Send("DELETE", api+"/sandboxes/theirs", ""); a.Code != http.StatusNoContent {
		t.Fatalf("destroy: %v", a)
	}
	for _, id := range []string{"theirs", sb.ID, sb.ShortID} {
		if a := tenant.Send("GET", api+"/sandboxes/"+id+"/network/log", ""); a.Code != http.StatusOK || !strings.Contains(a.Text, `"host":"allowed.test"`) {
			t.Errorf("the log by %.12s, when it is gone: %v", id, a)
		}
		if a := admin.Send("GET", api+"/sandboxes/"+id+"/network/log", ""); a.Code != http.StatusNotFound {
			t.Errorf("another owner asks for the log by %.12s: %v", id, a)
		}
	}
	l.clean()
}

// TestNetworkLogOfOpenConnections: a connection that lasts is in the log while it
// does, and stays there when the server is killed.
func TestNetworkLogOfOpenConnections(t *testing.T) {
	t.Parallel()
	l := newNetLab(t)
	c := l.Admin()
	c.Create(`{"name":"net","network":{"allow":["allowed.test"]}}`)
	c.Background("net", "curl -sN http://allowed.test/endless")
	Until(t, soon, "the connection is in the log", func() bool {
		return strings.Contains(c.Send("GET", api+"/sandboxes/net/network/log", "").Text, `"path":"/endless"`)
	})
	l.Kill()
	l.start()
	recs := c.connections("net", 1)
	if r := recs[0]; r["open"] != true || r["host"] != "allowed.test" || r["verdict"] != "allowed" || r["received"].(float64) == 0 {
		t.Errorf("the record is %v", r)
	}
	l.clean()
}
