package dataplane

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// guests are entries of keys that the full table has no room for. One lives while somebody
// decides on its key, and all who do share it: together they are as exact as on a held key. With
// an origin each cost is decided and counted there, by calls that many keys share. Without one, in the estimate mode, and where
// the origin does not answer, what the overflow has of the key is in its entry when it comes,
// and what is accepted is in the overflow before it goes.
//
// There are at most as many as there are requests under way.
type guests struct {
	present atomic.Int64
	halls   [guestHalls]struct {
		sync.Mutex
		of map[identity]*guest
	}
}

type guest struct {
	entry *entry
	users int
}

const guestHalls = 16 // a power of two

func (g *guests) hall(id *identity) *struct {
	sync.Mutex
	of map[identity]*guest
} {
	return &g.halls[id.a>>48&(guestHalls-1)]
}

// find is the entry of a key that is a guest, for one more user; nil where it is none.
func (g *guests) find(id *identity) *entry {
	if g.present.Load() == 0 {
		return nil
	}
	h := g.hall(id)
	h.Lock()
	defer h.Unlock()
	if one := h.of[*id]; one != nil {
		one.users++
		return one.entry
	}
	return nil
}

// enter is find that makes the key a guest, with the entry that enters.
func (g *guests) enter(id *identity, make func() *entry) *entry {
	h := g.hall(id)
	h.Lock()
	defer h.Unlock()
	one := h.of[*id]
	if one == nil {
		if h.of == nil {
			h.of = map[identity]*guest{}
		}
		one = &guest{entry: make()}
		h.of[*id] = one
		g.present.Add(1)
	}
	one.users++
	return one.entry
}

// leave ends one use.
func (g *guests) leave(id *identity) {
	h := g.hall(id)
	h.Lock()
	defer h.Unlock()
	if one := h.of[*id]; one != nil {
		if one.users--; one.users == 0 {
			delete(h.of, *id)
			g.present.Add(-1)
		}
	}
}

// meet is the entry of a question's key: the table's, made if need be, or a guest's. Who gets an
// untracked one leaves it in the end.
func (l *Limiter) meet(q *question, by *rule) (*entry, contact) {
	t := l.table
	if e := t.guests.find(q.id); e != nil {
		return e, untracked
	}
	key := q.key()
	sequence := window.Sequence(q.nowMs, q.durationMs)
	e, met := t.add(q.id, &key, by.reset, sequence, q.nowMs, &t.created.traffic)
	if met == untracked {
		e = l.host(q, by, sequence)
	}
	return e, met
}

// used ends a decision's use of its entry, and returns it if the table holds it.
func (l *Limiter) used(e *entry, met contact, q *question, source Source) *entry {
	if met == untracked {
		return l.usedGuest(q, source)
	}
	return e
}

func (l *Limiter) usedGuest(q *question, source Source) *entry {
	l.metrics.crowd.decided(source)
	l.table.guests.leave(q.id)
	return nil
}

func (l *Limiter) host(q *question, by *rule, sequence int64) *entry {
	t := l.table
	return t.guests.enter(q.id, func() *entry {
		key := q.key()
		e := newEntry(q.id, t.names(&key, by.reset), sequence, t.fleet) // with nothing of the estimate mode: it hears from nobody
		e.flags.Or(flagInReplay | flagInFlush | flagInTell)             // so that no queue takes it
		for _, s := range []int64{sequence - 1, sequence} {
			if count := t.overflow.count(q.id, s, q.durationMs, q.nowMs); count > 0 {
				e.foreign(slotOf(s)).Store(count)
			}
		}
		return e
	})
}

// spill counts in the overflow what was accepted on a guest and is at no origin.
func (l *Limiter) spill(e *entry, sequence, cost, nowMs int64) {
	if cost <= 0 {
		return
	}
	l.table.spill(e, sequence, cost, nowMs)
	l.metrics.dropped[droppedFull].Add(cost)
	e.settleUnnamed(sequence, cost)
}

// settleUnnamed takes own cost of a guest for settled, though the origin has not named it: it is
// on its way there, or in the overflow. No claim waits for it to be sent, and no total that lacks
// it is taken for a loss.
func (e *entry) settleUnnamed(sequence, cost int64) {
	if e.book == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if slot, ok := e.slotLocked(sequence); ok {
		e.book.cells[slot].settled.Add(cost)
		e.book.rarely().unnamed[slot] += cost
	}
}

