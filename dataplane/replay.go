package dataplane

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/weirhq/weir/dataplane/internal/breaker"
	"github.com/weirhq/weir/dataplane/internal/cell"
	"github.com/weirhq/weir/dataplane/internal/collect"
	"github.com/weirhq/weir/dataplane/store"
)

// Replay sends accepted cost to the origin, in chunks of a stream; see stream.go. The queue holds entries, each once,
// so however many requests a key takes in a tick, it costs one increment. Nothing can overflow.

const (
	replayChunk   = 500    // cells one call to the origin carries
	flushesMax    = 64     // flushed keys of one call, up to two cells of each; more of them would delay the next call
	replayTickMax = 20_000 // cells one tick sends; the rest waits for the next
	replayTimeout = time.Second
)

var (
	errShortAnswer = errors.New("origin: fewer answers than cells")
	errHeldBack    = errors.New("the key is new, and its namespace has begun too many")
)

// replayShard sends what is unsent to one shard, once. It returns the first error;
// what failed stays in its entries and in the queue.
func (l *Limiter) replayShard(ctx context.Context, sh *shard) (err error) {
	l.collect()
	return l.replayQueued(ctx, sh)
}

// replayQueued is replayShard for what was collected before.
func (l *Limiter) replayQueued(ctx context.Context, sh *shard) (err error) {
	sh.begin()
	defer sh.end()
	queue := l.takeQueue(sh)
	if len(queue) > 0 {
		within, end := l.cfg.TraceBackground(ctx, collect.TickReplay.String())
		ctx = within
		defer func(began time.Time) { l.metrics.origin.Ticked(collect.TickReplay, began); end(err) }(time.Now())
	}
	nowMs, now := l.nowMs(), l.clock.ReadSteady()
	queue, err = l.sendLocked(ctx, sh, queue, nowMs)
	if err == nil {
		err = l.proveIdle(ctx, sh)
	}
	if err == nil && len(queue) == 0 {
		sh.replayedAt.Store(int64(now))
	}
	return err
}

// proveIdle finds out whether the origin still has what it has answered, where nothing is to be sent.
func (l *Limiter) proveIdle(ctx context.Context, sh *shard) (err error) {
	for _, prove := range []func(context.Context, *shard) error{l.proveIdleUntracked, l.proveIdleClaims, l.probe} {
		err = cmp.Or(err, prove(ctx, sh))
	}
	return cmp.Or(err, l.idle(ctx, sh, &sh.replays))
}

// replayFlushes sends what is flushed, and nothing else.
func (l *Limiter) replayFlushes(ctx context.Context, sh *shard) {
	sh.begin()
	defer sh.end()
	_, _ = l.sendLocked(ctx, sh, nil, l.nowMs()) // what failed is in the queue, and the tick reports it
}

// sendLocked sends a chunk that got no answer again, then what is flushed, and a queue; each chunk takes what was
// flushed meanwhile first. It returns what it has not got to, which is in the shard's queue.
func (l *Limiter) sendLocked(ctx context.Context, sh *shard, queue []*cell.Entry, nowMs int64) ([]*cell.Entry, error) {
	var again []*cell.Entry
	var refused error
	err := l.askTime(ctx, sh, &sh.replays)
	if err == nil {
		refused, err = l.sendPending(ctx, sh, &again)
	}
	for sent := 0; err == nil && sent < replayTickMax; {
		flushing := sh.flushes.Take(flushesMax)
		if len(flushing)+len(queue) == 0 {
			break
		}
		if sh.sends.State() == breaker.Open {
			err = breaker.ErrOpen
			l.wrote(sh, err)
			l.forgo(sh, flushing)
			break
		}
		c := &chunk{}
		queue = l.pack(c, flushing, queue, nowMs)
		sent += len(c.costs)
		var failed []*cell.Entry
		if len(c.costs) > 0 {
			var no error
			failed, no, err = l.deliver(ctx, sh, &sh.replays, c)
			again, refused = append(again, failed...), cmp.Or(refused, no)
		}
		if err != nil {
			failed = flushing // the chunk keeps their cost
		}
		sh.flushes.Answer(c.held, c.held, errHeldBack)
		sh.flushes.Answer(flushing, failed, cmp.Or(refused, err))
		l.readStale(c.stale)
	}
	if err != nil {
		l.forgo(sh, sh.flushes.Take(replayChunk))
	}
	l.putBack(sh, queue)
	l.requeue(sh, again) // behind the rest: what always fails must not keep others from being tried
	return queue, cmp.Or(err, refused)
}

// sendPending sends a chunk again that got no answer.
func (l *Limiter) sendPending(ctx context.Context, sh *shard, again *[]*cell.Entry) (refused, err error) {
	c := sh.replays.pending
	if c == nil {
		return nil, nil
	}
	failed, refused, err := l.deliver(ctx, sh, &sh.replays, c)
	*again = append(*again, failed...)
	return refused, err
}

