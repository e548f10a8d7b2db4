package dataplane

import (
	"context"

	"github.com/weirhq/weir/shared/window"
)

// The loops' steps, for tests that turn them by hand.

func (l *Limiter) ReplayOnce(ctx context.Context) error { return l.replayOnce(ctx) }
func (l *Limiter) FlushOnce(ctx context.Context) error  { return l.flushOnce(ctx, false) }
func (l *Limiter) FlushHot(ctx context.Context) error   { return l.flushOnce(ctx, true) }
func (l *Limiter) ImportOnce(ctx context.Context) error { return l.importOnce(ctx) }
func (l *Limiter) LoadSettings(ctx context.Context) error {
	return l.loadSettings(ctx)
}

// Sweep sweeps the whole table once.
func (l *Limiter) Sweep() {
	for range l.table.len()/sweepBatch + 1 {
		l.table.sweep(l.nowMs())
	}
}

// AwaitCalls waits for reads and heals in flight.
func (l *Limiter) AwaitCalls() { l.calls.running.Wait() }

// CellState is what a limiter holds of one cell.
type CellState struct {
	Held                                                        bool
	Count, Global, Reserved, Settled, InFlight, Flushed, Unsent int64
}

// Cell looks into a cell.
func (l *Limiter) Cell(c window.Cell) CellState {
	e := l.table.get(c.Key)
	if e == nil {
		return CellState{}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	slot, ok := e.slotLocked(c.Sequence)
	if !ok {
		return CellState{}
	}
	b := e.books[slot]
	return CellState{true, wordCount(e.words[slot].Load()), e.global[slot].Load(), b.reserved, b.settled, b.inFlight, b.flushed, e.unsentLocked(slot)}
}

// StrictUntilMs is the key's strict deadline, 0 for none.
func (l *Limiter) StrictUntilMs(k window.Key) int64 {
	if e := l.table.get(k); e != nil {
		return e.strictUntil.Load()
	}
	return 0
}

// Entries is the number of keys held.
func (l *Limiter) Entries() int { return l.table.len() }

// Created counts keys by who brought them in.
func (l *Limiter) Created() (traffic, imported int64) {
	return l.table.created.traffic.Load(), l.table.created.imported.Load()
}

// Accepted is what a publisher would read of a cell at this moment.
func (l *Limiter) Accepted(c window.Cell) int64 {
	s := l.Cell(c)
	return s.Count - s.Reserved
}

// Reservation is one item of a batch between reserving and deciding.
type Reservation struct {
	entry   *entry
	verdict verdict
	limiter *Limiter
	request Request
}

// Reserve does the first half of a batch of one.
func (l *Limiter) Reserve(ctx context.Context, r Request) *Reservation {
	items, err := l.items([]Request{r})
	if err != nil {
		panic(err)
	}
	nowMs := l.nowMs()
	l.enter(items, nowMs)
	v, _ := items[0].entry.reserve(nowMs, r.Duration.Milliseconds(), r.Limit, r.Cost)
	return &Reservation{items[0].entry, v, l, r}
}

func (r *Reservation) Allowed() bool { return r.verdict.allowed }
func (r *Reservation) Undo()         { r.entry.undo(r.verdict.seq, r.request.Cost) }
func (r *Reservation) Keep() {
	r.entry.keep(r.verdict.seq, r.request.Cost)
	r.limiter.accepted(r.entry, true, r.verdict.seq, r.request)
}
