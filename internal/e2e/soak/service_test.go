package soak

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"agentbox/internal/e2e"
	"agentbox/internal/e2e/oracle"
	"agentbox/internal/failpoint"
)

// campaignKills is how often a campaign kills its daemon: a data directory of its
// own, which is empty at the end.
const campaignKills = 20

// TestServiceKills kills the daemon at random moments while clients of several
// owners work, and compares what the next one has with what may be.
//
// A long run notes its seed and the campaigns that passed in the file that
// AGENTBOX_CHAOS_STATE names, and goes on from there.
func TestServiceKills(t *testing.T) {
	kills := e2e.Sized(campaignKills, 300)
	if text := os.Getenv("AGENTBOX_CHAOS_KILLS"); text != "" {
		if _, err := fmt.Sscan(text, &kills); err != nil {
			t.Fatal(err)
		}
	}
	p := loadProgress(t)
	for p.Done*campaignKills < kills {
		n := p.Done
		began := time.Now()
		t.Run(fmt.Sprint("campaign ", n), func(t *testing.T) {
			newCampaign(t, rand.New(rand.NewPCG(p.Seed, uint64(n)))).run()
		})
		if t.Failed() {
			t.Fatalf("campaign %d of AGENTBOX_SEED=%d failed", n, p.Seed)
		}
		p.Done++
		p.save(t)
		t.Logf("%d of %d kills, the last %d in %v", p.Done*campaignKills, kills, campaignKills, time.Since(began).Round(time.Second))
	}
}

// progress is how far a long run is.
type progress struct {
	Seed uint64
	Done int // campaigns
	path string
}

func loadProgress(t *testing.T) *progress {
	t.Helper()
	p := &progress{path: os.Getenv("AGENTBOX_CHAOS_STATE")}
	if b, err := os.ReadFile(p.path); err == nil {
		if err := json.Unmarshal(b, p); err != nil {
			t.Fatalf("%s: %v", p.path, err)
		}
	}
	if p.Seed == 0 {
		p.Seed = seeded(t).Uint64() // the same for the same AGENTBOX_SEED
	}
	t.Logf("seed %d, %d campaigns have passed", p.Seed, p.Done)
	return p
}

