package audit

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

// Options bound a log.
type Options struct {
	// MaxFile is the size at which a new file is begun, in bytes. Default 16 MiB.
	MaxFile int64
	// Files are kept, at least 2. Default 16.
	Files int
}

// syncDelay is how long a record may lie in the kernel's memory only.
const syncDelay = time.Second

// Log is an open log. One process at a time may have a directory's log open; it
// is safe for concurrent use.
type Log struct {
	dir  string
	opts Options

	mu   sync.Mutex
	file *os.File
	seq  uint64 // of file
	size int64
	torn bool  // the last write was cut: begin a new line
	err  error // of the last write

	dirty, quit, done chan struct{}
}

// Open opens the log in dir, which is made if it isn't there. A line that a
// crash cut stays and is passed over by readers.
func Open(dir string, opts Options) (*Log, error) {
	if opts.MaxFile <= 0 {
		opts.MaxFile = 16 << 20
	}
	opts.Files = max(opts.Files, 2)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the audit log's directory: %w", err)
	}
	l := &Log{dir: dir, opts: opts, dirty: make(chan struct{}, 1), quit: make(chan struct{}), done: make(chan struct{})}
	seqs, err := l.segments()
	if err != nil {
		return nil, err
	}
	last := uint64(1)
	if n := len(seqs); n > 0 {
		last = seqs[n-1]
	}
	if err := l.use(last); err != nil {
		return nil, err
	}
	go l.syncLoop()
	return l, nil
}

// Close makes all records safe on the disk. No call may follow.
func (l *Log) Close() error {
	close(l.quit)
	<-l.done
	l.mu.Lock()
	defer l.mu.Unlock()
	return errors.Join(l.file.Sync(), l.file.Close())
}

// Write appends a record.
func (l *Log) Write(r Record) error {
	line, err := r.line()
	if err != nil {
		return fmt.Errorf("encode an audit record: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err = l.write(line); l.err != nil {
		l.err = fmt.Errorf("write an audit record: %w", l.err)
		return l.err
	}
	select {
	case l.dirty <- struct{}{}:
	default:
	}
	return nil
}

// Err tells why the last record could not be written; nil if it was.
func (l *Log) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

func (l *Log) write(line []byte) error {
	if l.size > 0 && l.size+int64(len(line)) > l.opts.MaxFile {
		if err := l.rotate(); err != nil {
			return err
		}
	}
	if l.torn {
		line = append([]byte{'\n'}, line...)
	}
	n, err := l.file.Write(line)
	l.size += int64(n)
	if n > 0 {
		l.torn = n < len(line)
	}
	return err
}

// rotate begins the next file and removes the oldest ones.
func (l *Log) rotate() error {
	old := l.file
	if err := l.use(l.seq + 1); err != nil {
		return err
	}
	err := errors.Join(old.Sync(), old.Close())
	seqs, e := l.segments()
	err = errors.Join(err, e)
	for ; len(seqs) > l.opts.Files; seqs = seqs[1:] {
		err = errors.Join(err, os.Remove(l.path(seqs[0])))
	}
	return err
}

// use makes a file the one that is written.
func (l *Log) use(seq uint64) error {
	f, err := os.OpenFile(l.path(seq), os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("open the audit log: %w", err)
	}
	size, err := f.Seek(0, 2)
	last := []byte{'\n'}
	if err == nil && size > 0 {
		_, err = f.ReadAt(last, size-1)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("open the audit log: %w", err), f.Close())
	}
	l.file, l.seq, l.size, l.torn = f, seq, size, last[0] != '\n'
	return nil
}

func (l *Log) syncLoop() {
	defer close(l.done)
	for {
		select {
		case <-l.quit:
			return
		case <-l.dirty:
		}
		select {
		case <-l.quit:
			return
		case <-time.After(syncDelay):
		}
		l.mu.Lock()
		f := l.file
		l.mu.Unlock()
		if err := f.Sync(); err != nil && !errors.Is(err, os.ErrClosed) { // closed: rotate has synced it
			l.mu.Lock()
			l.err = fmt.Errorf("write audit records to the disk: %w", err)
			l.mu.Unlock()
		}
	}
}

const namePattern = "audit-%08d.jsonl"

func (l *Log) path(seq uint64) string { return filepath.Join(l.dir, fmt.Sprintf(namePattern, seq)) }

// segments are the numbers of the files, oldest first.
func (l *Log) segments() ([]uint64, error) {
	entries, err := os.ReadDir(l.dir)
	if err != nil {
		return nil, fmt.Errorf("list the audit log: %w", err)
	}
	var all []uint64
	for _, e := range entries {
		var seq uint64
		if _, err := fmt.Sscanf(e.Name(), namePattern, &seq); err == nil && e.Name() == fmt.Sprintf(namePattern, seq) {
			all = append(all, seq)
		}
	}
	slices.Sort(all)
	return all, nil
}
