package dataplane

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/weirhq/weir/dataplane/internal/cell"
	"github.com/weirhq/weir/dataplane/internal/clock"
	"github.com/weirhq/weir/dataplane/internal/outbox"
	"github.com/weirhq/weir/dataplane/internal/rules"
	"github.com/weirhq/weir/shared/window"
)

// AllowMany decides several requests as one, at the clock's time: it counts either all of them or none. For example,
// use it if a call must fit both the limit of its user and the limit of its organization.
//
// Each request also gets its own verdict, as if the requests before it had been counted. So the same key twice counts
// twice.
//
// AllowMany decides the batch at one instant: no request, send or other batch can see a part of it. Meanwhile
// requests on its keys wait, for some hundred nanoseconds.
//
// Cold keys of a batch are read from the origin together, unless the counts on this node already deny it: up to 250
// keys of a shard in one round trip while no other keys are being read there, and 32 otherwise.
func (l *Limiter) AllowMany(ctx context.Context, requests []Request) Batch {
	return l.AppendAllowMany(ctx, nil, requests)
}

// AppendAllowMany is AllowMany for callers that reuse a slice: it appends the decisions to decisions, and
// Batch.Decisions is the result. If the slice has room, all keys are warm and there are at most 24 requests, it
// allocates nothing.
func (l *Limiter) AppendAllowMany(ctx context.Context, decisions []Decision, requests []Request) (b Batch) {
	l.engine.allowBatch(ctx, l.engine.clock.Now(), decisions, requests, nil, false, &b)
	return b
}

// AllowManyAt is AllowMany at a time that the caller passes; see AllowAt.
func (l *Limiter) AllowManyAt(ctx context.Context, now time.Time, requests []Request) (b Batch) {
	var at clock.Stamp
	if at, b.Err = l.engine.stamp(now); b.Err == nil {
		l.engine.allowBatch(ctx, at, nil, requests, nil, false, &b)
	}
	return b
}

// enterRoundsMax is the number of rounds after which a batch whose keys evict each other from a full table uses
// untracked keys.
const enterRoundsMax = 3

// allowBatch decides and counts a batch. If held is not nil, it receives the counted cost of each request. out means
// that the origin has just failed to answer about the batch's keys, so an open outage policy lets them pass.
func (g *engine) allowBatch(ctx context.Context, at clock.Stamp, decisions []Decision,
	requests []Request, held []Allowance, out bool, b *Batch) {
	if len(requests) == 0 || len(requests) > BatchMax {
		b.Err = fmt.Errorf("%w: requests holds %d items (1 to %d)", ErrInvalid, len(requests), BatchMax)
		return
	}
	w := batches.Get().(*batch)
	w.begin(g, len(requests), at)
	w.out = out
	if b.Err = w.prepare(requests, at.Ms); b.Err == nil {
		b.Allowed = w.decide(ctx)
		b.Decisions = w.answer(b.Allowed, decisions)
		if b.Allowed && held != nil {
			w.reserve(held)
		}
		w.end()
	}
	w.put()
}

// decide decides the batch, and counts it if all items pass.
func (b *batch) decide(ctx context.Context) (allowed bool) {
	allowed = b.decideRounds(ctx)
	b.settleUntracked(ctx, allowed)
	b.settleClaims(allowed)
	return allowed
}

// end ends the batch's use of its entries.
func (b *batch) end() {
	if !b.known && b.engine.clock.Known() { // as in decideCall
		for _, i := range b.order {
			if e := b.items[i].entry; e != nil {
				b.engine.out.Place(e)
			}
		}
	}
	b.releaseUntracked()
}

// reserve stores the counted cost of each request in held.
func (b *batch) reserve(held []Allowance) {
	for i := range b.items {
		it := &b.items[i]
		if first := &b.items[it.first]; it.verdict.Allowed && first.entry != nil {
			held[i] = Allowance{b.engine, first.entry, it.verdict.Sequence, it.limit, it.cost, first.met == cell.Untracked,
				!it.known}
		}
	}
}

func (b *batch) decideRounds(ctx context.Context) (allowed bool) {
	for round := 0; ; round++ {
		b.enter(ctx, round >= enterRoundsMax)
		allowed, alive := b.judge(ctx)
		switch {
		case !alive: // an entry was evicted meanwhile, or the clock was set back: look all keys up and the time again
			b.releaseUntracked()
			b.bound(b.engine.clock.ReadSteady())
		case !allowed && b.cached: // the clock may be a little further: see soon
			b.cached = false
			b.setTime(max(b.items[0].nowMs, b.engine.clock.ReadMs()), b.engine.clock.ReadSteady())
		default:
			return allowed
		}
	}
}

