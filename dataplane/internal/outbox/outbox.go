package outbox

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir/dataplane/internal/breaker"
	"github.com/weirhq/weir/dataplane/internal/cell"
	"github.com/weirhq/weir/dataplane/internal/clock"
	"github.com/weirhq/weir/dataplane/internal/loop"
	"github.com/weirhq/weir/dataplane/internal/rules"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// ErrStopped is the error of reads after the limiter was stopped.
var ErrStopped = errors.New("dataplane: limiter is stopped")

// Config configures an Outbox. All fields are required except Origin and Breaker.
type Config struct {
	Origin      store.Origin // nil: there are no shards, and nothing is sent
	Breaker     breaker.Config
	ReadTimeout time.Duration // of reads and claims

	Table *cell.Table
	Dirty *cell.DirtyList // entries whose counts changed
	Clock *clock.Clock
	Calls *loop.Calls // counts the goroutines that make calls
	Rules *rules.Rules

	// Trace is called when a tick of that name begins, and the function that it returns when it ends.
	Trace func(ctx context.Context, name string) (context.Context, func(error))

	// Accepted has the accepted cost of each namespace that is confirmed, or can never be sent any more; nil: it is not
	// needed. A method with Try in its name is called by requests.
	Accepted Accepted

	// EpochLost is called when a shard has lost an epoch's counts, before the entries' counts are restored.
	EpochLost func()
}

// Accepted adds up accepted cost by namespace. All methods may be called concurrently, and must be fast.
type Accepted interface {
	Accept(workspace, namespace string, cost int64)
	TryAccept(workspace, namespace string, cost int64)
}

// accept adds accepted cost of an entry to Config.Accepted.
func (o *Outbox) accept(e *cell.Entry, cost int64) {
	if cost > 0 && o.cfg.Accepted != nil {
		f := e.Names().Family()
		o.cfg.Accepted.Accept(f.Workspace, f.Namespace, cost)
	}
}

// tryAccept is accept for a function that requests call.
func (o *Outbox) tryAccept(e *cell.Entry, cost int64) {
	if cost > 0 && o.cfg.Accepted != nil {
		f := e.Names().Family()
		o.cfg.Accepted.TryAccept(f.Workspace, f.Namespace, cost)
	}
}

// Outbox sends the cost that a node has accepted to the shards of its origin, reads from them, and merges their answers
// into the node's table. All methods may be called concurrently. Without an origin an Outbox has no shards, and only
// methods that need no shard may be called.
type Outbox struct {
	Stats Stats

	cfg      Config
	shards   []*Shard
	stopping atomic.Bool  // no entry is flushed or queued for a sync any more
	refusing atomic.Int64 // number of shards that refuse writes
	kept     atomic.Int64 // costs that all streams keep for failovers

	queues sync.Mutex // guards the queues of all shards' replays
}

// New makes an outbox. It makes no calls.
func New(cfg Config) *Outbox {
	o := &Outbox{cfg: cfg}
	o.Stats.init()
	if cfg.Origin != nil {
		o.shards = make([]*Shard, cfg.Origin.Shards())
	}
	for i := range o.shards {
		o.shards[i] = newShard(o, i)
	}
	return o
}

// Shards returns all shards, in the origin's order. It is empty without an origin.
func (o *Outbox) Shards() []*Shard { return o.shards }

// ShardOf returns the shard of an entry's key. It is called when an entry is queued or about to be
// read, never for a decision from memory, so an entry does not store its shard.
func (o *Outbox) ShardOf(e *cell.Entry) *Shard {
	if len(o.shards) == 1 {
		return o.shards[0]
	}
	key := e.Names().Key()
	return o.ShardOfKey(&key)
}

// ShardOfKey returns the shard of a key.
func (o *Outbox) ShardOfKey(key *window.Key) *Shard { return o.shards[o.cfg.Origin.ShardOf(key)] }

// Each runs f for all shards concurrently and returns their errors, joined.
func (o *Outbox) Each(f func(*Shard) error) error {
	if len(o.shards) == 1 {
		return f(o.shards[0])
	}
	errs := make([]error, len(o.shards))
	var running sync.WaitGroup
	for i, sh := range o.shards {
		running.Go(func() { errs[i] = f(sh) })
	}
	running.Wait()
	return errors.Join(errs...)
}

