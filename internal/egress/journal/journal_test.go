package journal

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"agentbox/internal/audit"
	"agentbox/internal/egress"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T, dir string) *Journal {
	t.Helper()
	j, err := Open(dir, audit.Options{}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return j
}

func closed(t *testing.T, j *Journal) {
	t.Helper()
	if err := j.Close(); err != nil {
		t.Error(err)
	}
	j.Record(egress.Record{Sandbox: "late"}) // of a connection that ended late: it is dropped
}

func all(t *testing.T, j *Journal, q Query) []Entry {
	t.Helper()
	q.OldestFirst = true
	var entries []Entry
	for {
		page, err := j.Query(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		entries = append(entries, page.Entries...)
		if page.Next == "" {
			return entries
		}
		q.Cursor = page.Next
	}
}

// What was recorded is there after a restart, for its owner, field by field.
func TestKept(t *testing.T) {
	dir := t.TempDir()
	at := time.Now().UTC().Truncate(time.Millisecond)
	records := []egress.Record{
		{
			Time: at, Sandbox: "a", Owner: "o", Kind: egress.KindHTTP, Name: "x.example", Port: 8080, Addr: netip.MustParseAddr("2001:db8::1"),
			Verdict: egress.Allowed, Rule: "*.example", BytesUp: 1, BytesDown: 1 << 40, Duration: 3*time.Second + 7, Method: "GET", Path: "/a%20b", Status: 204, Intercepted: true,
		},
		{Time: at, Sandbox: "a", Owner: "o", Kind: egress.KindSOCKS, Verdict: egress.Denied, Code: egress.CodeHost, Reason: "y.example\nis not allowed"},
		{Time: at, Sandbox: "a", Owner: "o", Kind: egress.KindConnect, Name: "z.example", Port: 443, Verdict: egress.Allowed, Duration: 5 * time.Second, Open: true},
	}
	j := open(t, dir)
	for _, r := range records {
		j.Record(r)
	}
	j.Record(egress.Record{Time: at, Sandbox: "b", Owner: "o"})
	closed(t, j)
	j = open(t, dir)
	defer closed(t, j)
	got := all(t, j, Query{Owner: "o", Sandbox: "a"})
	if len(got) != len(records) {
		t.Fatalf("%d entries: %+v", len(got), got)
	}
	for i := range got {
		if !reflect.DeepEqual(got[i], Entry{Record: records[i]}) {
			t.Errorf("entry %d is\n%+v, want\n%+v", i, got[i], records[i])
		}
	}
	if other := all(t, j, Query{Owner: "other", Sandbox: "a"}); len(other) != 0 {
		t.Errorf("another owner sees %+v", other)
	}
}

// A flood of one sandbox is thinned out and told of, and takes nothing from others.
func TestFlood(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir)
	const n = 3 * burst
	for i := range n {
		j.Record(egress.Record{Time: time.Now(), Sandbox: "flood", Owner: "o", Path: fmt.Sprint(i)})
	}
	j.Record(egress.Record{Time: time.Now(), Sandbox: "calm", Owner: "o", Path: "calm"})
	closed(t, j)
	j = open(t, dir)
	defer closed(t, j)
	kept, omitted := 0, 0
	for _, e := range all(t, j, Query{Owner: "o", Sandbox: "flood"}) {
		if e.Omitted > 0 {
			omitted += e.Omitted
			continue
		}
		kept++
	}
	if kept < burst || omitted == 0 || kept+omitted != n {
		t.Errorf("%d kept and %d told of, of %d", kept, omitted, n)
	}
	if calm := all(t, j, Query{Owner: "o", Sandbox: "calm"}); len(calm) != 1 || calm[0].Path != "calm" {
		t.Errorf("of the other sandbox: %+v", calm)
	}
}

// That records can't be written is told: to who asks, in what is counted, and once
// to the operator.
func TestUnwritten(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "log")
	var said bytes.Buffer
	j, err := Open(dir, audit.Options{MaxFile: 4096}, slog.New(slog.NewTextHandler(&said, nil)))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(dir); err != nil { // so that no further file can be begun
		t.Fatal(err)
	}
	for i := range 100 {
		j.Record(egress.Record{Time: time.Now(), Sandbox: "a", Owner: "o", Path: fmt.Sprint(strings.Repeat("x", 200), i)})
	}
	for end := time.Now().Add(30 * time.Second); j.Err() == nil && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	failed := j.Err()
	_ = j.Close() // it may fail for the same reason
	if failed == nil || j.Lost() == 0 || j.Lost() > 100 || strings.Count(said.String(), "written=false") != 1 {
		t.Errorf("%v, %d lost, said: %s", failed, j.Lost(), said.String())
	}
}
