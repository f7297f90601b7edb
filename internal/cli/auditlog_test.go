package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// auditServer has an audit log in pages of three. A cursor is a place between two
// records.
type auditServer struct {
	mu      sync.Mutex
	records int
	served  []int // of how often each was sent
}

func (s *auditServer) add() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.records++
	s.served = append(s.served, 0)
}

func (s *auditServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q, page := r.URL.Query(), 3
	at, err := strconv.Atoi(q.Get("cursor"))
	newest := q.Get("order") == "newest"
	if err != nil && newest {
		at = s.records
	}
	var ids []int
	for ; page > 0 && (newest && at > 0 || !newest && at < s.records); page-- {
		if newest {
			at--
			ids = append(ids, at)
		} else {
			ids = append(ids, at)
			at++
		}
	}
	var list struct {
		Items []map[string]string `json:"items"`
		Next  *string             `json:"next_cursor"`
	}
	for _, id := range ids {
		s.served[id]++
		list.Items = append(list.Items, map[string]string{"time": "2026-01-31T12:00:00Z", "action": fmt.Sprintf("r%d;", id)})
	}
	if next := strconv.Itoa(at); newest && at > 0 || !newest && at < s.records {
		list.Next = &next
	}
	_ = json.NewEncoder(w).Encode(list)
}

// watched is an output that tells f all of it at each write.
type watched struct {
	text strings.Builder
	f    func(all string)
}

func (w *watched) Write(p []byte) (int, error) {
	w.text.Write(p)
	w.f(w.text.String())
	return len(p), nil
}

// TestAuditFollow: each record is printed once, in order, and the old part of the
// log is not read to find what is new.
func TestAuditFollow(t *testing.T) {
	log := &auditServer{}
	for range 30 {
		log.add()
	}
	s := answering(t, func(_ int, w http.ResponseWriter, r *http.Request) { log.ServeHTTP(w, r) })
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out := &watched{f: func(all string) {
		switch {
		case strings.HasSuffix(all, "r29;\n"):
			for range 5 {
				log.add()
			}
		case strings.HasSuffix(all, "r34;\n"):
			log.add()
		case strings.HasSuffix(all, "r35;\n"):
			cancel()
		}
	}}
	a := &App{Stdout: out, Stderr: io.Discard}
	_ = a.audit(ctx, toServer(t, s), &auditFlags{limit: 2, follow: true}) // it ends with ctx
	var got []string
	for line := range strings.Lines(out.text.String()) {
		got = append(got, strings.TrimSpace(strings.Fields(line)[2]))
	}
	if want := []string{"r28;", "r29;", "r30;", "r31;", "r32;", "r33;", "r34;", "r35;"}; !slices.Equal(got, want) {
		t.Errorf("printed %q, want %q", got, want)
	}
	log.mu.Lock()
	defer log.mu.Unlock()
	for id, times := range log.served {
		if id < 27 && times > 0 || times > 5 {
			t.Errorf("record %d was read %d times", id, times)
		}
	}
}

// All of the log, and the last records, whatever the pages are.
func TestAuditLast(t *testing.T) {
	log := &auditServer{}
	for range 8 {
		log.add()
	}
	s := answering(t, func(_ int, w http.ResponseWriter, r *http.Request) { log.ServeHTTP(w, r) })
	for limit, want := range map[int]string{0: "r0;r1;r2;r3;r4;r5;r6;r7;", 2: "r6;r7;", 4: "r4;r5;r6;r7;"} {
		var out strings.Builder
		a := &App{Stdout: &out, Stderr: io.Discard}
		if err := a.audit(t.Context(), toServer(t, s), &auditFlags{limit: limit, listFlags: listFlags{json: true}}); err != nil {
			t.Fatal(err)
		}
		var rows []auditRow
		if err := json.Unmarshal([]byte(out.String()), &rows); err != nil {
			t.Fatal(err)
		}
		got := ""
		for i := range rows {
			got += rows[i].Action
		}
		if got != want {
			t.Errorf("the last %d are %s, want %s", limit, got, want)
		}
	}
}
