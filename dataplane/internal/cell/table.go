package cell

import (
	"math/bits"
	"sync"
	"sync/atomic"

	"github.com/weirhq/weir/dataplane/internal/clock"
	"github.com/weirhq/weir/dataplane/internal/level"
	"github.com/weirhq/weir/shared/window"
)

// Table holds the entries: at most capacity of them, found by identity. No other file depends on its layout.
//
// A bucket is one cache line: seven pointers to entries, and a word with a byte of each entry's hash and a count of the
// keys that found the bucket full and went on to the next bucket. So a look-up of a warm key touches two lines, the
// bucket and the entry, takes no lock and writes nothing. Inserting, deleting and growing happen under a lock that only
// first contacts and the sweep take. Look-ups can run meanwhile, even in the old array. If they find nothing there,
// they look again under the lock.
//
// A large table has 64 parts, each with its own array and lock, so that first contacts seldom wait for each other, and
// growing delays few of them, and not for long. Each part has its share of the capacity. Identities are spread evenly,
// so a part is full when nearly all parts are full.
//
// The sweep walks the same arrays: each tick looks at a bounded number of buckets, whatever the number of entries. To
// make room for an entry, a full part looks at a few entries from the position of its hand (CLOCK).
type Table struct {
	Hasher
	parts    []part
	Fleet    bool  // there is an origin: entries keep ledgers, and unsent cost must reach it before its entry may go
	graceMs  int64 // requests so far back still find expired entries
	wall     *clock.Clock
	horizons [2]Horizon          // of wall: see Horizon
	now      func() clock.Steady // of wall

	Created   atomic.Int64 // keys that were met for the first time
	Evicted   struct{ Expired, Idle, Share atomic.Int64 }
	Full      atomic.Int64 // first contacts that found no room
	FullSince atomic.Int64 // clock.Steady of the last such contact; 0: there was none

	NewKeys       NewKeys
	groups        []group  // of namespaces
	overflow      overflow // cost without room
	early         early    // overflow cost that was counted before the node had the origin's clock
	UntrackedKeys UntrackedKeys

	Tiers TierCounts // of the estimate mode

	// Forgotten, if not nil, is called with the cost of an evicted entry that was never sent. It must be fast, because
	// first contacts call it under the lock of their part.
	Forgotten func(e *Entry, cost int64)
}

// part is a table of its own, on cache lines of its own.
type part struct {
	array atomic.Pointer[array]
	size  atomic.Int64

	capacity int        // constant
	mu       sync.Mutex // guards changes of the array, hand and broom
	hand     uint64     // places that first contacts have looked at for room
	broom    uint64     // bucket that the sweep came to

	_ [128 - 48]byte
}

type array struct {
	buckets []bucket
	mask    uint64
	room    int // entries above which it grows: five of seven slots in use, on average
}

const (
	slots        = 7
	overflowUnit = 1 << 56 // of tags: the top byte counts keys that went on
	overflowMax  = 0xff    // there it sticks
	bucketsMin   = 16

	// odd, so the hand visits every bucket in a round; 2^64 over the golden ratio, so never a neighbour
	handStride   = 0x9e3779b97f4a7c15
	victimProbes = 64   // entries that a first contact may look at to make room
	slotProbes   = 512  // places it may look at to find them
	sweepBuckets = 4096 // buckets that a tick of the sweep looks at

	partsMax    = 64   // a power of two
	partEntries = 4096 // capacity below which a part is not worth having
)

type bucket struct {
	tags  atomic.Uint64 // bytes 0-6: tags of the slots, 0 for empty; byte 7: overflow
	slots [slots]atomic.Pointer[Entry]
}

// NewTable makes a table of at most capacity entries.
func NewTable(capacity int, graceMs int64, wall *clock.Clock, fleet bool) *Table {
	parts := 1
	for parts < partsMax && capacity/(2*parts) >= partEntries {
		parts *= 2
	}
	t := &Table{graceMs: graceMs, wall: wall, now: wall.Steady, parts: make([]part, parts), Fleet: fleet}
	t.horizons = [2]Horizon{{wall, false}, {wall, true}}
	t.Init()
	t.groups = make([]group, groupsMax)
	t.overflow.init(capacity)
	for i := range t.parts {
		t.parts[i].capacity = capacity / parts
		t.parts[i].array.Store(newArray(bucketsMin))
	}
	return t
}

