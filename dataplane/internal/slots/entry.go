package slots

import (
	"container/heap"
	"math"
	"time"

	"github.com/weirhq/weir/dataplane/internal/fair"
)

// forever is the end of a lease or holding that does not end by itself.
const forever = time.Duration(math.MaxInt64)

// entry is a key. Its stripe's mutex guards all fields but the constants.
type entry struct {
	stripe *stripe // constant
	shard  *shard  // constant
	name   Name    // constant
	of     fair.Of // constant: whose share of the table's keys the entry takes

	limit int64         // of the last request
	ttl   time.Duration // of the last request
	limitLeases

	// This node has held slots until validUntil. busy <= held at all times.
	held       int64
	validUntil time.Duration
	others     int64 // slots of others, from the last answer
	spare      int64 // free slots that the node may keep, since the last answer
	starved    bool  // another node was refused, from the last answer
	used       bool  // a lease was granted since the last call
	told       bool  // the origin may have granted slots to this node
	inFlight   bool
	yieldUntil time.Duration // until then, free slots are left to other nodes
	backoff    time.Duration // between two calls for waiting requests
	fullUntil  time.Duration // until then, a refusal needs no call
	retryIn    time.Duration // from the last answer
	askAt      time.Duration // when the shard should call about the key; 0: not set
	endAt      time.Duration // when a lease or the holding may end; 0: not set
	ask, end   alarm         // in the shard's schedules

	waiters queue
}

// again answers a request with the ID of a lease that this node has granted before. The lease then lasts at least TTL
// from now.
func (e *entry) again(now time.Duration, a *Ask, r *Result) bool {
	l, ok := e.ids[a.ID] // no lease has the ID ""
	if !ok {
		return false
	}
	l.extend(now, a.TTL)
	r.Lease, r.Granted, r.Held, r.SinceMs = l, true, e.busy+e.others, l.record().byID.sinceMs
	return true
}

// grant makes a lease of a free slot. It sets ErrFull for a lease by ID that there is no room for.
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

// forget removes the ID of a lease that ends.
func (e *entry) forget(r *record) {
	id, t := r.byID, e.stripe.table
	r.byID = nil
	delete(e.ids, id.id)
	t.ids.Give(fair.Of{Caller: r.by, Space: e.of.Space}, 1)
	if t.cfg.Ended != nil {
		t.cfg.Ended(e.name, id.id, id.sinceMs)
	}
}

// lose ends leases until at most left remain, the last records first.
func (e *entry) lose(left int64, why error) {
	for i := len(e.records) - 1; i >= 0 && e.busy > left; i-- {
		if e.records[i].live {
			e.finish(uint32(i), why)
		}
	}
}

// expire ends what is due: the holding with all leases, or single leases, whose slots are then free.
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

// endBy schedules expire.
func (e *entry) endBy(at time.Duration) {
	if at != forever && (e.endAt == 0 || at < e.endAt) {
		e.endAt = at
		e.shard.ends.set(&e.end, at)
	}
}

// nextEnd schedules expire for the earliest end.
func (e *entry) nextEnd() {
	first := e.firstEnd()
	if e.held > 0 {
		first = min(first, e.validUntil)
	}
	e.endBy(first)
}

// askBy schedules a call about the key, at the given time or earlier.
func (e *entry) askBy(at time.Duration) {
	if e.shard.asks != nil && !e.stripe.table.stopped.Load() && (e.askAt == 0 || at < e.askAt) {
		e.askAt = at
		e.shard.asks.set(&e.ask, at)
	}
}

// hasRoom reports whether a lease under limit can be granted here.
func (e *entry) hasRoom(limit int64) bool { return e.busy < e.held && e.busy+e.others < limit }

// spareMax returns how many free slots the node may keep: half of its share of the slots that the limit leaves.
func (e *entry) spareMax(want int64) int64 {
	if e.starved {
		return 0
	}
	return min(max(0, e.limit-e.others-e.busy-want)/(2*e.stripe.table.nodes()), spareMax)
}

// serve grants free slots to waiting requests in their order, in which callers take turns. A request whose own limit is
// reached keeps its place, but does not delay requests with a higher limit. All requests with the same ID get its lease
// together.
func (e *entry) serve(now time.Duration) {
	if e.waiters.len == 0 || e.yields(now) {
		return
	}
	shared := false // a lease by ID was granted, and others may wait for it too
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

// yields reports whether this node leaves its free slots to other nodes. While others are refused and the origin has no
// room for them, it does so every yieldEvery, for long enough that they call again, however few slots it holds. The
// reason is that the node cannot always count the other nodes, and leases by ID belong to no node.
func (e *entry) yields(now time.Duration) bool {
	if e.starved && e.busy < e.held && e.held+e.others >= e.limit && now >= e.yieldUntil+yieldEvery {
		e.yieldUntil = now + yieldFor
		e.askBy(now)
	}
	return now < e.yieldUntil
}

// returned uses or hands back a slot that has become free.
func (e *entry) returned(now func() time.Duration) {
	if e.waiters.len > 0 {
		e.serve(now())
	}
	if e.shard.asks != nil && e.held-e.busy > e.spare {
		e.askBy(now() + tick)
	}
}

// idle reports whether the entry can be removed without loss.
func (e *entry) idle() bool {
	return e.busy == 0 && e.waiters.len == 0 && !e.inFlight && (e.shard.asks == nil || e.held == 0 && !e.told)
}
