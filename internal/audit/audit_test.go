package audit_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"agentbox/internal/audit"
	"agentbox/internal/sandbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T, dir string, o audit.Options) *audit.Log {
	t.Helper()
	l, err := audit.Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func write(t *testing.T, l *audit.Log, records ...audit.Record) {
	t.Helper()
	for _, r := range records {
		if err := l.Write(r); err != nil {
			t.Fatal(err)
		}
	}
}

// all follows the cursors to the end and gives the request ids.
func all(t *testing.T, l *audit.Log, q audit.Query) []string {
	t.Helper()
	var ids []string
	for pages := 0; ; pages++ {
		p, err := l.Query(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range p.Records {
			ids = append(ids, r.RequestID)
		}
		if q.Cursor = p.Next; q.Cursor == "" {
			return ids
		}
		if pages > 10_000 {
			t.Fatal("the pages have no end")
		}
	}
}

func TestQuery(t *testing.T) {
	l := open(t, t.TempDir(), audit.Options{})
	at := time.Date(2026, 1, 2, 3, 4, 5, 678, time.UTC)
	write(t, l,
		audit.Record{Time: at, Action: audit.Create, Owner: "a", Sandbox: "s1", RequestID: "1", Result: audit.OK, KeyID: "key_1"},
		audit.Record{Time: at.Add(time.Second), Action: audit.Exec, Owner: "a", Sandbox: "s1", RequestID: "2", Result: audit.OK, Details: map[string]string{"exec": "e1"}},
		audit.Record{Time: at.Add(2 * time.Second), Action: audit.Create, Owner: "b", Sandbox: "s2", RequestID: "3", Result: "quota_exceeded"},
		audit.Record{Time: at.Add(3 * time.Second), Action: audit.AuthRefused, RequestID: "4", Result: "unauthenticated"},
	)
	for _, c := range []struct {
		name string
		q    audit.Query
		want string
	}{
		{"newest first", audit.Query{AllOwners: true}, "4321"},
		{"oldest first", audit.Query{AllOwners: true, OldestFirst: true}, "1234"},
		{"one owner's", audit.Query{Owner: "a"}, "21"},
		{"TEN-03: another owner's sandbox", audit.Query{Owner: "a", Sandbox: "s2"}, ""},
		{"sandbox", audit.Query{AllOwners: true, Sandbox: "s2"}, "3"},
		{"action", audit.Query{AllOwners: true, Action: audit.Create, OldestFirst: true}, "13"},
		{"since", audit.Query{AllOwners: true, Since: at.Add(time.Second)}, "432"},
		{"pages of one", audit.Query{AllOwners: true, Limit: 1}, "4321"},
		{"pages of three, oldest first", audit.Query{AllOwners: true, Limit: 3, OldestFirst: true}, "1234"},
		{"pages of one owner's", audit.Query{Owner: "a", Limit: 1, OldestFirst: true}, "12"},
	} {
		if got := strings.Join(all(t, l, c.q), ""); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
	p, err := l.Query(t.Context(), audit.Query{AllOwners: true, Sandbox: "s1", Action: audit.Exec})
	if err != nil || len(p.Records) != 1 || !p.Records[0].Time.Equal(at.Add(time.Second)) || p.Records[0].Details["exec"] != "e1" || p.Records[0].Owner != "a" {
		t.Errorf("the record is %+v, %v", p, err)
	}
	for _, c := range []string{"x", "1", "1.-1", "-1.0", "1.0.0", "18446744073709551616.0"} {
		_, err := l.Query(t.Context(), audit.Query{AllOwners: true, Cursor: c})
		var inv *sandbox.InvalidError
		if !errors.As(err, &inv) {
			t.Errorf("cursor %q: %v", c, err)
		}
	}
	for _, c := range []string{"1.9223372036854775807", "7.5", "0.3"} { // well-formed, and nowhere
		if _, err := l.Query(t.Context(), audit.Query{AllOwners: true, Cursor: c}); err != nil {
			t.Errorf("cursor %q: %v", c, err)
		}
	}
}

// TestSinceEnds: what is older than asked for is not read to its end.
func TestSinceEnds(t *testing.T) {
	l := open(t, t.TempDir(), audit.Options{})
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	details := map[string]string{}
	for i := range 16 {
		details[fmt.Sprint(i)] = strings.Repeat("x", 1000)
	}
	for range 640 { // 10 MiB, more than one query reads
		write(t, l, audit.Record{Time: at, Action: audit.Exec, Owner: "a", RequestID: "old", Details: details})
	}
	write(t, l,
		audit.Record{Time: at.Add(time.Hour), Owner: "a", RequestID: "1"},
		audit.Record{Time: at.Add(time.Hour - time.Second), Owner: "a", RequestID: "0"}, // it was written late
		audit.Record{Time: at.Add(time.Hour), Owner: "a", RequestID: "2"},
	)
	p, err := l.Query(t.Context(), audit.Query{Owner: "a", Since: at.Add(time.Hour)})
	if err != nil || len(p.Records) != 2 || p.Records[0].RequestID != "2" || p.Records[1].RequestID != "1" || p.Next != "" {
		t.Errorf("%d records, then %q, %v", len(p.Records), p.Next, err)
	}
}

// TestTurnedCursor: who has the newest records goes on from them to newer ones, in
// the same file or another.
func TestTurnedCursor(t *testing.T) {
	for name, o := range map[string]audit.Options{"one file": {}, "many files": {MaxFile: 300, Files: 100}} {
		l := open(t, t.TempDir(), o)
		for _, id := range "123456789" {
			write(t, l, audit.Record{Time: time.Unix(1, 0), Action: audit.Create, Owner: "a", RequestID: string(id), Result: audit.OK})
		}
		for limit := 1; limit < 9; limit++ {
			p, err := l.Query(t.Context(), audit.Query{Owner: "a", Limit: limit})
			if err != nil || p.Next == "" {
				t.Fatalf("%s, %d: %+v, %v", name, limit, p, err)
			}
			if got, want := strings.Join(all(t, l, audit.Query{Owner: "a", OldestFirst: true, Cursor: p.Next}), ""), "123456789"[9-limit:]; got != want {
				t.Errorf("%s: behind the last %d there are %s, want %s", name, limit, got, want)
			}
		}
	}
}

// TestRotation wants the newest records, in order, in a bounded number of
// files that nobody else can read.
func TestRotation(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir, audit.Options{MaxFile: 1_000, Files: 3})
	var want []string
	for i := range 100 {
		want = append(want, fmt.Sprint(i))
		write(t, l, audit.Record{Action: audit.Exec, Owner: "a", RequestID: fmt.Sprint(i), Result: audit.OK})
	}
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(files) != 3 {
		t.Fatalf("files are %q, %v", files, err)
	}
	for _, f := range files {
		if info, err := os.Stat(f); err != nil || info.Size() > 1_000 || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", f, info, err)
		}
	}
	got := all(t, l, audit.Query{AllOwners: true, OldestFirst: true, Limit: 3})
	if len(got) < 10 || !slices.Equal(got, want[100-len(got):]) {
		t.Errorf("kept are %v", got)
	}
	back := all(t, l, audit.Query{AllOwners: true, Limit: 3})
	slices.Reverse(back)
	if !slices.Equal(back, got) {
		t.Errorf("newest first it is %v", back)
	}
	// A reader whose file goes away meanwhile goes on with what is left.
	p, err := l.Query(t.Context(), audit.Query{AllOwners: true, OldestFirst: true, Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(files[0]); err != nil {
		t.Fatal(err)
	}
	if rest := all(t, l, audit.Query{AllOwners: true, OldestFirst: true, Cursor: p.Next}); len(rest) == 0 || rest[len(rest)-1] != "99" {
		t.Errorf("after the oldest file is gone: %v", rest)
	}
}

// TestCutLine opens a log whose last line a crash has cut, at every byte.
func TestCutLine(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir, audit.Options{})
	write(t, l, audit.Record{RequestID: "1"}, audit.Record{RequestID: "2"})
	files, _ := filepath.Glob(filepath.Join(dir, "*"))
	whole, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	first := slices.Index(whole, '\n') + 1
	for cut := first; cut < len(whole); cut++ {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(files[0])), whole[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		l := open(t, dir, audit.Options{})
		write(t, l, audit.Record{RequestID: "3"})
		want := "13"
		if cut == len(whole)-1 { // only the end of the line is missing
			want = "123"
		}
		if got := strings.Join(all(t, l, audit.Query{AllOwners: true, OldestFirst: true}), ""); got != want {
			t.Errorf("cut at %d: %s, want %s", cut-first, got, want)
		}
	}
}

// TestFullDisk: a file size limit stands for the disk.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir, audit.Options{})
	write(t, l, audit.Record{RequestID: "1"})
	var old syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &old); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(filepath.Join(dir, "audit-00000001.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	limit := old
	limit.Cur = uint64(info.Size()) + 10 // in the middle of a record
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		t.Fatal(err)
	}
	err = l.Write(audit.Record{RequestID: "2"})
	if e := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &old); e != nil {
		t.Fatal(e)
	}
	if err == nil || l.Err() == nil {
		t.Errorf("a record that has no room: %v, then %v", err, l.Err())
	}
	write(t, l, audit.Record{RequestID: "3"})
	if err := l.Err(); err != nil {
		t.Errorf("after there was room again: %v", err)
	}
	if got := strings.Join(all(t, l, audit.Query{AllOwners: true}), ""); got != "31" {
		t.Errorf("records are %s", got)
	}
}

