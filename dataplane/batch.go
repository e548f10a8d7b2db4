package dataplane

import (
	"context"
	"fmt"
	"slices"
	"sync"
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
	return l.AppendMany(ctx, nil, requests)
}

// AppendMany is AllowMany for callers who keep a slice for the decisions: they are
// appended to decisions, and Batch.Decisions is the result. With room for them, warm
// keys and at most eight requests, nothing is allocated.
func (l *Limiter) AppendMany(ctx context.Context, decisions []Decision, requests []Request) Batch {
	nowMs, _ := l.clock.nowMs()
	return l.allowMany(ctx, nowMs, decisions, requests)
}

// AllowManyAt is AllowMany at a time of the caller's; see AllowAt.
func (l *Limiter) AllowManyAt(ctx context.Context, now time.Time, requests []Request) Batch {
	if err := l.checkTime(now); err != nil {
		return Batch{Err: err}
	}
	return l.allowMany(ctx, now.UnixMilli(), nil, requests)
}

// item is one request of a batch on its way.
type item struct {
	question
	rule    rule
	ident   identity
	name    Request
	entry   *entry
	met     contact
	taken   bool  // its cost is reserved
	first   int   // index of the first item on the same key
	same    int64 // cost of the items before it on the same key
	verdict verdict
	source  Source
}

// passes is true when the item does not stand in the batch's way. In a namespace in
// shadow mode no item does; one that is over its limit is just not counted.
func (it *item) passes() bool { return it.verdict.allowed || it.rule.shadow }

// workspace is what one batch works on, kept for the next one.
type workspace struct{ items []item }

var workspaces = sync.Pool{New: func() any { return new(workspace) }}

// take returns n zero items.
func (w *workspace) take(n int) []item {
	if cap(w.items) < n {
		w.items = make([]item, n)
	}
	return w.items[:n]
}

// put clears the items, which hold on to entries and names, and keeps the space.
func (w *workspace) put(used []item) {
	clear(used)
	workspaces.Put(w)
}

const enterRoundsMax = 3 // after which a batch whose keys push each other out of a full table makes do with untracked ones

const fewItems = 8 // up to which pairs are compared; above, a map is made

func (l *Limiter) allowMany(ctx context.Context, nowMs int64, decisions []Decision, requests []Request) Batch {
	if len(requests) == 0 || len(requests) > BatchMax {
		return Batch{Err: fmt.Errorf("%w: requests holds %d items (1 to %d)", ErrInvalid, len(requests), BatchMax)}
	}
	space := workspaces.Get().(*workspace)
	items := space.take(len(requests))
	defer space.put(items)
	if err := l.prepare(items, requests, nowMs); err != nil {
		return Batch{Err: err}
	}
	if cap(decisions)-len(decisions) < len(items) {
		decisions = slices.Grow(decisions, len(items))
	}
	for round := 0; ; round++ {
		l.enter(items, round >= enterRoundsMax)
		allowed, alive := l.judgeMany(ctx, items)
		if !alive {
			continue // an entry was evicted meanwhile: look all keys up again
		}
		for i := range items {
			decisions = append(decisions, Decision{})
			l.answerItem(&items[i], allowed, &decisions[len(decisions)-1])
		}
		return Batch{Allowed: allowed, Decisions: decisions}
	}
}

// prepare validates a batch, applies overrides, and adds up the costs on the same key.
func (l *Limiter) prepare(items []item, requests []Request, nowMs int64) error {
	set := l.settings.Load()
	for i := range items {
		r, it := requests[i], &items[i]
		if !r.valid() {
			return fmt.Errorf("requests[%d]: %w", i, r.Validate())
		}
		it.rule = set.resolve(&r)
		it.name = r
		it.ident = l.table.of(r.Workspace, r.Namespace, r.Identifier, r.Duration)
		it.id, it.request = &it.ident, &it.name
		it.nowMs, it.durationMs, it.limit, it.cost = nowMs, r.Duration.Milliseconds(), r.Limit, r.Cost
	}
	addUp(items)
	return nil
}

// addUp finds for each item those before it on the same key, and their cost.
func addUp(items []item) {
	if len(items) > fewItems {
		last := make(map[identity]int, len(items))
		for i := range items {
			items[i].first = i
			if j, ok := last[items[i].ident]; ok {
				items[i].follow(&items[j])
			}
			last[items[i].ident] = i
		}
		return
	}
	for i := range items {
		items[i].first = i
		for j := i - 1; j >= 0; j-- {
			if items[j].ident == items[i].ident {
				items[i].follow(&items[j])
				break
			}
		}
	}
}

