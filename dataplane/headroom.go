package dataplane

import (
	"context"
	"fmt"
	"math/bits"
	"time"

	"github.com/weirhq/weir/dataplane/internal/clock"
	"github.com/weirhq/weir/shared/window"
)

// Headroom bounds what other nodes cannot know: the cost that a node has accepted and
// the origin has not confirmed. With n nodes in the region, a key's share of what is
// left of its limit is
//
//	share = max(cost, (limit - confirmed) / 2n)
//
// so that all nodes together stay within half of what is left, and within all of it
// while a share holds one cost. Past half its share a key is kicked: it is sent at
// once, not at the next tick. Past its share a namespace set to "wait" lets the next
// decision wait for that reply; and once a share would not hold more than the cost, the
// decision is made where the count is, by a claim at the origin. A limit of up to 2n
// costs is so exact from its first cost to its last. Where costs differ, what the others may
// have accepted by their shares is room that a claim leaves; see roomForOthers.
//
// A key far from its limit, below 1/4n of it with all of its previous cell, costs a shift
// and a comparison.

// regionNodesMax bounds n; more would leave no share worth having.
const regionNodesMax = 10_000

func parseHeadroom(text string) (waits bool, err error) {
	switch text {
	case "", "kick":
		return false, nil
	case "wait":
		return true, nil
	}
	return false, fmt.Errorf("%w: headroom is %q (kick or wait)", ErrInvalid, text)
}

// nodesOf is how many nodes the region has, by its heartbeats or by configuration.
func (l *Limiter) nodesOf(set *settings) int64 {
	n := l.cfg.RegionNodes
	if n == 0 {
		n = set.nodes
	}
	return int64(min(max(1, n), regionNodesMax))
}

// setNodes takes the settings' number of nodes into what decisions go by.
func (l *Limiter) setNodes(set *settings) {
	n := l.nodesOf(set)
	l.nodes.Store(n)
	if l.shards == nil {
		return
	}
	l.farShift.Store(uint32(bits.Len64(uint64(4*n - 1)))) // 2^shift >= 4n
}

// crowds kicks a key whose unsent cost is past half its share. It is called for costs
// past 1/4n of the limit only, the previous cell's included: at the start of a cell it is
// what leaves little to share.
func (l *Limiter) crowds(e *entry, v *verdict, q *question) {
	slot := slotOf(v.seq)
	if e.flags.Load()&(flagKicked|flagSending<<slot) != 0 {
		return
	}
	unsent := wordCount(e.words[slot].Load()) - e.book.cells[slot].settled.Load()
	left := q.limit - (v.current + q.ahead + q.cost - unsent) - v.carried(q.durationMs)
	if 2*unsent > max(q.cost, left/(2*l.nodes.Load())) {
		l.kick(l.shardOf(e), e)
	}
}

// carried is what the previous cell still weighs.
func (v *verdict) carried(durationMs int64) int64 {
	if v.previous == 0 {
		return 0
	}
	return window.Carried(v.previous, window.Start(v.seq+1, durationMs)-v.tMs, durationMs)
}

// kick has e sent at once, with whatever else is kicked meanwhile.
func (l *Limiter) kick(sh *shard, e *entry) {
	if l.stopping.Load() || e.flags.Or(flagKicked)&flagKicked != 0 {
		return // it is about to be
	}
	l.metrics.kicks.Add(1)
	sh.kick(e)
}

// way is how a decision in a namespace that waits is to be made.
type way uint8

const (
	wayMade    way = iota // it is: the verdict stands, and was counted if it allows
	wayReply              // once the reply to what is unsent is here
	wayClaim              // at the origin
	wayCrowded            // denied for now: it leaves too little room for what other nodes may have accepted
	wayBroken             // by the outage policy: the origin does not answer, or the caller waits no longer
)

// share decides in a namespace that waits, into v, and counts.
func (l *Limiter) share(ctx context.Context, v *verdict, e *entry, q *question, source Source, by *rule) (Source, bool) {
	if e.flags.Load()&flagShared == 0 {
		e.flags.Or(flagShared)
	}
	n := l.nodes.Load()
	v.against = q.limit
	if alive := e.judge(v, q.nowMs, q.durationMs, max(0, q.limit/(2*n)-1), q.cost, q.counting()); !alive || v.allowed {
		return source, alive // far from the limit, or the entry is gone
	}
	ctx, cancel := context.WithTimeout(ctx, l.waitsFor(&q.until))
	defer cancel()
	for {
		w, alive := e.judgeShare(v, q, n)
		switch {
		case !alive:
			return source, false
		case w == wayReply:
			w = l.awaitReply(ctx, e)
		case w == wayClaim:
			w = l.claim(ctx, v, e, q, by.outage, true)
		default:
			return source, true
		}
		switch w {
		case wayMade:
			return SourceOrigin, true
		case wayCrowded:
			v.crowd(q.nowMs, l.settings.Load().twoTicksMs)
			return SourceOrigin, true
		case wayBroken:
			return l.shareBroken(v, e, q, by.outage)
		}
		source = SourceOrigin
	}
}

