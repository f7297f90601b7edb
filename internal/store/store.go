package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"

	"github.com/containerd/errdefs"
	sqlite "modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"agentbox/internal/failpoint"
)

// Store is an open database. Its methods may be called from any goroutine.
type Store struct {
	w *sql.DB // one connection: SQLite has one writer
	r *sql.DB
}

const (
	// busyTimeout is how long a call waits for a file that another process
	// holds locked, in milliseconds.
	busyTimeout = 5_000
	readers     = 4
)

// Open opens or makes the database at path, which only this user may read. Data
// of a newer version of the program is a FailedPrecondition error.
func Open(ctx context.Context, path string) (*Store, error) {
	s, err := open(ctx, path)
	if err != nil {
		return nil, fmt.Errorf("open the database %s: %w", path, err)
	}
	return s, nil
}

func open(ctx context.Context, path string) (_ *Store, err error) {
	path, err = filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600) // SQLite would take the umask's mode
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errdefs.ErrUnavailable, err)
	}
	if err := f.Close(); err != nil {
		return nil, err
	}
	s := new(Store)
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	if s.w, err = sql.Open("sqlite", dsn(path, "journal_mode(WAL)", "synchronous(FULL)", "foreign_keys(1)", "secure_delete(1)")); err != nil {
		return nil, err
	}
	s.w.SetMaxOpenConns(1)
	if err := s.check(ctx); err != nil {
		return nil, err
	}
	if err := s.migrate(ctx); err != nil {
		return nil, err
	}
	if s.r, err = sql.Open("sqlite", dsn(path, "query_only(1)")); err != nil {
		return nil, err
	}
	s.r.SetMaxOpenConns(readers)
	return s, nil
}

// check refuses a damaged database: a daemon that knows some of its sandboxes only
// would remove the others.
func (s *Store) check(ctx context.Context) error {
	var found string
	if err := s.w.QueryRowContext(ctx, "PRAGMA quick_check(1)").Scan(&found); err != nil {
		if err = classify(err); !errdefs.IsDataLoss(err) {
			return fmt.Errorf("check the data: %w", err)
		}
		found = err.Error()
	}
	if found != "ok" {
		return fmt.Errorf("the data is damaged, put a backup of it in its place: %s: %w", found, errdefs.ErrDataLoss)
	}
	return nil
}

func dsn(path string, pragmas ...string) string {
	q := url.Values{"_txlock": {"immediate"}, "_pragma": append([]string{fmt.Sprintf("busy_timeout(%d)", busyTimeout)}, pragmas...)}
	return (&url.URL{Scheme: "file", Path: path, RawQuery: q.Encode()}).String()
}

// Close closes the database.
func (s *Store) Close() error {
	var err error
	for _, db := range []*sql.DB{s.r, s.w} { // the last one to close empties the log
		if db != nil {
			err = errors.Join(err, db.Close())
		}
	}
	if err != nil {
		return fmt.Errorf("close the database: %w", err)
	}
	return nil
}

// write runs f in a transaction. Who asked may go away meanwhile: what was begun
// is finished.
func (s *Store) write(ctx context.Context, verb string, f func(tx) error) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%s: %w", verb, err)
	}
	ctx = context.WithoutCancel(ctx)
	t, err := s.begin(ctx)
	if err == nil {
		if err = f(tx{ctx, t}); err == nil {
			err = commit(t)
		}
		_ = t.Rollback() // says that it is done already, when it is
	}
	if err != nil {
		return fmt.Errorf("%s: %w", verb, classify(err))
	}
	return nil
}

func (s *Store) begin(ctx context.Context) (*sql.Tx, error) {
	if err := failpoint.StoreBegin.Hit(); err != nil {
		return nil, err
	}
	return s.w.BeginTx(ctx, nil)
}

func commit(t *sql.Tx) error {
	if err := failpoint.StoreCommit.Hit(); err != nil {
		return err
	}
	if err := t.Commit(); err != nil {
		return err
	}
	_ = failpoint.StoreCommitted.Hit() // it is recorded: no error may say that it is not
	return nil
}

// tx is a transaction with the context of its call.
type tx struct {
	ctx context.Context
	*sql.Tx
}

func (t tx) exec(query string, args ...any) error {
	_, err := t.ExecContext(t.ctx, query, args...)
	return err
}

// number is the one number that a query gives, 0 for no row.
func (t tx) number(query string, args ...any) (n int, err error) {
	err = t.QueryRowContext(t.ctx, query, args...).Scan(&n)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, nil
	}
	return n, err
}

// query calls row for each row that a query gives.
func query(ctx context.Context, db interface {
	QueryContext(context.Context, string, ...any) (*sql.Rows, error)
}, row func(scan func(...any) error) error, text string, args ...any) error {
	rows, err := db.QueryContext(ctx, text, args...)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }() // rows.Err tells what went wrong
	for rows.Next() {
		if err := row(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}

// classify gives an error of SQLite its class.
func classify(err error) error {
	var e *sqlite.Error
	if !errors.As(err, &e) {
		return err
	}
	var class error = errdefs.ErrInternal
	switch e.Code() & 0xff { // the rest tells details
	case sqlite3.SQLITE_FULL:
		class = errdefs.ErrResourceExhausted
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN:
		class = errdefs.ErrUnavailable
	case sqlite3.SQLITE_CONSTRAINT:
		class = errdefs.ErrAlreadyExists
	case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
		class = errdefs.ErrDataLoss
	}
	return fmt.Errorf("%w: %w", class, err)
}

// isTaken reports that a value was refused because it must be unique.
func isTaken(err error) bool {
	var e *sqlite.Error
	return errors.As(err, &e) && (e.Code() == sqlite3.SQLITE_CONSTRAINT_UNIQUE || e.Code() == sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY)
}
