package outbox

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir/dataplane/internal/breaker"
	"github.com/weirhq/weir/dataplane/internal/cell"
	"github.com/weirhq/weir/dataplane/internal/collect"
	"github.com/weirhq/weir/dataplane/internal/queue"
	"github.com/weirhq/weir/dataplane/store"
)

const (
	chunkCells    = store.ChunkMax
	flushesMax    = 64     // flushed keys of one call, up to two cells of each; more keys would delay the next call
	replayTickMax = 20_000 // cells that a tick sends; the rest waits for the next tick
)

var errHeldBack = errors.New("the key is new, and its namespace has begun too many keys")

// replay sends accepted cost to the origin, in chunks of a stream. The queue holds each entry once, so however many
// requests of a key come in a tick, they cost a single increment. Nothing can overflow.
type replay struct {
	stream
	sh          *Shard
	running     chan struct{}  // holds an item while a step runs, I/O included, so it is no mutex
	queue       []*cell.Entry  // to be sent at the next tick, each once; under Outbox.queues
	flushes     *queue.Flushes // entries to send before the next tick
	confirmedAt atomic.Int64   // clock.Steady when the origin last confirmed all cost in queue; 0: never
}

func (r *replay) init(sh *Shard) {
	r.sh, r.running, r.flushes = sh, make(chan struct{}, 1), queue.NewFlushes()
	r.stream.init(sh, sh.sends)
}

// begin waits until no other step runs; end lets the next step run.
func (r *replay) begin() { r.running <- struct{}{} }
func (r *replay) end()   { <-r.running }

// Replay sends all unsent cost once, and returns the first error. Cost that could not be sent stays
// in its entries, and the entries stay in the queue.
func (sh *Shard) Replay(ctx context.Context) (err error) {
	sh.out.collect()
	err = sh.replay.tick(ctx)
	if err == nil {
		sh.tryAsks(ctx)
	}
	return err
}

// tick is Replay for entries that are already in the queue.
func (r *replay) tick(ctx context.Context) (err error) {
	o := r.sh.out
	r.begin()
	defer r.end()
	queue := r.takeQueue()
	if len(queue) > 0 {
		within, end := o.cfg.Trace(ctx, collect.TickReplay.String())
		ctx = within
		defer func(began time.Time) { o.Stats.Origin.Ticked(collect.TickReplay, began); end(err) }(time.Now())
	}
	nowMs, now := o.cfg.Clock.ReadMs(), o.cfg.Clock.ReadSteady()
	queue, err = r.sendLocked(ctx, queue, nowMs)
	if err == nil {
		err = r.sh.proveIdle(ctx)
	}
	if err == nil && len(queue) == 0 {
		r.confirmedAt.Store(int64(now))
	}
	return err
}

// proveIdle checks, when nothing is to be sent, that the origin still has the costs that it confirmed.
func (sh *Shard) proveIdle(ctx context.Context) (err error) {
	for _, prove := range []func(context.Context) error{sh.untracked.proveIdle, sh.claims.proveIdle, sh.probe} {
		err = cmp.Or(err, prove(ctx))
	}
	return cmp.Or(err, sh.idle(ctx, &sh.replay.stream))
}

// SendFlushes sends flushed entries as soon as they are flushed, until ctx ends.
func (sh *Shard) SendFlushes(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-sh.replay.flushes.Woken:
			sh.replay.sendFlushes(context.WithoutCancel(ctx))
		}
	}
}

// sendFlushes sends the flushed entries only.
func (r *replay) sendFlushes(ctx context.Context) {
	r.begin()
	defer r.end()
	_, _ = r.sendLocked(ctx, nil, r.sh.out.cfg.Clock.ReadMs()) // failed entries are queued, and the tick reports it
}

