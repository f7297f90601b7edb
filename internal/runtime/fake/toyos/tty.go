package toyos

import (
	"context"
	"sync"
	"syscall"
)

// Control characters of a terminal in its usual mode, termios(3).
const (
	charIntr  = 3
	charEOF   = 4
	charErase = 127
)

// tty is a terminal: what the host types is edited by lines and echoed, and a
// newline that a process writes becomes CR LF.
type tty struct {
	in        *pipeReader
	inWriter  *pipeWriter
	out       *pipeWriter
	interrupt func() // ^C was typed

	mu         sync.Mutex
	line       []byte
	cols, rows uint16
	eof        bool
}

func newTTY(out *pipeWriter, cols, rows uint16, interrupt func()) *tty {
	t := &tty{out: out, interrupt: interrupt, cols: cols, rows: rows}
	t.in, t.inWriter = newPipe()
	return t
}

func (t *tty) resize(cols, rows uint16) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.cols, t.rows = cols, rows
}

func (t *tty) size() (cols, rows uint16) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.cols, t.rows
}

func (t *tty) read(ctx context.Context, b []byte) (int, error) { return t.in.read(ctx, b) }

func (t *tty) write(ctx context.Context, b []byte) (int, error) {
	if _, err := t.out.write(ctx, crlf(b)); err != nil {
		return 0, err
	}
	return len(b), nil
}

func (t *tty) ref() file {
	t.in.ref()
	t.out.ref()
	return t
}

func (t *tty) close() {
	t.in.close()
	t.out.close()
}

func crlf(b []byte) []byte {
	out := make([]byte, 0, len(b))
	for _, c := range b {
		if c == '\n' {
			out = append(out, '\r')
		}
		out = append(out, c)
	}
	return out
}

// keyboard is the host's end of a terminal.
type keyboard struct {
	t   *tty
	ctx context.Context // ends with the command that has the terminal
}

func (k *keyboard) Write(b []byte) (int, error) {
	if k.ctx.Err() != nil {
		return 0, syscall.EIO
	}
	for i, c := range b {
		if err := k.t.typed(k.ctx, c); err != nil {
			return i, err
		}
	}
	return len(b), nil
}

// Close types end-of-file.
func (k *keyboard) Close() error {
	_, err := k.Write([]byte{charEOF})
	return err
}

func (t *tty) typed(ctx context.Context, c byte) error {
	if c == '\r' {
		c = '\n'
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.eof {
		return syscall.EIO
	}
	switch c {
	case charIntr:
		t.line = nil
		t.echo(ctx, "^C\n")
		t.interrupt()
	case charErase:
		if len(t.line) > 0 {
			t.line = t.line[:len(t.line)-1]
			t.echo(ctx, "\b \b")
		}
	case charEOF:
		if len(t.line) > 0 {
			return t.enter(ctx)
		}
		t.eof = true
		t.inWriter.close()
	case '\n':
		t.echo(ctx, "\n")
		t.line = append(t.line, c)
		return t.enter(ctx)
	default:
		t.echo(ctx, string([]byte{c}))
		t.line = append(t.line, c)
	}
	return nil
}

// echo shows what was typed, if anybody still looks.
func (t *tty) echo(ctx context.Context, s string) { _, _ = t.out.write(ctx, crlf([]byte(s))) }

// enter gives the typed line to the processes; t.mu is held.
func (t *tty) enter(ctx context.Context) error {
	_, err := t.inWriter.write(ctx, t.line)
	t.line = nil
	return err
}

// hangUp ends the input for good.
func (t *tty) hangUp() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.eof {
		t.eof = true
		t.inWriter.close()
	}
}
