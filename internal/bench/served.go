package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// served is a daemon of our own, reached through its local socket as Docker's is.
type served struct {
	http http.Client
	cmd  *exec.Cmd
	dir  string
	log  *os.File
	// socket is where it is reached.
	socket string
}

// startServed starts a daemon with the images of dataDir, everything else in dir and
// further flags.
func startServed(ctx context.Context, program, dataDir, dir, image string, flags ...string) (_ *served, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	for _, name := range []string{"images", "engine", "guest"} {
		from, err := filepath.Abs(filepath.Join(dataDir, name))
		if err != nil {
			return nil, err
		}
		if err := os.Symlink(from, filepath.Join(dir, name)); err != nil {
			return nil, err
		}
	}
	s := &served{dir: dir, socket: filepath.Join(dir, "agentbox.sock")}
	if s.log, err = os.Create(filepath.Join(dir, "log")); err != nil {
		return nil, err
	}
	flags = append([]string{"serve", "--data-dir", dir, "--listen", "127.0.0.1:0", "--socket", s.socket, "--sandbox-image", image, "--ephemeral"}, flags...)
	s.cmd = exec.Command(program, flags...)
	s.cmd.Stdout, s.cmd.Stderr = s.log, s.log
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	if err := s.cmd.Start(); err != nil {
		return nil, errors.Join(err, s.log.Close())
	}
	s.http.Transport = &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", s.socket)
	}}
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if s.call(ctx, "GET", "/version", nil, nil) == nil {
			return s, nil
		}
	}
	text, _ := os.ReadFile(s.log.Name()) // for the message
	return nil, errors.Join(fmt.Errorf("the daemon did not come up: %s", text[max(0, len(text)-500):]), s.stop())
}

// stop ends the daemon with all that it has.
func (s *served) stop() error {
	_ = s.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	err := s.cmd.Wait()
	return errors.Join(err, s.log.Close(), os.RemoveAll(s.dir))
}

// call does one request; what is answered is decoded to out, if that is not nil.
func (s *served) call(ctx context.Context, method, path string, body, out any) error {
	r, err := s.open(ctx, method, path, body)
	if err != nil {
		return err
	}
	defer r.Close()
	if out == nil {
		_, err = io.Copy(io.Discard, r)
		return err
	}
	return json.NewDecoder(r).Decode(out)
}

func (s *served) open(ctx context.Context, method, path string, body any) (io.ReadCloser, error) {
	var in io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		in = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://agentbox/api/v1"+path, in)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := s.http.Do(req)
	if err != nil {
		return nil, err
	}
	if res.StatusCode >= 300 {
		defer res.Body.Close()
		text, _ := io.ReadAll(io.LimitReader(res.Body, 1000)) // whatever there is
		return nil, fmt.Errorf("%s %s: %s: %s", method, path, res.Status, text)
	}
	return res.Body, nil
}

func (s *served) create(ctx context.Context) (id string, err error) {
	var out struct{ ID string }
	err = s.call(ctx, "POST", "/sandboxes", map[string]any{}, &out)
	return out.ID, err
}

func (s *served) destroy(ctx context.Context, id string) error {
	return s.call(ctx, "DELETE", "/sandboxes/"+id, nil, nil)
}

// exec runs a command that must succeed.
func (s *served) exec(ctx context.Context, id string, argv ...string) error {
	_, err := s.output(ctx, id, argv...)
	return err
}

// output is what a command said that must succeed.
func (s *served) output(ctx context.Context, id string, argv ...string) (string, error) {
	var out struct {
		ExitCode       int `json:"exit_code"`
		Stdout, Stderr string
	}
	err := s.call(ctx, "POST", "/sandboxes/"+id+"/execute", map[string]any{"command": argv}, &out)
	if err == nil && out.ExitCode != 0 {
		err = fmt.Errorf("%.100q ended with %d: %s", argv, out.ExitCode, out.Stderr)
	}
	return out.Stdout, err
}

// commandLine calls the program as a client of the daemon.
func (s *served) commandLine(ctx context.Context, args ...string) error {
	out, err := exec.CommandContext(ctx, s.cmd.Path, append([]string{"--data-dir", s.dir}, args...)...).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("agentbox %q: %w: %s", args, err, out)
	}
	return err
}

// ticker writes the time, so often, with pauses.
func ticker(times int) []string {
	return []string{"python3", "-c", fmt.Sprintf("import time\nfor _ in range(%d): time.sleep(0.03); print(time.time_ns(), flush=True)", times)}
}

// delays reads times from lines and adds how long ago each was.
func delays(s *samples, lines io.Reader, text func(line string) (string, bool)) error {
	scan := bufio.NewScanner(lines)
	for scan.Scan() {
		now := time.Now()
		t, ok := text(scan.Text())
		if !ok {
			continue
		}
		nanos, err := strconv.ParseInt(strings.TrimSpace(t), 10, 64)
		if err != nil {
			return err
		}
		s.add(now.Sub(time.Unix(0, nanos)))
	}
	return scan.Err()
}

// stream follows a command that writes the time.
func (s *served) stream(ctx context.Context, id string, to *samples, times int) error {
	r, err := s.open(ctx, "POST", "/sandboxes/"+id+"/execute/stream", map[string]any{"command": ticker(times)})
	if err != nil {
		return err
	}
	defer r.Close()
	return delays(to, r, func(line string) (string, bool) {
		var out struct{ Data string }
		data, ok := strings.CutPrefix(line, "data: ")
		ok = ok && json.Unmarshal([]byte(data), &out) == nil && out.Data != ""
		return out.Data, ok
	})
}
