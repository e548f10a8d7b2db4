package dataplane

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/weirhq/weir/shared/window"
)

// Replay sends accepted cost to the origin. Deltas live in their entries until the
// origin has confirmed them; the queue holds entries, each once, so however many
// requests a key takes in a tick, it costs one increment. Nothing can overflow.

const (
	replayChunk   = 500    // cells one call to the origin carries
	replayTickMax = 20_000 // cells one tick sends; the rest waits for the next
	replayTimeout = time.Second
)

var errShortAnswer = errors.New("origin: fewer answers than cells")

// parcel is one Add on its way.
type parcel struct {
	entry    *entry
	sequence int64
}

// replayOnce sends what is unsent, once. It returns the first error; what failed
// stays in its entries and in the queue.
func (l *Limiter) replayOnce(ctx context.Context) error {
	l.replaying.Lock()
	defer l.replaying.Unlock()
	l.collect()
	l.queues.Lock()
	queue := l.queues.replay
	l.queues.replay = nil
	l.queues.Unlock()

	nowMs := l.nowMs()
	var firstErr error
	var adds []Add
	var parcels []parcel
	var stale []*entry
	sent := 0
	down := false
	var again []*entry
	for len(queue) > 0 && sent < replayTickMax && !down {
		adds, parcels, stale = adds[:0], parcels[:0], stale[:0]
		for len(queue) > 0 && len(adds) < replayChunk-1 {
			e := queue[0]
			queue = queue[1:]
			var settleStale bool
			adds, parcels, settleStale = l.load(e, nowMs, adds, parcels)
			if settleStale {
				stale = append(stale, e)
			}
		}
		sent += len(adds)
		if len(adds) > 0 {
			failed, err := l.ship(ctx, adds, parcels)
			firstErr = cmpErr(firstErr, err)
			down = len(failed) == len(adds) // no use in trying the rest now
			again = append(again, failed...)
		}
		l.readStale(nowMs, stale)
	}
	l.putBack(queue)
	l.requeue(again) // behind the rest: what always fails must not keep others from being tried
	if firstErr == nil && len(queue) == 0 {
		l.metrics.replayedAtMs.Store(nowMs)
	}
	return firstErr
}

// load takes an entry off the queue and puts its unsent cost, if any, on the way.
// settleStale is true when the previous cell should be read once more: others may
// have added to it after the origin last spoke of it here.
func (l *Limiter) load(e *entry, nowMs int64, adds []Add, parcels []parcel) ([]Add, []parcel, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.flags.And(^uint32(flagInReplay))
	seq := e.seq.Load()
	durationMs := e.names.durationMs()
	for _, s := range []int64{seq - 1, seq} {
		slot := slotOf(s)
		e.netLocked(slot)
		cost := e.unsentLocked(slot)
		if cost <= 0 {
			continue
		}
		if expiredAt(s, durationMs, nowMs) { // nobody can be influenced by it any more
			e.book.cells[slot].settled += cost
			l.metrics.dropped[droppedExpired].Add(cost)
			continue
		}
		e.sendLocked(slot, cost)
		adds = append(adds, Add{e.cell(s), cost})
		parcels = append(parcels, parcel{e, s})
	}
	stale := uint32(flagStale) << slotOf(seq-1)
	grace := 2 * l.settings.Load().tuning.ReplayTick.Std().Milliseconds()
	settleStale := e.flags.Load()&stale != 0 && nowMs >= window.Start(seq, durationMs)+grace
	if settleStale {
		e.flags.And(^stale)
	}
	return adds, parcels, settleStale
}