// TestHostileText puts into records what a caller can choose.
func TestHostileText(t *testing.T) {
	l := open(t, t.TempDir(), audit.Options{})
	details := map[string]string{}
	for i := range 1000 {
		details[fmt.Sprintf("%04d", i)] = strings.Repeat("\x00é\n", 10_000)
	}
	write(t, l,
		audit.Record{RequestID: "1", Details: map[string]string{"path": "a\n{\"request_id\":\"forged\"}\n\xff\x1b[31m"}},
		audit.Record{RequestID: "2", Details: details, Sandbox: strings.Repeat("s", 1<<20)},
	)
	if got := strings.Join(all(t, l, audit.Query{AllOwners: true}), ""); got != "21" {
		t.Errorf("records are %s", got)
	}
}

func TestManyWriters(t *testing.T) {
	l := open(t, t.TempDir(), audit.Options{MaxFile: 10_000, Files: 1000})
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 200 {
				if err := l.Write(audit.Record{RequestID: fmt.Sprint(i, ".", j), Owner: fmt.Sprint("o", i)}); err != nil {
					t.Error(err)
				}
				if j%50 == 0 {
					if _, err := l.Query(t.Context(), audit.Query{Owner: "o1"}); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	got := all(t, l, audit.Query{AllOwners: true})
	slices.Sort(got)
	if len(slices.Compact(got)) != 1600 {
		t.Errorf("%d records", len(got))
	}
}

// FuzzReader reads files that somebody else wrote: bounded, without a panic,
// to the end, and the same both ways.
func FuzzReader(f *testing.F) {
	f.Add([]byte("{\"request_id\":\"1\"}\n{\"request_id\":\"2\"}\n"), uint8(1))
	f.Add([]byte("\n\n{\"request_id\":\"1\"}{}\n[]\nnull\n{\"time\":\"x\"}\n{"), uint8(2))
	f.Add([]byte(strings.Repeat("x", 2<<20)+"\n{\"request_id\":\"1\"}\n"+strings.Repeat("x", 1<<20)), uint8(0))
	f.Fuzz(func(t *testing.T, data []byte, limit uint8) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "audit-00000007.jsonl"), data, 0o600); err != nil {
			t.Fatal(err)
		}
		l := open(t, dir, audit.Options{})
		forward := all(t, l, audit.Query{AllOwners: true, OldestFirst: true, Limit: int(limit) + 50})
		back := all(t, l, audit.Query{AllOwners: true, Limit: int(limit) + 50})
		slices.Reverse(back)
		if !slices.Equal(forward, back) {
			t.Errorf("%d records one way, %d the other", len(forward), len(back))
		}
	})
}
