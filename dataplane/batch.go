package dataplane

import (
	"context"
	"fmt"
	"time"

	"github.com/weirhq/weir/shared/window"
)

// AllowMany decides several requests as one, at the clock's time: all are counted,
// or none is. Each gets its own verdict too, as if the items before it had been
// counted, so that the same key twice counts twice.
//
// A batch first looks without touching anything; only if every item would pass are
// the costs reserved, one after another, and kept if all of them still pass. A
// reservation is never replayed or published. For the moment between reserving and
// taking back, which only happens when another caller took the last room in
// between, other requests on the same keys see less room than there is.
//
// Cold keys of a batch are read from the origin in one round trip.
func (l *Limiter) AllowMany(ctx context.Context, requests []Request) Batch {
	return l.allowMany(ctx, l.cfg.Clock(), requests)
}

// AllowManyAt is AllowMany at a time of the caller's; see AllowAt.
func (l *Limiter) AllowManyAt(ctx context.Context, now time.Time, requests []Request) Batch {
	if err := l.checkTime(now); err != nil {
		return Batch{Err: err}
	}
	return l.allowMany(ctx, now, requests)
}

// item is one request of a batch on its way.
type item struct {
	Request
	rule    rule
	entry   *entry
	tracked bool
	same    int64 // cost of the items before it on the same entry
	verdict verdict
	source  Source
	taken   bool // its cost is reserved
}

// passes is true when the item does not stand in the batch's way. In a namespace in
// shadow mode no item does; one that is over its limit is just not counted.
func (it *item) passes() bool { return it.verdict.allowed || it.rule.shadow }

func (l *Limiter) allowMany(ctx context.Context, now time.Time, requests []Request) Batch {
	items, err := l.items(requests)
	if err != nil {
		return Batch{Err: err}
	}
	nowMs := now.UnixMilli()
	for {
		l.enter(items, nowMs)
		allowed, alive := l.judgeMany(ctx, items, nowMs)
		if !alive {
			continue // an entry was evicted meanwhile: look all keys up again
		}
		b := Batch{Allowed: allowed, Decisions: make([]Decision, len(items))}
		for i := range items {
			b.Decisions[i] = l.answerItem(&items[i], allowed, nowMs)
		}
		return b
	}
}

// items validates a batch and applies overrides.
func (l *Limiter) items(requests []Request) ([]item, error) {
	if len(requests) == 0 || len(requests) > BatchMax {
		return nil, fmt.Errorf("%w: requests holds %d items (1 to %d)", ErrInvalid, len(requests), BatchMax)
	}
	set := l.settings.Load()
	items := make([]item, len(requests))
	for i, r := range requests {
		if err := r.Validate(); err != nil {
			return nil, fmt.Errorf("requests[%d]: %w", i, err)
		}
		items[i].Request = r
		items[i].rule = set.resolve(&items[i].Request)
	}
	return items, nil
}

// enter finds or makes every item's entry, and adds up the costs on the same key.
func (l *Limiter) enter(items []item, nowMs int64) {
	before := make(map[window.Key]int, len(items)) // index of the last item on the key
	for i := range items {
		it := &items[i]
		key := window.Key{Workspace: it.Workspace, Namespace: it.Namespace, Identifier: it.Identifier, Duration: it.Duration}
		it.same = 0
		if j, ok := before[key]; ok {
			it.entry, it.tracked, it.same = items[j].entry, items[j].tracked, items[j].same+items[j].Cost
		} else {
			it.entry, it.tracked = l.table.add(key, sequenceAt(nowMs, key.DurationMs()), nowMs, &l.table.created.traffic)
		}
		before[key] = i
	}
}

// judgeMany looks, refreshes what wants it, looks again, and reserves.
func (l *Limiter) judgeMany(ctx context.Context, items []item, nowMs int64) (allowed, alive bool) {
	if allowed, alive = peekMany(items, nowMs); !allowed || !alive {
		return allowed, alive // what local state denies stays denied: no I/O
	}
	if l.refreshMany(ctx, items, nowMs) {
		if allowed, alive = peekMany(items, nowMs); !allowed || !alive {
			return allowed, alive
		}
	}
	return reserveMany(items, nowMs)
}

// peekMany gives every item its verdict and changes nothing.
func peekMany(items []item, nowMs int64) (allowed, alive bool) {
	allowed = true
	for i := range items {
		it := &items[i]
		it.source = max(it.source, SourceLocal)
		var v verdict
		if v, alive = it.entry.judge(nowMs, it.Duration.Milliseconds(), it.Limit, it.same+it.Cost, false); !alive {
			return false, false
		}
		v.current += it.same
		it.verdict = v
		allowed = allowed && it.passes()
	}
	return allowed, true
}

// refreshMany asks the origin about all keys that want it, in one round trip, and
// reports whether it asked.
func (l *Limiter) refreshMany(ctx context.Context, items []item, nowMs int64) bool {
	if l.cfg.Origin == nil {
		return false
	}
	freshForMs := l.settings.Load().freshForMs
	var wanting []*entry
	var at []int
	for i := range items {
		if it := &items[i]; it.entry.wantsRefresh(nowMs, freshForMs) {
			wanting, at = append(wanting, it.entry), append(at, i)
		}
	}
	for i, f := range l.readMany(nowMs, wanting) {
		items[at[i]].source = SourceDegraded
		if l.wait(ctx, f) {
			items[at[i]].source = SourceOrigin
		}
	}
	return len(wanting) > 0
}

// reserveMany takes every cost, in order, then keeps all or takes all back.
func reserveMany(items []item, nowMs int64) (allowed, alive bool) {
	allowed, alive = true, true
	for i := range items {
		it := &items[i]
		it.verdict, alive = it.entry.reserve(nowMs, it.Duration.Milliseconds(), it.Limit, it.Cost)
		it.taken = alive && it.verdict.allowed
		if allowed = alive && it.passes(); !allowed {
			break
		}
	}
	for i := range items {
		it := &items[i]
		switch {
		case it.taken && allowed:
			it.entry.keep(it.verdict.seq, it.Cost)
		case it.taken:
			it.entry.undo(it.verdict.seq, it.Cost)
		}
		it.taken = false
	}
	return allowed, alive
}

// answerItem words one item's verdict. In a batch that failed nothing was counted,
// so what remains is what was there before.
func (l *Limiter) answerItem(it *item, kept bool, nowMs int64) Decision {
	d, outcome := decide(it.verdict, it.Request, nowMs, it.Duration.Milliseconds()).ruled(it.rule)
	d.Source = it.source
	switch {
	case !it.verdict.allowed:
		l.denied(it.entry, nowMs, it.Request)
	case kept && it.Cost > 0:
		l.accepted(it.entry, it.tracked, it.verdict.seq, it.Request)
	}
	if !kept {
		uncounted := it.verdict
		uncounted.current -= it.same
		d.Remaining = remainingBefore(uncounted, it.Request)
	}
	l.metrics.decided(it.entry.stripe, it.source, outcome)
	return d
}

func remainingBefore(v verdict, r Request) int64 {
	durationMs := r.Duration.Milliseconds()
	return window.Remaining(v.current, v.previous, r.Limit, window.Uncovered(v.tMs, durationMs), durationMs)
}