// enter finds or adds the entry of every key, or a temporary entry if the table is full. A key without an entry gets
// none if all its costs are above their limits.
func (b *batch) enter(ctx context.Context, untracked bool) {
	for _, i := range b.order {
		b.engine.table.Touch(&b.items[i].ident)
	}
	for i := range b.items {
		it := &b.items[i]
		first := &b.items[it.first]
		if it.first == i && it.met != cell.Untracked {
			it.entry, it.met = b.engine.table.Get(it.id), cell.Known
			if it.entry != nil && it.entry.Before(it.nowMs, it.durationMs) && b.engine.out.SetRight(it.entry) {
				it.entry = b.engine.table.Get(it.id)
			}
			for it.entry != nil && !it.entry.Flags().HaveWindow(it.rule.Precise) &&
				b.engine.setWindow(it.entry, it.rule.Precise) {
				it.entry = b.engine.table.Get(it.id)
			}
		}
		if first.entry == nil && (it.cost <= it.limit || it.rule.Estimate != nil) {
			b.create(ctx, first, untracked)
		}
	}
}

func (b *batch) create(ctx context.Context, it *item, untracked bool) {
	if untracked {
		it.entry, it.met = b.engine.addUntracked(&it.call, it.rule, window.Sequence(it.nowMs, it.durationMs))
		return
	}
	it.until = b.until
	it.entry, it.met = b.engine.findOrAdd(ctx, &it.call, it.rule)
	b.until = it.until
	if it.known && !b.known {
		b.renumber()
	}
}

// judge decides the batch. It first reads the keys that need it from the origin, unless the counts on this node
// already deny the batch. Such a denial costs no I/O.
func (b *batch) judge(ctx context.Context) (allowed, alive bool) {
	for _, i := range b.order {
		if b.out && b.items[i].rule.Outage == rules.OutageOpen {
			sourceOf(b.items, i, SourceDegradedOpen, 0)
		}
	}
	if wanting := b.wantingRefresh(); len(wanting) > 0 {
		wanting = b.foresee(wanting)
		if denied, alive := b.foredeny(); denied || !alive {
			return false, alive
		}
		b.refresh(ctx, wanting)
		if !b.known && b.engine.clock.Known() && b.renumber() {
			return false, false
		}
	}
	for _, untracked := range [...]bool{false, true} { // last the untracked keys, which keep no credit of a failed batch
		if b.engine.alone || !b.anyWaits(untracked) {
			continue
		}
		if denied, alive := b.foredeny(); denied || !alive {
			return false, alive
		}
		b.share(ctx, untracked)
	}
	return b.hold(true, true)
}

// renumber moves the batch to the origin's clock, after the first reply during the batch. It reports whether any
// entry must be looked up and read again.
func (b *batch) renumber() (replaced bool) {
	b.known = true
	for i := range b.items {
		b.items[i].known = true
	}
	wall := b.engine.clock
	b.setTime(wall.Settle(b.items[0].nowMs, b.horizon.Given(), b.engine.clockSkewMax), wall.ReadSteady())
	for _, i := range b.order {
		if it := &b.items[i]; it.entry != nil {
			replaced = b.engine.out.Renumber(it.entry, it.horizon, it.nowMs) || replaced
		}
	}
	return replaced
}

// foredeny reports whether the counts on this node deny the batch for good. A denial is not final while claims are in
// flight, because their cost may come back.
func (b *batch) foredeny() (denied, alive bool) {
	final := !b.anyClaiming()
	allowed, alive := b.hold(false, final)
	return alive && !allowed && final, alive
}

// anyClaiming reports whether a claim of a key is in flight.
func (b *batch) anyClaiming() bool {
	for _, i := range b.order {
		if e := b.items[i].entry; e != nil && e.Flags().Claiming() {
			return true
		}
	}
	return false
}

