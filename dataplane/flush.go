package dataplane

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
)

// Flush publishes the region's counts to the other regions. Work is proportional to
// the keys that changed; what is written is what this node knows its region to have
// accepted, never a reservation and never what other regions have reported.

const (
	publishTimeout = 10 * time.Second
	hotShare       = 0.8 // of the limit, from which a key is published at the fast interval
)

// publication is one row on its way, and the entry whose flushed mark moves with it.
type publication struct {
	Count
	entry *entry
}

// flushOnce publishes what is due, once. hotOnly leaves all but keys near their
// limit for the next slow turn. What failed stays in the queue, nothing of it marked.
func (l *Limiter) flushOnce(ctx context.Context, hotOnly bool) error {
	l.flushing.Lock()
	defer l.flushing.Unlock()
	l.collect()
	l.queues.Lock()
	queue := l.queues.flush
	l.queues.flush = nil
	l.queues.Unlock()

	began := time.Now()
	set := l.settings.Load()
	nowMs := l.nowMs()
	var due []publication
	var later []*entry
	for _, e := range queue {
		if rows, wait := e.publish(set, nowMs, hotOnly); wait {
			later = append(later, e)
		} else {
			due = append(due, rows...)
		}
	}
	l.requeueFlush(later)
	slices.SortFunc(due, func(a, b publication) int { return a.Cell.Compare(b.Cell) })

	var err error
	for len(due) > 0 && err == nil {
		chunk := due[:min(len(due), PublishRowsMax)]
		if err = l.publishChunk(ctx, chunk); err == nil {
			due = due[len(chunk):]
		}
	}
	for _, p := range due {
		l.requeueFlush([]*entry{p.entry})
	}
	l.metrics.flush(time.Since(began), err, nowMs)
	return err
}

// publish takes an entry off the queue and returns its rows that are due; wait is
// true when it should stay for the next slow turn.
func (e *entry) publish(set *settings, nowMs int64, hotOnly bool) (rows []publication, wait bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.flags.And(^uint32(flagInFlush))
	if milliseconds(e.names.durationMs()) < set.tuning.MinGlobalDuration.Std() || e.flags.Load()&flagDead != 0 {
		return nil, false
	}
	seq := e.seq.Load()
	if hotOnly && !e.hotLocked(slotOf(seq)) {
		return nil, true
	}
	for _, s := range []int64{seq - 1, seq} {
		slot := slotOf(s)
		if count, due := e.dueLocked(slot, set); due && !expiredAt(s, e.names.durationMs(), nowMs) {
			e.flags.Or(flagOffered << slot)
			rows = append(rows, publication{Count{Cell: e.cell(s), Count: count}, e})
		}
	}
	return rows, false
}

// dueLocked applies the filters in their order: own cost in the cell → the floor, or
// another region has published the cell, then everyone does → grown by a step since
// last published, or at all once within a step of the limit.
func (e *entry) dueLocked(slot int, set *settings) (count int64, due bool) {
	e.netLocked(slot)
	count = e.acceptedLocked(slot)
	grown := count - e.book.cells[slot].flushed
	if grown <= 0 || e.flags.Load()&(flagRefused<<slot) != 0 {
		return 0, false
	}
	limit := e.lows.get(slot)
	if limit == math.MaxInt64 { // nothing was accepted here: the count came from elsewhere
		return 0, false
	}
	if e.foreignLocked(slot) == 0 && float64(count) < set.tuning.Floor*float64(limit) {
		return 0, false
	}
	step := max(1, int64(math.Ceil(set.tuning.Step*float64(limit))))
	return count, grown >= step || count > limit-step
}

func (e *entry) hotLocked(slot int) bool {
	total := e.acceptedLocked(slot) + e.book.netted(slot) + e.others[slot].Load()
	return float64(total) >= hotShare*float64(e.lows.get(slot))
}

// publishChunk publishes one chunk and moves the flushed marks, each to the value
// that was written. Rows that the store refuses are found by halving, reported once
// and left out; they hold up no other row.
func (l *Limiter) publishChunk(ctx context.Context, chunk []publication) error {
	counts := make([]Count, len(chunk))
	for i, p := range chunk {
		counts[i] = p.Count
	}
	callCtx, cancel := context.WithTimeout(ctx, publishTimeout)
	err := l.cfg.Counts.Publish(callCtx, l.cfg.Region, counts)
	cancel()
	switch {
	case err == nil:
		for _, p := range chunk {
			p.entry.published(p.Count)
		}
		l.metrics.flushedRows.Add(int64(len(chunk)))
		return nil
	case !errors.Is(err, ErrRefused):
		return fmt.Errorf("publish %d rows: %w", len(chunk), err)
	case len(chunk) == 1:
		l.refused(chunk[0], err)
		return nil
	}
	half := len(chunk) / 2
	if err := l.publishChunk(ctx, chunk[:half]); err != nil {
		return err
	}
	return l.publishChunk(ctx, chunk[half:])
}

// refused gives up on a row for the rest of its cell's life.
func (l *Limiter) refused(p publication, err error) {
	l.metrics.refusedRows.Add(1)
	l.cfg.Logger.Error("count store refuses a row; other regions will not see this cell",
		"key", p.Cell.Key.String(), "sequence", p.Cell.Sequence, "count", p.Count.Count, "error", err)
	p.entry.mu.Lock()
	defer p.entry.mu.Unlock()
	if slot, ok := p.entry.slotLocked(p.Cell.Sequence); ok {
		p.entry.flags.Or(flagRefused << slot)
	}
}

// published records what is known to be stored. A mark only moves up.
func (e *entry) published(c Count) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if slot, ok := e.slotLocked(c.Cell.Sequence); ok {
		e.book.cells[slot].flushed = max(e.book.cells[slot].flushed, c.Count)
		e.flags.And(^uint32(flagOffered << slot)) // nothing larger was ever offered: flushes take turns
	}
}

// requeueFlush puts entries in the queue, or back: their counts grew by a merge, or
// could not be written.
func (l *Limiter) requeueFlush(entries []*entry) {
	if l.cfg.Counts == nil || len(entries) == 0 {
		return
	}
	l.queues.Lock()
	defer l.queues.Unlock()
	for _, e := range entries {
		e.mu.Lock()
		l.queueFlushLocked(e)
		e.mu.Unlock()
	}
}
