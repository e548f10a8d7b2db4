package hunt

import (
	"context"
	"slices"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/shared/window"
)

func (w *world) ask(l *life, key int, cost int64) { w.askBy(l, Step{Key: key, Cost: cost}) }

// askBy makes one request, with the step's limit if the step has a limit.
func (w *world) askBy(l *life, s Step) {
	w.asks.add(s.Key, s.Cost)
	r := w.request(s.Key, s.Cost)
	if s.Limit > 0 {
		r.Limit = s.Limit
	}
	before, over := w.judged(l, s.Key), w.wait(l)
	d := l.Limiter.Allow(context.Background(), r)
	over()
	w.locked(l, s.Key, &d)
	w.windows.denied(l, s.Key, s.Cost, &d, before)
	w.decided(l, s.Key, s.Cost, &d, before)
}

// hurry makes a request of a caller who does not wait for its end, or has left before its beginning.
func (w *world) hurry(l *life, s Step) {
	ctx, leave := context.WithTimeout(context.Background(), s.After)
	defer leave()
	w.asks.add(s.Key, s.Cost)
	before, began := w.judged(l, s.Key), time.Now()
	d := l.Limiter.Allow(ctx, w.request(s.Key, s.Cost))
	if waited := time.Since(began); waited > s.After {
		w.record.violate("wait", "%v has decided after %v, and its caller had %v", l, waited, s.After)
	}
	w.decided(l, s.Key, s.Cost, &d, before)
}

// bulk makes a batch with repeated keys.
func (w *world) bulk(l *life, s Step) {
	keys, costs := make([]int, s.Count), make([]int64, s.Count)
	for i := range keys {
		keys[i], costs[i] = (s.Key+i)%len(w.plan.Fleet.Keys), s.Cost
	}
	w.batch(l, keys, costs)
}

func (w *world) batch(l *life, keys []int, costs []int64) {
	requests, before := make([]dataplane.Request, len(keys)), make([]judged, len(keys))
	for i, key := range keys {
		requests[i], before[i] = w.request(key, costs[i]), w.judged(l, key)
		w.asks.add(key, costs[i])
	}
	if w.plan.mayFill() {
		defer w.ledger.batch(l.node.region, keys, costs)()
	}
	over := w.wait(l)
	b := l.Limiter.AllowMany(context.Background(), requests)
	over()
	if b.Err != nil {
		w.record.violate("error", "%v decided on a batch: %v", l, b.Err)
		return
	}
	for i, key := range keys {
		d := b.Decisions[i]
		d.Allowed = b.Allowed
		if !b.Allowed && w.plan.claims() {
			cells := w.cellsOf(l, key, &d, before[i], w.judged(l, key))
			w.ledger.ungranted(l.node.region, cells, costs[i]) // claimed, and then the node's credit
		}
		w.decidedOf(l, key, costs[i], &d, before[i], !w.plan.mayFill() || !d.Source.Degraded() && !w.plan.losesCalls())
	}
}

// peek makes a request that the ledger ignores, because a peek grants nothing.
func (w *world) peek(l *life, s Step) {
	over := w.wait(l)
	d := l.Limiter.Peek(context.Background(), w.request(s.Key, s.Cost))
	over()
	if d.Err != nil {
		w.record.violate("error", "%v peeks at k%d: %v", l, s.Key, d.Err)
	}
	w.record.note("%v  k%d for %d would be allowed: %t, %d left (%v)", l, s.Key, s.Cost, d.Allowed, d.Remaining, d.Source)
	w.views.look(l, s.Key)
}

// refund gives accepted cost back, also cost that other nodes accepted. It applies to the cell that is current at this
// moment.
func (w *world) refund(l *life, s Step) {
	refunded, err := l.Limiter.Refund(w.request(s.Key, s.Cost))
	cell, ok := w.current(l, s.Key)
	if err != nil {
		w.record.violate("error", "%v refunds %d of k%d: %v", l, s.Cost, s.Key, err)
	}
	if err != nil || !ok {
		return
	}
	w.record.note("%v  k%d refunded %d of %d", l, s.Key, refunded, s.Cost)
	if refunded > 0 {
		w.ledger.settle(l, []window.Cell{cell}, -refunded)
		w.windows.refund(cell, refunded)
	}
}

func (w *world) reserve(l *life, s Step) {
	w.asks.add(s.Key, s.Cost)
	before, over := w.judged(l, s.Key), w.wait(l)
	held, d := l.Limiter.AllowUpTo(context.Background(), w.request(s.Key, s.Cost))
	over()
	cells := w.decided(l, s.Key, s.Cost, &d, before)
	if !d.Allowed || d.Err != nil {
		return
	}
	time.Sleep(s.After)
	if l.ended.Load() {
		return // its caller ended with it
	}
	change, err := held.Settle(s.Actual)
	if err != nil {
		w.record.violate("error", "%v settled %d of k%d: %v", l, s.Actual, s.Key, err)
	}
	w.asks.add(s.Key, max(0, change))
	w.ledger.settle(l, w.charged(l, s.Key, cells, change), change)
	w.record.note("%v  k%d settled at %d: %+d", l, s.Key, s.Actual, change)
}

// charged returns the cells in which a charge on top of a reservation may count. If the clock was set back since, the
// key may have moved to an earlier cell than the cells of the reservation: the cell that the clock shows.
func (w *world) charged(l *life, key int, cells []window.Cell, change int64) []window.Cell {
	if change <= 0 {
		return cells
	}
	now, ok := w.current(l, key)
	before := func(c window.Cell) bool { return c.Key == now.Key && now.Sequence < c.Sequence }
	if ok && slices.ContainsFunc(cells, before) {
		return append(slices.Clone(cells), now)
	}
	return cells
}