// deliver sends a chunk and merges the answers. It returns whose cost is unsent again and why: none if there was no
// answer (err), for then the chunk is sent again as it was.
func (l *Limiter) deliver(ctx context.Context, sh *shard, s *stream,
	c *chunk) (failed []*cell.Entry, refused, err error) {
	reply, err := l.ship(ctx, sh, s, c)
	if err != nil {
		return nil, nil, err
	}
	now := l.clock.ReadSteady()
	var lost []store.Epoch
	for i, e := range c.entries {
		back, epoch := e.Confirm(&l.metrics.merged, &c.costs[i], &reply.Totals[i], now)
		if back {
			failed = append(failed, e)
		}
		if no := reply.Totals[i].Err; !errors.Is(no, store.ErrEpoch) {
			refused = cmp.Or(refused, no)
		}
		lost = append(lost, epoch)
	}
	l.lostAll(sh, lost, reply.Totals, func(i int) *cell.Entry { return c.entries[i] })
	l.metrics.replayedCells.Add(int64(len(c.entries) - len(failed)))
	return failed, refused, nil
}

// forgo lets what is flushed wait for its tick.
func (l *Limiter) forgo(sh *shard, flushing []*cell.Entry) {
	for len(flushing) > 0 {
		for _, e := range flushing {
			e.UnmarkFlush()
		}
		l.requeue(sh, flushing)
		sh.flushes.Answer(flushing, flushing, breaker.ErrOpen)
		flushing = sh.flushes.Take(replayChunk)
	}
}

// takeQueue takes what is to be sent.
func (l *Limiter) takeQueue(sh *shard) []*cell.Entry {
	l.queues.Lock()
	defer l.queues.Unlock()
	queue := sh.queue
	sh.queue = nil
	return queue
}

// pack fills a chunk with what is flushed and from the queue, and returns the rest of
// that. Few enough are flushed to fit.
func (l *Limiter) pack(c *chunk, flushing, queue []*cell.Entry, nowMs int64) []*cell.Entry {
	for _, e := range flushing {
		l.load(c, e, nowMs, true)
	}
	for len(queue) > 0 && len(c.costs) < replayChunk-1 {
		e := queue[0]
		queue = queue[1:]
		if l.load(c, e, nowMs, false) {
			c.stale = append(c.stale, e)
		}
	}
	return queue
}

// load puts an entry's unsent cost into a chunk. stale is true when its previous cell should be read once more.
func (l *Limiter) load(c *chunk, e *cell.Entry, nowMs int64, flushing bool) (stale bool) {
	set := l.rules.InForce()
	if e.Dequeue(flushing); l.table.HoldsBack(e, false, set.Nodes) {
		c.held = append(c.held, e)
		return false
	}
	in := e.Load(l.table.Horizon(false), flushing, set.Shares(e.Names()), nowMs, set.TwoTicksMs)
	l.metrics.dropped[droppedExpired].Add(in.Expired)
	for i, sends := range in.Sends {
		if sends {
			c.add(e, in.Costs[i])
		}
	}
	return in.Stale
}

// putBack returns what a tick has not got to: entries that were never taken off the
// queue, by their flags.
func (l *Limiter) putBack(sh *shard, rest []*cell.Entry) {
	if len(rest) == 0 {
		return
	}
	l.queues.Lock()
	defer l.queues.Unlock()
	sh.queue = append(rest, sh.queue...)
}

// requeue puts entries back for the next tick.
func (l *Limiter) requeue(sh *shard, entries []*cell.Entry) {
	if len(entries) == 0 {
		return
	}
	l.queues.Lock()
	defer l.queues.Unlock()
	for _, e := range entries {
		queueLocked(sh, e)
	}
}

// readStale reads closed cells once more, in the background and in one round trip.
func (l *Limiter) readStale(entries []*cell.Entry) {
	if len(entries) > 0 {
		l.readEntries(l.clock.ReadSteady(), slices.Clone(entries))
	}
}

// pendingCost is the accepted cost that the origin has not confirmed.
func (l *Limiter) pendingCost() (cost int64) {
	if l.cfg.Origin == nil {
		return 0
	}
	l.collect()
	for _, sh := range l.shards {
		cost += l.pendingIn(sh)
	}
	return cost
}

func (l *Limiter) pendingIn(sh *shard) (cost int64) {
	l.queues.Lock()
	defer l.queues.Unlock()
	for _, e := range sh.queue {
		cost += e.Unsent()
	}
	return cost + sh.replays.pendingCost.Load() + sh.claims.pendingCost.Load()
}

// pendingKeys is how many keys wait for their turn.
func (l *Limiter) pendingKeys(sh *shard) int {
	l.queues.Lock()
	defer l.queues.Unlock()
	return len(sh.queue)
}
