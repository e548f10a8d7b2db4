package dataplane

import (
	"context"
	"time"

	"github.com/weirhq/weir/shared/window"
)

// A batch in a namespace that waits claims at the origin too, though it is all or nothing over
// several keys: what is added becomes this node's credit, by which the batch is then decided
// in one step with everything else. If it fails after all, the credit stays, and pays for what
// the node accepts there next.

// pledge is one key of a batch that waits: for the reply to what is unsent, or for a claim.
type pledge struct {
	first int
	reply *flight
	claim *claimant
}

// shareMany lets a batch wait until each of its keys is within its share, or has the origin's
// word for the cost.
func (l *Limiter) shareMany(ctx context.Context, w *workspace) {
	var cancel context.CancelFunc
	for {
		var pledges []pledge
		for _, i := range w.order { // all of them before any is waited for
			if p, waits := l.pledge(w, i); waits {
				pledges = append(pledges, p)
			}
		}
		if len(pledges) == 0 {
			return
		}
		if cancel == nil {
			ctx, cancel = context.WithTimeout(ctx, l.waitsFor(&w.until))
			defer cancel()
		}
		began := time.Now()
		for _, p := range pledges {
			l.redeem(ctx, w, p, began)
		}
	}
}

// pledge begins to wait for a key; waits is false when there is nothing to wait for.
func (l *Limiter) pledge(w *workspace, i int) (p pledge, waits bool) {
	it := &w.items[i]
	if !it.rule.waits || it.rule.estimate != nil || it.entry == nil || it.met == untracked || it.source.Degraded() || it.crowded {
		return p, false
	}
	e := it.entry
	way, v, cost := l.wayOfKey(w, it)
	switch {
	case way == wayMade:
		return p, false
	case l.calls.isStopped() || l.outOf(e, l.clock.steadyMs()):
		l.breakItem(w, i)
		return p, false
	}
	p.first = i
	if sh := l.shardOf(e); way == wayReply {
		p.reply = sh.await(e)
		l.kick(sh, e)
	} else {
		p.claim = l.enterClaim(&claimant{entry: e, v: v, limit: it.limit, cost: cost, batch: true, spares: true})
	}
	return p, true
}

// redeem waits for a pledge.
func (l *Limiter) redeem(ctx context.Context, w *workspace, p pledge, began time.Time) {
	it, way := &w.items[p.first], wayBroken
	if p.reply != nil {
		way = l.replied(ctx, p.reply, it.entry, began)
	} else {
		select {
		case <-p.claim.done:
			way = p.claim.way
		case <-ctx.Done():
			if l.leaveClaim(p.claim, it.rule.outage, began) {
				way = p.claim.way
			}
		}
	}
	switch way {
	case wayBroken:
		l.breakItem(w, p.first)
	case wayCrowded:
		sourceOf(w.items, p.first, SourceOrigin, 0)
		for i := range w.items {
			if w.items[i].first == p.first {
				w.items[i].crowded, w.items[i].crowdedMs = true, l.settings.Load().twoTicksMs
			}
		}
	default:
		sourceOf(w.items, p.first, SourceOrigin, 0)
	}
}

// breakItem leaves a key to its outage policy.
func (l *Limiter) breakItem(w *workspace, i int) {
	it := &w.items[i]
	sourceOf(w.items, i, it.rule.outage.source(), l.refusal(it.entry, l.clock.steadyMs()))
}

// wayOfKey is the way of all that a batch asks of one key.
func (l *Limiter) wayOfKey(w *workspace, first *item) (way way, v verdict, cost int64) {
	e := first.entry
	if e.flags.Load()&flagShared == 0 {
		e.flags.Or(flagShared)
	}
	for i := range w.items {
		if w.items[i].ident == first.ident {
			cost = min(cost+w.items[i].cost, window.LimitMax)
		}
	}
	if cost == 0 || !e.judge(&v, first.nowMs, first.durationMs, first.limit, 0, false) {
		return wayMade, v, cost
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	slot, ok := e.slotLocked(v.seq)
	if !ok {
		return wayMade, v, cost
	}
	word := e.words[slot].Load()
	e.weigh(&v, slot, word, first.limit, cost, window.Start(v.seq+1, first.durationMs)-v.tMs, first.durationMs)
	return e.wayLocked(&v, slot, word, first.limit, cost, first.durationMs, l.nodes.Load()), v, cost
}
