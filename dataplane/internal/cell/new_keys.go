package cell

import (
	"sync"
	"time"

	"github.com/weirhq/weir/dataplane/internal/clock"
)

// NewKeys bounds how many new keys a node creates at the origin. A cell stays there for up to two
// windows, so a flood of identifiers that are used once, with windows of a year, would fill the
// origin within minutes.
//
// A namespace may create perSecond keys per second, with a burst of 30 seconds' worth. All namespaces together may
// create allParts times as many. A key beyond that is held back: it counts at this node alone, as in an outage, and is
// tried again whenever it counts something. So a key that is used again reaches the origin once there is room, and a
// key that is used once costs nothing there. A key that the origin holds, in its current window or the window before,
// is not new.
//
// The zero value has no bound. All methods may be called concurrently.
type NewKeys struct {
	perSecond int64 // of one namespace on all nodes of the region, in windows of newKeysWindow or longer; 0: no bound

	mu       sync.Mutex
	spaces   map[uint16]int64 // by group: when its budget is full again, in ns of the steady clock
	all      int64            // the same for all namespaces
	heldBack int64
	last     Family // family of the key that was held back last
}

const (
	// newKeysWindow is the shortest window whose keys count in full. A shorter window's key leaves
	// the origin sooner, so it counts for proportionally less.
	newKeysWindow = 10 * time.Minute

	atOnce   = 30 * time.Second
	allParts = 8
)

// Bound sets how many keys per second each namespace may create, on all nodes of the region
// together. Call it before any other method.
func (n *NewKeys) Bound(perSecond int64) {
	n.perSecond, n.spaces = perSecond, make(map[uint16]int64)
}

// take reports whether this node may create a key now, with `nodes` nodes in the region.
func (n *NewKeys) take(f *Family, nodes int64, now clock.Steady) bool {
	if n.perSecond == 0 {
		return true
	}
	costs := int64(time.Second) / n.perSecond * nodes * min(f.DurationMs, newKeysWindow.Milliseconds()) /
		newKeysWindow.Milliseconds()
	at := int64(now) * int64(time.Millisecond)
	n.mu.Lock()
	defer n.mu.Unlock()
	space, all := max(n.spaces[f.group], at)+costs, max(n.all, at)+costs/allParts
	if most := at + int64(atOnce); space > most || all > most {
		n.heldBack++
		n.last = *f
		return false
	}
	n.spaces[f.group], n.all = space, all
	return true
}

// HeldBack returns how often a key was held back, and the namespace of the last such key.
func (n *NewKeys) HeldBack() (times int64, workspace, namespace string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.heldBack, n.last.Workspace, n.last.Namespace
}

// HoldsBack reports whether the entry's cost must not be sent now because its key is new and beyond
// the bound. Set claims if a claim is about to be sent. An untracked key's foreign cost does not
// show that the origin holds the key, because it may come from the overflow.
func (t *Table) HoldsBack(e *Entry, claims bool, nodes int64) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	flags, sends := e.flags.Load(), claims
	if flags&(flagRestore|flagRestore1) != 0 {
		return false
	}
	for slot := range 2 {
		l := e.Ledger()
		if l.named(slot) > 0 || flags&flagUntracked == 0 && l.foreignLocked(slot) > 0 {
			return false
		}
		sends = sends || l.unsentLocked(slot) > 0
	}
	f := e.names.Family()
	if !sends || t.NewKeys.take(&f, nodes, t.now()) {
		if flags&flagHeldBack != 0 {
			e.flags.And(^uint32(flagHeldBack))
		}
		return false
	}
	e.flags.Or(flagHeldBack)
	return true
}

// Dequeue removes an entry from the queue, or from the flushed entries.
func (l Ledger) Dequeue(flushing bool) {
	l.e.mu.Lock()
	defer l.e.mu.Unlock()
	if flushing {
		l.UnmarkFlush()
		return
	}
	l.e.flags.And(^uint32(flagInReplay))
}