// hold judges the batch at one instant. If count is set and all items pass, it counts the batch. final means that a
// denial is the batch's answer.
func (b *batch) hold(count, final bool) (allowed, alive bool) {
	for n, i := range b.order {
		it := &b.items[i]
		it.before = 0
		if it.entry == nil {
			continue
		}
		agedOut, alive := it.entry.Hold(b.horizon, it.nowMs, it.durationMs)
		if agedOut > 0 {
			b.engine.out.ForgetUnsent(it.entry, agedOut)
		}
		if !alive {
			b.release(b.order[:n], false, false)
			return false, false
		}
	}
	allowed = true
	for i := range b.items {
		it := &b.items[i]
		it.judge(&b.items[it.first])
		allowed = allowed && it.passes()
	}
	if allowed && count {
		b.lowerMinLimits()
	}
	b.release(b.order, allowed && count, !allowed && final && !b.cached)
	return allowed, true
}

// lowerMinLimits stores the limits of a batch that is about to be counted.
func (b *batch) lowerMinLimits() {
	for i := range b.items {
		it := &b.items[i]
		if e := b.items[it.first].entry; e != nil && it.cost > 0 && it.verdict.Allowed {
			e.LowerMinLimit(it.verdict.Sequence, it.limit)
		}
	}
}

// judge sets the item's verdict as if the items before it on its key had been counted, starting with first. Items
// that only shadow mode lets pass are not counted.
func (it *item) judge(first *item) {
	it.source = max(it.source, SourceLocal)
	it.ahead = first.before
	it.verdict.Refused, it.verdict.OverShare = false, false
	switch {
	case it.rule.Estimate != nil:
		first.entry.Estimates().JudgeHeld(&it.verdict, it.nowMs, it.durationMs, it.limit, it.ahead+it.cost,
			&it.rule.Estimate.Rules)
	case first.entry == nil:
		it.verdict = cell.Verdict{Sequence: window.Sequence(it.nowMs, it.durationMs), AtMs: it.nowMs}
	default:
		first.entry.JudgeHeld(&it.verdict, it.nowMs, it.durationMs, it.limit, it.ahead+it.cost, &first.claimed)
	}
	switch {
	case it.source == SourceDegradedClosed:
		it.verdict.Refuse(it.nowMs, it.refusal)
	case it.source == SourceDegradedOpen && it.ahead+it.cost <= it.limit:
		it.verdict.Allowed = true
	case it.overShare && it.verdict.Allowed && it.cost > 0:
		it.verdict.DenyOverShare(it.nowMs, it.overShareMs)
	}
	if it.verdict.Allowed || !it.shadow() || it.rule.Offered() {
		first.before = min(first.before+it.cost, aheadMax)
	}
}

// release unlocks the entries. With count set, it counts the judged cost of each key that no claim has counted. With
// offered set, it does so for the keys whose namespace counts all offered cost.
func (b *batch) release(order []int, count, offered bool) {
	for _, i := range order {
		switch it := &b.items[i]; {
		case it.entry == nil:
		case count || offered && it.rule.Offered():
			it.entry.Release(it.unclaimed())
		default:
			it.entry.Release(0)
		}
	}
}

// anyWaits reports whether a key's namespace waits for its share. untracked selects the untracked keys or all others.
func (b *batch) anyWaits(untracked bool) bool {
	for _, i := range b.order {
		if b.items[i].waits(untracked) {
			return true
		}
	}
	return false
}

// wantingRefresh returns the keys that should be read from the origin before the batch is decided.
func (b *batch) wantingRefresh() (wanting []int) {
	if b.engine.alone {
		return nil
	}
	now, set := b.engine.clock.Steady(), b.engine.rules.InForce()
	for i := range b.items {
		it := &b.items[i]
		first := &b.items[it.first]
		if first == it {
			it.before, it.wants = 0, it.entry != nil && it.rule.Estimate == nil &&
				(!b.known || it.entry.Reads().WantsRefresh(now, set.FreshForMs) ||
					it.rule.Outage == rules.OutageClosed && b.engine.out.Refuses(it.entry))
		}
		first.wants = first.wants || b.itemAsksFirst(it, first, now, set)
	}
	for i := range b.items {
		if b.items[i].wants {
			wanting = append(wanting, i)
		}
	}
	return wanting
}

