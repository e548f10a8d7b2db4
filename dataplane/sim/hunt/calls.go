package hunt

import (
	"context"
	"slices"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/shared/window"
)

// callers make single requests and batches, and record each decision in the ledgers of the world.
type callers struct {
	world *world
	asks  asks
}

// ask makes one request with the key's own limit.
func (c *callers) ask(l *life, key int, cost int64) { c.askBy(l, Step{Key: key, Cost: cost}) }

// askBy makes one request, with the step's limit if the step has a limit.
func (c *callers) askBy(l *life, s Step) {
	w := c.world
	c.asks.add(s.Key, s.Cost)
	r := w.request(s.Key, s.Cost)
	if s.Limit > 0 {
		r.Limit = s.Limit
	}
	before, over := w.judged(l, s.Key), w.record.wait(l)
	d := l.Limiter.Allow(context.Background(), r)
	over()
	c.asks.locked(l, s.Key, &d)
	w.windows.denied(l, s.Key, s.Cost, &d, before)
	c.decided(l, s.Key, s.Cost, &d, before)
}

// hurry makes a request of a caller who does not wait for its end, or has left before its beginning.
func (c *callers) hurry(l *life, s Step) {
	w := c.world
	ctx, leave := context.WithTimeout(context.Background(), s.After)
	defer leave()
	c.asks.add(s.Key, s.Cost)
	before, began := w.judged(l, s.Key), time.Now()
	d := l.Limiter.Allow(ctx, w.request(s.Key, s.Cost))
	if waited := time.Since(began); waited > s.After {
		w.record.violate("wait", "%v has decided after %v, and its caller had %v", l, waited, s.After)
	}
	c.decided(l, s.Key, s.Cost, &d, before)
}

// bulk makes a batch with repeated keys.
func (c *callers) bulk(l *life, s Step) {
	keys, costs := make([]int, s.Count), make([]int64, s.Count)
	for i := range keys {
		keys[i], costs[i] = (s.Key+i)%len(c.world.plan.Fleet.Keys), s.Cost
	}
	c.batch(l, keys, costs)
}

func (c *callers) batch(l *life, keys []int, costs []int64) {
	w := c.world
	requests, before := make([]dataplane.Request, len(keys)), make([]judged, len(keys))
	for i, key := range keys {
		requests[i], before[i] = w.request(key, costs[i]), w.judged(l, key)
		c.asks.add(key, costs[i])
	}
	if w.plan.MayFill() {
		defer w.ledger.batch(l.node.region, keys, costs)()
	}
	over := w.record.wait(l)
	b := l.Limiter.AllowMany(context.Background(), requests)
	over()
	if b.Err != nil {
		w.record.violate("error", "%v decided on a batch: %v", l, b.Err)
		return
	}
	for i, key := range keys {
		d := b.Decisions[i]
		d.Allowed = b.Allowed
		if !b.Allowed && w.plan.Claims() {
			cells := w.cellsOf(l, key, &d, before[i], w.judged(l, key))
			w.ledger.ungranted(l.node.region, cells, costs[i]) // claimed, and then the node's credit
		}
		c.decidedOf(l, key, costs[i], &d, before[i], !w.plan.MayFill() || !d.Source.Degraded() && !w.plan.LosesCalls())
	}
}

// peek makes a request that the ledger ignores, because a peek grants nothing.
func (c *callers) peek(l *life, s Step) {
	w := c.world
	over := w.record.wait(l)
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
func (c *callers) refund(l *life, s Step) {
	w := c.world
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

func (c *callers) reserve(l *life, s Step) {
	w := c.world
	c.asks.add(s.Key, s.Cost)
	before, over := w.judged(l, s.Key), w.record.wait(l)
	held, d := l.Limiter.AllowUpTo(context.Background(), w.request(s.Key, s.Cost))
	over()
	cells := c.decided(l, s.Key, s.Cost, &d, before)
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
	c.asks.add(s.Key, max(0, change))
	w.ledger.settle(l, c.charged(l, s.Key, cells, change), change)
	w.record.note("%v  k%d settled at %d: %+d", l, s.Key, s.Actual, change)
}

// charged returns the cells in which a charge on top of a reservation may count. If the clock was set back since, the
// key may have moved to an earlier cell than the cells of the reservation: the cell that the clock shows.
func (c *callers) charged(l *life, key int, cells []window.Cell, change int64) []window.Cell {
	if change <= 0 {
		return cells
	}
	now, ok := c.world.current(l, key)
	before := func(c window.Cell) bool { return c.Key == now.Key && now.Sequence < c.Sequence }
	if ok && slices.ContainsFunc(cells, before) {
		return append(slices.Clone(cells), now)
	}
	return cells
}

// decided records the decision of a single request.
func (c *callers) decided(l *life, key int, cost int64, d *dataplane.Decision, before judged) (cells []window.Cell) {
	return c.decidedOf(l, key, cost, d, before, !c.world.plan.MayFill() || !d.Source.Degraded())
}

// decidedOf records a decision. If known, the decision's cost reaches the origin. Otherwise perhaps only the sketch of
// a full table has it.
func (c *callers) decidedOf(l *life, key int, cost int64, d *dataplane.Decision, before judged,
	known bool) (cells []window.Cell) {
	w := c.world
	w.ledger.decisions.Add(1)
	if d.Err != nil {
		w.record.violate("error", "%v decided on k%d: %v", l, key, d.Err)
		return nil
	}
	if !w.operators.limitWasSet(key, d.Limit) {
		w.record.violate("set", "%v decided on k%d by a limit of %d", l, key, d.Limit)
	}
	if d.Source == dataplane.SourceOrigin {
		l.answered.Store(true)
	}
	after := w.judged(l, key)
	cells = w.cellsOf(l, key, d, before, after)
	w.windows.decided(l, key, cost, d, before, after)
	verdict := "denied"
	if d.Source.Degraded() && w.plan.Claims() {
		w.ledger.withoutAnswer(l.node.region, cells, cost, d.Allowed)
	}
	if d.Allowed {
		verdict = "allowed"
		w.ledger.grant(l, cells, cost, d.Limit, known)
	}
	w.record.note("%v  k%d for %d: %s, %d left (%v)", l, key, cost, verdict, d.Remaining, d.Source)
	w.views.look(l, key)
	return cells
}
