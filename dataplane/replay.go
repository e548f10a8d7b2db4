package dataplane

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/weirhq/weir/dataplane/internal/breaker"
	"github.com/weirhq/weir/dataplane/internal/cell"
	"github.com/weirhq/weir/dataplane/store"
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
	entry    *cell.Entry
	sequence int64
}

// replayOnce sends what is unsent, once, to all shards at the same time.
func (l *Limiter) replayOnce(ctx context.Context) error {
	errs := make([]error, len(l.shards))
	l.eachShard(func(sh *shard) { errs[sh.index] = l.replayShard(ctx, sh) })
	return errors.Join(errs...)
}

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
		within, end := l.cfg.TraceBackground(ctx, tickReplay.String())
		ctx = within
		defer func(began time.Time) { l.metrics.ticked(tickReplay, began); end(err) }(time.Now())
	}
	nowMs := l.nowMs()
	queue, err = l.sendLocked(ctx, sh, queue, nowMs)
	if err == nil && len(queue) == 0 {
		sh.replayedAtMs.Store(nowMs)
	}
	return err
}

// replayKicked sends what is kicked, and nothing else.
func (l *Limiter) replayKicked(ctx context.Context, sh *shard) {
	sh.begin()
	defer sh.end()
	_, _ = l.sendLocked(ctx, sh, nil, l.nowMs()) // what failed is in the queue, and the tick reports it
}

// sendLocked sends what is kicked, and a queue; each chunk takes what was kicked
// meanwhile first. It returns what it has not got to, which is in the shard's queue.
func (l *Limiter) sendLocked(ctx context.Context, sh *shard, queue []*cell.Entry, nowMs int64) ([]*cell.Entry, error) {
	var firstErr error
	var again []*cell.Entry
	var c chunk
	for sent := 0; sent < replayTickMax; sent += len(c.adds) {
		kicked := sh.takeKicked(replayChunk / 2)
		if len(kicked)+len(queue) == 0 {
			break
		}
		if sh.sends.State() == breaker.Open {
			firstErr = cmpErr(firstErr, breaker.ErrOpen)
			l.forgo(sh, kicked)
			break
		}
		queue = l.pack(&c, kicked, queue, nowMs)
		var failed []*cell.Entry
		var err error
		if len(c.adds) > 0 {
			failed, err = l.ship(ctx, sh, &c)
			firstErr = cmpErr(firstErr, err)
			again = append(again, failed...)
		}
		sh.answer(kicked, failed, err)
		if err != nil && len(failed) == len(c.adds) { // no use in trying the rest now
			break
		}
		l.readStale(c.stale)
	}
	l.putBack(sh, queue)
	l.requeue(sh, again) // behind the rest: what always fails must not keep others from being tried
	return queue, firstErr
}

