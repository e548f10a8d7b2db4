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
	for range len(l.table.array.Load().buckets)/sweepBuckets + 1 {
		l.table.sweep(l.nowMs())
	}
}

// AwaitCalls waits for reads and heals in flight.
func (l *Limiter) AwaitCalls() { l.calls.running.Wait() }

// CellState is what a limiter holds of one cell.
type CellState struct {
	Held                                                                bool
	Count, Global, Reserved, Settled, InFlight, Flushed, Credit, Unsent int64
}

// Cell looks into a cell.
func (l *Limiter) Cell(c window.Cell) CellState {
	e := l.entryOf(c.Key)
	if e == nil {
		return CellState{}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	slot, ok := e.slotLocked(c.Sequence)
	if !ok {
		return CellState{}
	}
	s := CellState{Held: true, Count: wordCount(e.words[slot].Load()), Global: e.others[slot].Load()}
	if e.book != nil {
		b := e.book.cells[slot]
		s.Count -= b.netted
		s.Global = e.foreignLocked(slot)
		s.Reserved, s.Settled, s.InFlight, s.Flushed, s.Credit, s.Unsent = b.reserved, b.settled, b.inFlight, b.flushed, b.credit, e.unsentLocked(slot)
	}
	return s
}

func (l *Limiter) entryOf(k window.Key) *entry {
	id := l.table.ofKey(&k)
	return l.table.get(&id)
}

// StrictUntilMs is the key's strict deadline, 0 for none.
func (l *Limiter) StrictUntilMs(k window.Key) int64 {
	if e := l.entryOf(k); e != nil {
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

// Hold is one item of a batch between reserving and deciding.
type Hold struct {
	items   [1]item
	limiter *Limiter
}

// HoldOne does the first half of a batch of one.
func (l *Limiter) HoldOne(r Request) *Hold {
	h := &Hold{limiter: l}
	if err := l.prepare(h.items[:], []Request{r}, l.nowMs()); err != nil {
		panic(err)
	}
	l.enter(h.items[:], false)
	it := &h.items[0]
	it.verdict, _ = it.entry.reserve(it.nowMs, it.durationMs, it.limit, it.cost)
	return h
}

func (h *Hold) Allowed() bool { return h.items[0].verdict.allowed }
func (h *Hold) Undo()         { h.items[0].entry.undo(h.items[0].verdict.seq, h.items[0].cost) }
func (h *Hold) Keep() {
	it := &h.items[0]
	it.entry.keep(it.verdict.seq, it.cost)
	h.limiter.accepted(it.entry, known, &it.verdict, &it.question)
}
