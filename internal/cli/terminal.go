package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/coder/websocket"
	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"agentbox/internal/heartbeat"
)

// terminal is a command with a terminal that this process's is joined to.
type terminal struct {
	app    *App
	r      *remote
	box    string
	execID string
	offset int64 // how much of its output was shown
	raw    bool  // this process's terminal is

	mu sync.Mutex
	ws *websocket.Conn // nil: the server is away

	sizing sync.Mutex // keeps sizes in their order
}

// ctrlC is what a raw terminal makes of Ctrl-C.
const ctrlC = 3

// ctrlD ends the input of a terminal.
const ctrlD = 4

// execOnTerminal runs a command with a terminal.
func (a *App) execOnTerminal(ctx context.Context, r *remote, box string, f *execFlags, w *execWish) error {
	ctx, stop := untilSignal(ctx)
	defer stop()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// First the command, which then has five seconds to be joined: the request has
	// room for any environment, and it is in nobody's log.
	w.TTY, w.OpenStdin, w.Detach, w.OnDisconnect = true, f.stdin, true, "kill"
	w.Cols, w.Rows = terminalSize(a.Stdin)
	if t := os.Getenv("TERM"); t != "" && w.Env["TERM"] == "" {
		w.Env["TERM"] = t
	}
	var e execEnd
	if err := r.callWith(ctx, execution(box, "execute", w), &e); err != nil {
		return a.orInterrupted(ctx, err)
	}
	t := &terminal{app: a, r: r, box: box, execID: e.ExecID}
	end, err := t.use(ctx, cancel, f.stdin)
	if err != nil {
		return a.orInterrupted(ctx, err)
	}
	return a.ended(end)
}

// use joins this process's terminal to the command's until that has ended. Then
// the terminal is as it was, however it ended.
func (t *terminal) use(ctx context.Context, cancel context.CancelCauseFunc, stdin bool) (end *execEnd, err error) {
	if stdin {
		var restore func()
		t.raw, restore = makeRaw(t.app.Stdin)
		defer restore()
	}
	stop := watchTerminal(ctx, func() { t.resize(ctx) })
	defer stop()
	end, err = t.run(ctx, cancel, stdin)
	if ctx.Err() != nil && end == nil {
		t.hangUp(ctx)
	}
	return end, err
}

// run joins the terminal until the command has ended, again when the server was
// away.
func (t *terminal) run(ctx context.Context, cancel context.CancelCauseFunc, stdin bool) (end *execEnd, err error) {
	ws, err := t.join(ctx)
	if err != nil {
		return nil, err
	}
	if stdin {
		go t.keys(ctx, cancel)
	}
	for said := false; ; {
		end, err = t.show(ctx, ws)
		t.setConn(nil)
		_ = ws.CloseNow() // it is over
		if end != nil || !goesOn(err) || ctx.Err() != nil {
			return end, err
		}
		if !said {
			t.say("%s; waiting for it to come back, Ctrl-C leaves", visible(err.Error()))
			said = true
		}
		if ws, err = t.joinAgain(ctx); err != nil {
			return nil, err
		}
	}
}

// join opens the connection at the place where the output was left.
func (t *terminal) join(ctx context.Context) (*websocket.Conn, error) {
	query := url.Values{"exec_id": {t.execID}}
	dial := func() (*websocket.Conn, error) {
		query.Set("offset", strconv.FormatInt(t.offset, 10))
		return t.r.dial(ctx, inSandbox(t.box, "terminal"), query)
	}
	ws, err := dial()
	for lost := 0; lost < maxLost && t.skip(err); lost++ {
		ws, err = dial()
	}
	if err != nil {
		return nil, err
	}
	t.setConn(ws)
	t.resize(ctx)
	return ws, nil
}

