package dataplane

import (
	"cmp"
	"context"
	"time"

	"github.com/weirhq/weir/dataplane/internal/breaker"
	"github.com/weirhq/weir/dataplane/internal/cell"
	"github.com/weirhq/weir/dataplane/internal/clock"
	"github.com/weirhq/weir/dataplane/internal/collect"
	"github.com/weirhq/weir/dataplane/internal/level"
	"github.com/weirhq/weir/dataplane/internal/rules"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// Syncs of the estimate mode. A request that finds its key due puts it into the set of
// those that wait; each replay tick takes some of them and sends their cost. The reply of
// an increment is the region's total, and is used as such: only a cell that had nothing
// to send is read.
//
// Sending is one thing and hearing another. What a hot key has counted is sent with every
// tick, and what others have when it comes to a step, so that readings are true when they
// are taken; when that is, the tier says.

// askSync puts a key into the set, unless its namespace has too many there: then it may
// ask again with its next request.
func (l *Limiter) askSync(e *cell.Entry, k *rules.Estimate) {
	if l.stopping.Load() || !e.Ask() {
		return
	}
	if k.Waiting.Add(1) > k.PendingMax {
		k.Waiting.Add(-1)
		e.Unask()
		l.syncs.refused.Add(1)
		return
	}
	l.shardOf(e).syncs.add(wanted{e, k})
}

// syncShard syncs the keys of a shard that wait, once. What failed waits for the next
// tick, behind the others.
func (l *Limiter) syncShard(ctx context.Context, sh *shard) (firstErr error) {
	s := &sh.syncs
	s.running.Lock()
	defer s.running.Unlock()
	if sh.sends.State() == breaker.Open {
		return nil // replay says so already
	}
	if err := l.endSync(ctx, sh); err != nil {
		return err
	}
	if s.size() > 0 {
		if err := l.askTime(ctx, sh, &s.stream); err != nil {
			return err
		}
	}
	batch := s.take()
	if len(batch) > 0 {
		within, end := l.cfg.TraceBackground(ctx, collect.TickSync.String())
		ctx = within
		defer func(began time.Time) { l.metrics.origin.Ticked(collect.TickSync, began); end(firstErr) }(time.Now())
	}
	for len(batch) > 0 {
		n := min(len(batch), replayChunk/2)
		failed, err := l.syncChunk(ctx, sh, batch[:n])
		firstErr = cmp.Or(firstErr, err)
		s.add(failed...)
		// no use in trying the rest now
		if batch = batch[n:]; len(batch) > 0 && (len(failed) == n || s.stream.pending != nil) {
			s.add(batch...)
			break
		}
	}
	return cmp.Or(firstErr, l.prove(ctx, sh, &s.stream))
}

// exchange is one key's part in a sync.
type exchange struct {
	wanted
	cell.SyncPart
	failed bool
}

// syncChunk is one increment and one read at most, for all keys that are given. Without an answer to the increment the
// keys wait for that of the next turn.
func (l *Limiter) syncChunk(ctx context.Context, sh *shard, batch []wanted) (failed []wanted, err error) {
	nowMs, now := l.nowMs(), l.clock.ReadSteady()
	exchanges := make([]exchange, len(batch))
	writes := &chunk{}
	var reads inquiry
	for i, w := range batch {
		exchanges[i].wanted = w
		l.prepareSync(&exchanges[i], nowMs, now, writes, &reads)
	}
	if len(writes.costs) > 0 {
		lost, refused, no := l.deliver(ctx, sh, &sh.syncs.stream, writes)
		if no != nil {
			sh.syncs.waits = exchanges
			return nil, no
		}
		err = refused
		markFailed(exchanges, lost)
	}
	if len(reads.cells) > 0 {
		err = cmp.Or(err, l.readCells(ctx, sh, &reads))
	}
	return l.finishAll(exchanges), err
}

// endSync sends the increment again that got no answer. Its keys ask again: what they know would be as old as the
// increment.
func (l *Limiter) endSync(ctx context.Context, sh *shard) error {
	s := &sh.syncs
	if s.stream.pending == nil {
		return nil
	}
	if _, _, err := l.deliver(ctx, sh, &s.stream, s.stream.pending); err != nil {
		return err
	}
	for i := range s.waits {
		s.add(s.waits[i].wanted)
	}
	s.waits = nil
	return nil
}

func (l *Limiter) finishAll(exchanges []exchange) (failed []wanted) {
	nowMs, now := l.nowMs(), l.clock.ReadSteady()
	for i := range exchanges {
		if x := &exchanges[i]; x.failed {
			failed = append(failed, x.wanted)
		} else {
			l.finishSync(x, nowMs, now)
		}
	}
	return failed
}

func markFailed(exchanges []exchange, lost []*cell.Entry) {
	if len(lost) == 0 {
		return
	}
	of := make(map[*cell.Entry]bool, len(lost))
	for _, e := range lost {
		of[e] = true
	}
	for i := range exchanges {
		exchanges[i].failed = exchanges[i].failed || of[exchanges[i].entry]
	}
}

// prepareSync puts a key's unsent cost on its way, and lists what has to be read. A cell
// that is over is not written: its cost cannot influence anybody any more.
func (l *Limiter) prepareSync(x *exchange, nowMs int64, now clock.Steady, writes *chunk, reads *inquiry) {
	e := x.entry
	set := l.rules.InForce()
	if l.table.HoldsBack(e, false, set.Nodes) {
		return
	}
	late := level.Low.IntervalMs(x.set.SyncBaseMs) + replayTimeout.Milliseconds()
	x.SyncPart = e.BeginSync(l.table.Horizon(false), nowMs, now, &x.set.Rules, late, set.Shares(e.Names()))
	l.forgot(e, x.AgedOut)
	for i, sends := range x.Sends {
		if sends {
			writes.add(e, x.Costs[i])
		} else if x.Read[i] {
			reads.cells = append(reads.cells, e.Cell(x.Sequence-1+int64(i)))
			reads.of = append(reads.of, x)
		}
	}
}

// inquiry is the cells that one call reads, and whose they are.
type inquiry struct {
	cells []window.Cell
	of    []*exchange
}

// readCells reads the cells that nothing was sent for, and merges them.
func (l *Limiter) readCells(ctx context.Context, sh *shard, r *inquiry) error {
	totals, err := l.readTotals(ctx, sh, r.cells)
	if err != nil {
		for _, x := range r.of {
			x.failed = true
		}
		return err
	}
	now := l.clock.ReadSteady()
	lost := make([]store.Epoch, len(r.of))
	for i, x := range r.of {
		lost[i] = x.entry.Absorb(&l.metrics.merged, r.cells[i].Sequence, &totals[i], now)
	}
	l.lostAll(sh, lost, totals, func(i int) *cell.Entry { return r.of[i].entry })
	return nil
}

func (l *Limiter) readTotals(ctx context.Context, sh *shard, cells []window.Cell) ([]store.Total, error) {
	end, ok := sh.sends.Begin()
	if !ok {
		return nil, breaker.ErrOpen
	}
	ctx, cancel := context.WithTimeout(ctx, replayTimeout)
	defer cancel()
	return l.get(ctx, sh, cells, end)
}

// finishSync takes the reading that requests are judged by from now on. A sync whose
// answer came after its cell was over has told too little of the one that is current:
// the key asks again.
func (l *Limiter) finishSync(x *exchange, nowMs int64, now clock.Steady) {
	x.set.Waiting.Add(-1)
	if last, drift := x.entry.EndSync(l.table.Horizon(false), &x.SyncPart, nowMs, now, &x.set.Rules); last > 0 {
		l.metrics.drift.Observe(drift)
		l.metrics.staleness.Observe(float64(now-last) / 1000)
	}
	if x.entry.Flags().Restores() { // the origin has lost its counts meanwhile
		l.askUnsent(l.shardOf(x.entry), x.entry)
	}
}

// forgot counts own cost that its cell has taken along unsent. In the estimate mode that
// is how cost below the floor ends, and no loss.
func (l *Limiter) forgot(e *cell.Entry, cost int64) {
	if flags := e.Flags(); flags.Estimates() && !flags.Asked() {
		l.metrics.unsynced.Add(cost)
		return
	}
	l.metrics.dropped[droppedExpired].Add(cost)
}

// askAll makes all unsent cost of the estimate mode wait for a sync, below its floor or
// not: for a node that stops.
func (l *Limiter) askAll() {
	l.table.Each(func(e *cell.Entry) { l.askUnsent(l.shardOf(e), e) })
}

// askUnsent makes unsent cost of the estimate mode wait for a sync, by its namespace's settings. No bound of those
// refuses it: nothing else would have it sent.
func (l *Limiter) askUnsent(sh *shard, e *cell.Entry) {
	if e.AskUnsent() {
		k := l.rules.InForce().EstimateOf(e.Names())
		k.Waiting.Add(1)
		sh.syncs.add(wanted{e, k})
	}
}

// unsyncedIn is the cost of the keys that wait for a sync.
func (l *Limiter) unsyncedIn(sh *shard) (cost int64) {
	sh.syncs.mu.Lock()
	defer sh.syncs.mu.Unlock()
	for _, w := range sh.syncs.waiting {
		cost += w.entry.Unsent()
	}
	return cost + sh.syncs.stream.pendingCost.Load()
}
