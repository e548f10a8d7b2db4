package cell

import (
	"sync/atomic"

	"github.com/weirhq/weir/shared/window"
)

// Namespaces share a full table. A namespace with fewer entries than another takes a place from it, whatever entry is
// there. Otherwise, for example, a namespace with all keys at their limits could keep the table for itself. The counts
// of such a key are not lost: they are at the origin or in the overflow, by which the key is judged until its window is
// over.

// groupsMax is the number of groups of namespaces. By chance two namespaces share a group, and then a share.
const groupsMax = 1 << 12

// group counts for a namespace.
type group struct {
	entries      atomic.Int64
	spilledUntil atomic.Int64 // clock.Steady from which none of its cost in the overflow matters
}

// Group stands for the namespace of an entry. By chance, two namespaces have the same group.
func (e *Entry) Group() uint16 { return e.names.family.Value().group }

// placed is the place of an entry in an array.
type placed struct {
	bucket uint64
	slot   int
	of     *group
}

func (at placed) entry(a *array) *Entry { return a.buckets[at.bucket].slots[at.slot].Load() }

// fairShareLocked evicts an entry of the namespace that has the most entries among found, if it has at least two more
// than the namespace that needs room. With a difference of 1 they would evict each other's entries for ever.
func (t *Table) fairShareLocked(p *part, a *array, of *group, found []placed, nowMs int64) bool {
	var most *group
	for i := range found {
		if most == nil || found[i].of.entries.Load() > most.entries.Load() {
			most = found[i].of
		}
	}
	if most == nil || most.entries.Load() <= of.entries.Load()+1 {
		return false
	}
	for _, at := range found {
		if at.of == most && t.tryEvictLocked(p, a, at, nowMs, needShare) {
			return true
		}
	}
	return false
}

// keep adds the counts of an evicted entry to the overflow, unless the origin holds them. It does
// so even for small counts. Otherwise a node with more keys than room would begin each key at zero
// again and again.
func (t *Table) keep(e *Entry, mode window.Mode) {
	if t.Fleet && mode == window.Exact {
		return
	}
	seq := e.counter.sequence()
	for _, s := range []int64{seq - 1, seq} {
		slot := slotOf(s)
		if count := e.countIn(slot); count > 0 {
			t.Spill(e, s, count)
		}
	}
}

// Spill counts cost of a key's cell in the overflow.
func (t *Table) Spill(e *Entry, sequence, cost int64) {
	f, now := e.names.family.Value(), t.now()
	t.overflow.add(&e.id, sequence, f.DurationMs, cost, now)
	if !t.wall.Known() {
		t.early.add(e, cost, now)
	}
	raise(&t.groups[f.group].spilledUntil, int64(now)+2*f.DurationMs+t.graceMs)
}

// SpilledCost returns at least the cost that the overflow holds of a key's cell.
func (t *Table) SpilledCost(e *Entry, sequence int64) int64 {
	return t.overflow.count(&e.id, sequence, e.names.durationMs(), t.now())
}

// spilled reports whether the overflow may have counted the key. Such a key gets no entry until that cost has expired,
// because the entry would begin empty. An exact key of a node with an origin begins with the origin's counts instead.
func (t *Table) spilled(of *group, id *Identity, key *window.Key, sequence int64) bool {
	if t.Fleet && key.Mode == window.Exact {
		return false
	}
	now := t.now()
	if of.spilledUntil.Load() <= int64(now) {
		return false
	}
	for _, s := range [...]int64{sequence, sequence - 1, sequence + 1} { // the last: from before the clock was set back
		if t.overflow.count(id, s, key.DurationMs(), now) > 0 {
			return true
		}
	}
	return false
}

// TurnsAway reports whether Add would find that the overflow may have counted the key. It takes no
// lock and allocates nothing, so a flood of such keys does not hold up first contacts with others.
func (t *Table) TurnsAway(id *Identity, key *window.Key, sequence int64) bool {
	if !t.spilled(&t.groups[t.groupFor(key)], id, key, sequence) {
		return false
	}
	t.noRoom()
	return true
}

// noRoom counts a first contact that found no room.
func (t *Table) noRoom() {
	t.Full.Add(1)
	t.FullSince.Store(int64(t.now()))
}

// Largest returns the namespace with the most entries in a part, and its share of them. Keys fall into parts by chance,
// so the part is a sample of the table.
func (t *Table) Largest() (workspace, namespace string, share float64) {
	counts := make(map[[2]string]int)
	all := 0
	t.parts[0].array.Load().each(func(e *Entry) {
		f := e.names.family.Value()
		counts[[2]string{f.Workspace, f.Namespace}]++
		all++
	})
	for of, n := range counts {
		if part := float64(n) / float64(all); part > share {
			workspace, namespace, share = of[0], of[1], part
		}
	}
	return workspace, namespace, share
}
