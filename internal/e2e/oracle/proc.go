package oracle

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// Process is a process of the host that belongs to a [Place].
type Process struct {
	Pid, Parent int
	// Cmdline is the arguments, separated by blanks; empty for processes of the
	// engine that have dropped theirs.
	Cmdline string
}

// Processes returns what runs in p, of agentbox itself and of its sandboxes.
func Processes(p Place) ([]Process, error) {
	all, err := processes()
	if err != nil {
		return nil, err
	}
	var out []Process
	for _, pr := range all.of(p.DataDir) {
		if pr.state != "Z" {
			out = append(out, Process{pr.pid, pr.parent, pr.cmdline})
		}
	}
	return out, nil
}

// process is one process of the host.
type process struct {
	pid, parent int
	start       string // clock ticks after boot; with pid it is unique
	state       string
	name        string
	cmdline     string
	exe         string
	environ     string
}

func (p process) String() string {
	what := p.cmdline
	if what == "" {
		what = "[" + p.name + "]"
	}
	return fmt.Sprintf("pid %d, parent %d, state %s: %.300s", p.pid, p.parent, p.state, what)
}

type table []process

// processes reads the host's process table. What ends meanwhile is left out.
func processes() (table, error) {
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil, err
	}
	var all table
	for _, dir := range dirs {
		stat, err := os.ReadFile(dir + "/stat")
		if err != nil {
			if vanished(err) {
				continue
			}
			return nil, err
		}
		p, err := parseStat(string(stat))
		if err != nil {
			return nil, fmt.Errorf("%s/stat: %w", dir, err)
		}
		cmdline, _ := os.ReadFile(dir + "/cmdline") // it may have ended
		p.cmdline = string(bytes.TrimSpace(bytes.ReplaceAll(cmdline, []byte{0}, []byte{' '})))
		p.exe, _ = os.Readlink(dir + "/exe")
		environ, _ := os.ReadFile(dir + "/environ")
		p.environ = string(environ)
		all = append(all, p)
	}
	return all, nil
}

func vanished(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH)
}

// parseStat reads /proc/PID/stat. The name in it may hold blanks and brackets.
func parseStat(s string) (process, error) {
	open, end := strings.IndexByte(s, '('), strings.LastIndexByte(s, ')')
	if open < 0 || end < open {
		return process{}, errors.New("no name in it")
	}
	f := strings.Fields(s[end+1:])
	if len(f) < 20 {
		return process{}, errors.New("too few fields")
	}
	pid, err := strconv.Atoi(strings.TrimSpace(s[:open]))
	if err != nil {
		return process{}, err
	}
	parent, err := strconv.Atoi(f[1])
	if err != nil {
		return process{}, err
	}
	return process{pid: pid, parent: parent, start: f[19], state: f[0], name: s[open+1 : end]}, nil
}

// of returns the processes that belong to a data directory: those that run a
// program of it or name it in their arguments or environment, what descends from
// them, and zombies that the test itself should have waited for.
func (t table) of(dataDir string) []process {
	self := os.Getpid()
	ours := map[int]bool{}
	for _, p := range t {
		named := strings.Contains(p.cmdline, dataDir) || strings.HasPrefix(p.exe, dataDir+"/") || strings.Contains(p.environ, "="+dataDir+"\x00")
		unreaped := p.state == "Z" && p.parent == self
		if p.pid != self && (named || unreaped) {
			ours[p.pid] = true
		}
	}
	for grew := true; grew; {
		grew = false
		for _, p := range t {
			if !ours[p.pid] && ours[p.parent] {
				ours[p.pid], grew = true, true
			}
		}
	}
	return slices.DeleteFunc(slices.Clone([]process(t)), func(p process) bool {
		return !ours[p.pid] || p.state == "Z" && p.parent == 1
	})
}
