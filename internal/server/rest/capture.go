package rest

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"io"

	"agentbox/internal/guest/client"
	"agentbox/internal/guest/wording"
)

// capture keeps the output of a command once, in the order of arrival: results of
// many megabytes are common, and many commands wait at the same time. One
// goroutine writes it; the core bounds it.
type capture struct {
	blocks [][]byte // all but the last are full
	runs   []byte   // lengths of what came from one stream, uvarints: stdout first, then by turns
	stream int      // that the last run is of
	n      uint64   // its length so far
}

// Sizes of blocks: most commands say little.
const (
	firstBlock = 1 << 10
	nextBlock  = 64 << 10
)

// isSmall reports that no stream has more than the first block.
func (c *capture) isSmall() bool { return len(c.blocks) <= 1 }

func (c *capture) output() client.Output {
	return client.Output{Stdout: captured{c, 0}, Stderr: captured{c, 1}}
}

type captured struct {
	c      *capture
	stream int
}

func (w captured) Write(p []byte) (int, error) {
	c := w.c
	if c.stream != w.stream {
		c.runs = binary.AppendUvarint(c.runs, c.n)
		c.stream, c.n = w.stream, 0
	}
	c.n += uint64(len(p))
	for rest := p; len(rest) > 0; {
		last := len(c.blocks) - 1
		if last < 0 || len(c.blocks[last]) == cap(c.blocks[last]) {
			size := nextBlock
			if last < 0 {
				size = firstBlock
			}
			c.blocks = append(c.blocks, make([]byte, 0, size))
			last++
		}
		b := c.blocks[last]
		n := min(len(rest), cap(b)-len(b))
		c.blocks[last] = append(b, rest[:n]...)
		rest = rest[n:]
	}
	return len(p), nil
}

// both asks copyTo for both streams.
const both = -1

// copyTo writes what came from a stream.
func (c *capture) copyTo(w io.Writer, stream int) error {
	runs, block, at, turn := c.runs, 0, 0, 0
	for {
		n, used := binary.Uvarint(runs)
		if used <= 0 {
			n = c.n // the last run, whose length is not written yet
		}
		for n > 0 {
			b := c.blocks[block][at:]
			b = b[:min(uint64(len(b)), n)]
			if turn == stream || stream == both {
				if _, err := w.Write(b); err != nil {
					return err
				}
			}
			n -= uint64(len(b))
			if at += len(b); at == len(c.blocks[block]) {
				block, at = block+1, 0
			}
		}
		if used <= 0 {
			return nil
		}
		runs, turn = runs[used:], 1-turn
	}
}

// fill lets a result be written with the output.
func (c *capture) fill(b *ExecResult, exact bool) { b.kept, b.exact = c, exact }

// prefix takes the first bytes of what is written.
type prefix struct {
	b    []byte
	most int
	cut  bool // there was more
}

// Write implements io.Writer. It fails when there is more.
func (p *prefix) Write(b []byte) (int, error) {
	n := min(len(b), p.most-len(p.b))
	p.b = append(p.b, b[:n]...)
	if n < len(b) {
		p.cut = true
		return n, io.ErrShortWrite
	}
	return n, nil
}

// first is what came first from a stream, and whether that is not all.
func (c *capture) first(stream, most int, exact bool) (b []byte, cut bool) {
	p := &prefix{most: most}
	_ = c.copyTo(p, stream) // fails only when it is cut
	if p.cut && !exact {
		p.b = p.b[:len(p.b)-splitLen(p.b)]
	}
	return p.b, p.cut
}

// within is the result with its output in it, of each stream at most so many
// bytes. What is left out is marked as that which the command's end left out.
func (b *ExecResult) within(most int) ExecResult {
	w := *b
	if w.kept = nil; b.kept == nil {
		return w
	}
	stdout, cut0 := b.kept.first(0, most, b.exact)
	stderr, cut1 := b.kept.first(1, most, b.exact)
	output, _ := b.kept.first(both, 2*most, b.exact) // cut only if one of them is
	w.Truncated = Truncated{w.Truncated.Stdout || cut0, w.Truncated.Stderr || cut1}
	w.Stdout = textOrBase64(stdout, w.Truncated.Stdout, b.exact)
	w.Stderr = textOrBase64(stderr, w.Truncated.Stderr, b.exact)
	w.Output = textOrBase64(output, w.Truncated.Stdout || w.Truncated.Stderr, b.exact)
	return w
}

// noOutput is where the output belongs in a result that is written without.
var noOutput = []byte(`"output":"","stdout":"","stderr":""`)

// writeJSON writes the result, its output in pieces.
func (b *ExecResult) writeJSON(w io.Writer) error {
	var frame bytes.Buffer
	if err := encode(&frame, b); err != nil {
		return err
	}
	head, tail, ok := bytes.Cut(frame.Bytes(), noOutput)
	if !ok {
		return fmt.Errorf("encode a result: its output has no place")
	}
	if _, err := w.Write(head); err != nil {
		return err
	}
	for i, f := range []struct {
		name   string
		stream int
		cut    bool
	}{
		{"output", both, b.Truncated.Stdout || b.Truncated.Stderr}, {"stdout", 0, b.Truncated.Stdout}, {"stderr", 1, b.Truncated.Stderr},
	} {
		name := `"` + f.name + `":"`
		if i > 0 {
			name = `",` + name
		}
		if _, err := io.WriteString(w, name); err != nil {
			return err
		}
		if err := b.writeOutput(w, f.stream, f.cut); err != nil {
			return err
		}
	}
	_, err := w.Write(append([]byte(`"`), tail...))
	return err
}

// writeOutput writes a stream as the inside of a JSON string.
func (b *ExecResult) writeOutput(w io.Writer, stream int, cut bool) error {
	if b.exact {
		e := base64.NewEncoder(base64.StdEncoding, w)
		if err := b.kept.copyTo(e, stream); err != nil {
			return err
		}
		return e.Close()
	}
	t := wording.NewJSONText(w)
	if err := b.kept.copyTo(t, stream); err != nil {
		return err
	}
	if cut {
		return t.End(wording.CutMark)
	}
	return t.End("")
}

// encode writes JSON as all answers have it.
func encode(w io.Writer, v any) error { return wording.EncodeJSON(w, v) }