// sendLocked sends a chunk that got no answer again, then flushed entries and a queue. Each chunk takes entries that
// were flushed meanwhile first. sendLocked returns the entries that it did not reach; they stay in the queue.
func (r *replay) sendLocked(ctx context.Context, queue []*cell.Entry, nowMs int64) ([]*cell.Entry, error) {
	var again []*cell.Entry
	var refused error
	err := r.sh.askTime(ctx, &r.stream)
	if err == nil {
		refused, err = r.sendPending(ctx, &again)
	}
	for sent := 0; err == nil && sent < replayTickMax; {
		flushing := r.flushes.Take(flushesMax)
		if len(flushing)+len(queue) == 0 {
			break
		}
		if r.sh.sends.State() == breaker.Open {
			err = breaker.ErrOpen
			r.sh.wrote(err)
			r.forgo(flushing)
			break
		}
		c := &chunk{}
		queue = r.pack(c, flushing, queue, nowMs)
		sent += len(c.costs)
		var failed []*cell.Entry
		if len(c.costs) > 0 {
			var no error
			failed, no, err = r.sh.deliver(ctx, &r.stream, c)
			again, refused = append(again, failed...), cmp.Or(refused, no)
		}
		if err != nil {
			failed = flushing // the chunk keeps their cost
		}
		r.flushes.Answer(c.held, c.held, errHeldBack)
		r.flushes.Answer(flushing, failed, cmp.Or(refused, err))
		if len(c.stale) > 0 { // closed cells are read once more, in the background and in a single round trip
			r.sh.out.ReadAll(r.sh.out.cfg.Clock.ReadSteady(), slices.Clone(c.stale))
		}
	}
	if err != nil {
		r.forgo(r.flushes.Take(chunkCells))
	}
	r.putBack(queue)
	r.requeue(again) // behind the rest: entries that always fail must not keep others from being tried
	return queue, cmp.Or(err, refused)
}

// sendPending sends a chunk again that got no answer.
func (r *replay) sendPending(ctx context.Context, again *[]*cell.Entry) (refused, err error) {
	if r.pending == nil {
		return nil, nil
	}
	failed, refused, err := r.sh.deliver(ctx, &r.stream, r.pending)
	*again = append(*again, failed...)
	return refused, err
}

// deliver sends a chunk and merges the answers. failed are the entries whose cost is unsent again, and refused is the
// reason. Without an answer (err) there are none, because the chunk is sent again unchanged.
func (sh *Shard) deliver(ctx context.Context, s *stream, c *chunk) (failed []*cell.Entry, refused, err error) {
	reply, err := sh.shipInTime(ctx, s, c)
	if err != nil {
		return nil, nil, err
	}
	stats, now := &sh.out.Stats, sh.out.cfg.Clock.ReadSteady()
	var lost []store.Epoch
	for i, e := range c.entries {
		back, gone, epoch := e.Ledger().Confirm(&stats.Merged, &c.costs[i], &reply.Totals[i], now)
		stats.Dropped[DroppedExpired].Add(gone)
		sh.out.accept(e, ends(&c.costs[i], &reply.Totals[i], gone))
		if back {
			failed = append(failed, e)
		}
		if no := reply.Totals[i].Err; !errors.Is(no, store.ErrEpoch) {
			refused = cmp.Or(refused, no)
		}
		lost = append(lost, epoch)
	}
	sh.lostAll(lost, reply.Totals, func(i int) *cell.Entry { return c.entries[i] })
	stats.replayedCells.Add(int64(len(c.entries) - len(failed)))
	return failed, refused, nil
}

// ends returns the part of a cost that is not sent again: all of it if the origin has it, or if it is restored from now
// on, and otherwise the part that is gone.
func ends(sent *store.Cost, total *store.Total, gone int64) int64 {
	if total.Err == nil || errors.Is(total.Err, store.ErrEpoch) && sent.Epoch == 0 {
		return sent.Add
	}
	return gone
}

// forgo puts flushed entries into the queue, so that they wait for the next tick.
func (r *replay) forgo(flushing []*cell.Entry) {
	for len(flushing) > 0 {
		for _, e := range flushing {
			e.Ledger().UnmarkFlush()
		}
		r.requeue(flushing)
		r.flushes.Answer(flushing, flushing, breaker.ErrOpen)
		flushing = r.flushes.Take(chunkCells)
	}
}

// pack fills a chunk with flushed entries and from the queue, and returns the rest of the queue. The flushed entries
// must be few enough to fit.
func (r *replay) pack(c *chunk, flushing, queue []*cell.Entry, nowMs int64) []*cell.Entry {
	for _, e := range flushing {
		r.load(c, e, nowMs, true)
	}
	for len(queue) > 0 && len(c.costs) < chunkCells-1 {
		e := queue[0]
		queue = queue[1:]
		if r.load(c, e, nowMs, false) {
			c.stale = append(c.stale, e)
		}
	}
	return queue
}

