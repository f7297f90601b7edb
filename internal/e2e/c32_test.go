package e2e

import (
	"net/http"
	"regexp"
	"strings"
	"testing"

	"agentbox/internal/sandbox"
)

// TestB208: a page that has its own name resolved to this machine reaches
// nothing.
func TestB208(t *testing.T) {
	t.Parallel()
	d := SharedDaemon(t)
	box := SharedRemote(t)
	for _, host := range []string{"evil.test", "evil.test:80", "127.0.0.1.evil.test", "localhost.evil.test"} {
		for _, path := range []string{
			"/api/v1/sandboxes", "/api/v1" + box.remote.at("/terminal"), "/api/v1" + box.remote.at("/ports/80/connect"), "/api/v1" + box.remote.at("/events?follow=1"),
			"/metrics", "/docs", "/openapi.json", "/health", "/readiness",
		} {
			r, err := http.NewRequestWithContext(t.Context(), "GET", d.URL+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Host = host
			r.Header.Set("Authorization", "Bearer "+d.Key)
			if strings.Contains(path, "/terminal") || strings.Contains(path, "/connect") {
				for name, value := range map[string]string{"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="} {
					r.Header.Set(name, value)
				}
			}
			resp, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != http.StatusForbidden && resp.StatusCode != http.StatusMisdirectedRequest {
				t.Errorf("%s at %s: %d", host, path, resp.StatusCode)
			}
		}
	}
	if code := d.Do(d.Key, "GET", "/sandboxes", "", nil); code != 200 {
		t.Errorf("by its own address: %d", code)
	}
}

// TestB210: a port that everybody reaches needs a key, and there is one.
func TestB210(t *testing.T) {
	t.Parallel()
	dir := DataDir(t)
	if out := Run(t, dir, "", "serve", "--no-auth", "--listen", "0.0.0.0:0", "--sandbox-image", Image); out.Code == 0 || !strings.Contains(out.Stderr, "without authentication") {
		t.Errorf("without keys for everybody: %+v", out)
	}
	d := StartDaemon(t, "--listen", "0.0.0.0:0")
	if !regexp.MustCompile(`^abx_[0-9a-f]{40}$`).MatchString(d.Key) {
		t.Fatalf("it prints the key %q", d.Key)
	}
	if strings.Contains(d.logs.String(), d.Key) {
		t.Error("the key is in the log")
	}
	d.URL = regexp.MustCompile(`//.*:`).ReplaceAllString(d.URL, "//127.0.0.1:")
	for key, want := range map[string]int{"": 401, "abx_" + strings.Repeat("0", 40): 401, d.Key: 200} {
		if code := d.Do(key, "GET", "/sandboxes", "", nil); code != want {
			t.Errorf("with the key %q: %d", key, code)
		}
	}
	first := d.Key
	if d.Stop(); d.Key != first {
		t.Error("the key changed")
	}
	d.Key = ""
	d.Start()
	if d.Key != "" {
		t.Error("the key is printed a second time")
	}
	d.URL, d.Key = regexp.MustCompile(`//.*:`).ReplaceAllString(d.URL, "//127.0.0.1:"), first
	d.Box(d.Make(nil)).Exec(sandbox.Command{Argv: []string{"true"}}, nil)
}
