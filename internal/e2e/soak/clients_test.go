package soak

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"agentbox/internal/e2e"
)

// TestServiceClients lets many clients at once use few sandboxes: each call has its
// right answer.
func TestServiceClients(t *testing.T) {
	clients, boxes, span := e2e.Sized(20, 100), e2e.Sized(4, 20), time.Duration(e2e.Sized(5, 60))*time.Second
	d := e2e.StartDaemon(t)
	parallel(2, boxes, func(i int) {
		a, err := d.Try(e2e.Call{Key: d.Key, Method: "POST", Path: "/sandboxes", Body: fmt.Sprintf(`{"name":"b%d"}`, i)})
		if err != nil || a.Code != http.StatusCreated {
			t.Errorf("create: %d %s, %v", a.Code, a.Text, err)
		}
	})
	if t.Failed() {
		return
	}
	var calls atomic.Int64
	var busy sync.WaitGroup
	end := time.Now().Add(span)
	for c := range clients {
		busy.Go(func() {
			for n := 0; time.Now().Before(end) && !t.Failed(); n++ {
				if wrong := useBox(d, fmt.Sprintf("/sandboxes/b%d", (c+n)%boxes), fmt.Sprintf("%d-%d", c, n), n); wrong != "" {
					t.Errorf("client %d, call %d: %s", c, n, wrong)
				}
				calls.Add(1)
			}
		})
	}
	busy.Wait()
	t.Logf("%d clients on %d sandboxes: %d calls in %v", clients, boxes, calls.Load(), span)
}

// useBox does one of the things that clients do, and tells what was wrong.
func useBox(d *e2e.Daemon, box, word string, n int) string {
	call := e2e.Call{Key: d.Key, Method: "GET", Path: box}
	code, want := http.StatusOK, ""
	switch n % 4 {
	case 0, 1:
		body, err := json.Marshal(map[string]string{"command": "echo " + word})
		if err != nil {
			return err.Error()
		}
		call.Method, call.Path, call.Body, want = "POST", box+"/execute", string(body), `"output":"`+word+`\n"`
	case 2:
		call.Method, call.Path, call.Body, code = "PUT", box+"/files?path=f-"+word, word, http.StatusNoContent
		call.Header = map[string]string{"Content-Type": "application/octet-stream"}
	case 3:
		want = `"status":"running"`
	}
	a, err := d.Try(call)
	if err != nil {
		return err.Error()
	}
	if a.Code != code || !strings.Contains(a.Text, want) {
		return fmt.Sprintf("%s %s: %d %s", call.Method, call.Path, a.Code, a.Text)
	}
	if n%4 != 2 {
		return ""
	}
	call = e2e.Call{Key: d.Key, Method: "DELETE", Path: box + "/files?path=f-" + word}
	if a, err = d.Try(call); err != nil || a.Code != http.StatusNoContent {
		return fmt.Sprintf("%s %s: %d %s, %v", call.Method, call.Path, a.Code, a.Text, err)
	}
	return ""
}
