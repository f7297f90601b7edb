package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"agentbox/internal/guest/client"
	"agentbox/internal/sandbox"
)

// longRemotes starts, through REST, what takes long because it waits.
func longRemotes(r *restBox) {
	every := func(id string, seconds, limit int) {
		cmd := sandbox.Command{Shell: fmt.Sprintf("sleep %d; echo ok", seconds), Timeout: time.Duration(limit) * time.Second}
		tty := cmd
		tty.TTY = true
		inside := *r
		inside.session = "long-" + id
		start(id, "REST, waiting", func() (string, error) { return r.text(cmd, false) })
		start(id, "REST, streaming", func() (string, error) { return r.text(cmd, true) })
		start(id, "REST, terminal", func() (string, error) { return r.text(tty, true) })
		start(id, "REST, session", func() (string, error) {
			if err := r.call("POST", "/sessions", fmt.Sprintf(`{"name":%q}`, inside.session), nil); err != nil {
				return "", err
			}
			return inside.text(cmd, false)
		})
		start(id, "agentbox exec", func() (string, error) {
			cmd := exec.Command(os.Getenv(envBin), "--data-dir", r.d.Dir, "exec", "--timeout", fmt.Sprintf("%ds", limit), r.id, "--", "sh", "-c", cmd.Shell)
			out, err := cmd.Output()
			return string(out), err
		})
	}
	every("B048", 75, 120)
	every("B050", 35, 45)
	start("B056", "REST", r.detached)
	start("B076", "streaming", r.quietStream)
	start("B076", "waiting", r.quietWait)
	start("B168", "waiting", func() (string, error) { return idleUnder(r.d, false) })
	start("B168", "streaming", func() (string, error) { return idleUnder(r.d, true) })
	start("B170", "looked at", func() (string, error) { return lookedAt(r.d) })
	for name, use := range uses {
		start("B173", name, func() (string, error) { return usedQuietly(r.d, use) })
	}
}

// call sends JSON to a path below the sandbox's.
func (r *restBox) call(method, path, body string, out any) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	return r.d.ask(ctx, method, r.at(path), body, out)
}

// text is the output of a command that must exit 0.
func (r *restBox) text(cmd sandbox.Command, stream bool) (string, error) {
	var buf strings.Builder
	var out client.Output
	if stream {
		out = client.Output{Stdout: &buf}
	}
	res, err := r.try(cmd, nil, out)
	if err != nil {
		return "", err
	}
	if res.ShellCode() != 0 {
		return "", errors.New(Describe(res))
	}
	return buf.String() + string(res.Stdout), nil
}

// detached starts a command without a time limit and looks for what it left.
func (r *restBox) detached() (string, error) {
	if err := r.call("POST", "/execute", `{"command":"sleep 70; echo fin ok > /workspace/fin-rest","detach":true}`, nil); err != nil {
		return "", err
	}
	return awaited(func() (string, error) {
		return r.text(sandbox.Command{Shell: "cat /workspace/fin-rest", Timeout: time.Minute}, false)
	})
}

// impatient is a proxy to the daemon that cuts a connection on which nothing
// comes from the daemon for 20 s, as proxies do. It returns a daemon that is
// reached through it.
func impatient(d *Daemon) (*Daemon, func(), error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				to, err := net.Dial("tcp", strings.TrimPrefix(d.URL, "http://"))
				if err != nil {
					return
				}
				defer to.Close()
				go func() { _, _ = io.Copy(to, conn) }() // ends with the connection
				buf := make([]byte, 64<<10)
				for {
					_ = to.SetReadDeadline(time.Now().Add(20 * time.Second))
					n, err := to.Read(buf)
					if n > 0 {
						_, err = conn.Write(buf[:n])
					}
					if err != nil {
						return
					}
				}
			}()
		}
	}()
	far := *d
	far.URL = "http://" + l.Addr().String()
	return &far, func() { _ = l.Close() }, nil
}

// quietStream follows a command that says nothing for long through a proxy that
// cuts silent connections.
func (r *restBox) quietStream() (string, error) {
	far, end, err := impatient(r.d)
	if err != nil {
		return "", err
	}
	defer end()
	box := &restBox{d: far, id: r.id}
	return box.text(sandbox.Command{Shell: fmt.Sprintf("sleep %d; echo ok", Sized(50, 100)), Timeout: 200 * time.Second}, true)
}

// quietWait: a waiting call is cut by such a proxy, which the documents say, and
// its result is found under its id.
func (r *restBox) quietWait() (string, error) {
	far, end, err := impatient(r.d)
	if err != nil {
		return "", err
	}
	defer end()
	body := fmt.Sprintf(`{"command":"sleep %d; echo ok","timeout":200,"env":{"MARK":"quiet"}}`, Sized(30, 100))
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	if err := far.ask(ctx, "POST", r.at("/execute"), body, nil); err == nil {
		return "", errors.New("the proxy does not cut: nothing is tested")
	}
	var all struct {
		Items []struct {
			ExecID  string `json:"exec_id"`
			Command []string
		}
	}
	if err := r.call("GET", "/execs?limit=1000", "", &all); err != nil {
		return "", err
	}
	for _, e := range all.Items {
		if strings.Contains(strings.Join(e.Command, " "), fmt.Sprintf("sleep %d; echo ok", Sized(30, 100))) {
			var done struct{ Result answered }
			err := r.call("POST", "/execs/"+e.ExecID+"/wait", "", &done)
			return done.Result.Stdout, err
		}
	}
	return "", errors.New("the command is not listed")
}

