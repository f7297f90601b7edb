package e2e

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// local asks through the local socket for something outside of /api/v1.
func (d *Daemon) local(path string) string {
	d.t.Helper()
	c := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(d.Dir, "agentbox.sock"))
	}}}
	resp, err := c.Get("http://agentbox" + path)
	if err != nil {
		d.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != 200 {
		d.t.Fatalf("%s: %d %v", path, resp.StatusCode, err)
	}
	return string(b)
}

// metric is the value of a metric without labels.
func (d *Daemon) metric(name string) float64 {
	d.t.Helper()
	for lines := bufio.NewScanner(strings.NewReader(d.local("/metrics"))); lines.Scan(); {
		if v, ok := strings.CutPrefix(lines.Text(), name+" "); ok {
			f, err := strconv.ParseFloat(v, 64)
			if err != nil {
				d.t.Fatal(err)
			}
			return f
		}
	}
	d.t.Fatalf("there is no metric %s", name)
	return 0
}

// heap is what the daemon has in memory and still needs.
func (d *Daemon) heap() float64 {
	d.t.Helper()
	d.local("/debug/pprof/heap?gc=1")
	return d.metric("go_memstats_heap_alloc_bytes")
}

// TestMemoryOfManyCommands: the daemon keeps nothing of a command that ended.
func TestMemoryOfManyCommands(t *testing.T) {
	d := StartDaemon(t)
	var sb served
	if code := d.Do(d.Key, "POST", "/sandboxes", `{}`, &sb); code != 201 {
		t.Fatal(code)
	}
	run := func(n int) {
		t.Helper()
		for range n {
			var res executed
			if code := d.Do(d.Key, "POST", "/sandboxes/"+sb.ID+"/execute", `{"command":"echo hi"}`, &res); code != 200 || res.Output != "hi\n" {
				t.Fatalf("%d %+v", code, res)
			}
		}
	}
	run(100) // caches and pools are full
	before := d.heap()
	n := Sized(400, 10_000)
	run(n)
	// A kilobyte for each of the 10,000 would be 10 MB.
	if grown := d.heap() - before; grown > 2<<20 {
		t.Errorf("after %d commands the daemon has %.0f bytes more in memory", n, grown)
	}
	if got := d.local("/metrics"); !strings.Contains(got, fmt.Sprintf(`agentbox_execs_total{result="exited"} %d`+"\n", n+100)) {
		t.Errorf("the metrics count other than %d commands", n+100)
	}
}

// TestManyClients: many clients at once see no error.
func TestManyClients(t *testing.T) {
	d := StartDaemon(t)
	clients, boxes, span := Sized(10, 100), Sized(3, 20), time.Duration(Sized(3, 60))*time.Second
	for i := range boxes {
		if code := d.Do(d.Key, "POST", "/sandboxes", fmt.Sprintf(`{"name":"box%d"}`, i), nil); code != 201 {
			t.Fatal(code)
		}
	}
	var wg sync.WaitGroup
	errs := make(chan error, clients)
	ctx, cancel := context.WithTimeout(t.Context(), span)
	defer cancel()
	for i := range clients {
		wg.Go(func() { errs <- d.keepRunning(ctx, fmt.Sprintf("box%d", i%boxes), i) })
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			t.Error(err)
		}
	}
}

// keepRunning runs commands until ctx ends; the last one is let end.
func (d *Daemon) keepRunning(ctx context.Context, box string, client int) error {
	for n := 0; ctx.Err() == nil; n++ {
		body := fmt.Sprintf(`{"command":"echo %d-%d"}`, client, n)
		r, err := http.NewRequest("POST", d.URL+"/api/v1/sandboxes/"+box+"/execute", strings.NewReader(body))
		if err != nil {
			return err
		}
		r.Header.Set("Authorization", "Bearer "+d.Key)
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			return err
		}
		text, err := io.ReadAll(resp.Body)
		if err := errors.Join(err, resp.Body.Close()); err != nil {
			return err
		}
		if want := fmt.Sprintf(`"stdout":"%d-%d\n"`, client, n); resp.StatusCode != 200 || !strings.Contains(string(text), want) {
			return fmt.Errorf("%s: %d %s", body, resp.StatusCode, text)
		}
	}
	return nil
}
