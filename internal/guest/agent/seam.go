package agent

import (
	"fmt"
	"io"
	"time"

	guestv1 "agentbox/internal/gen/guest/v1"
)

// Launcher starts the commands of a sandbox. The agent calls it from any
// goroutine.
type Launcher interface {
	// Start runs one command whose output goes to stdout and stderr; with a
	// terminal all of it goes to stdout. The writers may block, and may be
	// called after Process.Wait has returned. A program that can't be run is a
	// *StartError; any other error is the agent's own failure.
	Start(spec ProcessSpec, stdout, stderr io.Writer) (Process, error)

	// Configure is told the limits of the sandbox at each new session.
	Configure(c *guestv1.GuestConfig) error

	// KillAll ends every process that is not the agent's and returns how many
	// there were.
	KillAll() (int, error)
}

// ProcessSpec is a command as the launcher takes it. Strings are bytes.
type ProcessSpec struct {
	ID string // of the exec; unique among those that are kept
	// Exactly one of Argv and Shell is set. Shell is a command line for bash
	// where the image has it, else sh.
	Argv  []string
	Shell string
	// Env is added to the launcher's defaults; later entries win.
	Env []string
	// Dir is the working directory. Empty: the user's home directory.
	Dir string
	// User is a name or uid, optionally ":group". Empty: the launcher's default.
	User string
	// Stdin: without it standard input is at end-of-file.
	Stdin bool
	// TTY gives the command a terminal of Cols × Rows.
	TTY        bool
	Cols, Rows uint16
	// AllowNewPrivs lets setuid programs work.
	AllowNewPrivs bool
}

// Process is a command that was started.
type Process interface {
	// Pid of the first process.
	Pid() int
	// Stdin takes the command's input; closing it is end-of-file. Nil unless
	// asked for. Writes return an error when the command is gone.
	Stdin() io.WriteCloser
	// Resize sets the size of the terminal.
	Resize(cols, rows uint16) error
	// Signal sends a signal to the first process, or to the whole tree of
	// processes that the command started, those in sessions of their own and
	// those that outlived their parents included. The tree can be signalled
	// after the first process ended.
	Signal(signal int, tree bool) error
	// Wait returns when the first process has ended, whoever else still holds
	// its output open. It is called once.
	Wait() ExitStatus
	// Drain returns when every byte that was written before Wait returned has
	// been passed to the writers. It is called once, after Wait, when the
	// writers no longer block.
	Drain()
}

// ExitStatus is how the first process of a command ended.
type ExitStatus struct {
	Code       int
	Signal     int // not 0: a signal ended it
	CPUTime    time.Duration
	PeakMemory int64 // bytes; 0 when unknown
	// NotStarted: the program never ran, as with an error of Start.
	NotStarted error
}

// StartError tells that a program could not be run, in the terms of a shell.
type StartError struct {
	Code    int // sandbox.ExitNotExecutable or sandbox.ExitNotFound
	Message string
}

func (e *StartError) Error() string { return fmt.Sprintf("%s (exit status %d)", e.Message, e.Code) }

// Files is the file system of the sandbox.
type Files interface {
	// As runs f with the rights of user (a name or uid, optionally ":group";
	// empty: the default user). The FS must not be used after f returned; files
	// that were opened through it may be.
	As(user string, f func(FS) error) error
	// Notify makes a source of changes that watches nothing yet.
	Notify() (Notifier, error)
}

// Notifier tells of changes in directories that FS.Watch added, as inotify(7)
// does: of what is directly in them.
type Notifier interface {
	// Next waits for changes. It returns an error after Close. One goroutine calls
	// it.
	Next() ([]Change, error)
	// Remove watches a directory no more.
	Remove(id int)
	Close() error
}

// Change is one change in a directory.
type Change struct {
	ID   int // of the directory
	Kind guestv1.WatchKind
	Name string // in the directory; "": it was removed or renamed itself, and is no longer watched
	Dir  bool   // what changed is a directory
}

// FS are file operations with the rights of one user. Paths are bytes, must not
// be empty or hold NUL, and are resolved inside the sandbox; a relative path
// begins at the default working directory. Errors are *fs.PathError or
// *os.LinkError that wrap an errno.
type FS interface {
	// Stat does not follow a link at the end of the path unless follow is set.
	Stat(path string, follow bool) (*guestv1.FileInfo, error)
	// Names lists a directory, sorted bytewise: at most limit names that come
	// after the given one ("": from the first). more tells that there are others.
	// Its memory is bounded by limit, not by the directory.
	Names(path, after string, limit int) (names []string, more bool, err error)
	Readlink(path string) (string, error)
	// Tree opens a directory, or with follow a link to one, as a tree.
	Tree(path string, follow bool) (Tree, error)

	// Open opens a regular file for reading. It never blocks: other types are
	// refused. known is what Stat has just said of it, without following a link,
	// nil if it was not asked: it spares a look, and a link that took the file's
	// place is refused.
	Open(path string, known *guestv1.FileInfo) (File, error)
	// Create opens a regular file for writing, and makes it with mode if it
	// does not exist. It never blocks: other types are refused.
	Create(path string, mode uint32, how CreateMode) (File, error)

	Mkdir(path string, mode uint32) error
	Symlink(target, path string) error
	Link(old, path string) error
	Chmod(path string, mode uint32) error // not for links
	// Chown does not follow a link at the end of the path; -1 keeps an id.
	Chown(path string, uid, gid int) error
	// Owner reads "user", "user:group" or ":group", each a name or a number. What
	// is not given is -1.
	Owner(spec string) (uid, gid int, err error)
	Chtimes(path string, mtime time.Time) error
	// Rename replaces what is at to only with overwrite.
	Rename(from, to string, overwrite bool) error
	// Watch adds a directory, not a link to one, to a notifier, and returns its id there: the same one
	// for a directory that was added before.
	Watch(n Notifier, path string) (id int, err error)
	// Remove removes a file or an empty directory.
	Remove(path string) error
}

// Tree is a directory with all below it. Its paths begin there, "" is the
// directory itself, and lead through no link, nor to what one at their end leads
// to: whoever exchanges directories for links meanwhile leads no call out of the
// tree. Such a path fails with ELOOP or ENOTDIR. One goroutine uses it, within
// As, and must close it.
type Tree interface {
	FS
	io.Closer
}

// Umask is that of the agent: what it takes from the modes of new files must be
// given to them afterwards.
const Umask = 0o022

// CreateMode tells what FS.Create does with a file that exists.
type CreateMode int

const (
	Truncate  CreateMode = iota // empty it
	Append                      // write at its end
	Exclusive                   // fail with EEXIST; a link at the end of the path is not followed
)

// File is an open regular file, used by one goroutine at a time. It may be closed
// twice.
type File interface {
	io.ReadWriteCloser
	io.Seeker
	Stat() (*guestv1.FileInfo, error)
	Chmod(mode uint32) error
	Chown(uid, gid int) error // -1 keeps an id
	Chtimes(mtime time.Time) error
	// Truncate sets the size; what is added reads as zeros.
	Truncate(size int64) error
}
