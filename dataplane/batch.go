package dataplane

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/weirhq/weir/dataplane/internal/cell"
	"github.com/weirhq/weir/dataplane/internal/clock"
	"github.com/weirhq/weir/dataplane/internal/rules"
	"github.com/weirhq/weir/shared/window"
)

// item is a request of a batch while the batch is decided.
type item struct {
	call
	rule        *rules.Rule
	ident       cell.Identity
	entry       *cell.Entry // nil for a cost above the limit on a key without an entry
	met         cell.Contact
	source      Source
	first       int   // index of the first item on the same key
	before      int64 // of the first: cost of the key's items judged so far
	wants       bool  // of the first: the key should be read from the origin before the batch is decided
	verdict     cell.Verdict
	refusal     time.Duration // > 0: the outage policy denies the item for this long
	overShareMs int64
	overShare   bool         // it leaves too little room for the cost that other nodes may have accepted
	claimed     cell.Claimed // of the first: the cost that the origin has added for the batch
}

// passes reports whether the item lets the batch pass. In shadow mode every item does: an item over its limit is not
// counted.
func (it *item) passes() bool { return it.verdict.Allowed || it.shadow() }

func (it *item) shadow() bool { return it.rule.Shadow || it.request.Shadow }

func (it *item) waits(untracked bool) bool {
	return it.rule.Waits && it.rule.Estimate == nil && it.entry != nil && untracked == (it.met == cell.Untracked)
}

// unclaimed returns the cost of the batch on a key that no claim has counted yet. it is the first item on the key.
func (it *item) unclaimed() int64 { return max(0, it.before-it.claimed.In(it.verdict.Sequence)) }

// batch is the state of one call with several requests. A pool keeps it for the next call.
type batch struct {
	engine  *engine
	items   []item
	order   []int         // the first item of each key, sorted by identity
	until   time.Duration // deadline of the batch's waits, counted from the clock's base; 0 before the first wait
	known   bool          // times are the origin's, or there is no origin
	horizon *cell.Horizon // keeps the batch's time from moving entries past the clock
	cached  bool          // the time was cached: deny only after reading the clock again, see soon
	out     bool          // the origin has just failed to answer about its keys
}

var batches = sync.Pool{New: func() any { return new(batch) }}

// take makes room for n zero items.
func (b *batch) take(n int) {
	if cap(b.items) < n {
		b.items, b.order = make([]item, n), make([]int, n)
	}
	b.items, b.order = b.items[:n], b.order[:0]
}

// put clears the items, because they refer to entries and names, and keeps the memory.
func (b *batch) put() {
	clear(b.items)
	batches.Put(b)
}

// begin makes room for n zero items, all decided at the same time.
func (b *batch) begin(g *engine, n int, at clock.Stamp) {
	b.take(n)
	b.engine = g
	b.cached, b.known, b.horizon, b.until, b.out = at.Cached, at.Known, g.table.Horizon(at.Given), 0, false
}

// bound moves the batch's time back if the clock was set back after the batch read it.
func (b *batch) bound(now clock.Steady) {
	if was := b.items[0].nowMs; b.horizon.Bound(was) != was {
		b.setTime(b.horizon.Bound(was), now)
	}
}

func (b *batch) setTime(nowMs int64, now clock.Steady) {
	for i := range b.items {
		b.items[i].nowMs, b.items[i].verdict.Now = nowMs, now
	}
}

const fewItems = 24 // up to this many items are compared in pairs; larger batches use a map

// prepare validates a batch, applies overrides, and finds items on the same key.
func (b *batch) prepare(requests []Request, nowMs int64) error {
	set := b.engine.rules.InForce()
	for i := range b.items {
		it, r := &b.items[i], &requests[i]
		if !r.valid() {
			return fmt.Errorf("requests[%d]: %w", i, r.Validate())
		}
		limit, duration := r.Limit, r.Duration // do not change the caller's slice
		it.rule = set.Resolve(r.Workspace, r.Namespace, r.Identifier, &limit, &duration)
		if it.mode = it.rule.Mode(); it.mode == window.Estimate {
			it.verdict.Now = b.engine.steadyFor(b.cached)
		}
		it.ident = b.engine.table.IdentityOf(r.Workspace, r.Namespace, r.Identifier, duration, it.mode)
		if it.rule.Reset != nil {
			it.ident.Renew(it.rule.Reset)
		}
		it.id, it.request = &it.ident, &requests[i]
		it.known = b.known
		it.nowMs, it.durationMs, it.limit, it.own, it.cost = nowMs, duration.Milliseconds(), limit, r.Limit, r.cost()
		it.horizon = b.horizon
	}
	b.sort()
	return nil
}

// sort finds the first item on each key, and sorts the first items.
func (b *batch) sort() {
	if len(b.items) > fewItems {
		b.sortBatch()
		return
	}
	for i := range b.items {
		it := &b.items[i]
		it.first = i
		for j := range i {
			if b.items[j].ident == it.ident {
				it.first = j
				break
			}
		}
		if it.first != i {
			continue
		}
		at := len(b.order)
		b.order = append(b.order, i)
		for ; at > 0 && it.ident.Less(&b.items[b.order[at-1]].ident); at-- {
			b.order[at] = b.order[at-1]
		}
		b.order[at] = i
	}
}

func (b *batch) sortBatch() {
	firsts := make(map[cell.Identity]int, len(b.items))
	for i := range b.items {
		it := &b.items[i]
		if j, ok := firsts[it.ident]; ok {
			it.first = j
			continue
		}
		it.first, firsts[it.ident] = i, i
		b.order = append(b.order, i)
	}
	slices.SortFunc(b.order, func(i, j int) int {
		return b.items[i].ident.Compare(&b.items[j].ident)
	})
}

// sourceOf sets the source and refusal of all items on the key whose first item is first.
func sourceOf(items []item, first int, source Source, refusal time.Duration) {
	for i := range items {
		if items[i].first == first {
			items[i].source, items[i].refusal = source, refusal
		}
	}
}

const aheadMax = 2 * window.LimitMax // more than any limit; sums stay far from overflow
