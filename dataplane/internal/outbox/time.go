package outbox

import (
	"context"
	"slices"
	"time"

	"github.com/weirhq/weir/dataplane/internal/cell"
	"github.com/weirhq/weir/shared/window"
)

// Cells are numbered by the origin's clock, so that the nodes of a region agree on them whatever their own clocks show.
// Each answer has the time at which the origin made it. That time plus half of the round trip gives the origin's time
// now, with an error of at most the other half. Of the last answers, the answer with the shortest round trip is used.
// For example, an answer made at 12:00:00.000 after a round trip of 20 ms gives 12:00:00.010, within 10 ms.

// SetRight replaces an entry whose cell lies in the future because the clock was set back. It reports whether it did.
func (o *Outbox) SetRight(e *cell.Entry) bool {
	unsent, replaced := o.cfg.Table.SetRight(e)
	o.ForgetUnsent(e, unsent)
	if replaced && !o.cfg.Clock.Known() { // its cost is unsent, and in no queue any more
		if e = o.cfg.Table.Get(e.Identity()); e != nil {
			o.Resend(e)
		}
	}
	return replaced
}

// tookMax is longer than any call to an origin takes.
const tookMax = 10 * time.Second

// observeTime updates the clock: a call that began at began was answered at the shard's time at.
func (sh *Shard) observeTime(began, at time.Time) {
	o := sh.out
	if at.IsZero() {
		return
	}
	now := o.cfg.Clock.Own()
	took := now.Sub(began)
	if took < 0 || took > tookMax {
		return // this node's own clock was set meanwhile: half of that is no half of a round trip
	}
	sh.offsets.Add(at.Sub(now)+took/2, took)
	var all []time.Duration
	for _, each := range o.shards {
		if ahead, ok := each.offsets.Ahead(); ok {
			all = append(all, ahead)
		}
	}
	slices.Sort(all)
	known := o.cfg.Clock.Known()
	if o.cfg.Clock.Follow(all[(len(all)-1)/2]); !known {
		o.cfg.Table.Walk(o.Place)
		o.cfg.Table.PlaceSpilled(o.cfg.Clock.ReadMs())
	}
}

// observeSetBack finds out whether the shard's clock was set back, from the answer at the time at to a call that began
// at began. It compares the clock with monotonic time, because this node's own clock may have been set together with
// the shard's.
func (sh *Shard) observeSetBack(began, at time.Time) {
	took := time.Since(began)
	if at.IsZero() || took > tookMax {
		return
	}
	now := sh.out.cfg.Clock.Monotonic()
	was, setBack := sh.steps.Add(time.Duration(at.UnixNano())-now+took/2, took)
	if !setBack {
		return
	}
	for latestMs := (was + now).Milliseconds(); ; {
		known := sh.wasAheadMs.Load()
		if latestMs <= known || sh.wasAheadMs.CompareAndSwap(known, latestMs) {
			return
		}
	}
}

// ForgetCells finds the cells that shards may have forgotten because their clocks were ahead and have been set back
// since the last call: see cell.Table.Forget. It visits the whole table, so it is called by the sweep and not for every
// answer. On a Cluster whose servers have different clocks, every answer could be a step.
func (o *Outbox) ForgetCells() {
	for _, sh := range o.shards {
		if latestMs := sh.wasAheadMs.Swap(0); latestMs != 0 {
			o.cfg.Table.Forget(latestMs, func(e *cell.Entry) bool { return o.ShardOf(e) == sh })
		}
	}
}

// Place moves cost that was counted before the node had the origin's clock to the cell of that clock, and queues it.
func (o *Outbox) Place(e *cell.Entry) {
	if placed, expired := o.cfg.Table.Place(e, o.cfg.Clock.ReadMs(), o.cfg.Clock.Own().UnixMilli()); placed != nil {
		o.ForgetUnsent(e, expired)
		o.Resend(placed)
	}
}

// Renumber readies an entry for a decision that began before the node had the origin's clock. again reports whether the
// decision must look the key up and read it once more.
func (o *Outbox) Renumber(e *cell.Entry, horizon *cell.Horizon, nowMs int64) (again bool) {
	o.Place(e)
	unsent, again := o.cfg.Table.Renumber(e, horizon, nowMs)
	o.ForgetUnsent(e, unsent)
	return again
}

// LearnTime reads a key to get the origin's time, unless the node has the time already.
func (o *Outbox) LearnTime(ctx context.Context, key *window.Key) {
	if !o.cfg.Clock.Known() {
		o.ReadTime(ctx, key)
	}
}

// ReadTime reads a key to get the origin's time. It merges nothing else of the answer.
func (o *Outbox) ReadTime(ctx context.Context, key *window.Key) {
	if !o.cfg.Calls.Begin() {
		return
	}
	defer o.cfg.Calls.Done()
	ctx, cancel := context.WithTimeout(ctx, o.cfg.ReadTimeout)
	defer cancel()
	sh := o.ShardOfKey(key)
	if end, ok := sh.asks.Begin(); ok {
		_, _ = sh.get(ctx, []window.Cell{{Key: *key, Sequence: window.Sequence(o.cfg.Clock.ReadMs(), key.DurationMs())}}, end)
	}
}

// askTime sends a chunk without costs to get the origin's time, unless the node has the time already. No cost is sent
// before that.
func (sh *Shard) askTime(ctx context.Context, s *stream) error {
	o := sh.out
	if o.cfg.Clock.Known() {
		return nil
	}
	reply, err := sh.ship(ctx, s, &chunk{})
	if err == nil && reply.Now.IsZero() {
		o.cfg.Clock.FollowNone()
	}
	return err
}