func (p *progress) save(t *testing.T) {
	t.Helper()
	if p.path == "" {
		return
	}
	b, err := json.Marshal(p)
	if err == nil {
		err = os.WriteFile(p.path, b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// campaign is a daemon that is killed again and again, and who works with it.
type campaign struct {
	t       *testing.T
	rnd     *rand.Rand
	d       *e2e.Daemon
	place   oracle.Place
	before  *oracle.Snapshot
	workers []*worker
	slowest time.Duration // start
}

// workersPerOwner share an owner, so that lists and limits are shared.
const workersPerOwner = 2

func newCampaign(t *testing.T, rnd *rand.Rand) *campaign {
	t.Helper()
	d := e2e.StartDaemon(t)
	c := &campaign{t: t, rnd: rnd, d: d, place: oracle.Place{DataDir: d.Dir, TempDir: d.Dir + "/none"}}
	for _, owner := range []string{"acme", "beta", "zeta"} {
		out := d.Run("key", "create", "--owner", owner)
		if out.Code != 0 {
			t.Fatalf("make a key: %+v", out)
		}
		for i := range workersPerOwner {
			c.workers = append(c.workers, &worker{
				t: t, d: d, rnd: rand.New(rand.NewPCG(rnd.Uint64(), 0)), owner: owner, key: strings.TrimSpace(out.Stdout), name: fmt.Sprint(owner, i),
			})
		}
	}
	// What is made once is there after a first sandbox.
	first := &worker{t: t, d: d, rnd: rnd, owner: "acme", key: c.workers[0].key, name: "first"}
	first.create()
	first.destroy(first.boxes[0])
	c.stop()
	c.before = oracle.Take(t, c.place)
	d.Start()
	return c
}

func (c *campaign) stop() {
	c.t.Helper()
	if code := c.d.Stop(); code != 0 {
		c.t.Fatalf("told to end, the daemon ended with %d", code)
	}
}

func (c *campaign) run() {
	for kill := 0; kill < campaignKills; kill++ {
		work := make(chan struct{})
		var busy sync.WaitGroup
		for _, w := range c.workers {
			busy.Go(func() { w.work(work) })
		}
		moment := time.Duration(c.rnd.Int64N(int64(1500 * time.Millisecond)))
		time.Sleep(moment)
		c.d.Kill()
		close(work)
		busy.Wait()
		time.Sleep(time.Duration(c.rnd.Int64N(int64(300 * time.Millisecond)))) // background work goes on
		if c.rnd.IntN(4) == 0 {
			kill += c.dieInStart()
		}
		c.restart()
		c.compare()
		if c.t.Failed() {
			c.t.Fatalf("after kill %d, %v into its work", kill, moment)
		}
		c.t.Logf("kill %d: %s", kill, c.census())
	}
	c.finish()
}

// dieInStart starts a daemon that dies at one of the records that it writes while
// it takes over, if it writes as many.
func (c *campaign) dieInStart() int {
	points := []failpoint.Point{failpoint.StoreBegin, failpoint.StoreCommit, failpoint.StoreCommitted, failpoint.EngineKilled, failpoint.DestroyRemoved}
	trap := string(points[c.rnd.IntN(len(points))]) + "=kill"
	if n := c.rnd.IntN(12); n > 0 {
		trap += fmt.Sprint("+", n)
	}
	err := c.d.StartWith(failpoint.Variable + "=" + trap)
	c.d.Kill()
	if err != nil {
		c.t.Logf("died in its start: %s", trap)
		return 1
	}
	return 0
}

// ready is how long a start with 20 sandboxes may take, on a machine that has
// nothing else to do.
const ready = 5 * time.Second

func (c *campaign) restart() {
	c.t.Helper()
	began := time.Now()
	c.d.Start()
	took := time.Since(began)
	c.slowest = max(c.slowest, took)
	if limit := ready + e2e.Slack(); took > limit {
		c.t.Errorf("it was ready after %v, allowed are %v", took, limit)
	}
}

// compare checks each worker's sandboxes, the lists of the owners, and the host.
func (c *campaign) compare() {
	c.t.Helper()
	var busy sync.WaitGroup
	for _, w := range c.workers {
		busy.Go(w.verify)
	}
	busy.Wait()
	if c.t.Failed() {
		return
	}
	states, owners := map[string]string{}, map[string]string{}
	for _, w := range c.workers {
		owners[w.owner] = w.key
		for _, b := range w.boxes {
			states[b.uid] = b.only()
		}
	}
	listed := map[string]string{}
	for owner, key := range owners {
		var page struct{ Items []struct{ ID, Status string } }
		c.d.Do(key, "GET", "/sandboxes?limit=1000", "", &page)
		for _, sb := range page.Items {
			listed[sb.ID] = sb.Status
			if states[sb.ID] != sb.Status {
				c.t.Errorf("%s has the sandbox %s, which is %s and should be %q", owner, sb.ID, sb.Status, states[sb.ID])
			}
		}
	}
	if len(listed) != len(states) {
		c.t.Errorf("%d sandboxes are listed, %d should be", len(listed), len(states))
	}
	for _, line := range c.d.Disagreements(states) {
		c.t.Error(line)
	}
}

func (c *campaign) census() string {
	boxes, jobs, results, unknown := 0, 0, 0, 0
	for _, w := range c.workers {
		for _, b := range w.boxes {
			boxes++
			jobs += len(b.jobs)
			results += len(b.results)
		}
		unknown += w.doubts
	}
	return fmt.Sprintf("%d sandboxes, %d background commands, %d results, %d calls without an answer so far; the slowest start took %v",
		boxes, jobs, results, unknown, c.slowest.Round(time.Millisecond))
}

// finish destroys everything and looks for what is left.
func (c *campaign) finish() {
	c.t.Helper()
	var busy sync.WaitGroup
	for _, w := range c.workers {
		busy.Go(func() {
			for len(w.boxes) > 0 {
				w.destroy(w.boxes[0])
			}
		})
	}
	busy.Wait()
	c.stop()
	c.before.Check(c.t, settle)
	c.d.Start()
}