// part returns the part that holds a key, chosen by bits of its identity that nothing else uses.
func (t *Table) part(id *Identity) *part { return &t.parts[id.a>>58&uint64(len(t.parts)-1)] }

func newArray(buckets int) *array {
	return &array{make([]bucket, buckets), uint64(buckets - 1), buckets * (slots - 2)}
}

func (id *Identity) home(a *array) uint64 { return id.a & a.mask }

// tag returns a byte of the hash. It is never 0, which marks an empty slot.
func (id *Identity) tag() uint64 { return id.b>>57 | 0x80 }

const (
	lowBits  = 0x00_01_01_01_01_01_01_01
	highBits = 0x00_80_80_80_80_80_80_80
)

// matches returns a word in which the top bit of each of the seven low bytes is set if that byte of tags equals tag.
// Now and then it also sets the bit of a byte above a match, so callers must compare identities.
func matches(tags, tag uint64) uint64 {
	x := tags&(1<<56-1) ^ tag*lowBits
	return (x - lowBits) &^ x & highBits
}

// Get returns the entry with this identity, nil if there is none.
func (t *Table) Get(id *Identity) *Entry { return t.part(id).array.Load().get(id) }

// Touch loads the bucket and the entry that Get would load, and uses neither. The processor does not wait for a load
// whose value is unused. So a caller that gets several keys should touch all of them first: then their cache lines are
// loaded at the same time.
func (t *Table) Touch(id *Identity) {
	a := t.part(id).array.Load()
	b := &a.buckets[id.home(a)]
	if m := matches(b.tags.Load(), id.tag()); m != 0 {
		if e := b.slots[bits.TrailingZeros64(m)>>3].Load(); e != nil {
			e.flags.Load()
		}
	}
}

func (a *array) get(id *Identity) *Entry {
	tag := id.tag()
	home := id.home(a)
	for i := home; ; {
		b := &a.buckets[i]
		tags := b.tags.Load()
		for m := matches(tags, tag); m != 0; m &= m - 1 {
			if e := b.slots[bits.TrailingZeros64(m)>>3].Load(); e != nil && e.id == *id {
				return e
			}
		}
		if i = (i + 1) & a.mask; tags < overflowUnit || i == home {
			return nil
		}
	}
}

// spot is the place in which an array holds an entry.
type spot = *atomic.Pointer[Entry]

// find returns the place of an entry, nil if the array does not hold it.
func (a *array) find(e *Entry) spot {
	home := e.id.home(a)
	for i := home; ; {
		b := &a.buckets[i]
		tags := b.tags.Load()
		for m := matches(tags, e.id.tag()); m != 0; m &= m - 1 {
			if place := &b.slots[bits.TrailingZeros64(m)>>3]; place.Load() == e {
				return place
			}
		}
		if i = (i + 1) & a.mask; tags < overflowUnit || i == home {
			return nil
		}
	}
}

// Len returns the number of entries.
func (t *Table) Len() (entries int) {
	for i := range t.parts {
		entries += int(t.parts[i].size.Load())
	}
	return entries
}

// Contact is the result of adding a key.
type Contact uint8

// Contacts with a key.
const (
	Known     Contact = iota
	Created           // for the first time
	Untracked         // the table is full of entries that must stay
)

// Add returns the entry of key, and creates it at sequence if there is none. For an untracked key the caller gets an
// entry that no other request finds, good for a single decision. If the clock was set since sequence was found, the
// entry is made in the cell that the clock shows.
func (t *Table) Add(id *Identity, key *window.Key, reset *window.Reset, precise bool, h *Horizon, sequence,
	nowMs int64) (e *Entry, c Contact) {
	if e := t.Get(id); e != nil {
		return e, Known
	}
	fresh := t.newEntry(id, key, reset, precise, sequence) // outside the lock: it allocates
	p := t.part(id)
	p.mu.Lock()
	defer p.mu.Unlock()
	a := p.array.Load()
	if e := a.get(id); e != nil {
		return e, Known
	}
	if to := h.bound(sequence, fresh.DurationMs(), t.graceMs); to != sequence {
		sequence = to
		fresh = t.newEntry(id, key, reset, precise, sequence)
	}
	of := &t.groups[fresh.names.family.Value().group]
	if t.spilled(of, id, key, sequence) || int(p.size.Load()) >= p.capacity && !t.makeRoomLocked(p, of, nowMs) {
		t.noRoom()
		return fresh, Untracked
	}
	if int(p.size.Load()) >= a.room {
		a = p.growLocked(a)
	}
	if !t.UntrackedKeys.insert(id, a, fresh) {
		return fresh, Untracked
	}
	p.size.Add(1)
	of.entries.Add(1)
	t.Created.Add(1)
	if key.Mode == window.Estimate {
		t.Tiers.Keys[level.Idle].Add(1)
	}
	return fresh, Created
}

