package dataplane

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/weirhq/weir/dataplane/internal/breaker"
	"github.com/weirhq/weir/dataplane/store"
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
	store.Count
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
	covered := l.elsewhere.covered(nowMs)
	var due []publication
	var later []queued
	for _, q := range queue {
		how := loud
		if covered {
			how = l.quietness(q.entry)
		}
		if rows, wait := q.publish(set, nowMs, hotOnly, how); wait {
			later = append(later, q)
		} else {
			due = append(due, rows...)
		}
	}
	l.queueAgain(later)
	slices.SortFunc(due, func(a, b publication) int { return a.Cell.Compare(b.Cell) })

	var err error
	for len(due) > 0 && err == nil {
		chunk := due[:min(len(due), store.PublishRowsMax)]
		if err = l.publishChunk(ctx, chunk); err == nil {
			due = due[len(chunk):]
		}
	}
	for _, p := range due {
		l.queueAgain([]queued{{p.entry, p.CountedAtMs}})
	}
	if err == nil || !stopped(ctx) {
		l.metrics.flush(time.Since(began), err, nowMs)
	}
	return err
}

// loudness is who is to hear of a row.
type loudness uint8

const (
	loud       loudness = iota // every node that imports
	quiet                      // nobody, and one node of the region stores it
	quietAlone                 // nobody, and this node cannot know whether another stores it
)

func (l *Limiter) quietness(e *entry) loudness {
	if l.cfg.Origin == nil || l.shardOf(e).sends.State() != breaker.Closed {
		return quietAlone
	}
	return quiet
}

// publish takes an entry off the queue and returns its rows that are due; wait is
// true when it should stay for the next slow turn.
func (q queued) publish(set *settings, nowMs int64, hotOnly bool, how loudness) (rows []publication, wait bool) {
	e := q.entry
	e.mu.Lock()
	defer e.mu.Unlock()
	e.flags.And(^uint32(flagInFlush))
	if milliseconds(e.names.durationMs()) < set.tuning.MinGlobalDuration.Std() || e.flags.Load()&flagDead != 0 || set.superseded(&e.names) {
		return nil, false
	}
	seq := e.seq.Load()
	if hotOnly && !e.hotLocked(slotOf(seq)) {
		return nil, true
	}
	for _, s := range []int64{seq - 1, seq} {
		slot, how := slotOf(s), how
		if e.names.generation(s) != 0 {
			how = loud // no bulletin tells of it
		}
		if count, due := e.dueLocked(slot, set, how); due && !expiredAt(s, e.names.durationMs(), nowMs) {
			e.flags.Or(flagOffered << slot)
			shared := e.foreignLocked(slot) > 0
			rows = append(rows, publication{store.Count{Cell: e.cell(s), Count: count, CountedAtMs: q.sinceMs, Shared: shared, Quiet: how != loud}, e})
		}
	}
	return rows, false
}

// dueLocked applies the filters in their order: own cost in the cell → the floor, or
// another region has published the cell, then everyone does → grown by a step since
// last published, or at all once within a step of the limit. quiet: everybody who needs to
// know is told by bulletins, and the row is but a lower bound for when this region's
// origin is wiped.
func (e *entry) dueLocked(slot int, set *settings, how loudness) (count int64, due bool) {
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
	if how != loud {
		return count, e.dueQuietlyLocked(slot, count, limit, set.tuning.Floor, how == quietAlone)
	}
	if e.foreignLocked(slot) == 0 && float64(count) < set.tuning.Floor*float64(limit) {
		return 0, false
	}
	step := max(1, int64(math.Ceil(set.tuning.Step*float64(limit))))
	return count, grown >= step || count > limit-step
}

// Marks are the shares of its limit at which a region's count is stored when nobody is
// waiting for it: quietFloor, or the floor if that is higher, hotShare, the limit, and each
// doubling after that.
const quietFloor = 0.5

// markOf is how many marks a count has passed.
func markOf(count, limit int64, floor float64) (marks int) {
	share := float64(count) / float64(max(1, limit))
	for _, mark := range [...]float64{max(floor, quietFloor), hotShare, 1} {
		if count > 0 && share >= mark {
			marks++
		}
	}
	for doubled := 2.0; share >= doubled; doubled *= 2 {
		marks++
	}
	return marks
}

// dueQuietlyLocked is true when the count has passed a mark since it was last stored, and
// this node should store it. All nodes of a region see the count; the one whose increment
// passed the mark stores it. If it dies before, the next mark's node does. Who has no
// origin, or gets no answer from it, cannot know, and stores it.
func (e *entry) dueQuietlyLocked(slot int, count, limit int64, floor float64, alone bool) bool {
	if markOf(count, limit, floor) <= markOf(e.book.cells[slot].flushed, limit, floor) {
		return false
	}
	return alone || e.flags.Load()&(flagEstimate|flagCrossed<<slot) != 0
}

// cross notes that an increment of this node's took the region's count past a mark.
func (e *entry) cross(sequence, before, after int64, floor float64) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	slot, ok := e.slotLocked(sequence)
	if !ok {
		return false
	}
	limit := e.lows.get(slot)
	if limit == math.MaxInt64 || markOf(after, limit, floor) <= markOf(before, limit, floor) {
		return false
	}
	e.flags.Or(flagCrossed << slot)
	return true
}

func (e *entry) hotLocked(slot int) bool {
	total := e.acceptedLocked(slot) + e.book.netted(slot) + e.others[slot].Load()
	return float64(total) >= hotShare*float64(e.lows.get(slot))
}

// publishChunk publishes one chunk and moves the flushed marks, each to the value
// that was written. Rows that the store refuses are found by halving, reported once
// and left out; they hold up no other row.
func (l *Limiter) publishChunk(ctx context.Context, chunk []publication) error {
	counts := make([]store.Count, len(chunk))
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
	case !errors.Is(err, store.ErrRefused):
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
func (e *entry) published(c store.Count) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if slot, ok := e.slotLocked(c.Cell.Sequence); ok {
		e.book.cells[slot].flushed = max(e.book.cells[slot].flushed, c.Count)
		e.flags.And(^uint32(flagOffered << slot)) // nothing larger was ever offered: flushes take turns
	}
}

// requeueFlush puts entries in the queue whose counts grew by a merge.
func (l *Limiter) requeueFlush(entries []*entry) {
	if l.cfg.Counts == nil || len(entries) == 0 {
		return
	}
	l.queues.Lock()
	defer l.queues.Unlock()
	for _, e := range entries {
		e.mu.Lock()
		l.queueFlushLocked(e, 0)
		e.mu.Unlock()
	}
}

// queueAgain puts back what could not be published yet.
func (l *Limiter) queueAgain(again []queued) {
	l.queues.Lock()
	defer l.queues.Unlock()
	for _, q := range again {
		q.entry.mu.Lock()
		l.queueFlushLocked(q.entry, q.sinceMs)
		q.entry.mu.Unlock()
	}
}

// answer has other regions told of entries, as one of them has told of their cells.
func (l *Limiter) answer(entries []*entry) {
	l.requeueFlush(entries)
	l.queues.Lock()
	defer l.queues.Unlock()
	for _, e := range entries {
		e.mu.Lock()
		l.queueTellLocked(e, 0)
		e.mu.Unlock()
	}
}