// load puts an entry's unsent cost into a chunk. stale reports whether its previous cell should be read once more.
func (r *replay) load(c *chunk, e *cell.Entry, nowMs int64, flushing bool) (stale bool) {
	o := r.sh.out
	set := o.cfg.Rules.InForce()
	if e.Ledger().Dequeue(flushing); o.cfg.Table.HoldsBack(e, false, set.Nodes) {
		c.held = append(c.held, e)
		return false
	}
	in := e.Ledger().Load(o.cfg.Table.Horizon(false), flushing, set.Shares(e.Names()), nowMs, set.TwoTicksMs)
	o.Stats.Dropped[DroppedExpired].Add(in.Expired)
	o.accept(e, in.Expired)
	for i, sends := range in.Sends {
		if sends {
			c.add(e, in.Costs[i])
		}
	}
	return in.Stale
}

// takeQueue empties the queue and returns its entries.
func (r *replay) takeQueue() []*cell.Entry {
	r.sh.out.queues.Lock()
	defer r.sh.out.queues.Unlock()
	queue := r.queue
	r.queue = nil
	return queue
}

// queueLocked puts an entry into the queue, once.
func (r *replay) queueLocked(e *cell.Entry) {
	if e.Ledger().Enqueue() {
		r.queue = append(r.queue, e)
	}
}

// putBack returns entries that a tick did not reach to the queue. Their flags still mark them as queued.
func (r *replay) putBack(rest []*cell.Entry) {
	if len(rest) == 0 {
		return
	}
	r.sh.out.queues.Lock()
	defer r.sh.out.queues.Unlock()
	r.queue = append(rest, r.queue...)
}

// requeue puts entries back for the next tick.
func (r *replay) requeue(entries []*cell.Entry) {
	if len(entries) == 0 {
		return
	}
	r.sh.out.queues.Lock()
	defer r.sh.out.queues.Unlock()
	for _, e := range entries {
		r.queueLocked(e)
	}
}

// pendingCost returns the accepted cost that the shard has not confirmed.
func (sh *Shard) pendingCost() (cost int64) {
	sh.out.queues.Lock()
	defer sh.out.queues.Unlock()
	for _, e := range sh.replay.queue {
		cost += e.Ledger().Unsent()
	}
	return cost + sh.replay.unanswered.Load() + sh.claims.unanswered.Load()
}

// pendingKeys returns the number of keys in the queue.
func (r *replay) pendingKeys() int {
	r.sh.out.queues.Lock()
	defer r.sh.out.queues.Unlock()
	return len(r.queue)
}

// Flush sends the unsent cost of e before the next tick. Entries that are flushed while a call is on
// its way share the next call.
func (o *Outbox) Flush(e *cell.Entry) { o.ShardOf(e).replay.flush(e) }

func (r *replay) flush(e *cell.Entry) {
	o := r.sh.out
	if o.stopping.Load() || !e.Ledger().MarkFlush() {
		return // stopped, or already waiting to be sent
	}
	o.Stats.flushes.Add(1)
	r.flushes.Add(e)
}

// BeginFlush flushes e. The flight that it returns ends with the reply.
func (o *Outbox) BeginFlush(e *cell.Entry) *cell.Flight {
	r := &o.ShardOf(e).replay
	f := r.flushes.Await(e)
	r.flush(e)
	return f
}

// FlushAndWait flushes e and waits for the reply, at most until ctx ends. It returns cell.WayReply
// if the reply came, and cell.WayBroken if it did not or is not to be expected.
func (o *Outbox) FlushAndWait(ctx context.Context, e *cell.Entry) cell.Way {
	if o.cfg.Calls.IsStopped() || o.OutOf(e, o.cfg.Clock.Steady()) {
		o.Stats.waits[waitOutage].Add(1)
		return cell.WayBroken
	}
	return o.WaitForReply(ctx, o.BeginFlush(e), e, time.Now())
}

// WaitForReply is the second half of FlushAndWait: f is the flight of e that BeginFlush returned, and the caller
// started to wait at began.
func (o *Outbox) WaitForReply(ctx context.Context, f *cell.Flight, e *cell.Entry, began time.Time) cell.Way {
	if Wait(ctx, f) {
		o.Stats.waits[waitReplied].Add(1)
		return cell.WayReply
	}
	o.Stats.waits[waitOutage].Add(1)
	o.gaveUp(e, f, began)
	return cell.WayBroken
}

// gaveUp lets a key rest, as after a failed read, if the origin failed or did not answer within
// ReadTimeout. If the caller's own context ended earlier, the key does not rest.
func (o *Outbox) gaveUp(e *cell.Entry, f *cell.Flight, began time.Time) {
	failed := time.Since(began) >= o.cfg.ReadTimeout || f != nil && f.Failed()
	if failed {
		e.Reads().Rest(o.cfg.Clock.ReadSteady())
	}
}
