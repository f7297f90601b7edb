package runtimetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"agentbox/internal/guest/client"
	"agentbox/internal/runtime"
	"agentbox/internal/sandbox"
)

// childEnv holds a childOrder in JSON.
const childEnv = "AGENTBOX_RUNTIMETEST_HOST"

// childOrder tells a host process what it is.
type childOrder struct{ Factory, Dir string }

// Descriptors of a host process.
const (
	requestsFD = 3 + iota
	answersFD
	outputFD
)

// request is one thing that the host process is to do.
type request struct {
	Op     string // "create", "start", "stop", "exec", "quiesce", "suspend", "resume", "destroy"
	ID     string
	Exec   string // its id
	Script string
	Image  string // a directory
	Mount  string // a directory for /data; empty: none
}

type answer struct {
	Err string
	Pid int // of the sandbox, after start and resume
}

// Child makes this process a host process of the suite, if that is what it was
// started for, and then does not return. It is the first call of TestMain, with
// all factories of the test binary.
func Child(factories ...Factory) {
	s, ok := os.LookupEnv(childEnv)
	if !ok {
		return
	}
	if err := runChild(s, factories); err != nil {
		fmt.Fprintln(os.Stderr, "host process:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func runChild(order string, factories []Factory) error {
	for fd := requestsFD; fd <= outputFD; fd++ {
		unix.CloseOnExec(fd) // else the sandboxes would inherit them
	}
	var o childOrder
	if err := json.Unmarshal([]byte(order), &o); err != nil {
		return err
	}
	i := slices.IndexFunc(factories, func(f Factory) bool { return f.Name == o.Factory })
	if i < 0 {
		return fmt.Errorf("TestMain does not give Child the factory %q", o.Factory)
	}
	c := &child{ctx: context.Background(), output: os.NewFile(outputFD, "output")}
	var err error
	if factories[i].Image != nil {
		if c.image, err = factories[i].Image(); err != nil {
			return err
		}
	}
	if c.rt, err = factories[i].Open(o.Dir); err != nil {
		return err
	}
	in, out := json.NewDecoder(os.NewFile(requestsFD, "requests")), json.NewEncoder(os.NewFile(answersFD, "answers"))
	for {
		var q request
		if err := in.Decode(&q); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		a := answer{}
		if err := c.do(q); err != nil {
			a.Err = err.Error()
		}
		a.Pid = c.pid(q.ID)
		if err := out.Encode(a); err != nil {
			return err
		}
	}
}

// child is a host process.
type child struct {
	ctx    context.Context
	rt     runtime.Runtime
	image  runtime.Image
	output *os.File
	s      *client.Session
}

func (c *child) do(q request) error {
	spec := smallSpec(q.ID, c.image)
	if q.Mount != "" {
		spec.Mounts = []runtime.Mount{{Source: q.Mount, Path: "/data"}}
	}
	sus, _ := runtime.As[runtime.Suspender](c.rt)
	switch q.Op {
	case "create":
		return c.rt.Create(c.ctx, spec)
	case "stop":
		return c.rt.Stop(c.ctx, q.ID)
	case "start":
		return c.rt.Start(c.ctx, q.ID)
	case "exec":
		return c.exec(q)
	case "quiesce":
		return c.s.Quiesce(c.ctx)
	case "suspend":
		return sus.Suspend(c.ctx, q.ID, q.Image)
	case "resume":
		return sus.Resume(c.ctx, spec, q.Image)
	case "destroy":
		return c.rt.Destroy(c.ctx, q.ID)
	}
	return fmt.Errorf("what is %q?", q.Op)
}

// exec connects to the sandbox and streams the output of a command.
func (c *child) exec(q request) error {
	var err error
	if c.s, err = openSession(c.ctx, c.rt, q.ID, 1); err != nil {
		return err
	}
	cmd := sandbox.Command{Shell: q.Script, MaxOutput: -1, Timeout: -1}
	_, err = c.s.Start(c.ctx, q.Exec, cmd, client.Output{Stdout: c.output})
	return err
}

func (c *child) pid(id string) int {
	all, _ := c.rt.List(c.ctx) // an error shows in what was asked for
	for _, i := range all {
		if i.ID == id {
			return i.Pid
		}
	}
	return 0
}
