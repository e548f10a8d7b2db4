package dataplane

import (
	"context"
	"errors"
	"time"

	"github.com/weirhq/weir/dataplane/internal/breaker"
	"github.com/weirhq/weir/dataplane/internal/cell"
	"github.com/weirhq/weir/dataplane/internal/clock"
	"github.com/weirhq/weir/dataplane/internal/collect"
	"github.com/weirhq/weir/dataplane/internal/queue"
	"github.com/weirhq/weir/dataplane/internal/rules"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// Reading from the origin before a decision: a cold key (hydration), a key that has
// heard nothing for a while, and a key in strict mode are all the same read.

// ErrStopped is returned by calls about reservations, tokens of leases and settings after
// Limiter.Stop, because a stopped limiter makes no calls to the origin.
var ErrStopped = errors.New("dataplane: limiter is stopped")

// asksFirst is true when a cost is so large that what other nodes may have been granted lately
// matters: with what a batch asks before it on the same key, it is more than a share of what its limit leaves, on a
// key last heard of more than two ticks ago. A read that was answered settles it for two ticks, and one that was not
// for a rest. A key far from its limit has shares that hold its costs, and a node that is configured as the only one
// has no other to hear of. Heartbeats tell of a node only after it has begun to count, so until they do one other is
// supposed.
func (l *Limiter) asksFirst(e *cell.Entry, c *call, now clock.Steady, set *rules.Settings) bool {
	n := set.Nodes
	if l.cfg.RegionNodes == 0 {
		n = max(n, 2)
	}
	if n < 2 || int64(now-e.RefreshedAt()) <= set.TwoTicksMs {
		return false
	}
	return c.ahead+c.cost > (c.limit-e.Known(c.nowMs, c.durationMs))/(2*n)
}

// refreshFor asks the origin about e, unless what is known already denies r:
// merges only raise counts, so what local state denies stays denied, and a flood
// of requests from a blocked caller costs no I/O at all. (In a namespace that is open
// in an outage, not even then is anything read, but an outage that is known of lets
// it pass.)
func (l *Limiter) refreshFor(ctx context.Context, e *cell.Entry, c *call,
	outage rules.Outage) (source Source, alive bool) {
	var v cell.Verdict
	alive = e.Judge(&v, c.horizon, c.nowMs, c.durationMs, c.limit, c.cost, false)
	l.metrics.dropped[droppedExpired].Add(v.AgedOut)
	refuses := outage != rules.OutageLocal && l.refuses(e)
	switch {
	case alive && outage == rules.OutageOpen && (refuses || !v.Allowed && l.outOf(e, l.clock.Steady())):
		return SourceDegradedOpen, true
	case !alive || !v.Allowed:
		return SourceLocal, alive
	case refuses:
		return SourceDegradedClosed, true // without writes, other nodes' cost may be missing from the answer
	}
	f := l.read(l.clock.Steady(), e)
	if f == nil {
		return sourceOut(outage), true
	}
	ctx, cancel := l.within(ctx, &c.until)
	defer cancel()
	if l.wait(ctx, f) {
		return SourceOrigin, true
	}
	return sourceOut(outage), true
}

// within bounds how long one decision waits in all: until ReadTimeout after its first wait began.
// until holds that deadline, counted from the clock's base. It is not a *time.Time, because that
// would put the call on the heap. A nil ctx is allowed and never ends: limiters without an origin
// pass it, and never wait.
func (l *Limiter) within(ctx context.Context, until *time.Duration) (context.Context, context.CancelFunc) {
	now := l.clock.Since()
	if *until == 0 {
		*until = now + l.cfg.ReadTimeout
	}
	if ctx == nil {
		ctx = context.Background()
	}
	return context.WithTimeout(ctx, *until-now)
}

// read joins the read in flight of e or starts one; nil while e rests after a failed
// one, and while the breaker of its shard's reads is open.
func (l *Limiter) read(now clock.Steady, e *cell.Entry) *cell.Flight {
	f := l.join(now, e)
	l.startReads(now, l.shardOf(e))
	return f
}

// readEntries is read for several keys, and returns one flight for each. On a shard where no read is under way, up to
// queue.ReadKeysAlone keys go in one call.
func (l *Limiter) readEntries(now clock.Steady, entries []*cell.Entry) []*cell.Flight {
	flights := make([]*cell.Flight, len(entries))
	for i, e := range entries {
		flights[i] = l.join(now, e)
	}
	for _, sh := range l.shards {
		l.startReads(now, sh)
	}
	return flights
}

// join joins the read in flight of e, or adds one to those that wait for a call.
func (l *Limiter) join(now clock.Steady, e *cell.Entry) *cell.Flight {
	sh, added := l.shardOf(e), false
	f := e.Join(now, func() *cell.Flight {
		if sh.asks.State() == breaker.Open {
			return nil
		}
		added = true
		return cell.NewFlight()
	})
	if added {
		sh.reads.Add(queue.Read{Entry: e, Flight: f, Since: now})
	}
	return f
}

// wait waits for f, but not past ctx. false: decide from what is known.
func (l *Limiter) wait(ctx context.Context, f *cell.Flight) bool {
	if f == nil {
		return false
	}
	select {
	case <-f.Done:
		return f.Err == nil
	case <-ctx.Done():
		return false
	}
}

// startReads begins the calls that reads of a shard wait for, as many as there may be. Each runs in a goroutine of its
// own, because a caller that gives up must not take the answer from others. A limiter that is being stopped reads no
// more.
func (l *Limiter) startReads(now clock.Steady, sh *shard) {
	for reads := sh.reads.Begin(now); reads != nil; reads = sh.reads.Begin(now) {
		if l.calls.Start(func() { l.makeReads(sh, reads, l.fetch) }) {
			continue
		}
		l.makeReads(sh, reads, func(_ *shard, reads []queue.Read) {
			for _, r := range reads {
				r.Flight.Skip(ErrStopped)
			}
		})
	}
}

// makeReads makes a call, and further calls until no read waits.
func (l *Limiter) makeReads(sh *shard, reads []queue.Read, call func(*shard, []queue.Read)) {
	for ; reads != nil; reads = sh.reads.Next(l.clock.ReadSteady(), l.cfg.ReadTimeout) {
		call(sh, reads)
	}
}

// fetch reads both cells of each entry in one call and merges them.
func (l *Limiter) fetch(sh *shard, reads []queue.Read) {
	end, ok := sh.asks.Begin()
	if !ok {
		for _, r := range reads {
			r.Flight.Skip(breaker.ErrOpen)
		}
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), l.cfg.ReadTimeout)
	defer cancel()
	cells := make([]window.Cell, 0, 2*len(reads))
	for _, r := range reads {
		both := r.Entry.CellsToRead()
		cells = append(cells, both[:]...)
	}
	totals, err := l.get(ctx, sh, cells, end)
	now := l.clock.ReadSteady()
	if err != nil {
		for _, r := range reads {
			r.Flight.Fail(err, now)
		}
		return
	}
	lost := make([]store.Epoch, 0, len(cells))
	for i, r := range reads {
		both := r.Entry.Hydrate(&l.metrics.merged, cells[2*i].Sequence, totals[2*i:2*i+2], now)
		lost = append(lost, both[:]...)
		close(r.Flight.Done)
	}
	l.lostAll(sh, lost, totals, func(i int) *cell.Entry { return reads[i/2].Entry })
}

// get reads cells of a shard; end tells the breaker.
func (l *Limiter) get(ctx context.Context, sh *shard, cells []window.Cell, end func(error)) ([]store.Total, error) {
	call := l.ask(sh)
	reply, err := l.cfg.Origin.Read(ctx, cells)
	if err == nil && len(reply.Totals) != len(cells) {
		err = errShortAnswer
	}
	end(err)
	l.metrics.origin.Called(collect.OpRead, len(cells), time.Since(call.began), err)
	if err != nil {
		return nil, err
	}
	l.answered(sh, call, &reply)
	if reply.Now.IsZero() {
		l.clock.FollowNone()
	}
	return reply.Totals, nil
}
