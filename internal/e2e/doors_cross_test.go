package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	sandboxv1 "agentbox/internal/gen/sandbox/v1"
	"agentbox/internal/ids"
)

// way is one way to the sandboxes of an owner: a door, and how it is spoken to. What
// it is told comes as text, so that answers can be compared.
type way struct {
	name string
	// make makes a sandbox that may reach example.com, named so where the door takes a name, and gives the id that
	// the door gives it.
	make func(name string) (id string)
	// list are all ids that the door lists.
	list func() []string
	// run runs a command line, for so many seconds.
	run     func(id, line string, timeout int) ended
	get     func(id string) string
	destroy func(id string) string
}

// ended is how a command ended.
type ended struct {
	code           int
	stdout, stderr string
	timedOut, cut  bool
}

// signaled is what each way has for the end by signal n.
func (w *way) signaled(n int) int {
	if _, ok := protocols[w.name]; ok {
		return -n
	}
	return 128 + n
}

// ways are all ways of a client.
func (c *Client) ways() []*way {
	all := []*way{c.native(), c.projects(), c.commandLine()}
	for _, protocol := range slices.Sorted(maps.Keys(protocols)) {
		all = append(all, c.RPC(protocol).way(protocol))
	}
	return all
}

func (c *Client) native() *way {
	return &way{
		name: "native",
		make: func(name string) string {
			return c.Create(`{"name":"` + name + `","network":{"allow":["example.com"]}}`).ID
		},
		list: c.Sandboxes,
		run: func(id, line string, timeout int) ended {
			a := c.Send("POST", api+"/sandboxes/"+id+"/execute", fmt.Sprintf(`{"command":%q,"timeout":%d}`, line, timeout))
			var r struct {
				Code      int `json:"exit_code"`
				Stdout    string
				Stderr    string
				TimedOut  bool `json:"timed_out"`
				Truncated struct{ Stdout bool }
			}
			if err := json.Unmarshal([]byte(a.Text), &r); err != nil || a.Code != http.StatusOK {
				return ended{stderr: sameForAll(a)}
			}
			return ended{r.Code, r.Stdout, r.Stderr, r.TimedOut, r.Truncated.Stdout}
		},
		get:     func(id string) string { return sameForAll(c.Send("GET", api+"/sandboxes/"+id, "")) },
		destroy: func(id string) string { return sameForAll(c.Send("DELETE", api+"/sandboxes/"+id, "")) },
	}
}

func (c *Client) projects() *way {
	return &way{
		name: "/api/sandboxes",
		make: func(name string) string {
			var sb project
			(&projects{c}).ok("POST", "/api/sandboxes", `{"project_name":"`+name+`","memory_limit":"512m"}`, &sb)
			return sb.ID
		},
		list: func() (all []string) {
			var list []project
			(&projects{c}).ok("GET", "/api/sandboxes", "", &list)
			for _, sb := range list {
				all = append(all, sb.ID, sb.Container)
			}
			return all
		},
		run: func(id, line string, timeout int) ended {
			a := c.Send("POST", "/api/sandboxes/"+id+"/execute", fmt.Sprintf(`{"command":["sh","-c",%q],"timeout":%d}`, line, timeout))
			var r struct {
				commandResult
				TimedOut  bool `json:"timed_out"`
				Truncated bool
			}
			if err := json.Unmarshal([]byte(a.Text), &r); err != nil || a.Code != http.StatusOK {
				return ended{stderr: sameForAll(a)}
			}
			return ended{r.Code, r.Stdout, r.Stderr, r.TimedOut, r.Truncated}
		},
		get:     func(id string) string { return sameForAll(c.Send("GET", "/api/sandboxes/"+id, "")) },
		destroy: func(id string) string { return sameForAll(c.Send("DELETE", "/api/sandboxes/"+id, "")) },
	}
}

func (c *Client) commandLine() *way {
	told := func(args ...string) string {
		out := c.CLI(args...)
		return fmt.Sprint(out.Code, out.Stdout, out.Stderr)
	}
	return &way{
		name: "command line",
		make: func(name string) string {
			out := c.CLI("create", "--name", name, "--allow", "example.com")
			if out.Code != 0 {
				c.t.Fatalf("create: %+v", out)
			}
			return strings.TrimSpace(out.Stdout)
		},
		list: func() []string { return strings.Fields(c.CLI("ls", "-q").Stdout) },
		run: func(id, line string, timeout int) ended {
			out := c.CLI("exec", "--timeout", fmt.Sprint(timeout, "s"), id, "--", "sh", "-c", line)
			return ended{code: out.Code, stdout: out.Stdout, stderr: out.Stderr, timedOut: out.Code == 124}
		},
		get:     func(id string) string { return told("get", id) },
		destroy: func(id string) string { return told("rm", id) },
	}
}

func (c *rpcs) way(protocol string) *way {
	return &way{
		name: protocol,
		make: func(name string) string {
			c.t.Helper()
			a, err := c.CreateSession(c.t.Context(), &sandboxv1.CreateSessionRequest{SessionId: &name, AllowedHosts: []string{"example.com"}})
			if err != nil {
				c.t.Fatal(err)
			}
			return a.GetSession().GetSessionId()
		},
		list: func() (all []string) {
			a, err := c.ListSessions(c.t.Context(), &sandboxv1.ListSessionsRequest{})
			if err != nil {
				c.t.Error(err)
			}
			for _, s := range a.GetSessions() {
				all = append(all, s.GetSessionId(), s.GetContainerId())
			}
			return all
		},
		run: func(id, line string, timeout int) ended {
			a, err := c.Exec(c.t.Context(), &sandboxv1.ExecRequest{SessionId: id, Command: line, Timeout: int32(timeout)})
			if err != nil {
				return ended{stderr: err.Error()}
			}
			return ended{int(a.GetExitCode()), a.GetStdout(), a.GetStderr(), a.GetTimedOut(), a.GetTruncated()}
		},
		get: func(id string) string {
			a, err := c.GetSession(c.t.Context(), &sandboxv1.GetSessionRequest{SessionId: id})
			return fmt.Sprint(a, err)
		},
		destroy: func(id string) string {
			a, err := c.DestroySession(c.t.Context(), &sandboxv1.DestroySessionRequest{SessionId: id})
			return fmt.Sprint(a.GetSuccess(), err)
		},
	}
}

