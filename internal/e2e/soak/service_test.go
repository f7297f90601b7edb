package soak

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
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
	judge   judge
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
	c := &campaign{t: t, judge: t, rnd: rnd, d: d, place: oracle.Place{DataDir: d.Dir, TempDir: d.Dir + "/none"}}
	for _, owner := range []string{"acme", "beta", "zeta"} {
		out := d.Run("key", "create", "--owner", owner)
		if out.Code != 0 {
			t.Fatalf("make a key: %+v", out)
		}
		for i := range workersPerOwner {
			c.workers = append(c.workers, &worker{
				t: t, d: d, rnd: rand.New(rand.NewPCG(rnd.Uint64(), 0)), owner: owner, key: strings.TrimSpace(out.Stdout), name: fmt.Sprint(owner, i),
				patience: 10 * time.Second,
			})
		}
	}
	// What is made once is there after a first sandbox.
	first := &worker{t: t, d: d, rnd: rnd, owner: "acme", key: c.workers[0].key, name: "first"}
	first.makeVolume()
	first.create()
	first.destroy(first.boxes[0])
	first.removeVolume()
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
	starved := e2e.Starvation()
	began := time.Now()
	c.d.Start()
	took := time.Since(began)
	c.slowest = max(c.slowest, took)
	starved = max(starved, e2e.Starvation())
	if limit := time.Duration(starved*float64(ready)) + e2e.Slack(); took > limit {
		c.t.Errorf("it was ready after %v, allowed are %v", took, limit)
	}
}

// compare checks each worker's sandboxes and volume, the lists of the owners, and
// the host.
func (c *campaign) compare() {
	c.t.Helper()
	var busy sync.WaitGroup
	for _, w := range c.workers {
		busy.Go(w.verify)
	}
	busy.Wait()
	if c.judge.Failed() {
		return
	}
	c.compareLists()
	states, volumes, held := map[string]string{}, 0, 0
	for _, w := range c.workers {
		for _, b := range w.boxes {
			states[b.uid] = b.only()
		}
		if w.volume != nil {
			volumes++
			if w.volume.held != nil {
				held++
			}
		}
	}
	for _, line := range append(c.d.Disagreements(states), c.d.VolumeDisagreements(volumes, held)...) {
		c.judge.Error(line)
	}
}

// compareLists checks that each owner has what its workers know of, and no more.
func (c *campaign) compareLists() {
	c.t.Helper()
	keys, want := map[string]string{}, map[string][]string{}
	for _, w := range c.workers {
		keys[w.owner] = w.key
		for _, b := range w.boxes {
			want[w.owner] = append(want[w.owner], b.uid+" "+b.only())
		}
		if w.volume != nil {
			want[w.owner] = append(want[w.owner], "volume "+w.volume.name)
		}
	}
	for owner, key := range keys {
		var boxes struct{ Items []shown }
		var volumes struct{ Items []struct{ Name string } }
		c.d.Do(key, "GET", "/sandboxes?limit=1000", "", &boxes)
		c.d.Do(key, "GET", "/volumes?limit=1000", "", &volumes)
		var listed []string
		for _, sb := range boxes.Items {
			listed = append(listed, sb.ID+" "+sb.Status)
		}
		for _, v := range volumes.Items {
			listed = append(listed, "volume "+v.Name)
		}
		slices.Sort(listed)
		slices.Sort(want[owner])
		if !slices.Equal(listed, want[owner]) {
			c.judge.Errorf("%s lists %q, and should list %q", owner, listed, want[owner])
		}
	}
}

func (c *campaign) census() string {
	boxes, jobs, results, unknown, volumes, held := 0, 0, 0, 0, 0, 0
	for _, w := range c.workers {
		for _, b := range w.boxes {
			boxes++
			jobs += len(b.jobs)
			results += len(b.results)
		}
		unknown += w.doubts
		if w.volume != nil {
			volumes++
			if w.volume.held != nil {
				held++
			}
		}
	}
	return fmt.Sprintf("%d sandboxes, %d background commands, %d results, %d volumes (%d of sandboxes), %d calls without an answer so far; the slowest start took %v",
		boxes, jobs, results, volumes, held, unknown, c.slowest.Round(time.Millisecond))
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
			if w.volume != nil {
				w.removeVolume()
			}
		})
	}
	busy.Wait()
	c.d.NoneMounted()
	c.stop()
	c.before.Check(c.t, settle)
	c.d.Start()
}
