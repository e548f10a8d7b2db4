package cell

import (
	"sync"
	"sync/atomic"

	"github.com/weirhq/weir/shared/window"
)

// UntrackedKeys are entries of keys for which the full table has no room. Such an entry lives while a request decides
// on its key, and all of these requests share it: together they are as exact as on a tracked key. With an origin, each
// cost is decided and counted there, by calls that many keys share. Without an origin, in the estimate mode, and if the
// origin does not answer (for example, in an outage), the entry begins with the key's cost in the overflow, and
// accepted cost is in the overflow before the entry ends.
//
// There are at most as many as requests under way, plus costs of batches on their way to the origin.
type UntrackedKeys struct {
	Present atomic.Int64
	stripes [untrackedStripes]struct {
		sync.Mutex
		of map[Identity]*temporary
	}
}

type temporary struct {
	entry *Entry
	users int
}

const untrackedStripes = 64 // a power of two

func (g *UntrackedKeys) stripe(id *Identity) *struct {
	sync.Mutex
	of map[Identity]*temporary
} {
	return &g.stripes[id.a>>48&(untrackedStripes-1)]
}

// FindUntracked is UntrackedKeys.Find for a decision: an untracked key that is ahead of the clock makes way first.
func (t *Table) FindUntracked(id *Identity) *Entry {
	if t.UntrackedKeys.Present.Load() == 0 {
		return nil
	}
	h := t.UntrackedKeys.stripe(id)
	h.Lock()
	defer h.Unlock()
	one := h.of[*id]
	if one == nil {
		return nil
	}
	t.setUntrackedRight(one)
	one.users++
	return one.entry
}

// Find returns the entry of an untracked key for another user, or nil if the key has no such entry. The user must call
// Release.
func (g *UntrackedKeys) Find(id *Identity) *Entry {
	if g.Present.Load() == 0 {
		return nil
	}
	h := g.stripe(id)
	h.Lock()
	defer h.Unlock()
	if one := h.of[*id]; one != nil {
		one.users++
		return one.entry
	}
	return nil
}

// insert adds an entry to a part's array, unless its key is untracked: the new entry would lack the cost on its way
// from the untracked key.
func (g *UntrackedKeys) insert(id *Identity, a *array, e *Entry) bool {
	h := g.stripe(id)
	h.Lock()
	defer h.Unlock()
	if h.of[*id] != nil {
		return false
	}
	a.insert(e)
	return true
}

// each visits all entries of untracked keys.
func (g *UntrackedKeys) each(visit func(*Entry)) {
	for i := range g.stripes {
		h := &g.stripes[i]
		h.Lock()
		for _, one := range h.of {
			visit(one.entry)
		}
		h.Unlock()
	}
}

// Release ends a use.
func (g *UntrackedKeys) Release(id *Identity) {
	h := g.stripe(id)
	h.Lock()
	defer h.Unlock()
	if one := h.of[*id]; one != nil {
		if one.users--; one.users == 0 {
			delete(h.of, *id)
			g.Present.Add(-1)
		}
	}
}

// AddUntracked returns the entry of a key that is untracked from now on, or the entry of the table if the table has it
// by now. A key never has both.
func (t *Table) AddUntracked(id *Identity, key *window.Key, reset *window.Reset, precise bool, by *Horizon,
	sequence int64) (*Entry, Contact) {
	h := t.UntrackedKeys.stripe(id)
	h.Lock()
	defer h.Unlock()
	one := h.of[*id]
	if one == nil {
		if e := t.Get(id); e != nil {
			return e, Known
		}
		if h.of == nil {
			h.of = map[Identity]*temporary{}
		}
		one = &temporary{entry: t.temporary(id, key, reset, precise, by.bound(sequence, key.DurationMs(), t.graceMs))}
		h.of[*id] = one
		t.UntrackedKeys.Present.Add(1)
	}
	t.setUntrackedRight(one)
	one.users++
	return one.entry, Untracked
}

// temporary returns an entry that begins with the key's cost in the overflow, does not use the estimate mode, and is
// never queued. If the clock was set back by up to a window, cost that was counted in the next cell counts in this
// cell.
func (t *Table) temporary(id *Identity, key *window.Key, reset *window.Reset, precise bool, sequence int64) *Entry {
	e := newEntry(id, t.NamesOf(key, reset), sequence, t.Fleet, precise)
	e.flags.Or(flagInReplay | flagUntracked)
	for _, s := range []int64{sequence - 1, sequence, sequence + 1} {
		if count := t.SpilledCost(e, s); count > 0 {
			e.addOthers(slotOf(min(s, sequence)), count)
		}
	}
	return e
}