// crowd denies for as long as other nodes need to be heard.
func (v *verdict) crowd(nowMs, forMs int64) {
	v.allowed, v.crowded, v.passesAtMs = false, true, nowMs+forMs
}

// shareBroken decides by the outage policy.
func (l *Limiter) shareBroken(v *verdict, e *entry, q *question, outage outagePolicy) (source Source, alive bool) {
	source = outage.source()
	if outage != outageLocal {
		return source, l.judgeOut(v, e, q, source)
	}
	return source, e.judge(v, q.nowMs, q.durationMs, q.limit, q.cost, q.counting())
}

// judgeShare judges, and counts what fits both the limit and the node's share: in one
// step for all who wait for their share, and against other requests by the word's
// compare-and-swap.
func (e *entry) judgeShare(v *verdict, q *question, nodes int64) (w way, alive bool) {
	for {
		if !e.judge(v, q.nowMs, q.durationMs, q.limit, q.cost, false) {
			return wayMade, false
		}
		if !q.counting() || !v.allowed && e.flags.Load()&(flagClaiming<<slotOf(v.seq)) == 0 {
			return wayMade, true
		}
		e.mu.Lock()
		w, done := e.shareLocked(v, q, nodes)
		e.mu.Unlock()
		if done {
			return w, true
		}
	}
}

func (e *entry) shareLocked(v *verdict, q *question, nodes int64) (w way, done bool) {
	slot, ok := e.slotLocked(v.seq)
	if !ok || v.seq != e.seq.Load() {
		return wayMade, false
	}
	word := e.words[slot].Load()
	if !wordIsLive(word, v.seq) {
		e.awaitRelease(slot)
		return wayMade, false
	}
	uncovered := window.Start(v.seq+1, q.durationMs) - v.tMs
	e.weigh(v, slot, word, q.limit, q.cost, uncovered, q.durationMs)
	w = e.wayLocked(v, slot, word, q.limit, q.cost, q.durationMs, nodes)
	if v.allowed && w == wayMade {
		e.noteLow(slot, q.limit)
	}
	if v.allowed && w == wayMade && !e.words[slot].CompareAndSwap(word, word+uint64(q.cost)) {
		return wayMade, false
	}
	return w, true
}

// wayLocked is the way of a cost that was weighed. What this node is committed to, cost on
// its way in claims included, is one quantity; what its credit covers, the origin has
// counted already. A cost that would fit but for claims on their way waits for them.
func (e *entry) wayLocked(v *verdict, slot int, word uint64, limit, cost, durationMs, nodes int64) way {
	claiming := e.book.claiming(slot)
	if !v.allowed {
		uncovered := window.Start(v.seq+1, durationMs) - v.tMs
		if claiming > 0 && window.Fits(max(0, v.current-claiming), v.previous, cost, limit, uncovered, durationMs) {
			return wayClaim
		}
		return wayMade
	}
	unconfirmed := e.unconfirmedLocked(slot, word)
	committed := unconfirmed + claiming - e.book.credit(slot)
	left := limit - (v.current - committed) - v.carried(durationMs)
	switch share := left / (2 * nodes); {
	case committed+cost <= 0, share > cost && committed+cost <= share:
		return wayMade
	case unconfirmed > 0:
		return wayReply
	}
	return wayClaim
}

// unconfirmedLocked is own cost that was accepted and that the origin has not confirmed, on
// its way or not.
func (e *entry) unconfirmedLocked(slot int, word uint64) int64 {
	b := e.book
	return max(0, wordCount(word)-b.netted(slot)-b.claiming(slot)-b.cells[slot].settled.Load()) + b.inFlight(slot)
}

// awaitReply has e sent, and waits for the reply.
func (l *Limiter) awaitReply(ctx context.Context, e *entry) way {
	if l.calls.IsStopped() || l.outOf(e, l.clock.Steady()) {
		l.metrics.waits[waitOutage].Add(1)
		return wayBroken
	}
	sh := l.shardOf(e)
	f := sh.await(e)
	l.kick(sh, e)
	return l.replied(ctx, f, e, time.Now())
}

// replied waits for a reply, since began.
func (l *Limiter) replied(ctx context.Context, f *flight, e *entry, began time.Time) way {
	if l.wait(ctx, f) {
		l.metrics.waits[waitReplied].Add(1)
		return wayReply
	}
	l.metrics.waits[waitOutage].Add(1)
	l.gaveUp(e, f, began)
	return wayBroken
}

// gaveUp lets a key rest, as after a read, whose answer the origin has failed to give, or not
// given in all of ReadTimeout. A caller that waits no longer says nothing about the origin.
func (l *Limiter) gaveUp(e *entry, f *flight, began time.Time) {
	failed := time.Since(began) >= l.cfg.ReadTimeout
	if f != nil && !failed {
		select {
		case <-f.done:
			failed = f.err != nil
		default:
		}
	}
	if failed {
		e.rest(l.clock.ReadSteady())
	}
}

// rest keeps e from asking the origin for a while.
func (e *entry) rest(now clock.Steady) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.readingLocked(now) {
		e.flight = &flight{}
		e.flight.restUntil.Store(int64(now) + retryPause.Milliseconds())
	}
}
