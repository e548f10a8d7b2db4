package cell

import (
	"sync"
	"sync/atomic"

	"github.com/weirhq/weir/shared/window"
)

// UntrackedKeys are entries of keys that the full table has no room for. One lives while somebody
// decides on its key, and all who do share it: together they are as exact as on a held key. With
// an origin each cost is decided and counted there, by calls that many keys share. Without one, in the estimate mode,
// and where the origin does not answer, what the overflow has of the key is in its entry when it comes, and what is
// accepted is in the overflow before it goes.
//
// There are at most as many as there are requests under way, and costs of batches on their way to the origin.
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

// Find is the entry of a key that is an untracked key, for one more user; nil where it is none.
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

// insert adds an entry into a part's array, unless its key is an untracked key: an entry would not know what is on its
// way from the untracked key.
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

// Release ends one use.
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

// AddUntracked is the entry of a key that is an untracked key from now on, or that of the table, which holds it by now:
// a key has one of them.
func (t *Table) AddUntracked(id *Identity, key *window.Key, reset *window.Reset, by *Horizon,
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
		one = &temporary{entry: t.temporary(id, key, reset, by.bound(sequence, key.DurationMs(), t.graceMs))}
		h.of[*id] = one
		t.UntrackedKeys.Present.Add(1)
	}
	t.setUntrackedRight(one)
	one.users++
	return one.entry, Untracked
}

// temporary is an entry that begins with what the overflow has of the key, knows nothing of the estimate mode, and that
// no queue takes. What was counted in the next cell, before the clock was set back by up to a window, counts in this
// one.
func (t *Table) temporary(id *Identity, key *window.Key, reset *window.Reset, sequence int64) *Entry {
	e := newEntry(id, t.NamesOf(key, reset), sequence, t.Fleet)
	e.flags.Or(flagInReplay | flagUntracked)
	for _, s := range []int64{sequence - 1, sequence, sequence + 1} {
		if count := t.SpilledCost(e, s); count > 0 {
			e.addOthers(slotOf(min(s, sequence)), count)
		}
	}
	return e
}