func (t *terminal) joinAgain(ctx context.Context) (*websocket.Conn, error) {
	for end := time.Now().Add(backWithin); ; {
		ws, err := t.join(ctx)
		switch {
		case !isAway(err) || ctx.Err() != nil:
			return ws, err
		case time.Now().After(end):
			return nil, fmt.Errorf("the server went away and the command may go on: agentbox execs %s", t.box)
		}
		select {
		case <-time.After(backEvery):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// skip passes over output that is not there any more and says how much that is;
// false: err is another.
func (t *terminal) skip(err error) bool {
	first, ok := firstLeft(err, t.offset)
	if ok {
		t.say("%d bytes of the output are not there any more", first-t.offset)
		t.offset = first
	}
	return ok
}

// show writes the output to this process's terminal until the command has ended.
func (t *terminal) show(ctx context.Context, ws *websocket.Conn) (*execEnd, error) {
	alive, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		defer cancel()
		heartbeat.Watch(alive, ws, heartbeat.Every, heartbeat.Every)
	}()
	var refused error // the last, which may be of a resize: then the command goes on
	for {
		kind, data, err := ws.Read(alive)
		switch {
		case err == nil:
		case refused != nil && ctx.Err() == nil && websocket.CloseStatus(err) == websocket.StatusNormalClosure:
			return nil, refused // it was why the server ended this
		default:
			return nil, cmp.Or(context.Cause(ctx), errBroken)
		}
		if kind == websocket.MessageBinary {
			t.offset += int64(len(data))
			if _, err := t.app.Stdout.Write(data); err != nil {
				return nil, fmt.Errorf("show the output: %w", err)
			}
			continue
		}
		end, told, err := readMessage(data)
		if end != nil || err != nil || goesOn(told) {
			return end, cmp.Or(err, told)
		}
		refused = cmp.Or(told, refused)
	}
}

// readMessage reads what a server says beside output: the end of the command, or
// what it refuses.
func readMessage(data []byte) (end *execEnd, refused, err error) {
	var m struct {
		Type string `json:"type"`
		execEnd
	}
	if err := json.Unmarshal(data, &m); err != nil {
		return nil, nil, fmt.Errorf("read a message of the server: %w", err)
	}
	switch m.Type {
	case "exit":
		return &m.execEnd, nil, nil
	case "error":
		return nil, eventError(data), nil
	}
	return nil, nil, nil
}

func (t *terminal) conn() *websocket.Conn {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.ws
}

func (t *terminal) setConn(ws *websocket.Conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ws = ws
}

// keys passes on what is typed. While the server is away, Ctrl-C leaves.
func (t *terminal) keys(ctx context.Context, cancel context.CancelCauseFunc) {
	b := make([]byte, 4096)
	for {
		n, err := t.app.Stdin.Read(b)
		typed := b[:n]
		if err != nil {
			typed = append(typed, ctrlD)
		}
		switch ws := t.conn(); {
		case ws != nil:
			_ = ws.Write(ctx, websocket.MessageBinary, typed) // reading tells of its end
		case bytes.IndexByte(typed, ctrlC) >= 0:
			cancel(interrupted{syscall.SIGINT})
		}
		if err != nil {
			return
		}
	}
}

// hangUp tells the command that its terminal is gone, as far as that can be told.
func (t *terminal) hangUp(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), killWithin)
	defer cancel()
	_ = t.r.signal(ctx, t.box, t.execID, "HUP", true) // the server kills it when nobody is there
}

// say writes a line of agentbox's own between those of the command.
func (t *terminal) say(format string, args ...any) {
	end := "\n"
	if t.raw {
		end = "\r\n"
	}
	fmt.Fprintf(t.app.Stderr, end+"agentbox: "+format+end, args...)
}

// makeRaw hands every key to the sandbox; false: in is no terminal.
func makeRaw(in *os.File) (raw bool, restore func()) {
	fd := int(in.Fd())
	if !term.IsTerminal(fd) {
		return false, func() {}
	}
	old, err := term.MakeRaw(fd)
	if err != nil {
		return false, func() {}
	}
	return true, func() { _ = term.Restore(fd, old) }
}

// resize tells the command how large the terminal is.
func (t *terminal) resize(ctx context.Context) {
	t.sizing.Lock()
	defer t.sizing.Unlock()
	ws := t.conn()
	cols, rows := terminalSize(t.app.Stdin)
	if ws == nil || cols == 0 {
		return
	}
	text := fmt.Sprintf(`{"type":"resize","cols":%d,"rows":%d}`, cols, rows)
	_ = ws.Write(ctx, websocket.MessageText, []byte(text)) // the next change tries again
}

// watchTerminal calls f at each change of the terminal's size until stop is called.
func watchTerminal(ctx context.Context, f func()) (stop func()) {
	changed := make(chan os.Signal, 1)
	signal.Notify(changed, unix.SIGWINCH)
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		for {
			select {
			case <-changed:
				f()
			case <-ctx.Done():
				return
			}
		}
	}()
	return func() { signal.Stop(changed); cancel() }
}

// terminalSize is 0, 0 where there is none, which means the default.
func terminalSize(f *os.File) (cols, rows uint16) {
	w, h, err := term.GetSize(int(f.Fd()))
	if err != nil || w <= 0 || h <= 0 || w > 1<<15 || h > 1<<15 {
		return 0, 0
	}
	return uint16(w), uint16(h)
}
