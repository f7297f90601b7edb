package e2e

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestRES16: the server has no more sandboxes than it may; one that nobody uses goes
// at its time, and each kind of use keeps it.
func TestRES16(t *testing.T) {
	t.Parallel()
	const most = 6
	idle := time.Duration(Sized(6, 60)) * time.Second
	d := StartDaemon(t, "--limits-sandboxes", "6", "--sandbox-memory", "160m", "--sandbox-idle-timeout", idle.String())
	c := d.Tenant("acme")
	uses := c.uses(idle / 4)
	boxes := map[string]string{}
	for kind := range uses {
		boxes[kind] = c.Create(`{}`).ID
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var users sync.WaitGroup
	for kind, use := range uses {
		users.Go(func() { use(ctx, boxes[kind]) })
	}
	unused := c.Create(`{}`).ID
	made := time.Now()
	a := c.Send("POST", api+"/sandboxes", `{}`)
	if a.Code != http.StatusTooManyRequests || a.Problem().Code != "limit_exceeded" || a.Header.Get("Retry-After") == "" || a.Problem().Detail != "Maximum number of sandboxes (6) reached" {
		t.Errorf("one too many: %v", a)
	}
	gone := func(id string) bool {
		p := c.Send("GET", api+"/sandboxes/"+id, "").Problem() // to look at it is no use
		return p.Code == "sandbox_expired"
	}
	for !gone(unused) {
		if since := time.Since(made); since > idle+Slack() {
			t.Fatalf("unused, and there after %v", since)
		}
		time.Sleep(20 * time.Millisecond)
	}
	if took := time.Since(made); took < idle*9/10 {
		t.Errorf("unused, and gone after %v of %v", took, idle)
	} else {
		t.Logf("unused, and gone after %v of %v", took, idle)
	}
	for time.Since(made) < idle*3/2 { // longer than any of them may live unused
		time.Sleep(50 * time.Millisecond)
	}
	for kind, id := range boxes {
		if a := c.Send("GET", api+"/sandboxes/"+id, ""); a.Code != 200 {
			t.Errorf("in use by a %s: %v", kind, a)
		}
	}
	if got := c.Sandboxes(); len(got) != most-1 || slices.Contains(got, unused) {
		t.Errorf("the sandboxes are %v", got)
	}
	c.Create(`{}`) // there is room again
	stop()
	users.Wait()
	ended := time.Now()
	for kind, id := range boxes {
		Until(t, soon, "the end of the one that was in use by a "+kind, func() bool { return gone(id) })
		if took := time.Since(ended); took > idle+15*time.Second+Slack() { // a client that left a stream may come back for 5 s
			t.Errorf("%s: gone %v after its last use", kind, took)
		}
	}
}

// uses are the kinds of use that keep a sandbox, each until its context ends; those that
// take no time come again after a pause.
func (c *Client) uses(pause time.Duration) map[string]func(ctx context.Context, id string) {
	return map[string]func(ctx context.Context, id string){
		"command": again(pause, func(id string) { c.Send("POST", api+"/sandboxes/"+id+"/execute", `{"command":"true"}`) }),
		"file":    again(pause, func(id string) { c.Read(id, "/etc/hostname") }),
		"port": func(ctx context.Context, id string) {
			c.Sh(id, "setsid python3 -m http.server 8000 >/dev/null 2>&1 &")
			again(pause, func(id string) { c.Send("GET", api+"/sandboxes/"+id+"/ports/8000/connect", "", upgrade...) })(ctx, id)
		},
		"stream": func(ctx context.Context, id string) {
			resp, err := c.Open(c.t.Context(), "POST", api+"/sandboxes/"+id+"/execute/stream", strings.NewReader(`{"command":"sleep 600"}`))
			if err != nil {
				c.t.Error(err)
				return
			}
			<-ctx.Done()
			resp.Body.Close()
		},
		"running command": func(ctx context.Context, id string) {
			exec := c.Background(id, "sleep 600")
			<-ctx.Done()
			c.Send("POST", api+"/sandboxes/"+id+"/execs/"+exec+"/signal", `{"signal":"KILL"}`)
		},
	}
}

// again uses a sandbox now and then.
func again(pause time.Duration, use func(id string)) func(ctx context.Context, id string) {
	return func(ctx context.Context, id string) {
		for {
			use(id)
			select {
			case <-ctx.Done():
				return
			case <-time.After(pause):
			}
		}
	}
}
