package hunt

import (
	"context"
	"time"

	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/sim/hunt/internal/plan"
	"github.com/weirhq/weir/dataplane/sim/internal/network"
	"github.com/weirhq/weir/dataplane/store"
)

// fault begins a step's fault, and ends it later.
func (w *world) fault(r *region, n *node, s Step) {
	l := n.life.Load()
	during := func(begin, end func()) {
		begin()
		time.Sleep(s.After)
		end()
	}
	switch s.Do {
	case Kill, Stop, Leave, Die:
		w.end(n, s)
	case Cut:
		during(on(l.ToOrigin, network.Cut))
	case Refuse:
		during(on(l.ToOrigin, network.Down))
	case Mute:
		during(on(l.ToOrigin, func(l *network.Link, bad bool) { l.Profile.Loss = pick(bad, s.Share) }))
	case Slow:
		n.slowUntil.Store(time.Now().Add(s.After).UnixNano())
		during(on(l.ToOrigin, func(l *network.Link, bad bool) { l.Profile.Jitter = pick(bad, s.Delay) }))
	case Repeat:
		during(on(l.ToOrigin, repeat(s)))
	case CutMySQL:
		during(on(l.ToMySQL, network.Cut))
	case CutPeers:
		during(on(l.ToPeers, network.Cut))
	case Jumble:
		during(on(l.ToPeers, repeat(s)))
	case Isolate:
		during(network.Fault(r.outward, network.Cut))
	case LagCounts:
		during(func() { w.replica.lag(true) }, func() { w.replica.lag(false) })
	case SlowMySQL:
		during(func() { w.Database.Set(s.Delay, 0) }, func() { w.Database.Set(0, 0) })
	case FailMySQL:
		during(func() { w.Database.Set(0, s.Share) }, func() { w.Database.Set(0, 0) })
	case RefuseCalls:
		during(r.refusals.fault(r.partsOf(s), plan.OriginCalls[s.Calls]))
	case RefuseStatements:
		during(w.statements.fault([]int{0}, plan.MySQLCalls[s.Calls]))
	case HoldFeed:
		slow := func() time.Duration { return s.Delay }
		during(func() { w.Feed.Faults.SlowCommits(slow) }, func() { w.Feed.Faults.SlowCommits(nil) })
	case Wipe:
		w.reservations.lose(r, true, func() { r.parts(s, r.origin.WipeShard) })
	case Failover:
		var replica memstore.OriginState
		during(func() { replica = r.origin.State() }, func() {
			w.reservations.lose(r, false, func() {
				r.parts(s, func(part int) { r.origin.RollbackShard(part, replica) })
			})
			w.holders.failedOver(r)
		})
		w.record.note("%s fails over%s to what it was %v ago", r.name, s.OfPart(), s.After)
		w.steps.Go(w.reservations.countAgain)
	case Unlease:
		for shard := range w.plan.Fleet.Shards {
			w.unlease(r, shard)
		}
	case LoseFeed:
		for shard := range w.plan.Fleet.Shards {
			stream := store.Stream{Region: r.name, Shard: shard}
			if rows := w.Feed.Rows(stream); len(rows) > 0 {
				w.Feed.Lose(stream, rows[max(0, len(rows)-s.Count)].Sequence)
			}
		}
	case SetClock:
		w.setClock(r, s)
	case Clock:
		n.steps.Add(1) // a process may be starting
		n.clock.Move(s.Delay)
	}
}

// partsOf returns the parts of an origin that a step names, from 0 on.
func (r *region) partsOf(s Step) (parts []int) {
	for part := range r.origin.Shards() {
		if s.Part == 0 || s.Part == part+1 {
			parts = append(parts, part)
		}
	}
	return parts
}

// parts applies do to the parts of an origin that a step names.
func (r *region) parts(s Step, do func(part int)) {
	r.leases.forget(func() {
		for _, part := range r.partsOf(s) {
			do(part)
		}
	})
}

// on returns the begin and the end of a fault of a link.
func on(link *network.Link, change func(link *network.Link, bad bool)) (begin, end func()) {
	return network.Fault(func() []*network.Link { return []*network.Link{link} }, change)
}

// repeat makes a link deliver a share of all messages twice, and all of them later.
func repeat(s Step) func(l *network.Link, bad bool) {
	return func(l *network.Link, bad bool) {
		l.Profile.Twice, l.Profile.Jitter = pick(bad, s.Share), pick(bad, s.Delay)
	}
}

// outward returns the links of a region's present nodes to everything outside of the region.
func (r *region) outward() (links []*network.Link) {
	for _, l := range r.here() {
		links = append(links, l.ToMySQL, l.ToPeers)
	}
	return links
}

// pick returns n, or 0.
func pick[T float64 | time.Duration](bad bool, n T) T {
	if bad {
		return n
	}
	return 0
}

// unlease ends a shard's lease, as happens if a replica is promoted that lacks the lease.
func (w *world) unlease(r *region, shard int) {
	origin, ctx := r.client(), context.Background()
	lease, err := origin.Lease(ctx, shard, "hunt", time.Millisecond) // refused if the shard is leased
	if err == nil {
		r.leases.forget(func() { err = origin.Release(ctx, shard, lease.Holder) })
	}
	if err != nil {
		w.record.violate("error", "end a lease of %s: %v", r.name, err)
	}
}

// join starts a node that had not joined.
func (w *world) join(n *node) {
	if err := w.boot(n); err != nil {
		w.record.violate("error", "join: %v", err)
	}
	n.away.Store(false)
	w.record.note("%v is there", n.life.Load())
}

// end ends a node's process, and starts its next process later, unless the node ends for good.
func (w *world) end(n *node, s Step) {
	l, leaves := n.life.Load(), s.Do == Leave || s.Do == Die
	if l.ended.Load() {
		return // it is being restarted
	}
	if leaves {
		n.away.Store(true)
	}
	if s.Do == Kill || s.Do == Die {
		w.kill(l)
	} else {
		w.stop(l)
	}
	if leaves {
		return
	}
	time.Sleep(s.After)
	if err := w.boot(n); err != nil {
		w.record.violate("error", "start again: %v", err)
	}
	w.record.note("%v is back", n.life.Load())
}