// ship sends one chunk and merges the answers. It returns how many failed, and the
// first error.
func (l *Limiter) ship(ctx context.Context, adds []Add, parcels []parcel) ([]*entry, error) {
	ctx, cancel := context.WithTimeout(ctx, replayTimeout)
	defer cancel()
	began := time.Now()
	answers := l.cfg.Origin.Add(ctx, adds)
	nowMs := l.nowMs()

	var failed, grown []*entry
	var lost []Add
	var firstErr error
	for i, p := range parcels {
		answer := Added{Err: errShortAnswer}
		if i < len(answers) {
			answer = answers[i]
		}
		if answer.Err != nil {
			firstErr = cmpErr(firstErr, answer.Err)
			if errors.Is(answer.Err, ErrMaybeApplied) {
				l.metrics.ambiguous.Add(adds[i].Cost)
			}
			if !p.entry.takeBack(p.sequence, adds[i].Cost) {
				l.metrics.dropped[droppedExpired].Add(adds[i].Cost)
			}
			failed = append(failed, p.entry)
			continue
		}
		grew, missing := p.entry.confirm(p.sequence, answer.Total, nowMs)
		lost = append(lost, missing...)
		if grew {
			grown = append(grown, p.entry)
		}
	}
	l.metrics.origin(opAdd, time.Since(began), firstErr)
	l.metrics.replayedCells.Add(int64(len(adds) - len(failed)))
	l.requeueFlush(grown)
	l.heal(lost)
	return failed, firstErr
}

func cmpErr(first, next error) error {
	if first != nil {
		return first
	}
	return next
}

// confirm merges the answer to a send. It returns whether others had contributed,
// and what the origin should be told because it has lost it.
func (e *entry) confirm(sequence, total, nowMs int64) (grew bool, missing []Add) {
	e.mu.Lock()
	defer e.mu.Unlock()
	slot, ok := e.slotLocked(sequence)
	if !ok {
		return false, nil
	}
	grew, lost := e.absorbLocked(slot, total, true)
	if lost {
		missing = []Add{{e.cell(sequence), e.namedLocked(slot)}}
	}
	if sequence == e.seq.Load() && e.heardAt.Load() != 0 { // a reply is no hydration: it does not tell of the previous cell
		e.hear(nowMs)
	}
	return grew, missing
}

// takeBack ends a send that failed: the cost is unsent again.
func (e *entry) takeBack(sequence, sent int64) (kept bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	slot, ok := e.slotLocked(sequence)
	if ok {
		e.returnLocked(slot, sent)
	}
	return ok
}

// putBack returns what a tick has not got to: entries that were never taken off the
// queue, by their flags.
func (l *Limiter) putBack(rest []*entry) {
	if len(rest) == 0 {
		return
	}
	l.queues.Lock()
	defer l.queues.Unlock()
	l.queues.replay = append(rest, l.queues.replay...)
}

// requeue puts entries back for the next tick.
func (l *Limiter) requeue(entries []*entry) {
	if len(entries) == 0 {
		return
	}
	l.queues.Lock()
	defer l.queues.Unlock()
	for _, e := range entries {
		e.mu.Lock()
		l.queueReplayLocked(e)
		e.mu.Unlock()
	}
}

// readStale reads closed cells once more, in the background and in one round trip.
func (l *Limiter) readStale(nowMs int64, entries []*entry) {
	if len(entries) > 0 {
		l.readMany(nowMs, slices.Clone(entries))
	}
}

// heal tells the origin what it has lost, by maximum: another increment would count
// twice once the others do the same.
func (l *Limiter) heal(lost []Add) {
	if len(lost) == 0 {
		return
	}
	lost = slices.Clone(lost)
	l.calls.start(func() {
		ctx, cancel := context.WithTimeout(context.Background(), replayTimeout)
		defer cancel()
		began := time.Now()
		err := l.cfg.Origin.Raise(ctx, lost)
		l.metrics.origin(opRaise, time.Since(began), err)
		if err == nil {
			l.metrics.healed.Add(int64(len(lost)))
		}
	})
}

// pendingCost is the accepted cost that the origin has not confirmed.
func (l *Limiter) pendingCost() (cost int64) {
	if l.cfg.Origin == nil {
		return 0
	}
	l.collect()
	l.queues.Lock()
	defer l.queues.Unlock()
	for _, e := range l.queues.replay {
		e.mu.Lock()
		for slot := range e.book.cells {
			cost += max(0, e.unsentLocked(slot))
		}
		e.mu.Unlock()
	}
	return cost
}
