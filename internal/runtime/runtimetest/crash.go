package runtimetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"agentbox/internal/guest/client"
	"agentbox/internal/runtime"
	"agentbox/internal/sandbox"
)

// testHostCrash kills host processes and takes their sandboxes over.
func testHostCrash(t *testing.T, f Factory) {
	for _, c := range []struct {
		name string
		run  func(*env)
	}{
		{"CommandGoesOn", testCommandGoesOn},
		{"SuspendAfterTakeOver", testSuspendAfterTakeOver},
		{"ReusedPid", testReusedPid},
		{"RandomMoments", testRandomKills},
		{"RandomMomentsOfStop", testRandomStops},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := newEnv(t, f)
			e.needGuest()
			c.run(e)
		})
	}
}

// host is a process that owns the sandboxes for a while.
type host struct {
	e      *env
	cmd    *exec.Cmd
	in     *json.Encoder
	out    *json.Decoder
	output text // of the command that it follows
	files  []*os.File
	copied chan struct{}
}

// hand gives the sandboxes to a new host process.
func (e *env) hand() *host {
	e.Helper()
	e.ok(e.rt.Close())
	self, err := os.Executable()
	e.ok(err)
	order, err := json.Marshal(childOrder{e.f.Name, e.dir})
	e.ok(err)
	log, err := os.Create(filepath.Join(e.imagesDir(), "host.log"))
	e.ok(err)
	h := &host{e: e, cmd: exec.CommandContext(e.ctx, self), copied: make(chan struct{})}
	h.cmd.Env = append(os.Environ(), childEnv+"="+string(order))
	h.cmd.Stdout, h.cmd.Stderr = log, log
	pipe := func() (r, w *os.File) {
		r, w, err := os.Pipe()
		e.ok(err)
		return r, w
	}
	inR, inW := pipe()
	outR, outW := pipe()
	textR, textW := pipe()
	h.cmd.ExtraFiles = []*os.File{inR, outW, textW}
	e.ok(h.cmd.Start())
	for _, f := range h.cmd.ExtraFiles {
		f.Close()
	}
	h.in, h.out, h.files = json.NewEncoder(inW), json.NewDecoder(outR), []*os.File{inW, outR, textR, log}
	go func() {
		defer close(h.copied)
		_, _ = io.Copy(&h.output, textR) // to its end, which is the host's
	}()
	e.Cleanup(func() {
		if h.cmd.ProcessState == nil { // the test ended early
			h.kill()
		}
		if e.Failed() {
			b, _ := os.ReadFile(log.Name())
			e.Logf("the host process said: %s", b)
		}
	})
	return h
}

// begin lets the host do something.
func (h *host) begin(q request) { h.e.Helper(); h.e.ok(h.in.Encode(q)) }

// do waits for it as well.
func (h *host) do(q request) answer {
	h.e.Helper()
	a, err := h.try(q)
	h.e.ok(err)
	return a
}

func (h *host) try(q request) (answer, error) {
	h.e.Helper()
	h.begin(q)
	var a answer
	if err := h.out.Decode(&a); err != nil {
		return a, fmt.Errorf("the host process ended: %w", err)
	}
	if a.Err != "" {
		return a, fmt.Errorf("%s: %s", q.Op, a.Err)
	}
	return a, nil
}

// kill ends the host the hard way, and this process takes its place.
func (h *host) kill() {
	h.e.Helper()
	h.end()
	h.e.open()
}

func (h *host) end() {
	_ = h.cmd.Process.Kill() // it may have ended
	_ = h.cmd.Wait()
	<-h.copied // a sandbox that inherited our pipe would keep it open
	for _, f := range h.files {
		f.Close()
	}
}

// start lets the host make a sandbox that runs a command.
func (h *host) start(id, exec, script string) answer {
	h.e.Helper()
	h.do(request{Op: "create", ID: id})
	a := h.do(request{Op: "start", ID: id})
	h.do(request{Op: "exec", ID: id, Exec: exec, Script: script})
	return a
}

