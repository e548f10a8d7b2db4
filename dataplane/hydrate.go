package dataplane

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir/dataplane/internal/clock"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// Reading from the origin before a decision: a cold key (hydration), a key that has
// heard nothing for a while, and a key in strict mode are all the same read.

// retryPause is how long a key rests after a failed read before it tries again.
const retryPause = 300 * time.Millisecond

var errStopped = errors.New("dataplane: limiter is stopped")

// flight is one read in flight, shared by all who wait for its keys.
type flight struct {
	done      chan struct{} // closed when the answer is merged, or has failed
	err       error         // read after done
	restUntil atomic.Int64  // steadyMs before which its keys try no new read; 0 unless it failed
	end       func(error)   // tells the breaker; nil where it was not asked
}

func newFlight(end func(error)) *flight { return &flight{done: make(chan struct{}), end: end} }

// readingLocked is true while a read is in flight, or rested from.
func (e *entry) readingLocked(now clock.Steady) bool {
	if e.flight == nil {
		return false
	}
	rest := e.flight.restUntil.Load()
	return rest == 0 || int64(now) < rest
}

// joinLocked returns the read in flight; started is false when a new one may begin.
// nil and started: the key rests.
func (e *entry) joinLocked(now clock.Steady) (f *flight, started bool) {
	switch {
	case !e.readingLocked(now):
		return nil, false
	case e.flight.restUntil.Load() != 0:
		return nil, true
	}
	return e.flight, true
}

// wantsRefresh is true when a decision should hear from the origin first.
func (e *entry) wantsRefresh(now clock.Steady, freshForMs int64) bool {
	return int64(now)-e.heardAt.Load() >= freshForMs || e.isStrict(now)
}

// asksFirst is true when a cost is so large that what other nodes may have been granted lately
// matters: with what a batch asks before it on the same key, it is more than a share of what its limit leaves, on a
// key last heard of more than two ticks ago. A read that was answered settles it for two ticks, and one that was not
// for a rest. A key far from its limit has shares that hold its costs, and a node alone has no other to hear of.
func (l *Limiter) asksFirst(e *entry, q *question, now clock.Steady, set *settings) bool {
	n := l.nodes.Load()
	if n < 2 || int64(now)-e.heardAt.Load() <= set.twoTicksMs {
		return false
	}
	return q.ahead+q.cost > (q.limit-e.known(q))/(2*n)
}

// known is what counts against a question's limit, as far as is known here, without a claim to be of one instant.
func (e *entry) known(q *question) int64 {
	seq := e.seq.Load()
	slot := slotOf(seq)
	known := wordCount(e.words[slot].Load()) + e.others[slot].Load()
	if before := wordCount(e.words[previousSlot(slot)].Load()) + e.others[previousSlot(slot)].Load(); before > 0 {
		start := window.Start(seq, q.durationMs)
		if uncovered := q.durationMs - max(0, q.nowMs-start); uncovered > 0 {
			known += window.Carried(before, uncovered, q.durationMs)
		}
	}
	return known
}

// refreshFor asks the origin about e, unless what is known already denies r:
// merges only raise counts, so what local state denies stays denied, and a flood
// of requests from a blocked caller costs no I/O at all. (In a namespace that is open
// in an outage, not even then is anything read, but an outage that is known of lets
// it pass.)
func (l *Limiter) refreshFor(ctx context.Context, e *entry, q *question, outage outagePolicy) (source Source, alive bool) {
	var v verdict
	alive = e.judge(&v, q.nowMs, q.durationMs, q.limit, q.cost, false)
	l.metrics.dropped[droppedExpired].Add(v.agedOut)
	if alive && !v.allowed && outage == outageOpen && l.outOf(e, l.clock.Steady()) {
		return SourceDegradedOpen, true
	}
	if !alive || !v.allowed {
		return SourceLocal, alive
	}
	f := l.read(l.clock.Steady(), e)
	if f == nil {
		return outage.source(), true
	}
	ctx, cancel := context.WithTimeout(ctx, l.waitsFor(&q.until))
	defer cancel()
	if l.wait(ctx, f) {
		return SourceOrigin, true
	}
	return outage.source(), true
}

// waitsFor is how much longer a decision waits, for whatever it waits: until ReadTimeout after
// it has first begun to. until counts from the clock's base; it is no time.Time, whose pointer would put the question on the heap.
func (l *Limiter) waitsFor(until *time.Duration) time.Duration {
	now := l.clock.Since()
	if *until == 0 {
		*until = now + l.cfg.ReadTimeout
	}
	return *until - now
}