// Again is Add for the key of an entry that was evicted.
func (t *Table) Again(gone *Entry, h *Horizon, sequence, nowMs int64) (*Entry, Contact) {
	key, f := gone.names.Key(), gone.names.family.Value()
	var reset *window.Reset
	if f.Reset.Generation != 0 {
		reset = &f.Reset
	}
	return t.Add(&gone.id, &key, reset, gone.Flags().Precise(), h, sequence, nowMs)
}

func (t *Table) newEntry(id *Identity, key *window.Key, reset *window.Reset, precise bool, sequence int64) *Entry {
	e := newEntry(id, t.NamesOf(key, reset), sequence, t.Fleet, precise)
	if key.Mode == window.Estimate && t.Fleet {
		e.Estimates().begin()
	}
	return e
}

// Each visits all entries of a part at a time, under its lock.
func (t *Table) Each(visit func(*Entry)) {
	for i := range t.parts {
		p := &t.parts[i]
		p.mu.Lock()
		p.array.Load().each(visit)
		p.mu.Unlock()
	}
}

// Walk visits entries without a lock, for example to list the largest keys: it can miss entries that are added or
// removed meanwhile.
func (t *Table) Walk(visit func(*Entry)) {
	for i := range t.parts {
		t.parts[i].array.Load().each(visit)
	}
}

func (a *array) each(visit func(*Entry)) {
	for b := range a.buckets {
		for s := range a.buckets[b].slots {
			if e := a.buckets[b].slots[s].Load(); e != nil {
				visit(e)
			}
		}
	}
}

// insert puts e into the first bucket from its home that has room. It stores the pointer before the tag, so a reader
// that sees the tag finds the entry.
func (a *array) insert(e *Entry) {
	for i := e.id.home(a); ; i = (i + 1) & a.mask {
		b := &a.buckets[i]
		tags := b.tags.Load()
		if empty := matches(tags, 0); empty != 0 {
			s := bits.TrailingZeros64(empty) >> 3
			b.slots[s].Store(e)
			b.tags.Store(tags | e.id.tag()<<(8*s))
			return
		}
		if tags>>56 < overflowMax {
			b.tags.Store(tags + overflowUnit)
		}
	}
}

// remove takes e out of slot s of bucket at, and takes back the counts that inserting it added to the overflow of the
// buckets before. A count at overflowMax stays, which only makes look-ups of absent keys longer.
func (a *array) remove(e *Entry, at uint64, s int) {
	b := &a.buckets[at]
	b.tags.Store(b.tags.Load() &^ (0xff << (8 * s)))
	b.slots[s].Store(nil)
	for i := e.id.home(a); i != at; i = (i + 1) & a.mask {
		b := &a.buckets[i]
		if tags := b.tags.Load(); tags>>56 < overflowMax {
			b.tags.Store(tags - overflowUnit)
		}
	}
}

// growLocked doubles the array. Readers of the old array still find its entries.
func (p *part) growLocked(old *array) *array {
	a := newArray(2 * len(old.buckets))
	old.each(func(e *Entry) { e.flags.Load() }) // as Touch: to insert an entry takes half as long then
	old.each(a.insert)
	p.array.Store(a)
	return a
}