// forgo lets what is kicked wait for its tick.
func (l *Limiter) forgo(sh *shard, kicked []*cell.Entry) {
	for len(kicked) > 0 {
		for _, e := range kicked {
			e.Unkick()
		}
		l.requeue(sh, kicked)
		sh.answer(kicked, kicked, breaker.ErrOpen)
		kicked = sh.takeKicked(replayChunk)
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

// chunk is one call's worth.
type chunk struct {
	adds    []store.Add
	parcels []parcel
	stale   []*cell.Entry // whose previous cell should be read once more
}

// pack fills a chunk with what is kicked and from the queue, and returns the rest of
// that. Few enough are kicked to fit.
func (l *Limiter) pack(c *chunk, kicked, queue []*cell.Entry, nowMs int64) []*cell.Entry {
	*c = chunk{c.adds[:0], c.parcels[:0], c.stale[:0]}
	for _, e := range kicked {
		l.load(c, e, nowMs, true)
	}
	for len(queue) > 0 && len(c.adds) < replayChunk-1 {
		e := queue[0]
		queue = queue[1:]
		if l.load(c, e, nowMs, false) {
			c.stale = append(c.stale, e)
		}
	}
	return queue
}

// load puts an entry's unsent cost into a chunk. stale is true when its previous cell should be read once more.
func (l *Limiter) load(c *chunk, e *cell.Entry, nowMs int64, kicked bool) (stale bool) {
	in := e.Load(kicked, nowMs, 2*l.settings.Load().tuning.ReplayTick.Std().Milliseconds())
	l.metrics.dropped[droppedExpired].Add(in.Expired)
	for i, cost := range in.Costs {
		if s := in.Sequence - 1 + int64(i); cost > 0 {
			c.adds = append(c.adds, store.Add{Cell: e.Cell(s), Cost: cost})
			c.parcels = append(c.parcels, parcel{e, s})
		}
	}
	return in.Stale
}

// ship sends one chunk and merges the answers. It returns whose cost stays unsent, and
// the first error.
func (l *Limiter) ship(ctx context.Context, sh *shard, c *chunk) ([]*cell.Entry, error) {
	end, ok := sh.sends.Begin()
	if !ok {
		return l.unload(c, breaker.ErrOpen)
	}
	ctx, cancel := context.WithTimeout(ctx, replayTimeout)
	defer cancel()
	began := time.Now()
	answers := l.cfg.Origin.Add(ctx, c.adds)
	failed, err := l.unpack(c, answers)
	if len(failed) == len(c.adds) {
		end(err)
	} else {
		end(nil) // the shard is there, whatever it thinks of some cells
	}
	l.metrics.origin(opAdd, len(c.adds), time.Since(began), err)
	l.metrics.replayedCells.Add(int64(len(c.adds) - len(failed)))
	return failed, err
}

// unload takes a chunk back that was never sent.
func (l *Limiter) unload(c *chunk, err error) ([]*cell.Entry, error) {
	answers := make([]store.Added, len(c.adds))
	for i := range answers {
		answers[i].Err = err
	}
	return l.unpack(c, answers)
}

// unpack merges the answers to a chunk.
func (l *Limiter) unpack(c *chunk, answers []store.Added) ([]*cell.Entry, error) {
	now, floor := l.clock.ReadSteady(), l.settings.Load().tuning.Floor
	var failed, grown []*cell.Entry
	var lost []cell.LostTotal
	var firstErr error
	for i, p := range c.parcels {
		answer := store.Added{Err: errShortAnswer}
		if i < len(answers) {
			answer = answers[i]
		}
		if answer.Err != nil {
			firstErr = cmpErr(firstErr, answer.Err)
			if errors.Is(answer.Err, store.ErrMaybeApplied) {
				l.metrics.ambiguous.Add(c.adds[i].Cost)
			}
			if !p.entry.Rollback(p.sequence, c.adds[i].Cost) {
				l.metrics.dropped[droppedExpired].Add(c.adds[i].Cost)
			}
			failed = append(failed, p.entry)
			continue
		}
		grew, missing := p.entry.Confirm(&l.metrics.merged, p.sequence, answer.Total, now)
		lost = append(lost, missing...)
		if crossed := p.entry.Cross(p.sequence, answer.Total-c.adds[i].Cost, answer.Total, floor); grew || crossed {
			grown = append(grown, p.entry)
		}
	}
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
		l.queueLocked(sh, e, 0, cell.InReplay)
	}
}

// readStale reads closed cells once more, in the background and in one round trip.
func (l *Limiter) readStale(entries []*cell.Entry) {
	if len(entries) > 0 {
		l.readMany(l.clock.ReadSteady(), slices.Clone(entries))
	}
}

// heal tells the origin what it has lost, by maximum: another increment would count
// twice once the others do the same. What the breaker keeps back is found lost again.
func (l *Limiter) heal(lost []cell.LostTotal) {
	if len(lost) == 0 {
		return
	}
	byShard := make([][]store.Add, len(l.shards))
	for _, a := range lost {
		i := l.cfg.Origin.ShardOf(&a.Cell.Key)
		byShard[i] = append(byShard[i], store.Add(a))
	}
	for i, cells := range byShard {
		if len(cells) == 0 {
			continue
		}
		tell := func() { l.raise(l.shards[i], cells) }
		if !l.calls.Start(tell) {
			tell() // this is the last send before the end: nobody here will find it lost again
		}
	}
}

func (l *Limiter) raise(sh *shard, lost []store.Add) {
	end, ok := sh.sends.Begin()
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), replayTimeout)
	defer cancel()
	began := time.Now()
	err := l.cfg.Origin.Raise(ctx, lost)
	end(err)
	l.metrics.origin(opRaise, len(lost), time.Since(began), err)
	if err == nil {
		l.metrics.healed.Add(int64(len(lost)))
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
	return cost
}

// pendingKeys is how many keys wait for their turn.
func (l *Limiter) pendingKeys(sh *shard) int {
	l.queues.Lock()
	defer l.queues.Unlock()
	return len(sh.queue)
}