func (it *item) follow(before *item) {
	it.first, it.same = before.first, before.same+before.cost
}

// enter finds or makes every item's entry: one for a key, also where the table has no
// room for it.
func (l *Limiter) enter(items []item, crowded bool) {
	for i := range items {
		it := &items[i]
		if it.first != i {
			it.entry, it.met = items[it.first].entry, items[it.first].met
			continue
		}
		if it.entry = l.table.get(it.id); it.entry != nil {
			it.met = known
			continue
		}
		key := it.name.key()
		if crowded {
			it.entry, it.met = newEntry(it.id, &key, window.Sequence(it.nowMs, it.durationMs), l.table.fleet), untracked
			continue
		}
		it.entry, it.met = l.table.add(it.id, &key, window.Sequence(it.nowMs, it.durationMs), it.nowMs, &l.table.created.traffic)
	}
}

// judgeMany looks, refreshes what wants it, looks again, and reserves.
func (l *Limiter) judgeMany(ctx context.Context, items []item) (allowed, alive bool) {
	if allowed, alive = l.peekMany(items); !allowed || !alive {
		return allowed, alive // what local state denies stays denied: no I/O
	}
	if l.refreshMany(ctx, items) {
		if allowed, alive = l.peekMany(items); !allowed || !alive {
			return allowed, alive
		}
	}
	return l.reserveMany(items)
}

// peekMany gives every item its verdict and changes nothing.
func (l *Limiter) peekMany(items []item) (allowed, alive bool) {
	allowed = true
	for i := range items {
		it := &items[i]
		it.source = max(it.source, SourceLocal)
		var v verdict
		alive = it.entry.judge(&v, it.nowMs, it.durationMs, it.limit, it.same+it.cost, false)
		if v.agedOut > 0 {
			l.metrics.dropped[droppedExpired].Add(v.agedOut)
		}
		if !alive {
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
func (l *Limiter) refreshMany(ctx context.Context, items []item) bool {
	if l.cfg.Origin == nil {
		return false
	}
	freshForMs := l.settings.Load().freshForMs
	var wanting []*entry
	var at []int
	for i := range items {
		if it := &items[i]; it.entry.wantsRefresh(it.nowMs, freshForMs) {
			wanting, at = append(wanting, it.entry), append(at, i)
		}
	}
	if len(wanting) == 0 {
		return false
	}
	for i, f := range l.readMany(items[0].nowMs, wanting) {
		items[at[i]].source = SourceDegraded
		if l.wait(ctx, f) {
			items[at[i]].source = SourceOrigin
		}
	}
	return true
}

// reserveMany takes every cost, in order, then keeps all or takes all back.
func (l *Limiter) reserveMany(items []item) (allowed, alive bool) {
	allowed, alive = true, true
	for i := range items {
		it := &items[i]
		it.verdict, alive = it.entry.reserve(it.nowMs, it.durationMs, it.limit, it.cost)
		l.metrics.dropped[droppedExpired].Add(it.verdict.agedOut)
		it.taken = alive && it.verdict.allowed
		if allowed = alive && it.passes(); !allowed {
			break
		}
	}
	for i := range items {
		it := &items[i]
		switch {
		case it.taken && allowed:
			it.entry.keep(it.verdict.seq, it.cost)
		case it.taken:
			it.entry.undo(it.verdict.seq, it.cost)
		}
		it.taken = false
	}
	return allowed, alive
}

// answerItem words one item's verdict. In a batch that failed nothing was counted,
// so what remains is what was there before.
func (l *Limiter) answerItem(it *item, kept bool, d *Decision) {
	l.metrics.decided(it.id, it.source, d.answer(&it.verdict, &it.question, it.rule, it.source))
	switch {
	case !it.verdict.allowed:
		l.denied(it.entry, it.verdict.seq, &it.question)
	case kept && it.cost > 0:
		l.accepted(it.entry, it.met, &it.verdict, &it.question)
	}
	if !kept {
		uncovered := window.Start(it.verdict.seq+1, it.durationMs) - it.verdict.tMs
		d.Remaining = window.Remaining(it.verdict.current-it.same, it.verdict.previous, it.limit, uncovered, it.durationMs)
	}
}