// read joins the read in flight of e or starts one; nil while e rests after a failed
// one, and while the breaker of its shard's reads is open.
func (l *Limiter) read(now clock.Steady, e *entry) *flight {
	e.mu.Lock()
	defer e.mu.Unlock()
	if f, started := e.joinLocked(now); started {
		return f
	}
	end, ok := l.shardOf(e).asks.Begin()
	if !ok {
		return nil
	}
	e.flight = newFlight(end)
	l.fly(e.flight, []*entry{e})
	return e.flight
}

// readMany is read for several keys, at the same time and in one round trip a shard
// for all that are not in flight yet. It returns one flight for each entry.
func (l *Limiter) readMany(now clock.Steady, entries []*entry) []*flight {
	flights := make([]*flight, len(entries))
	type voyage struct {
		shared *flight // nil: the breaker is open
		mine   []*entry
	}
	voyages := make(map[*shard]*voyage, 1)
	for i, e := range entries {
		sh := l.shardOf(e)
		e.mu.Lock()
		f, started := e.joinLocked(now)
		if !started {
			v := voyages[sh]
			if v == nil {
				v = &voyage{}
				voyages[sh] = v
				if end, ok := sh.asks.Begin(); ok {
					v.shared = newFlight(end)
				}
			}
			if f = v.shared; f != nil {
				e.flight = f
				v.mine = append(v.mine, e)
			}
		}
		flights[i] = f
		e.mu.Unlock()
	}
	for _, v := range voyages {
		if v.shared != nil {
			l.fly(v.shared, v.mine)
		}
	}
	return flights
}

// wait waits for f, but not past ctx. false: decide from what is known.
func (l *Limiter) wait(ctx context.Context, f *flight) bool {
	if f == nil {
		return false
	}
	select {
	case <-f.done:
		return f.err == nil
	case <-ctx.Done():
		return false
	}
}

// fly reads both cells of each entry and merges them, in a goroutine of its own: a
// caller that gives up does not take the answer from those who wait on. A limiter
// that is being stopped reads no more.
func (l *Limiter) fly(f *flight, entries []*entry) {
	if !l.calls.Start(func() { l.fetch(f, entries) }) {
		f.end(nil)
		f.fail(errStopped, l.clock.ReadSteady())
	}
}

// fetch makes the call of a read.
func (l *Limiter) fetch(f *flight, entries []*entry) {
	ctx, cancel := context.WithTimeout(context.Background(), l.cfg.ReadTimeout)
	defer cancel()
	cells := make([]window.Cell, 0, 2*len(entries))
	for _, e := range entries {
		seq := e.seq.Load()
		cells = append(cells, e.cell(seq-1), e.cell(seq))
	}
	began := time.Now()
	totals, err := l.cfg.Origin.Read(ctx, cells)
	if err == nil && len(totals) != len(cells) {
		err = errShortAnswer
	}
	f.end(err)
	l.metrics.origin(opRead, len(cells), time.Since(began), err)
	now := l.clock.ReadSteady()
	var grown []*entry
	var lost []store.Add
	if err != nil {
		f.fail(err, now)
		return
	}
	for i, e := range entries {
		grew, missing := e.hydrate(l.metrics, cells[2*i].Sequence, totals[2*i], totals[2*i+1], now)
		lost = append(lost, missing...)
		if grew {
			grown = append(grown, e)
		}
	}
	l.requeueFlush(grown)
	l.heal(lost)
	close(f.done)
}

// fail ends a read that got no answer: what is known stays, and its keys rest.
func (f *flight) fail(err error, now clock.Steady) {
	f.err = err
	f.restUntil.Store(int64(now) + retryPause.Milliseconds())
	close(f.done)
}

// hydrate merges the totals of two neighbouring cells and ends the read. It returns
// whether others had contributed, and what the origin should be told because it has
// lost it.
func (e *entry) hydrate(m *metrics, sequence, previous, current int64, now clock.Steady) (grew bool, missing []store.Add) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.flight = nil
	for i, total := range [2]int64{previous, current} {
		s := sequence + int64(i)
		slot, ok := e.slotLocked(s)
		if !ok {
			continue
		}
		more, lost := e.absorbLocked(m, slot, total, false)
		if lost {
			missing = append(missing, store.Add{Cell: e.cell(s), Cost: e.namedLocked(slot)})
		}
		grew = grew || more
	}
	if sequence+1 == e.seq.Load() {
		e.hear(now)
	}
	return grew, missing
}
