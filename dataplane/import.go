package dataplane

import (
	"context"
	"fmt"
	"time"

	"github.com/weirhq/weir/shared/window"
)

const (
	importTimeout   = 30 * time.Second
	settingsTimeout = 5 * time.Second
)

// fullImportEvery is how many imports there are from one that reads everything to the
// next: a minute at the slow interval's default.
const fullImportEvery = 12

// importOnce reads what all regions have published about cells that still matter:
// everything the first time and every fullImportEvery times, otherwise what changed.
func (l *Limiter) importOnce(ctx context.Context) error {
	l.importing.Lock()
	defer l.importing.Unlock()
	ctx, cancel := context.WithTimeout(ctx, importTimeout)
	defer cancel()
	began := time.Now()
	nowMs := l.nowMs()
	var rows, applied int64
	var answering []*entry
	after := l.importedTo
	if l.imports%fullImportEvery == 0 {
		after = 0
	}
	cursor, err := l.cfg.Counts.Import(ctx, l.cfg.Region, nowMs, after, func(in Imported) {
		rows++
		e, changed, answer := l.merge(in, nowMs)
		if changed {
			applied++
		}
		if answer {
			answering = append(answering, e)
		}
	})
	l.requeueFlush(answering)
	if err != nil {
		err = fmt.Errorf("import: %w", err)
	} else {
		l.importedTo = cursor
		l.imports++
	}
	l.metrics.imported(time.Since(began), rows, applied, err, nowMs)
	return err
}

// merge takes one imported cell in: the others' sum by maximum, the own component
// as a lower bound of the regional count. answer is true when this node has accepted
// cost in the cell that it has not published: the cell is shared now, so everyone's
// share of it counts, however small.
func (l *Limiter) merge(in Imported, nowMs int64) (e *entry, changed, answer bool) {
	if in.Cell.Validate() != nil || in.Foreign < 0 || in.Own < 0 {
		return nil, false, false
	}
	current := window.Sequence(nowMs, in.Cell.DurationMs())
	if in.Cell.Sequence != current && in.Cell.Sequence != current-1 {
		return nil, false, false
	}
	id := l.table.ofKey(&in.Cell.Key)
	if e = l.table.get(&id); e == nil {
		var met contact
		if e, met = l.table.add(&id, &in.Cell.Key, current, nowMs, &l.table.created.imported); met == untracked {
			return nil, false, false
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	agedOut, alive := e.rotateLocked(current)
	l.forgot(e, agedOut)
	if !alive {
		return nil, false, false
	}
	slot, ok := e.slotLocked(in.Cell.Sequence)
	if !ok {
		return nil, false, false
	}
	foreign := min(in.Foreign, countMax)
	if changed = foreign > e.foreignLocked(slot); changed {
		e.others[slot].Store(foreign - e.book.credit(slot) - e.book.netted(slot))
	}
	own := min(in.Own, window.LimitMax)
	if own > e.acceptedLocked(slot) {
		e.floorLocked(slot, own)
		changed = true
	}
	e.book.cells[slot].flushed = max(e.book.cells[slot].flushed, own) // it is stored already
	_, answer = e.dueLocked(slot, l.settings.Load())
	return e, changed, answer && foreign > 0
}