// OutOf reports whether a decision about e that needs the origin's answer would not get it, as far as this node can see
// without a call. For example, the shard's breaker is open. A half-open breaker lets a few calls through, which close
// it: if decisions made none, they would go on without the origin after it answers again.
func (o *Outbox) OutOf(e *cell.Entry, now clock.Steady) bool {
	return e.Reads().RestsFor(now) > 0 || o.ShardOf(e).asks.State() == breaker.Open
}

// Refuses reports whether the shard of e refuses writes, by this node's last writes. After Stop it is always true,
// because a stopped outbox writes nothing.
func (o *Outbox) Refuses(e *cell.Entry) bool {
	return o.refusing.Load() > 0 && (o.stopping.Load() || o.ShardOf(e).writes.Refused(int64(o.cfg.Clock.Steady())))
}

// RetryAfter returns for how long the origin is not called about e, as far as this node can see.
func (o *Outbox) RetryAfter(e *cell.Entry, now clock.Steady) time.Duration {
	wait := max(e.Reads().RestsFor(now), o.ShardOf(e).asks.OpensFor().Round(time.Millisecond))
	if wait <= 0 {
		return cell.RetryPause // its read is still out
	}
	return wait
}

// ForgetUnsent counts cost that can no longer be sent because its cell has expired. In the estimate mode that is the
// normal end of cost below the floor, so it counts as unsynced and not as dropped.
func (o *Outbox) ForgetUnsent(e *cell.Entry, cost int64) {
	o.tryAccept(e, cost)
	if flags := e.Flags(); flags.Estimates() && !flags.Asked() {
		o.Stats.Unsynced.Add(cost)
		return
	}
	o.Stats.Dropped[DroppedExpired].Add(cost)
}

// Spill adds cost of an untracked key to the overflow, because it could not be sent to the origin.
func (o *Outbox) Spill(e *cell.Entry, sequence, cost int64) {
	if cost <= 0 {
		return
	}
	o.tryAccept(e, cost)
	o.cfg.Table.Spill(e, sequence, cost)
	o.Stats.Dropped[DroppedFull].Add(cost)
	e.Ledger().SettleUnnamed(sequence, cost)
}

// collect moves the dirty entries to the queues of replay.
func (o *Outbox) collect() {
	o.queues.Lock()
	defer o.queues.Unlock()
	o.cfg.Dirty.Take(func(e *cell.Entry) {
		if !e.Flags().Estimates() {
			o.ShardOf(e).replay.queueLocked(e)
		}
	})
}

// Resend queues an entry whose unsent or lost cost must be sent.
func (o *Outbox) Resend(e *cell.Entry) { o.ShardOf(e).resend(e) }

// PendingCost returns the accepted cost that the origin has not confirmed.
func (o *Outbox) PendingCost() (cost int64) {
	if len(o.shards) == 0 {
		return 0
	}
	o.collect()
	for _, sh := range o.shards {
		cost += sh.pendingCost()
	}
	return cost
}

// ReplayedAt returns when all shards had last confirmed everything pending; 0 for never.
func (o *Outbox) ReplayedAt() clock.Steady {
	var first int64
	for i, sh := range o.shards {
		if at := sh.replay.confirmedAt.Load(); i == 0 || at < first {
			first = at
		}
	}
	return clock.Steady(first)
}

// BreakersOpen returns how many shards are not called now, are called only as a trial, or refuse
// writes.
func (o *Outbox) BreakersOpen() (n int64) {
	now := int64(o.cfg.Clock.Steady())
	for _, sh := range o.shards {
		if sh.asks.State() != breaker.Closed || sh.sends.State() != breaker.Closed || sh.writes.Refused(now) {
			n++
		}
	}
	return n
}

// ApplyForeign merges the foreign totals that a shard announces. Keys that this node does not hold
// are ignored: their first contact reads them.
func (o *Outbox) ApplyForeign(totals []store.Foreign) {
	if !o.cfg.Clock.Known() {
		return // cells are not numbered by the origin's clock yet, so the foreign totals belong to other cells
	}
	set, nowMs := o.cfg.Rules.InForce(), o.cfg.Clock.ReadMs()
	for i := range totals {
		c := &totals[i].Cell
		reset, ok := set.ResetOfCell(c)
		if !ok {
			continue
		}
		id := o.cfg.Table.IdentityOfKey(&c.Key, reset)
		if e := o.cfg.Table.Get(&id); e != nil {
			current := window.Sequence(nowMs, c.DurationMs())
			horizon := o.cfg.Table.Horizon(false)
			o.ForgetUnsent(e, e.Ledger().ApplyForeign(&o.Stats.Merged, horizon, current, c.Sequence, totals[i].Count))
		}
	}
}