// makeRoomLocked evicts one of the next entries under the hand: an expired entry, or an entry that is idle and far from
// its limit. The hand leaps from bucket to bucket and looks at one slot in each, so that evictions thin the array as
// evenly as insertions fill it. (If it emptied bucket after bucket, the buckets ahead of the hand would be twice as
// full as the average. If it took an entry from each, some would fill up for good and look-ups would become long.)
// Since 7 divides neither a power of two nor a power of two plus 1, every slot has its turn once in seven rounds.
//
// If all of these entries must stay, makeRoomLocked evicts an entry of a namespace that has more than its share. By the
// same rule, idle entries make room only for namespaces that have no more entries than their own.
func (t *Table) makeRoomLocked(p *part, of *group, nowMs int64) bool {
	a := p.array.Load()
	buckets := uint64(len(a.buckets))
	var found [victimProbes]placed
	looked := 0
	for range min(slots*buckets, slotProbes) {
		p.hand++
		at := placed{bucket: p.hand * handStride & a.mask, slot: int((p.hand + p.hand/buckets) % slots)}
		e := at.entry(a)
		if e == nil {
			continue
		}
		at.of = &t.groups[e.names.family.Value().group]
		why := needRoom
		if at.of != of && at.of.entries.Load() < of.entries.Load() {
			why = needNone
		}
		if t.tryEvictLocked(p, a, at, nowMs, why) {
			return true
		}
		found[looked] = at
		if looked++; looked == victimProbes {
			break
		}
	}
	return t.fairShareLocked(p, a, of, found[:looked], nowMs)
}

// tryEvictLocked evicts the entry at a place if it may go.
func (t *Table) tryEvictLocked(p *part, a *array, at placed, nowMs int64, why need) bool {
	e := at.entry(a)
	gone := e.evict(t.Horizon(false), nowMs, t.now(), t.graceMs, why)
	if gone == stays {
		return false
	}
	a.remove(e, at.bucket, at.slot)
	p.size.Add(-1)
	f := e.names.family.Value()
	t.groups[f.group].entries.Add(-1)
	if f.Mode == window.Estimate {
		t.Tiers.Keys[e.Estimates().tier()].Add(-1)
	}
	if t.Fleet && t.Forgotten != nil {
		seq := e.counter.sequence()
		if cost := max(0, e.Ledger().UnsentIn(seq-1)) + max(0, e.Ledger().UnsentIn(seq)); cost > 0 {
			t.Forgotten(e, cost)
		}
	}
	switch gone {
	case goneShare:
		t.Evicted.Share.Add(1)
		t.keep(e, f.Mode)
	case goneIdle:
		t.Evicted.Idle.Add(1)
		t.keep(e, f.Mode)
	default:
		t.Evicted.Expired.Add(1)
	}
	return true
}

// EvictIdle evicts every entry that would make room for a first contact.
func (t *Table) EvictIdle(nowMs int64) {
	for i := range t.parts {
		p := &t.parts[i]
		p.mu.Lock()
		a := p.array.Load()
		for b := range a.buckets {
			for s := range slots {
				if at := (placed{bucket: uint64(b), slot: s}); at.entry(a) != nil {
					t.tryEvictLocked(p, a, at, nowMs, needRoom)
				}
			}
		}
		p.mu.Unlock()
	}
}

// Sweep looks at the next buckets of each part and evicts expired entries, a few each time it takes a lock, so that no
// first contact waits for long. It returns how many entries it looked at, and own cost, never sent, of entries that
// were ahead of the clock: see SetRight.
func (t *Table) Sweep(nowMs int64) (looked int, unsent int64) {
	const turn = 64
	for i := range t.parts {
		p := &t.parts[i]
		for left := min(sweepBuckets/len(t.parts), len(p.array.Load().buckets)); left > 0; left -= turn {
			n, cost := t.sweepTurn(p, nowMs, min(left, turn))
			looked, unsent = looked+n, unsent+cost
		}
	}
	return looked, unsent
}

func (t *Table) sweepTurn(p *part, nowMs int64, buckets int) (looked int, unsent int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	a := p.array.Load()
	for range buckets {
		p.broom = (p.broom + 1) & a.mask
		b := &a.buckets[p.broom]
		for s := range b.slots {
			if e := b.slots[s].Load(); e != nil {
				looked++
				if t.isAhead(e, nowMs) && t.wall.Known() { // Place finds it otherwise
					unsent += t.setRightLocked(&b.slots[s], e)
					continue
				}
				t.tryEvictLocked(p, a, placed{bucket: p.broom, slot: s}, nowMs, needNone)
			}
		}
	}
	return looked, unsent
}

// SweepTicks returns the number of ticks in which the sweep sees every entry once.
func (t *Table) SweepTicks() (ticks int) {
	for i := range t.parts {
		ticks = max(ticks, len(t.parts[i].array.Load().buckets)*len(t.parts)/sweepBuckets+1)
	}
	return ticks
}
