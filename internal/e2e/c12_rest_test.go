package e2e

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"agentbox/internal/guest/client"
	"agentbox/internal/sandbox"
)

// TestB037: a stream that breaks is no result: there is no exit code, and the
// command line says so.
func TestB037(t *testing.T) {
	t.Parallel()
	d := StartDaemon(t)
	box := d.Box(d.Make(nil))
	streamed := make(chan error, 1)
	go func() {
		res, err := box.Try(sandbox.Command{Shell: "sleep 33.37; exit 0"}, nil, client.Output{Stdout: io.Discard})
		if err == nil {
			err = errors.New("a result: " + Describe(res))
		} else {
			err = nil
		}
		streamed <- err
	}()
	cli := exec.Command(Binary(t), "--data-dir", d.Dir, "exec", box.remote.id, "--", "sh", "-c", "sleep 33.37; exit 0")
	var stderr bytes.Buffer
	cli.Stderr = &stderr
	if err := cli.Start(); err != nil {
		t.Fatal(err)
	}
	Until(t, 10*time.Second, "both run", func() bool { return box.Count("33.37") >= 2 })
	d.Kill()
	if err := <-streamed; err != nil {
		t.Errorf("the stream ended with %v", err)
	}
	_ = cli.Wait() // its status is looked at
	if code := cli.ProcessState.ExitCode(); code != 125 || stderr.Len() == 0 {
		t.Errorf("agentbox exec ended with %d: %s", code, stderr.String())
	}
	if out := d.Run("exec", box.remote.id, "--", "true"); out.Code != 125 || out.Stderr == "" {
		t.Errorf("agentbox exec without a server: %+v", out)
	}
	d.Start()
}

// TestB096: an upload that does not fit says so, and leaves nothing.
func TestB096(t *testing.T) {
	t.Parallel()
	box := NewRemote(t, sandbox.Limits{Disk: 20 * sandbox.MiB})
	r := box.remote
	big := bytes.Repeat([]byte("0123456789abcdef"), 2<<20) // 32 MiB
	form := "--x\r\nContent-Disposition: form-data; name=\"file\"; filename=\"big\"\r\n\r\n"
	for name, send := range map[string]func() error{
		"with a length": func() error {
			return r.send(t.Context(), "PUT", r.query("", "/workspace/big", ""), bytes.NewReader(big), "application/octet-stream")
		},
		"in chunks": func() error {
			return r.send(t.Context(), "PUT", r.query("", "/workspace/big", ""), io.MultiReader(bytes.NewReader(big)), "application/octet-stream")
		},
		"a form": func() error {
			body := io.MultiReader(strings.NewReader(form), bytes.NewReader(big), strings.NewReader("\r\n--x--\r\n"))
			return r.send(t.Context(), "POST", r.at("/files/upload"), body, "multipart/form-data; boundary=x")
		},
	} {
		var p *Problem
		if err := send(); !asProblem(err, &p) || p.Status != http.StatusRequestEntityTooLarge && p.Status != http.StatusInsufficientStorage || len(p.Detail) < 5 {
			t.Errorf("%s: %v", name, err)
		}
		box.Want("", "ls -A /workspace")
		box.Want("ok\n", "head -c 10000000 /dev/zero > /workspace/f && rm /workspace/f && echo ok") // the room is free again
	}
	var p *Problem
	err := r.d.ask(t.Context(), "POST", r.at("/execute"), `{"command":"cat","stdin":"`+strings.Repeat("x", 80<<20)+`"}`, nil)
	if !asProblem(err, &p) || p.Status != http.StatusRequestEntityTooLarge || p.Code != "too_large" {
		t.Errorf("a JSON body of 80 MiB: %.200v", err)
	}
}

// TestB101: a download has the name of the file, whatever characters are in it.
func TestB101(t *testing.T) {
	t.Parallel()
	box := NewRemote(t, sandbox.Limits{})
	r := box.remote
	for name, want := range map[string]string{
		"John's report (1) ü 日本.txt": `filename*=UTF-8''John%27s%20report%20%281%29%20%C3%BC%20%E6%97%A5%E6%9C%AC.txt`,
		"plain.txt":                  `filename="plain.txt"`,
		"a:b=c@d,e;f*ü.bin":          `filename*=UTF-8''a%3Ab%3Dc%40d%2Ce%3Bf%2A%C3%BC.bin`,
		`quo"te\.txt`:                `filename*=UTF-8''quo%22te%5C.txt`,
		"100%.txt":                   `filename*=UTF-8''100%25.txt`,
	} {
		writeFile(t, box.Files(), "/workspace/"+name, "body of "+name, client.WriteOptions{})
		resp, err := r.d.Admin().Request(t.Context(), "GET", r.at("/files/download?"+query("path", name)), nil)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		header := resp.Header.Get("Content-Disposition")
		if err != nil || string(body) != "body of "+name || !strings.Contains(header, want) || !strings.HasPrefix(header, `attachment; filename="`) {
			t.Errorf("%s: %q, %v, header %s, want %s", name, body, err, header, want)
		}
		for _, c := range header {
			if c < ' ' || c > '~' {
				t.Errorf("the header has %q: %s", c, header)
			}
		}
	}
	// curl takes the name without the extended form.
	dir := t.TempDir()
	cmd := exec.Command("curl", "-sfOJ", "-H", "Authorization: Bearer "+r.d.Key, r.d.URL+"/api/v1"+r.at("/files/download?"+query("path", "plain.txt")))
	cmd.Dir = dir
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(filepath.Join(dir, "plain.txt")); err != nil || string(got) != "body of plain.txt" {
		t.Errorf("curl -OJ: %q, %v", got, err)
	}
}
