package dataplane

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weirhq/weir/dataplane/internal/breaker"
	"github.com/weirhq/weir/dataplane/internal/cell"
	"github.com/weirhq/weir/dataplane/store"
)

// Flush publishes the region's counts to the other regions. Work is proportional to
// the keys that changed; what is written is what this node knows its region to have
// accepted, never a reservation and never what other regions have reported.

const (
	publishTimeout = 10 * time.Second
)

// publication is one row on its way, and the entry whose flushed mark moves with it.
type publication struct {
	store.Count
	entry *cell.Entry
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
	turn := cell.PublishTurn{NowMs: nowMs, HotOnly: hotOnly, Floor: set.tuning.Floor, Step: set.tuning.Step}
	for _, q := range queue {
		how := cell.Loud
		if covered {
			how = l.quietness(q.entry)
		}
		local := milliseconds(q.entry.DurationMs()) < set.tuning.MinGlobalDuration.Std() || set.superseded(q.entry.Names())
		rows, wait := q.entry.Publish(&turn, how, local)
		if wait {
			later = append(later, q)
		}
		for _, r := range rows {
			row := store.Count{Cell: r.Cell, Count: r.Count, CountedAtMs: q.sinceMs, Shared: r.Shared, Quiet: r.Quiet}
			due = append(due, publication{row, q.entry})
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

func (l *Limiter) quietness(e *cell.Entry) cell.Loudness {
	if l.cfg.Origin == nil || l.shardOf(e).sends.State() != breaker.Closed {
		return cell.QuietAlone
	}
	return cell.Quiet
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
			p.entry.Published(p.Cell.Sequence, p.Count.Count)
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
	p.entry.RefuseRow(p.Cell.Sequence)
}

// requeueFlush puts entries in the queue whose counts grew by a merge.
func (l *Limiter) requeueFlush(entries []*cell.Entry) {
	if l.cfg.Counts == nil || len(entries) == 0 {
		return
	}
	l.queues.Lock()
	defer l.queues.Unlock()
	for _, e := range entries {
		l.queueLocked(nil, e, 0, cell.InFlush)
	}
}

// queueAgain puts back what could not be published yet.
func (l *Limiter) queueAgain(again []queued) {
	l.queues.Lock()
	defer l.queues.Unlock()
	for _, q := range again {
		l.queueLocked(nil, q.entry, q.sinceMs, cell.InFlush)
	}
}

// answer has other regions told of entries, as one of them has told of their cells.
func (l *Limiter) answer(entries []*cell.Entry) {
	l.requeueFlush(entries)
	l.queues.Lock()
	defer l.queues.Unlock()
	for _, e := range entries {
		l.queueLocked(nil, e, 0, cell.InTell)
	}
}