// judgeGuest is judgeInFleet for a guest: within one deadline it hears what the origin has, unless
// what is known denies, and has the origin count.
func (l *Limiter) judgeGuest(ctx context.Context, v *verdict, e *entry, q *question, by *rule) (source Source, alive bool) {
	ctx, cancel := context.WithTimeout(ctx, l.waitsFor(&q.until))
	defer cancel()
	source = SourceLocal
	if e.heardAt.Load() == 0 {
		alive = e.judge(v, q.nowMs, q.durationMs, q.limit, q.cost, false)
		if !alive || !v.allowed && by.outage != outageOpen { // an open outage lets pass what the overflow would deny
			return source, alive
		}
		if source = SourceOrigin; !l.wait(ctx, l.readGuest(l.clock.Steady(), e)) {
			source = by.outage.source()
		}
	}
	switch {
	case source == SourceDegraded:
		return source, e.judge(v, q.nowMs, q.durationMs, q.limit, q.cost, q.counting())
	case source.Degraded():
		return source, l.judgeOut(v, e, q, source)
	}
	for ; ctx.Err() == nil; source = SourceOrigin {
		if alive = e.judge(v, q.nowMs, q.durationMs, q.limit, q.cost, false); !alive || !v.allowed || !q.counting() {
			return source, alive
		}
		switch l.claim(ctx, v, e, q, by.outage, false) { // a guest would not remember that it was refused for others' room
		case wayMade:
			v.claimed = true
			return SourceOrigin, true
		case wayBroken:
			return l.shareBroken(v, e, q, by.outage)
		}
		runtime.Gosched() // a batch is about to say that its cost is on its way
	}
	return l.shareBroken(v, e, q, by.outage)
}

// outgoing is what a batch has counted on a guest.
type outgoing struct {
	entry          *entry
	sequence, cost int64
}

// unpaid is what credit does not pay for of a cost that was counted on a guest: claims of batches that failed and of
// callers who left have become that.
func (e *entry) unpaid(sequence, cost int64) int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	slot, ok := e.slotLocked(sequence)
	if !ok {
		return cost
	}
	n := min(e.book.credit(slot), cost)
	if n > 0 {
		e.book.rare.credit[slot] -= n
		e.book.rare.netted[slot] += n
	}
	return cost - n
}

// settleGuests counts elsewhere what a batch has counted on guests and not claimed: at the origin, in one call a
// shard, since nobody else would send it, or else in the overflow.
func (l *Limiter) settleGuests(ctx context.Context, w *workspace, allowed bool) {
	var sent map[*shard][]outgoing
	for _, i := range w.order {
		it := &w.items[i]
		switch {
		case it.met != untracked || it.before == 0 || !allowed && !it.rule.offered():
		case it.rule.estimate != nil || l.shards == nil || it.source.Degraded():
			l.spill(it.entry, it.verdict.seq, it.unclaimed(), it.nowMs)
		default:
			cost := it.entry.unpaid(it.verdict.seq, it.unclaimed())
			if cost == 0 {
				continue
			}
			if sent == nil {
				sent = make(map[*shard][]outgoing, 1)
			}
			sh := l.shardOf(it.entry)
			sent[sh] = append(sent[sh], outgoing{it.entry, it.verdict.seq, cost})
		}
	}
	var done []chan struct{}
	for sh, all := range sent {
		ended := make(chan struct{})
		if done = append(done, ended); !l.calls.Start(func() { l.sendGuests(sh, all); close(ended) }) {
			l.unsent(all)
			close(ended)
		}
	}
	for _, ended := range done {
		select {
		case <-ended:
		case <-ctx.Done():
			return
		}
	}
}

// leaveGuests ends a batch's use of guests.
func (l *Limiter) leaveGuests(w *workspace) {
	for _, i := range w.order {
		if it := &w.items[i]; it.met == untracked {
			l.metrics.crowd.decided(it.source)
			l.table.guests.leave(it.id)
			it.entry, it.met = nil, known
		}
	}
}

// sendGuests makes one call.
func (l *Limiter) sendGuests(sh *shard, all []outgoing) {
	end, ok := sh.asks.Begin()
	if !ok {
		l.unsent(all)
		return
	}
	adds := make([]store.Add, len(all))
	for i, o := range all {
		adds[i] = store.Add{Cell: o.entry.cell(o.sequence), Cost: o.cost}
		o.entry.settleUnnamed(o.sequence, o.cost)
	}
	ctx, cancel := context.WithTimeout(context.Background(), l.cfg.ReadTimeout)
	defer cancel()
	began := time.Now()
	answers := l.cfg.Origin.Add(ctx, adds)
	var first error
	failed, nowMs := 0, l.nowMs()
	for i, o := range all {
		answer := store.Added{Err: errShortAnswer}
		if i < len(answers) {
			answer = answers[i]
		}
		if answer.Err == nil {
			o.entry.arrived(l.metrics, o.sequence, answer.Total)
			continue
		}
		failed++
		first = cmpErr(first, answer.Err)
		l.table.spill(o.entry, o.sequence, o.cost, nowMs)
		l.metrics.dropped[droppedFull].Add(o.cost)
	}
	if failed < len(all) {
		end(nil) // the shard is there
	} else {
		end(first)
	}
	l.metrics.origin(opAdd, len(adds), time.Since(began), first)
}

func (l *Limiter) unsent(all []outgoing) {
	nowMs := l.nowMs()
	for _, o := range all {
		l.spill(o.entry, o.sequence, o.cost, nowMs)
	}
}

// arrived merges the total of a cell after a guest's cost was added to it.
func (e *entry) arrived(m *metrics, sequence, total int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if slot, ok := e.slotLocked(sequence); ok {
		e.absorbLocked(m, slot, total, false)
	}
}