func testCommandGoesOn(e *env) {
	id := e.newID()
	h := e.hand()
	h.start(id, "counter", counter)
	g := &guest{env: e, id: id, epoch: 1}
	g.await(&h.output, "line 20\n")
	h.kill()
	e.states(map[string]sandbox.State{id: sandbox.Live})
	g.connect()
	if i := g.job("counter"); i.Result.Outcome != sandbox.Running {
		e.Fatalf("the command is %+v", i)
	}
	out := &h.output
	g.followTo(out, "counter", len(lines(out.String()))+50)
	if got := g.sh("echo new"); got != "new\n" {
		e.Errorf("a new command: got %q", got)
	}
	// Input that was half closed, through the new stream.
	testHalfClosed(g)

	// And once more: this process restarts, and another host dies.
	e.ok(g.s.Close())
	e.reopen()
	g.connect()
	e.ok(g.s.Close())
	h = e.hand()
	h.do(request{Op: "create", ID: e.newID()})
	h.kill()
	g.connect()
	g.followTo(out, "counter", len(lines(out.String()))+50)
	q, err := g.s.Attach(e.ctx, "counter", 0, 0, client.Output{})
	e.ok(err)
	e.ok(q.Kill(e.ctx))
	if r := g.result(q); r.Outcome != sandbox.Canceled || consecutive(string(r.Stdout)) != nil {
		e.Errorf("got %v, %v", r.Outcome, consecutive(string(r.Stdout)))
	}
}

func testSuspendAfterTakeOver(e *env) {
	if _, ok := runtime.As[runtime.Suspender](e.rt); !ok || !e.rt.Capabilities().Suspend {
		e.Skipf("%s has no suspend", e.rt.Capabilities().Name)
	}
	id := e.newID()
	h := e.hand()
	h.start(id, "counter", counter)
	g := &guest{env: e, id: id, epoch: 1}
	g.await(&h.output, "line 20\n")
	h.kill()
	sus, _ := runtime.As[runtime.Suspender](e.rt)
	g.connect()
	out := &h.output
	g.followTo(out, "counter", len(lines(out.String()))+10)
	image := filepath.Join(e.imagesDir(), "image")
	g.suspendTo(sus, image)
	g.id = e.newID()
	e.ok(sus.Resume(e.ctx, e.spec(g.id), image))
	g.connect()
	g.followTo(out, "counter", len(lines(out.String()))+10)
	if got := g.sh("echo new"); got != "new\n" {
		e.Errorf("a new command: got %q", got)
	}
	// The copy outlives its host as well.
	e.ok(g.s.Close())
	e.hand().kill()
	g.connect()
	g.followTo(out, "counter", len(lines(out.String()))+10)
}

// testReusedPid lets a sandbox die with its host and gives its pid to a
// stranger.
func testReusedPid(e *env) {
	const lastPid = "/proc/sys/kernel/ns_last_pid"
	if err := os.WriteFile(lastPid, []byte("300"), 0); err != nil {
		e.Skipf("pids can't be chosen here: %v", err)
	}
	id := e.newID()
	h := e.hand()
	pid := h.start(id, "waits", "sleep 1000").Pid
	h.end()
	e.ok(kill(pid))
	e.eventually("the pid is free", func() bool { return statFields(pid) == nil })
	var stranger *exec.Cmd
	for range 200 { // others start processes too
		e.ok(os.WriteFile(lastPid, []byte(itoa(pid-1)), 0))
		stranger = exec.CommandContext(e.ctx, "sleep", "1000")
		e.ok(stranger.Start())
		if stranger.Process.Pid == pid {
			break
		}
		_ = stranger.Process.Kill()
		_ = stranger.Wait()
		stranger = nil
	}
	if stranger == nil {
		e.open()
		e.Fatalf("no process got the pid %d", pid)
	}
	e.open()
	if i := e.info(id); i.State != sandbox.Failed || i.Pid == pid {
		e.Errorf("a dead sandbox is listed as %+v", i)
	}
	e.ok(e.rt.Destroy(e.ctx, id))
	if f := statFields(pid); len(f) == 0 || f[0] == "Z" {
		e.Error("the stranger with the reused pid was killed")
	}
	_ = stranger.Process.Kill()
	_ = stranger.Wait()
}