// makeIdle makes a sandbox that may be idle for 5 s.
func makeIdle(d *Daemon) (*restBox, error) {
	var sb served
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	err := d.ask(ctx, "POST", "/sandboxes", `{"idle_timeout":5}`, &sb)
	return &restBox{d: d, id: sb.ID}, err
}

// idleUnder runs a command that is longer than the sandbox may be idle, and sees
// the sandbox go afterwards.
func idleUnder(d *Daemon, stream bool) (string, error) {
	r, err := makeIdle(d)
	if err != nil {
		return "", err
	}
	text, err := r.text(sandbox.Command{Shell: fmt.Sprintf("sleep %d; echo ok", Sized(11, 20)), Timeout: time.Minute}, stream)
	if err != nil {
		return "", err
	}
	return text, r.reaped(time.Now(), 4*time.Second, 12*time.Second)
}

// reaped waits until the sandbox is gone for being idle: not before least and not
// after most from began on.
func (r *restBox) reaped(began time.Time, least, most time.Duration) error {
	for {
		err := r.call("GET", "", "", nil)
		took := time.Since(began)
		var p *Problem
		switch {
		case errors.As(err, &p) && p.Code == "sandbox_expired" && p.Reason == "idle":
			if took < least {
				return fmt.Errorf("reaped after %v already", took)
			}
			return nil
		case err != nil:
			return err
		case took > most+Slack():
			return fmt.Errorf("not reaped after %v", took)
		}
		time.Sleep(500 * time.Millisecond)
	}
}

// lookedAt looks at a sandbox in all ways that are no use of it.
func lookedAt(d *Daemon) (string, error) {
	r, err := makeIdle(d)
	if err != nil {
		return "", err
	}
	began := time.Now()
	end := make(chan struct{})
	go func() {
		for {
			for _, path := range []string{"", "/stats", "/isolation", "/events", "/execs", "/ports"} {
				_ = r.call("GET", path, "", nil) // it may be gone
			}
			_ = d.ask(context.Background(), "GET", "/sandboxes", "", nil)
			for _, path := range []string{"/health", "/readiness"} {
				if resp, err := http.Get(d.URL + path); err == nil { //nolint:noctx // it is local
					resp.Body.Close()
				}
			}
			select {
			case <-end:
				return
			case <-time.After(time.Second):
			}
		}
	}()
	defer close(end)
	return "ok", r.reaped(began, 4*time.Second, 12*time.Second)
}

// uses keep a sandbox in use without a word for longer than it may be idle.
var uses = map[string]func(r *restBox, long time.Duration) error{
	"terminal": func(r *restBox, long time.Duration) error {
		w, err := (&Box{t: discard{}, remote: r}).dialTerminal("")
		if err != nil {
			return err
		}
		defer w.Drop()
		return quiet(w.done, long)
	},
	"watch": func(r *restBox, long time.Duration) error {
		ctx, cancel := context.WithTimeout(context.Background(), long)
		defer cancel()
		s, err := r.d.Events(ctx, r.d.Key, "GET", r.at("/files/watch?path=/workspace"), "")
		if err != nil {
			return err
		}
		defer s.Close()
		for {
			if _, err := s.Next(); err != nil {
				return only(ctx, err)
			}
		}
	},
	"upload": func(r *restBox, long time.Duration) error {
		pr, pw := io.Pipe()
		go func() {
			_, _ = pw.Write([]byte("o"))
			time.Sleep(long)
			_, _ = pw.Write([]byte("k"))
			_ = pw.Close()
		}()
		return r.WriteFile(context.Background(), "/workspace/slow", pr, client.WriteOptions{})
	},
	"detached": func(r *restBox, long time.Duration) error {
		err := r.call("POST", "/execute", fmt.Sprintf(`{"command":"sleep %v","detach":true}`, long.Seconds()), nil)
		time.Sleep(long)
		return err
	},
}

// quiet waits for long, in which done must not be closed.
func quiet(done <-chan struct{}, long time.Duration) error {
	select {
	case <-done:
		return errors.New("it was cut")
	case <-time.After(long):
		return nil
	}
}

// only is an error that is not the end of the context.
func only(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// discard is a test whose failures nobody sees: what is used with it returns
// errors.
type discard struct{ testing.TB }

func (discard) Cleanup(func()) {}

func usedQuietly(d *Daemon, use func(*restBox, time.Duration) error) (string, error) {
	r, err := makeIdle(d)
	if err != nil {
		return "", err
	}
	if err := use(r, 11*time.Second); err != nil {
		return "", err
	}
	var sb served
	err = r.call("GET", "", "", &sb)
	if err != nil || sb.Status != "running" {
		return "", fmt.Errorf("after it the sandbox is %+v: %w", sb, err)
	}
	return "ok", nil
}

// TestB076: silence cuts no stream, and a waiting call that a proxy cut can be
// taken up again.
func TestB076(t *testing.T) { longResult(t, "B076") }

// TestB168: a sandbox is not idle while a command runs in it.
func TestB168(t *testing.T) { longResult(t, "B168") }

// TestB170: looking at a sandbox does not keep it alive.
func TestB170(t *testing.T) { longResult(t, "B170") }

// TestB173: terminals, watches, transfers and commands in the background are
// uses of a sandbox.
func TestB173(t *testing.T) { longResult(t, "B173") }
