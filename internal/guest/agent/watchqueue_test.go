package agent

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	guestv1 "agentbox/internal/gen/guest/v1"
	"agentbox/internal/guest"
)

// A client that does not read costs a bounded amount of memory, loses events,
// and is told in their place.
func TestWatchOverflow(t *testing.T) {
	for name, path := range map[string]string{"count": "f%d", "size": strings.Repeat("n", 2000) + "%d"} {
		q := newEventQueue()
		for i := range 3 * maxEvents {
			q.add(guestv1.WatchKind_WATCH_KIND_CREATE, fmt.Sprintf(path, i))
		}
		events, more := q.takeAll()
		size := 0
		for _, e := range events {
			size += proto.Size(e)
		}
		last := events[len(events)-1]
		if !more || len(events) > maxEvents+1 || size > maxEventBytes+1<<20 || last.GetKind() != guestv1.WatchKind_WATCH_KIND_OVERFLOW {
			t.Errorf("%s: %d events of %d bytes, the last is %v", name, len(events), size, last)
		}
		q.add(guestv1.WatchKind_WATCH_KIND_WRITE, "next")
		if events, _ := q.takeAll(); len(events) != 1 || string(events[0].GetPath()) != "next" {
			t.Errorf("%s: afterwards %v", name, events)
		}
	}
}

// Many writes of one file in a row are one event, and events fit into frames.
func TestWatchFrames(t *testing.T) {
	q := newEventQueue()
	for range 1000 {
		q.add(guestv1.WatchKind_WATCH_KIND_WRITE, "same")
	}
	for i := range 2000 {
		q.add(guestv1.WatchKind_WATCH_KIND_CREATE, strings.Repeat("p", 200)+fmt.Sprint(i))
	}
	q.end()
	events, more := q.takeAll()
	if len(events) != 2001 || more {
		t.Fatalf("%d events, %v", len(events), more)
	}
	var b bytes.Buffer
	if err := writeEvents(&b, events); err != nil {
		t.Fatal(err)
	}
	n := 0
	for r := guest.NewFrameReader(&b); ; {
		_, p, err := r.Next()
		if err != nil {
			break
		}
		m := new(guestv1.WatchEvents)
		if err := proto.Unmarshal(p, m); err != nil {
			t.Fatal(err)
		}
		n += len(m.GetEvents())
	}
	if n != 2001 {
		t.Errorf("%d events came out of the frames", n)
	}
}