// testRandomKills kills hosts at random moments of every step of a sandbox's
// life. Whatever was half done is cleaned to nothing, and nothing else is
// touched.
func testRandomKills(e *env) {
	rounds := 50
	if testing.Short() {
		rounds = 10
	}
	rnd := e.random()
	neighbor := newEnv(e.T, e.f).guest()
	before := e.look()
	image := filepath.Join(e.imagesDir(), "image")
	steps := e.steps(e.newID(), image)
	took := e.measure(steps)
	for round := range rounds {
		e.round()
		e.ok(os.RemoveAll(image))
		victim := rnd.IntN(len(steps))
		delay := time.Duration(rnd.Float64() * 1.3 * float64(took[victim]))
		h := e.hand()
		for _, q := range steps[:victim] {
			h.do(q)
		}
		h.begin(steps[victim])
		time.Sleep(delay)
		h.kill()
		found := e.destroyAll()
		e.Logf("round %d: killed %v into %s: found %v", round, delay.Round(time.Millisecond), steps[victim].Op, found)
		e.states(map[string]sandbox.State{})
		if steps[victim].Op == "suspend" && slices.Equal(found, []sandbox.State{sandbox.Failed}) {
			e.resumes(image)
		}
		e.checkResidue(before)
		if e.Failed() {
			return
		}
	}
	neighbor.round()
	if got := neighbor.sh("echo fine"); got != "fine\n" {
		e.Errorf("another owner's sandbox: got %q", got)
	}
}

// random is another one in each run, unless RUNTIMETEST_SEED tells which.
func (e *env) random() *rand.Rand {
	e.Helper()
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("RUNTIMETEST_SEED"); s != "" {
		_, err := fmt.Sscan(s, &seed)
		e.ok(err)
	}
	e.Logf("RUNTIMETEST_SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// resumes checks an image whose writer was killed: a sandbox that has ended by
// itself has completed it.
func (e *env) resumes(image string) {
	e.Helper()
	sus, _ := runtime.As[runtime.Suspender](e.rt)
	g := &guest{env: e, id: e.newID(), epoch: 100}
	e.ok(sus.Resume(e.ctx, e.spec(g.id), image))
	g.connect()
	if i := g.job("waits"); i.Result.Outcome != sandbox.Running {
		e.Errorf("after the resume of an image whose writer was killed: %+v", i)
	}
	e.ok(g.s.Close())
	e.ok(e.rt.Destroy(e.ctx, g.id))
}

// steps are the life of a sandbox.
func (e *env) steps(id, image string) []request {
	steps := []request{
		{Op: "create", ID: id}, {Op: "start", ID: id}, {Op: "exec", ID: id, Exec: "waits", Script: "sleep 1000"},
		{Op: "quiesce", ID: id}, {Op: "suspend", ID: id, Image: image}, {Op: "resume", ID: id, Image: image},
		{Op: "destroy", ID: id},
	}
	if e.rt.Capabilities().Stop {
		steps = slices.Insert(steps, 6, request{Op: "stop", ID: id}, request{Op: "start", ID: id})
	}
	if !e.rt.Capabilities().Suspend {
		steps = slices.Delete(steps, 3, 6)
	}
	return steps
}

// destroyAll destroys what is listed and tells the states it was in.
func (e *env) destroyAll() []sandbox.State {
	e.Helper()
	var found []sandbox.State
	for _, i := range e.list() {
		found = append(found, i.State)
		if err := e.rt.Destroy(e.ctx, i.ID); err != nil {
			e.Errorf("destroy a sandbox that is %s: %v", i.State, err)
		}
	}
	return found
}

// measure runs the steps once and tells how long each takes.
func (e *env) measure(steps []request) []time.Duration {
	e.Helper()
	h := e.hand()
	var took []time.Duration
	var errs []error
	for _, q := range steps {
		start := time.Now()
		_, err := h.try(q)
		errs = append(errs, err)
		took = append(took, time.Since(start))
	}
	h.kill()
	e.ok(errors.Join(errs...))
	return took
}
