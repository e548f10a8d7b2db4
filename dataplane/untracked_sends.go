package dataplane

import (
	"context"
	"slices"

	"github.com/weirhq/weir/dataplane/internal/breaker"
	"github.com/weirhq/weir/dataplane/internal/cell"
	"github.com/weirhq/weir/dataplane/internal/queue"
)

// What batches count on untracked keys goes to the origin together, as reads of untracked keys do: all that comes up
// during one call is the next.

// untrackedStream is a stream of that, with one goroutine at a time to see to its calls.
type untrackedStream struct {
	stream
	waiting queue.Fair[*untrackedCosts] // that no call has taken yet; under shard.mu, as leading
	leading bool                        // a goroutine sees to the calls
}

// untrackedCosts is what a batch has counted on untracked keys of a shard.
type untrackedCosts struct {
	all   []outgoing
	ended chan struct{} // closed when it is at the origin, or in the overflow
}

// outgoing is what is counted on an untracked key.
type outgoing struct {
	entry          *cell.Entry
	sequence, cost int64
}

// enterUntracked has costs sent with the next call, or puts them into the overflow while the breaker is open.
func (l *Limiter) enterUntracked(sh *shard, all []outgoing) *untrackedCosts {
	costs := &untrackedCosts{all, make(chan struct{})}
	if sh.asks.State() == breaker.Open {
		l.unsent(all)
		close(costs.ended)
		return costs
	}
	for _, o := range all {
		l.table.UntrackedKeys.Find(o.entry.Identity()) // one use more, until it is sent
	}
	sh.mu.Lock()
	sh.untracked.waiting.Push(all[0].entry.Group(), costs)
	sh.mu.Unlock()
	if sh.leadUntracked() {
		l.startGathered(sh)
	}
	return costs
}

// startGathered has a goroutine take the lead; none does in a limiter that is stopped.
func (l *Limiter) startGathered(sh *shard) {
	if l.calls.Start(func() { l.sendGathered(sh) }) {
		return
	}
	for batch := sh.takeUntracked(); len(batch) > 0; batch = sh.takeUntracked() {
		l.endUntracked(batch, false)
	}
}

// leadUntracked is true for the one who has to see to the calls, until takeUntracked finds nothing.
func (sh *shard) leadUntracked() bool {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	lead := !sh.untracked.leading
	sh.untracked.leading = true
	return lead
}

// yieldUntracked ends the lead unless a batch waits.
func (sh *shard) yieldUntracked() (ended bool) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	ended = sh.untracked.waiting.Len() == 0
	sh.untracked.leading = !ended
	return ended
}

// takeUntracked takes the next call's batches, of each namespace in turn: as many as fit, and at least one. With none
// the lead is over.
func (sh *shard) takeUntracked() (batch []*untrackedCosts) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	cells := 0
	for next, ok := sh.untracked.waiting.Peek(); ok; next, ok = sh.untracked.waiting.Peek() {
		if cells += len(next.all); cells > replayChunk && len(batch) > 0 {
			break
		}
		sh.untracked.waiting.Pop()
		batch = append(batch, next)
	}
	sh.untracked.leading = len(batch) > 0
	return batch
}

// sendGathered makes calls until no batch waits for one.
func (l *Limiter) sendGathered(sh *shard) {
	for batch := sh.takeUntracked(); len(batch) > 0; batch = sh.takeUntracked() {
		l.endUntracked(batch, l.sendUntracked(sh, merged(batch)))
	}
}

// endUntracked lets batches and their untracked keys go; what was not sent is in the overflow.
func (l *Limiter) endUntracked(batch []*untrackedCosts, sent bool) {
	for _, costs := range batch {
		if !sent {
			l.unsent(costs.all)
		}
		for _, o := range costs.all {
			l.table.UntrackedKeys.Release(o.entry.Identity())
		}
		close(costs.ended)
	}
}

// merged is what batches have counted, each cell once.
func merged(batch []*untrackedCosts) (all []outgoing) {
	type cellOf struct {
		entry    *cell.Entry
		sequence int64
	}
	places := make(map[cellOf]int)
	for _, costs := range batch {
		for _, o := range costs.all {
			at, ok := places[cellOf{o.entry, o.sequence}]
			if !ok {
				places[cellOf{o.entry, o.sequence}] = len(all)
				all = append(all, o)
				continue
			}
			all[at].cost += o.cost
		}
	}
	return all
}

// sendUntracked makes one call, after one that got no answer. sent is false if it could not be made. What gets no
// answer is in the overflow at once, and goes to the origin later: the key is taken for more than it is until its
// window is over.
func (l *Limiter) sendUntracked(sh *shard, all []outgoing) (sent bool) {
	ctx, cancel := context.WithTimeout(context.Background(), l.cfg.ReadTimeout)
	defer cancel()
	if l.resendUntracked(ctx, sh) != nil {
		return false
	}
	c, set := &chunk{}, l.rules.InForce()
	all = slices.DeleteFunc(all, func(o outgoing) bool {
		held := l.table.HoldsBack(o.entry, true, set.Nodes)
		if held {
			l.unsent([]outgoing{o})
		} else {
			c.add(o.entry, o.entry.LoadUntracked(o.sequence, o.cost, set.Shares(o.entry.Names())))
		}
		return held
	})
	if len(all) == 0 {
		return true
	}
	reply, err := l.ship(ctx, sh, &sh.untracked.stream, c)
	now := l.clock.ReadSteady()
	for i, o := range all {
		if err == nil {
			o.entry.Absorb(&l.metrics.merged, o.sequence, &reply.Totals[i], now)
		}
		if err != nil || reply.Totals[i].Err != nil {
			l.table.Spill(o.entry, o.sequence, o.cost)
		}
		if err == nil && reply.Totals[i].Err != nil {
			l.metrics.dropped[droppedFull].Add(o.cost)
		}
	}
	return true
}

// resendUntracked sends a chunk that got no answer again. Its untracked keys are gone.
func (l *Limiter) resendUntracked(ctx context.Context, sh *shard) error {
	if sh.untracked.pending == nil {
		return nil
	}
	_, err := l.ship(ctx, sh, &sh.untracked.stream, sh.untracked.pending)
	return err
}

// proveIdleUntracked is resendUntracked and prove where no batch sends. Batches that come up meanwhile are another
// goroutine's: they may go on for long, and the caller has other keys' costs to send.
func (l *Limiter) proveIdleUntracked(ctx context.Context, sh *shard) error {
	if !sh.leadUntracked() {
		return nil
	}
	err := l.resendUntracked(ctx, sh)
	if err == nil {
		err = l.prove(ctx, sh, &sh.untracked.stream)
	}
	if !sh.yieldUntracked() {
		l.startGathered(sh)
	}
	return err
}

func (l *Limiter) unsent(all []outgoing) {
	for _, o := range all {
		l.spill(o.entry, o.sequence, o.cost)
	}
}
