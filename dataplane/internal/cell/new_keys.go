package cell

import (
	"sync"
	"time"

	"github.com/weirhq/weir/dataplane/internal/clock"
)

// NewKeys bounds how many keys a node begins at the origin. A cell stays there for up to two windows, so a flood of
// identifiers that are used once, with windows of a year, would fill it within minutes.
//
// A namespace may begin so many keys a second, and thirty seconds' worth at once. All namespaces together may begin
// allParts times as many. A key that would be one too many is held back: it counts at this node alone, as in an outage,
// and is tried again each time that it counts something. So a key that comes back gets to the origin as soon as there
// is room, and a key that is used once costs nothing there. A key that the origin holds, in its current window or in
// the window before, is not new.
//
// The zero value bounds nothing. All methods may be called concurrently.
type NewKeys struct {
	perSecond int64 // of a namespace and all nodes of the region, in windows of newKeysWindow or longer; 0: any number

	mu       sync.Mutex
	spaces   map[uint16]int64 // by group: the time, in ns of the steady clock, at which all that it has begun is paid for
	all      int64            // the same for all namespaces
	heldBack int64
	last     Family // that a key of was held back
}

const (
	// newKeysWindow is the shortest window that counts in full. A key of a shorter one is gone from the origin sooner, and
	// counts by as much less.
	newKeysWindow = 10 * time.Minute

	atOnce   = 30 * time.Second
	allParts = 8
)

// Bound lets each namespace begin so many keys a second, on all nodes of the region together. Call it before any other
// method.
func (n *NewKeys) Bound(perSecond int64) {
	n.perSecond, n.spaces = perSecond, make(map[uint16]int64)
}

// take reports whether a key may begin, on one of so many nodes.
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

// HeldBack is how often a key was held back, and the namespace of the last one.
func (n *NewKeys) HeldBack() (times int64, workspace, namespace string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.heldBack, n.last.Workspace, n.last.Namespace
}

// HoldsBack reports whether nothing of an entry may be sent now because its key is new, and one too many. With claims
// set a claim is about to be sent, and otherwise what is unsent. What a guest has of other regions may be what the
// overflow has of its key, and so does not count.
func (t *Table) HoldsBack(e *Entry, claims bool, nodes int64) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	flags, sends := e.flags.Load(), claims
	if flags&(flagRestore|flagRestore1) != 0 {
		return false
	}
	for slot := range e.words {
		b := e.ledger()
		if b.cells[slot].settled.Load() > b.unnamed(slot) || flags&flagGuest == 0 && e.foreignLocked(slot) > 0 {
			return false
		}
		sends = sends || e.unsentLocked(slot) > 0
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

// Dequeue takes an entry off the queue, or off those that are kicked.
func (e *Entry) Dequeue(kicked bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if kicked {
		e.Unkick()
		return
	}
	e.flags.And(^uint32(flagInReplay))
}
