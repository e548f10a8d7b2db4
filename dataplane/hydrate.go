package dataplane

import (
	"context"
	"errors"
	"time"

	"github.com/weirhq/weir/shared/window"
)

// Reading from the origin before a decision: a cold key (hydration), a key that has
// heard nothing for a while, and a key in strict mode are all the same read.

// retryPause is how long a key rests after a failed read before it tries again.
const retryPause = 300 * time.Millisecond

var errStopped = errors.New("dataplane: limiter is stopped")

// flight is one read in flight, shared by all who wait for its keys.
type flight struct {
	done chan struct{} // closed when the answer is merged, or has failed
	err  error         // read after done
}

// wantsRefresh is true when a decision should hear from the origin first.
func (e *entry) wantsRefresh(nowMs, freshForMs int64) bool {
	return nowMs-e.heardAt.Load() >= freshForMs || nowMs < e.strictUntil.Load()
}

// refreshFor asks the origin about e, unless what is known already denies r:
// merges only raise counts, so what local state denies stays denied, and a flood
// of requests from a blocked caller costs no I/O at all.
func (l *Limiter) refreshFor(ctx context.Context, e *entry, nowMs int64, r Request) (source Source, alive bool) {
	v, alive := e.judge(nowMs, r.Duration.Milliseconds(), r.Limit, r.Cost, false)
	if !alive || !v.allowed {
		return SourceLocal, alive
	}
	if l.wait(ctx, l.read(nowMs, e)) {
		return SourceOrigin, true
	}
	return SourceDegraded, true
}

// read joins the read in flight of e or starts one; nil while e rests after a
// failed one.
func (l *Limiter) read(nowMs int64, e *entry) *flight {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.flight != nil {
		return e.flight
	}
	if nowMs < e.retryAt {
		return nil
	}
	e.flight = &flight{done: make(chan struct{})}
	l.fly(e.flight, []*entry{e})
	return e.flight
}

// readMany is read for several keys, in one round trip for all that are not in
// flight yet. It returns one flight for each entry.
func (l *Limiter) readMany(nowMs int64, entries []*entry) []*flight {
	flights := make([]*flight, len(entries))
	shared := &flight{done: make(chan struct{})}
	var mine []*entry
	for i, e := range entries {
		e.mu.Lock()
		if e.flight == nil && nowMs >= e.retryAt {
			e.flight = shared
			mine = append(mine, e)
		}
		flights[i] = e.flight
		e.mu.Unlock()
	}
	if len(mine) > 0 {
		l.fly(shared, mine)
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
	started := l.calls.start(func() {
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
		l.metrics.origin(opRead, time.Since(began), err)
		nowMs := l.nowMs()
		var grown []*entry
		var lost []Add
		for i, e := range entries {
			if err != nil {
				e.land(nowMs)
				continue
			}
			grew, missing := e.hydrate(cells[2*i].Sequence, totals[2*i], totals[2*i+1], nowMs)
			lost = append(lost, missing...)
			if grew {
				grown = append(grown, e)
			}
		}
		l.requeueFlush(grown)
		l.heal(lost)
		f.err = err
		close(f.done)
	})
	if !started {
		f.err = errStopped
		close(f.done)
	}
}

// land ends a failed read: what is known stays, and the next read waits.
func (e *entry) land(nowMs int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.flight = nil
	e.retryAt = nowMs + retryPause.Milliseconds()
}

// hydrate merges the totals of two neighbouring cells and ends the read. It returns
// whether others had contributed, and what the origin should be told because it has
// lost it.
func (e *entry) hydrate(sequence, previous, current, nowMs int64) (grew bool, missing []Add) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.flight, e.retryAt = nil, 0
	for i, total := range [2]int64{previous, current} {
		s := sequence + int64(i)
		slot, ok := e.slotLocked(s)
		if !ok {
			continue
		}
		more, lost := e.absorbLocked(slot, total, 0)
		if lost {
			missing = append(missing, Add{e.cell(s), e.books[slot].confirmed})
		}
		grew = grew || more
	}
	if sequence+1 == e.seq.Load() {
		e.hear(nowMs)
	}
	return grew, missing
}
