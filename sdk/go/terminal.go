package agentbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"sync"

	"github.com/coder/websocket"
)

// TerminalOptions are what runs in a terminal.
type TerminalOptions struct {
	Command    string // a command line; empty: a login shell
	Cols, Rows uint16 // 0: 80 and 24
	Workdir    string // empty: the sandbox's
	User       string // empty: the sandbox's
	// Detach lets it run on when its client is gone. Otherwise it is ended after 5 s, unless
	// AttachTerminal joins it.
	Detach bool
}

// Terminal is a command with a terminal that this process is joined to. It is read by one
// goroutine and may be written to by another. Somebody must read: it is also how the
// server learns that its client lives.
type Terminal struct {
	c      *Client
	ws     *websocket.Conn
	ctx    context.Context //nolint:containedctx // io.Reader has none
	cancel context.CancelFunc
	execID string
	rest   []byte // read and not taken yet

	mu      sync.Mutex
	offset  int64
	result  *Result
	refused error
}

// Terminal starts a command with a terminal and joins it.
func (b *Box) Terminal(ctx context.Context, o TerminalOptions) (*Terminal, error) {
	query := url.Values{}
	for name, value := range map[string]string{"command": o.Command, "workdir": o.Workdir, "user": o.User} {
		if value != "" {
			query.Set(name, value)
		}
	}
	for name, n := range map[string]uint16{"cols": o.Cols, "rows": o.Rows} {
		if n > 0 {
			query.Set(name, strconv.Itoa(int(n)))
		}
	}
	if o.Detach {
		query.Set("detach", "true")
	}
	return b.openTerminal(ctx, query, 0)
}

// AttachTerminal joins a command that has a terminal, from an offset of its output on.
// Output that is not there any more is ErrOutOfRange.
func (b *Box) AttachTerminal(ctx context.Context, execID string, offset int64) (*Terminal, error) {
	return b.openTerminal(ctx, url.Values{"exec_id": {execID}, "offset": {strconv.FormatInt(offset, 10)}}, offset)
}

func (b *Box) openTerminal(ctx context.Context, query url.Values, offset int64) (*Terminal, error) {
	ws, err := b.c.dial(ctx, b.in("terminal"), query)
	if err != nil {
		return nil, err
	}
	t := &Terminal{c: b.c, ws: ws, offset: offset}
	t.ctx, t.cancel = context.WithCancel(context.WithoutCancel(ctx))
	var start struct {
		ExecID string `json:"exec_id"`
	}
	_, text, err := ws.Read(ctx)
	if err == nil {
		err = json.Unmarshal(text, &start)
	}
	if err != nil {
		_ = t.Close() // it was never used
		return nil, b.c.unreachable(err, true)
	}
	t.execID = start.ExecID
	return t, nil
}

// ExecID is that of the command.
func (t *Terminal) ExecID() string { return t.execID }

// Offset is how much of the output was received, for AttachTerminal.
func (t *Terminal) Offset() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.offset
}

// Read implements io.Reader. When the command has ended, it returns io.EOF, and Result is
// there.
func (t *Terminal) Read(p []byte) (int, error) {
	for len(t.rest) == 0 {
		kind, data, err := t.ws.Read(t.ctx)
		switch {
		case err != nil:
			return 0, t.ended(err)
		case kind == websocket.MessageBinary:
			t.rest = data
			t.mu.Lock()
			t.offset += int64(len(data))
			t.mu.Unlock()
		default:
			if err := t.told(data); err != nil {
				return 0, err
			}
		}
	}
	n := copy(p, t.rest)
	t.rest = t.rest[n:]
	return n, nil
}

// told reads what a server says beside output.
func (t *Terminal) told(data []byte) error {
	var m struct {
		Type string `json:"type"`
	}
	if err := json.Unmarshal(data, &m); err != nil {
		return fmt.Errorf("read a message of the server: %w", err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	switch m.Type {
	case "exit":
		t.result = &Result{}
		if err := json.Unmarshal(data, t.result); err != nil {
			return fmt.Errorf("read a message of the server: %w", err)
		}
	case "error":
		t.refused = eventError(data) // maybe of a resize: then the command goes on
	}
	return nil
}

// ended is what the end of the connection means.
func (t *Terminal) ended(err error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.result != nil:
		return io.EOF
	case t.refused != nil:
		return t.refused
	default:
		return t.c.cut(err)
	}
}

// errRuns is the lack of a result.
var errRuns = errors.New("the command had not ended when its terminal was last read")

// Result is how the command ended, once Read has returned io.EOF.
func (t *Terminal) Result() (*Result, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.result == nil {
		return nil, errRuns
	}
	return t.result, nil
}

// Write implements io.Writer: p is typed.
func (t *Terminal) Write(p []byte) (int, error) {
	const most = 512 << 10 // servers take 1 MiB at once
	for sent := 0; sent < len(p); {
		part := p[sent:min(len(p), sent+most)]
		if err := t.ws.Write(t.ctx, websocket.MessageBinary, part); err != nil {
			return sent, t.ended(err)
		}
		sent += len(part)
	}
	return len(p), nil
}

// Resize tells the command how large the terminal is.
func (t *Terminal) Resize(cols, rows uint16) error {
	return t.control(fmt.Sprintf(`{"type":"resize","cols":%d,"rows":%d}`, cols, rows))
}

// Signal sends a signal, such as TERM, to the command.
func (t *Terminal) Signal(name string) error {
	return t.control(fmt.Sprintf(`{"type":"signal","signal":%q}`, name))
}

func (t *Terminal) control(text string) error {
	if err := t.ws.Write(t.ctx, websocket.MessageText, []byte(text)); err != nil {
		return t.ended(err)
	}
	return nil
}

// Close leaves the terminal.
func (t *Terminal) Close() error {
	t.cancel()
	return t.ws.CloseNow()
}
