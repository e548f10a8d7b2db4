package dataplane

import (
	"strings"
	"sync"
	"sync/atomic"

	"github.com/puzpuzpuz/xsync/v4"

	"github.com/weirhq/weir/shared/window"
)

// table holds the entries: at most cap of them, found by key without a lock that a
// sweep or I/O could hold. It is the only file that knows which map is used:
// xsync's, whose readers never block and which costs about 50 bytes an entry less
// than sync.Map and a fraction of its garbage collection at a million keys.
//
// Beside the map stands a ring of the same entries, for the hand of the sweep:
// each tick looks at a bounded number of entries, whatever their total, and a full
// table looks at a few from where the hand stands (CLOCK) to make room for one.
type table struct {
	byKey *xsync.Map[window.Key, *entry]
	cap   int
	sends bool // there is an origin: unsent cost must reach it before its entry may go

	mu   sync.Mutex // guards ring and hand; taken for first contacts and sweeps only
	ring []*entry
	hand int

	stripes atomic.Uint32
	created struct{ traffic, imported atomic.Int64 }
	evicted struct{ expired, idle atomic.Int64 }
	full    atomic.Int64 // first contacts that found no room
}

const (
	victimProbes = 32   // entries that a first contact may look at to make room
	sweepBatch   = 4096 // entries that one tick of the sweep looks at
)

func newTable(capacity int, sends bool) *table {
	return &table{byKey: xsync.NewMap[window.Key, *entry](), cap: capacity, sends: sends}
}

// get returns the entry of key, nil if there is none.
func (t *table) get(key window.Key) *entry {
	e, _ := t.byKey.Load(key)
	return e
}

func (t *table) len() int { return t.byKey.Size() }

// add returns the entry of key, creating it at sequence if need be. tracked is
// false when the table is full of entries that must stay: the caller gets an entry
// that nobody else will find, good for one decision.
func (t *table) add(key window.Key, sequence, nowMs int64, counter *atomic.Int64) (e *entry, tracked bool) {
	if e, ok := t.byKey.Load(key); ok {
		return e, true
	}
	key = cloneKey(key)
	fresh := newEntry(key, sequence, t.stripes.Add(1))

	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.ring) >= t.cap && !t.makeRoomLocked(nowMs) {
		t.full.Add(1)
		return fresh, false
	}
	e, loaded := t.byKey.LoadOrStore(key, fresh)
	if !loaded {
		t.ring = append(t.ring, fresh)
		counter.Add(1)
	}
	return e, true
}

// cloneKey copies the names into one string of their own: an entry outlives the
// request and must not keep alive whatever the caller's strings are slices of.
func cloneKey(k window.Key) window.Key {
	var b strings.Builder
	b.Grow(len(k.Workspace) + len(k.Namespace) + len(k.Identifier))
	b.WriteString(k.Workspace)
	b.WriteString(k.Namespace)
	b.WriteString(k.Identifier)
	all, w, n := b.String(), len(k.Workspace), len(k.Namespace)
	k.Workspace, k.Namespace, k.Identifier = all[:w], all[w:w+n], all[w+n:]
	return k
}

// makeRoomLocked evicts one entry of the next few under the hand: preferably an
// expired one, else one that is idle and far from its limit.
func (t *table) makeRoomLocked(nowMs int64) bool {
	for range min(victimProbes, len(t.ring)) {
		if t.evictAtHandLocked(nowMs, true) {
			return true
		}
	}
	return false
}

// sweep looks at the next entries under the hand and evicts the expired ones. It
// holds the lock of first contacts for a bounded number of entries at a time.
func (t *table) sweep(nowMs int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for range min(sweepBatch, len(t.ring)) {
		t.evictAtHandLocked(nowMs, false)
	}
}

// evictAtHandLocked evicts the entry under the hand if it may go, or else moves the
// hand on. pressed is true when room is needed.
func (t *table) evictAtHandLocked(nowMs int64, pressed bool) bool {
	if t.hand >= len(t.ring) {
		t.hand = 0
	}
	e := t.ring[t.hand]
	cause := &t.evicted.expired
	switch gone := e.evict(nowMs, pressed, t.sends); gone {
	case stays:
		t.hand++
		return false
	case goneIdle:
		cause = &t.evicted.idle
	}
	t.byKey.Delete(e.key)
	last := len(t.ring) - 1
	t.ring[t.hand] = t.ring[last]
	t.ring[last] = nil
	t.ring = t.ring[:last]
	cause.Add(1)
	return true
}

type eviction int

const (
	stays eviction = iota
	goneExpired
	goneIdle
)

// evict ends the entry's life if it may go: nothing of it is queued, in flight or
// unsent, no strict deadline lies ahead, and both its cells have expired; or, when
// room is needed, it is untouched since the hand last came by and both its cells
// are below half their limit. A key at its limit stays until its window ends, so
// that no flood of one-shot identifiers can wash a blocked caller clean.
func (e *entry) evict(nowMs int64, pressed, sends bool) eviction {
	flags := e.flags.Load()
	if flags&flagDirty != 0 || e.strictUntil.Load() > nowMs {
		return stays
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	seq := e.seq.Load()
	slot := slotOf(seq)
	word := e.words[slot].Load()
	if e.inReplay || e.inFlush || e.flight != nil || e.books[0].reserved+e.books[1].reserved != 0 {
		return stays
	}
	if sends && (e.unsentLocked(slot) > 0 || e.unsentLocked(previousSlot(slot)) > 0) {
		return stays // accepted, and about to be marked dirty
	}
	result := goneExpired
	if !expiredAt(seq, e.key.DurationMs(), nowMs) {
		if !pressed {
			return stays
		}
		if flags&flagTouched != 0 {
			e.flags.And(^uint32(flagTouched))
			return stays
		}
		if e.nearLimitLocked(slot) || e.nearLimitLocked(previousSlot(slot)) {
			return stays
		}
		result = goneIdle
	}
	e.flags.Or(flagDead)
	if !e.words[slot].CompareAndSwap(word, word|sealed) { // a request came
		e.flags.And(^uint32(flagDead))
		return stays
	}
	return result
}

// nearLimitLocked is true from half of the lowest limit that the cell was counted
// against.
func (e *entry) nearLimitLocked(slot int) bool {
	total := wordCount(e.words[slot].Load()) + e.global[slot].Load()
	return total > 0 && total >= e.limitLow[slot].Load()/2
}
