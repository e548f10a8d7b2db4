package slots

import (
	"container/heap"
	"math"
	"time"

	"github.com/weirhq/weir/dataplane/internal/fair"
)

// forever is the end of what does not end by itself.
const forever = time.Duration(math.MaxInt64)

// entry is one key. Its stripe's mutex guards all but the constants.
type entry struct {
	stripe *stripe // constant
	shard  *shard  // constant
	name   Name    // constant
	of     fair.Of // constant: whose share of the table's keys it takes

	limit int64         // of the last request
	ttl   time.Duration // of the last request
	limitLeases

	// held slots are this node's until validUntil. busy <= held at all times.
	held       int64
	validUntil time.Duration
	others     int64 // by the last answer
	spare      int64 // free slots that may be kept, as of the last answer
	starved    bool  // another node was refused, by the last answer
	used       bool  // a lease was granted since the last call left
	told       bool  // the origin may have slots of this node on its books
	inFlight   bool
	yieldUntil time.Duration // until when slots are left to other nodes
	backoff    time.Duration // between two asks for waiters
	fullUntil  time.Duration // until when a refusal need not be asked for again
	retryIn    time.Duration // by the last answer
	askAt      time.Duration // when the shard calls about it; 0: no time is set
	endAt      time.Duration // when something may end; 0: no time is set
	ask, end   alarm         // in the shard's schedules

	waiters queue
}

// again answers a request for a lease by ID that this node has granted before, and has it last TTL from now at least.
func (e *entry) again(now time.Duration, a *Ask, r *Result) bool {
	l, ok := e.ids[a.ID] // none is ""
	if !ok {
		return false
	}
	l.extend(now, a.TTL)
	r.Lease, r.Granted, r.Held, r.SinceMs = l, true, e.busy+e.others, l.record().byID.sinceMs
	return true
}

// grant makes a lease of a slot that is free. It refuses a lease by ID that there is no room for.
func (e *entry) grant(now time.Duration, a *Ask, result *Result) {
	if a.ID != "" && !e.stripe.table.ids.Take(a.of(), 1) {
		e.stripe.stats.Refused++
		result.Err, result.Held = ErrFull, e.busy+e.others
		return
	}
	index := e.free
	if index == 0 {
		e.records = append(e.records, record{})
		index = uint32(len(e.records))
	} else {
		e.free = e.records[index-1].next
	}
	r := &e.records[index-1]
	r.live, r.attended, r.holder, r.since, r.done = true, !a.Unattended, a.Holder, now, nil
	e.setTTL(r, a.TTL)
	r.deadline = forever
	switch {
	case a.Unattended:
		r.deadline = now + a.TTL
	case a.AgeMax > 0:
		r.deadline = now + a.AgeMax
	}
	e.count(a.By, 1)
	r.by = a.By
	e.used = true
	e.stripe.stats.Granted++
	e.stripe.stats.Leases++
	if r.deadline != forever {
		heap.Push((*byEnd)(&e.limitLeases), index-1)
		e.endBy(r.deadline)
	}
	result.Lease, result.Granted, result.Held = Lease{e, index - 1, r.generation}, true, e.busy+e.others
	if a.ID != "" {
		r.byID, result.SinceMs = &byID{a.ID, a.SinceMs}, a.SinceMs
		e.setID(a.ID, result.Lease)
	}
}

// finish frees a lease's record.
func (e *entry) finish(index uint32, why error) {
	r := &e.records[index]
	if r.done != nil {
		close(r.done)
	}
	if r.deadline != forever {
		heap.Remove((*byEnd)(&e.limitLeases), r.place)
	}
	if r.byID != nil {
		e.forget(r)
	}
	r.live, r.holder, r.done, r.was = false, "", nil, why
	r.generation++
	e.finished++
	r.next, e.free = e.free, index+1
	e.count(r.by, -1)
	e.stripe.stats.Leases--
	if why == ErrLost || why == ErrRevoked { //nolint:errorlint // they are not wrapped, and the comparison is hot
		e.stripe.stats.Lost++
	}
}

