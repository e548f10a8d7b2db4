package outbox

import (
	"context"
	"slices"

	"github.com/weirhq/weir/dataplane/internal/breaker"
	"github.com/weirhq/weir/dataplane/internal/cell"
	"github.com/weirhq/weir/dataplane/internal/queue"
)

// untracked sends cost that batches count on untracked keys. As with reads of untracked keys, all cost that arrives
// during a call goes in the next call. Only the goroutine that leads may use the stream: see queue.GroupCommit.
type untracked struct {
	stream
	queue.GroupCommit[*untrackedCosts]
	sh *Shard
}

func (u *untracked) init(sh *Shard) {
	u.stream.init(sh, sh.asks)
	u.sh = sh
}

// UntrackedCost is a cost that is counted on an untracked key.
type UntrackedCost struct {
	Entry          *cell.Entry
	Sequence, Cost int64
}

// untrackedCosts is the cost that a batch has counted on untracked keys of a shard.
type untrackedCosts struct {
	all   []UntrackedCost
	ended chan struct{} // closed when it is at the origin, or in the overflow
}

// SendUntracked sends the cost that a batch has counted on untracked keys, which no replay would send, in one call per
// shard. It waits until all of it is at the origin or in the overflow, but not past ctx; the send goes on after ctx
// ends.
func (o *Outbox) SendUntracked(ctx context.Context, all []UntrackedCost) {
	if len(all) == 0 {
		return
	}
	sent := make(map[*Shard][]UntrackedCost, 1)
	for _, c := range all {
		sh := o.ShardOf(c.Entry)
		sent[sh] = append(sent[sh], c)
	}
	var done []*untrackedCosts
	for sh, costs := range sent {
		done = append(done, sh.untracked.enter(costs))
	}
	for _, costs := range done {
		select {
		case <-costs.ended:
		case <-ctx.Done():
			return
		}
	}
}

// enter adds costs to the next call, or puts them into the overflow while the breaker is open.
func (u *untracked) enter(all []UntrackedCost) *untrackedCosts {
	costs := &untrackedCosts{all, make(chan struct{})}
	if u.sh.asks.State() == breaker.Open {
		u.spill(all)
		close(costs.ended)
		return costs
	}
	for _, c := range all {
		u.sh.out.cfg.Table.UntrackedKeys.Find(c.Entry.Identity()) // another use, until the cost is sent
	}
	if u.Enter(all[0].Entry.Group(), costs) {
		u.start()
	}
	return costs
}

// start starts a goroutine that takes the lead, unless the limiter is stopped.
func (u *untracked) start() {
	if u.sh.out.cfg.Calls.Start(u.run) {
		return
	}
	for batch := u.take(); len(batch) > 0; batch = u.take() {
		for _, costs := range batch {
			u.spill(costs.all)
		}
		u.end(batch)
	}
}

// take takes the batches of the next call: as many as fit, and at least one. If there is none, the lead ends.
func (u *untracked) take() []*untrackedCosts {
	return u.Take(chunkCells, func(costs *untrackedCosts) int { return len(costs.all) })
}

// run makes calls until no batch waits for a call.
func (u *untracked) run() {
	for batch := u.take(); len(batch) > 0; batch = u.take() {
		for some := range slices.Chunk(merged(batch), chunkCells) { // a single batch may have more
			u.send(some)
		}
		u.end(batch)
	}
}

// end releases the untracked keys of batches, and ends the batches' waits.
func (u *untracked) end(batch []*untrackedCosts) {
	for _, costs := range batch {
		for _, c := range costs.all {
			u.sh.out.cfg.Table.UntrackedKeys.Release(c.Entry.Identity())
		}
		close(costs.ended)
	}
}

// merged returns the costs that batches have counted, each cell once.
func merged(batch []*untrackedCosts) (all []UntrackedCost) {
	type cellOf struct {
		entry    *cell.Entry
		sequence int64
	}
	places := make(map[cellOf]int)
	for _, costs := range batch {
		for _, c := range costs.all {
			at, ok := places[cellOf{c.Entry, c.Sequence}]
			if !ok {
				places[cellOf{c.Entry, c.Sequence}] = len(all)
				all = append(all, c)
				continue
			}
			all[at].Cost += c.Cost
		}
	}
	return all
}

// send makes a call, after the call that got no answer. Cost that gets no answer is in the overflow at once, and goes
// to the origin later too. So the key may count for more than its cost until its window is over.
func (u *untracked) send(all []UntrackedCost) {
	o := u.sh.out
	ctx, cancel := context.WithTimeout(context.Background(), o.cfg.ReadTimeout)
	defer cancel()
	if u.resend(ctx) != nil {
		u.spill(all)
		return
	}
	chunk, set := &chunk{}, o.cfg.Rules.InForce()
	all = slices.DeleteFunc(all, func(c UntrackedCost) bool {
		held := o.cfg.Table.HoldsBack(c.Entry, true, set.Nodes)
		if held {
			o.Spill(c.Entry, c.Sequence, c.Cost)
		} else {
			chunk.add(c.Entry, c.Entry.Ledger().LoadUntracked(c.Sequence, c.Cost, set.Shares(c.Entry.Names())))
		}
		return held
	})
	if len(all) == 0 {
		return
	}
	reply, err := u.sh.ship(ctx, &u.stream, chunk)
	now := o.cfg.Clock.ReadSteady()
	for i, c := range all {
		if err == nil {
			c.Entry.Ledger().Absorb(&o.Stats.Merged, c.Sequence, &reply.Totals[i], now)
		}
		if err != nil || reply.Totals[i].Err != nil {
			o.cfg.Table.Spill(c.Entry, c.Sequence, c.Cost)
		}
		if err == nil {
			o.accept(c.Entry, c.Cost)
		}
		if err == nil && reply.Totals[i].Err != nil {
			o.Stats.Dropped[DroppedFull].Add(c.Cost)
		}
	}
}

// resend sends a chunk that got no answer again. Its untracked keys are gone, and the overflow has their cost.
func (u *untracked) resend(ctx context.Context) error {
	if u.pending == nil {
		return nil
	}
	costs, entries := u.pending.costs, u.pending.entries
	reply, err := u.sh.shipInTime(ctx, &u.stream, u.pending)
	if err != nil {
		return err
	}
	for i := range costs {
		u.sh.out.accept(entries[i], costs[i].Add)
		if reply.Totals[i].Err != nil {
			u.sh.out.Stats.Dropped[DroppedFull].Add(costs[i].Add)
		}
	}
	return nil
}

// proveIdle calls resend and prove, unless a batch sends. Another goroutine sends batches that arrive meanwhile,
// because they can go on for long, and the caller has other keys' costs to send.
func (u *untracked) proveIdle(ctx context.Context) error {
	return proveLed(ctx, u, func(ctx context.Context) error {
		if err := u.resend(ctx); err != nil {
			return err
		}
		return u.sh.prove(ctx, &u.stream)
	})
}

func (u *untracked) spill(all []UntrackedCost) {
	for _, c := range all {
		u.sh.out.Spill(c.Entry, c.Sequence, c.Cost)
	}
}