// itemAsksFirst is asksFirst for an item; first is the first item on its key. An item over its limit that only shadow
// mode lets pass is not counted, so it needs no read.
func (b *batch) itemAsksFirst(it, first *item, now clock.Steady, set *rules.Settings) bool {
	if it.cost == 0 || first.entry == nil || it.rule.Estimate != nil || first.met == cell.Untracked {
		return false
	}
	it.ahead = first.before
	if known, _ := first.entry.InWindow(it.nowMs); it.shadow() && it.ahead+it.cost > it.limit-known {
		return false
	}
	first.before = min(it.ahead+it.cost, aheadMax)
	return b.engine.asksFirst(first.entry, &it.call, now, set)
}

// foresee applies the outage policies open and closed to keys whose shard is already failing. If the shard refuses
// writes, the policy decides the key at once. If only reads fail, an open key is marked so that a failed read lets it
// pass. foresee returns the keys that should still be read.
func (b *batch) foresee(wanting []int) (reads []int) {
	items := b.items
	now := b.engine.clock.Steady()
	for _, n := range wanting {
		switch it := &items[n]; {
		case it.rule.Outage != rules.OutageLocal && b.engine.out.Refuses(it.entry):
			sourceOf(items, n, sourceOut(it.rule.Outage), b.engine.out.RetryAfter(it.entry, now))
			continue
		case it.rule.Outage == rules.OutageOpen && b.engine.out.OutOf(it.entry, now):
			sourceOf(items, n, SourceDegradedOpen, 0)
		}
		reads = append(reads, n)
	}
	return reads
}

// refresh reads keys from the origin in one round trip.
func (b *batch) refresh(ctx context.Context, wanting []int) {
	ctx, cancel := b.engine.within(ctx, &b.until)
	defer cancel()
	items := b.items
	entries := make([]*cell.Entry, len(wanting))
	for n, i := range wanting {
		entries[n] = items[i].entry
	}
	for n, f := range b.engine.out.ReadAll(b.engine.clock.Steady(), entries) {
		it := &items[wanting[n]]
		source, refusal := SourceOrigin, time.Duration(0)
		if !outbox.Wait(ctx, f) {
			source = sourceOut(it.rule.Outage)
		}
		if source == SourceDegradedClosed {
			refusal = b.engine.out.RetryAfter(it.entry, b.engine.clock.Steady())
		}
		sourceOf(items, wanting[n], source, refusal)
	}
}

// answer fills a Decision from each item's verdict.
func (b *batch) answer(kept bool, decisions []Decision) []Decision {
	items := b.items
	at := len(decisions)
	if cap(decisions)-at < len(items) {
		decisions = slices.Grow(decisions, len(items))
	}
	decisions = decisions[:at+len(items)]
	clear(decisions[at:])
	counts := b.engine.stats.stripe(&items[0].call)
	var n int64 // a run of decisions with the same source and outcome, for the metrics
	var source Source
	var out outcome
	for i := range items {
		it := &items[i]
		it.counts = counts
		first := &items[it.first]
		d := &decisions[at+i]
		result := b.answerItem(it, kept, first, d)
		if !kept && result == outcomeAllowed {
			result = outcomeBatchDenied
		}
		if !it.verdict.Allowed || !plain(&it.verdict, it.rule) {
			b.engine.count(first.entry, first.met, &it.verdict, &it.call, it.rule, it.source, d, result)
			continue
		}
		if n > 0 && (it.source != source || result != out) {
			counts.decided(source, out, n)
			n = 0
		}
		source, out, n = it.source, result, n+1
	}
	if n > 0 {
		counts.decided(source, out, n)
	}
	return decisions
}

// answerItem fills an item's Decision. A batch that failed has counted nothing, so Remaining does not change.
func (b *batch) answerItem(it *item, kept bool, first *item, d *Decision) outcome {
	v, c := &it.verdict, &it.call
	if !v.Allowed && first.entry != nil {
		setRetry(first.entry, v, c, it.rule)
	}
	out := d.answer(v, c, it.rule, it.source)
	if !kept {
		d.Remaining = v.Level.Remaining(c.limit, c.durationMs, it.rule.Estimate != nil && it.rule.Estimate.Below)
	}
	if first.entry == nil {
		return out
	}
	ahead := it.ahead
	switch {
	case it.rule.Offered(), kept && v.Allowed:
		v.Counted = it.cost
	case it.rule.Estimate != nil && !kept:
		it.ahead = 0 // was not counted either
	}
	b.engine.mark(first.entry, first.met, v, c, it.rule)
	it.ahead = ahead
	return out
}
