package manager

import (
	"maps"
	"slices"
	"sync"

	"agentbox/internal/sandbox"
)

// index finds sandboxes by their ids.
type index struct {
	mu   sync.RWMutex
	byID map[ownedID][]entry // mostly of one element
	uids map[string]*box
}

type ownedID struct{ owner, id string }

// entry is one form of a sandbox's id.
type entry struct {
	kind string
	b    *box
}

// Kinds of ids beside those of doors, in the order in which they count.
const (
	kindUID   = "uid"
	kindShort = "short"
	kindLabel = "label"
	kindAlias = ""
	kindName  = "name"
)

var ranks = []string{kindUID, kindShort, kindLabel, kindAlias, kindName}

func (x *index) init() { x.byID, x.uids = map[ownedID][]entry{}, map[string]*box{} }

func forms(sb *sandbox.Sandbox) []sandbox.Alias {
	all := []sandbox.Alias{{Kind: kindUID, Value: sb.UID}, {Kind: kindShort, Value: sb.Short}, {Kind: kindLabel, Value: sb.Label}}
	all = append(all, sb.Aliases...)
	if sb.Name != "" {
		all = append(all, sandbox.Alias{Kind: kindName, Value: sb.Name})
	}
	return all
}

func (x *index) add(b *box) {
	sb := b.snapshot()
	x.mu.Lock()
	defer x.mu.Unlock()
	x.uids[sb.UID] = b
	for _, f := range forms(&sb) {
		k := ownedID{sb.Owner, f.Value}
		x.byID[k] = append(x.byID[k], entry{f.Kind, b})
	}
}

func (x *index) remove(b *box) {
	sb := b.snapshot()
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.uids, sb.UID)
	for _, f := range forms(&sb) {
		k := ownedID{sb.Owner, f.Value}
		left := slices.DeleteFunc(x.byID[k], func(e entry) bool { return e.b == b })
		if len(left) == 0 {
			delete(x.byID, k)
			continue
		}
		x.byID[k] = left
	}
}

// find returns the owner's sandbox of an id, nil if there is none. The form is a
// door's own kind of ids, which counts most.
func (x *index) find(owner, form, id string) *box {
	x.mu.RLock()
	defer x.mu.RUnlock()
	all := x.byID[ownedID{owner, id}]
	if len(all) == 0 {
		return nil
	}
	return slices.MinFunc(all, func(a, b entry) int { return rank(a.kind, form) - rank(b.kind, form) }).b
}

func rank(kind, form string) int {
	if kind == form && form != "" {
		return -1
	}
	if i := slices.Index(ranks, kind); i >= 0 {
		return i
	}
	return slices.Index(ranks, kindAlias)
}

func (x *index) byUID(uid string) *box {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.uids[uid]
}

// all returns every sandbox, in no order.
func (x *index) all() []*box {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return slices.Collect(maps.Values(x.uids))
}