// forget forgets the ID of a lease that ends.
func (e *entry) forget(r *record) {
	id, t := r.byID, e.stripe.table
	r.byID = nil
	delete(e.ids, id.id)
	t.ids.Give(fair.Of{Caller: r.by, Space: e.of.Space}, 1)
	if t.cfg.Ended != nil {
		t.cfg.Ended(e.name, id.id, id.sinceMs)
	}
}

// lose ends leases until at most left are there, the last records first.
func (e *entry) lose(left int64, why error) {
	for i := len(e.records) - 1; i >= 0 && e.busy > left; i-- {
		if e.records[i].live {
			e.finish(uint32(i), why)
		}
	}
}

// expire ends what has come to its end: the holding with all leases, or single leases. Slots of single leases are free
// then.
func (e *entry) expire(now time.Duration) {
	if now >= e.validUntil && e.held > 0 {
		e.lose(0, ErrLost)
		e.held = 0
		return
	}
	for e.firstEnd() <= now {
		e.finish(e.byEnd[0], ErrExpired)
	}
}

// endBy has expire called at a moment.
func (e *entry) endBy(at time.Duration) {
	if at != forever && (e.endAt == 0 || at < e.endAt) {
		e.endAt = at
		e.shard.ends.set(&e.end, at)
	}
}

// nextEnd has expire called for the first end that is left.
func (e *entry) nextEnd() {
	first := e.firstEnd()
	if e.held > 0 {
		first = min(first, e.validUntil)
	}
	e.endBy(first)
}

// askBy has the shard's loop call the origin about the key at a moment, or earlier.
func (e *entry) askBy(at time.Duration) {
	if e.shard.asks != nil && !e.stripe.table.stopped.Load() && (e.askAt == 0 || at < e.askAt) {
		e.askAt = at
		e.shard.asks.set(&e.ask, at)
	}
}

// hasRoom is true where a lease under limit can be granted here.
func (e *entry) hasRoom(limit int64) bool { return e.busy < e.held && e.busy+e.others < limit }

// spareMax is how many free slots the node keeps: half of its share of what the limit leaves.
func (e *entry) spareMax(want int64) int64 {
	if e.starved {
		return 0
	}
	return min(max(0, e.limit-e.others-e.busy-want)/(2*e.stripe.table.nodes()), spareMax)
}

// serve grants free slots to those who wait, in their order, in which callers take turns. A request whose own limit is
// reached keeps its place, and holds up none whose limit is higher. All who wait for one ID get its lease together.
func (e *entry) serve(now time.Duration) {
	if e.waiters.len == 0 || e.yields(now) {
		return
	}
	shared := false // a lease by ID was granted, for which others may wait too
	for w := range e.waiters.all {
		r := Result{Asked: w.number > 0}
		switch {
		case shared && e.again(now, &w.ask, &r):
		case e.hasRoom(w.ask.Limit):
			e.waiters.line.Serve(w.at)
			e.grant(now, &w.ask, &r)
			shared = shared || w.ask.ID != ""
		case e.busy >= e.held && !shared:
			return
		default:
			continue
		}
		e.waiters.remove(w)
		e.stripe.stats.Waiters--
		w.ready <- r
	}
}

// yields reports whether this node leaves its free slots to others. While others are refused and the origin has no room
// for them, it does so every yieldEvery, for long enough that they ask again, however few slots it holds: how many
// others there are is not always known, and leases by id belong to no node.
func (e *entry) yields(now time.Duration) bool {
	if e.starved && e.busy < e.held && e.held+e.others >= e.limit && now >= e.yieldUntil+yieldEvery {
		e.yieldUntil = now + yieldFor
		e.askBy(now)
	}
	return now < e.yieldUntil
}

// returned looks at a slot that has become free.
func (e *entry) returned(now func() time.Duration) {
	if e.waiters.len > 0 {
		e.serve(now())
	}
	if e.shard.asks != nil && e.held-e.busy > e.spare {
		e.askBy(now() + tick)
	}
}

// idle is true of an entry that nothing would be lost with.
func (e *entry) idle() bool {
	return e.busy == 0 && e.waiters.len == 0 && !e.inFlight && (e.shard.asks == nil || e.held == 0 && !e.told)
}