// makers are the ways that make different sandboxes: one for each door.
var makers = []string{"native", "gRPC", "/api/sandboxes", "command line"}

// crossed are an owner's sandboxes, one made by each door, which tests share and leave
// as they are.
type crossed struct {
	*Client
	ways []*way
	ids  map[string][]string // by the door that made it: its ids in each form, the whole one first
}

// crossing is what they have in common.
var crossing struct {
	sync.Mutex
	key string
	ids map[string][]string
}

func sharedCrossed(t *testing.T) *crossed {
	t.Helper()
	t.Parallel()
	crossing.Lock()
	defer crossing.Unlock()
	d := SharedDaemon(t)
	if crossing.ids == nil {
		c := d.Tenant("crossing")
		crossing.key, crossing.ids = c.Key, c.makeByAll("crossing")
	}
	c := d.As(crossing.key)
	return &crossed{c, c.ways(), crossing.ids}
}

// makeByAll makes a sandbox by each door and gives their ids.
func (c *Client) makeByAll(prefix string) map[string][]string {
	c.t.Helper()
	made := map[string][]string{}
	for _, w := range c.ways() {
		if i := slices.Index(makers, w.name); i >= 0 {
			made[w.name] = c.forms(w.make(fmt.Sprintf("%s-%d", prefix, i)))
		}
	}
	return made
}

// forms are all ids of a sandbox.
func (c *Client) forms(id string) []string {
	c.t.Helper()
	a := c.Send("GET", api+"/sandboxes/"+id, "")
	var sb struct {
		ID, Label, Name string
		ShortID         string `json:"short_id"`
	}
	if err := json.Unmarshal([]byte(a.Text), &sb); err != nil || a.Code != http.StatusOK {
		c.t.Fatalf("get %s: %v", id, a)
	}
	all := []string{sb.ID, sb.ShortID, sb.Label, id}
	if sb.Name != "" {
		all = append(all, sb.Name)
	}
	slices.Sort(all[1:])
	return slices.Compact(all)
}

// TestX15: what one door makes each way lists and uses, by each of its ids; what one
// destroys is gone for all.
func TestX15(t *testing.T) {
	c := sharedCrossed(t)
	for _, w := range c.ways {
		listed := w.list()
		for maker, forms := range c.ids {
			if !slices.ContainsFunc(forms, func(id string) bool { return slices.Contains(listed, id) }) {
				t.Errorf("%s lists %q, not what %s made: %q", w.name, listed, maker, forms)
			}
			for _, id := range forms {
				if got := w.run(id, "echo $((6*7))", 60); got.stdout != "42\n" || got.code != 0 {
					t.Errorf("%s in %s, made by %s: %+v", w.name, id, maker, got)
				}
				if w.name == "command line" {
					continue // it asks the native door, and its start takes a while
				}
				if got := w.get(id); !strings.Contains(got, forms[0][:12]) {
					t.Errorf("%s shows %s, made by %s, as %s", w.name, id, maker, got)
				}
			}
		}
	}
	made := c.makeByAll("crossing-" + ids.Hex(3))
	for i, w := range c.ways {
		forms, ok := made[makers[i%len(makers)]]
		if !ok {
			break
		}
		id := forms[len(forms)-1]
		w.destroy(id)
		for _, other := range c.ways {
			if got := other.run(id, "true", 60); got.stderr == "" || got.code == 0 && !strings.Contains(got.stderr, "404") {
				t.Errorf("%s destroyed %s, and %s runs in it: %+v", w.name, id, other.name, got)
			}
			if got := strings.Join(other.list(), " "); strings.Contains(got, forms[0][:12]) {
				t.Errorf("%s destroyed %s, and %s lists it", w.name, id, other.name)
			}
		}
		delete(made, makers[i%len(makers)])
	}
}

// TestX16: an id of another owner's sandbox, in whatever form, is at each door an id
// of none; nothing happens to the sandbox.
func TestX16(t *testing.T) {
	c := sharedCrossed(t)
	for _, w := range c.d.Tenant("stranger").ways() {
		ops := []func(id string) string{w.get, w.destroy, func(id string) string { return fmt.Sprint(w.run(id, "touch taken", 60)) }}
		if got := w.list(); len(got) > 0 {
			t.Errorf("%s lists %q", w.name, got)
		}
		n := 0
		for maker, forms := range c.ids {
			for _, id := range forms {
				for i, op := range ops {
					if n++; w.name == "command line" && n%len(ops) != i {
						continue
					}
					none := "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"[:min(len(id), 64)]
					got, want := strings.ReplaceAll(op(id), id, none), op(none)
					if got != want || strings.Contains(got, "42") {
						t.Errorf("%s, %s, made by %s: %s; of none: %s", w.name, id, maker, got, want)
					}
				}
			}
		}
	}
	for maker, forms := range c.ids {
		if got := c.Sh(forms[0], "ls"); strings.Contains(got, "taken") {
			t.Errorf("what %s made was used: %q", maker, got)
		}
	}
}
