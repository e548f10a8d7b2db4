package dataplane

import (
	"github.com/weirhq/weir/dataplane/internal/cell"
	"github.com/weirhq/weir/dataplane/internal/outbox"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// Allowance is cost that AllowUpTo accepted as an estimate, and that this process settles once the
// true cost is known, such as the bytes of a reply.
//
// Settle changes the count of the cell that has the estimate, while that can still influence a
// decision:
//
//   - More than the estimate is charged at once, even past the limit: it has been
//     spent. It reaches the other nodes and regions as any accepted cost does.
//   - Less is given back. What was not sent yet (the last replay tick,
//     on a node with an origin) vanishes as if it had never been accepted. Cost that was
//     sent stays in the counts of other nodes, because these only grow. It becomes this
//     node's credit in that cell: decisions here see it at once, and the next cost that
//     this node accepts there is paid from it instead of being sent, so that the other
//     nodes' counts become exact again. Credit that is left ends with its cell.
//
// So a count is never negative, never below the cost that this node's callers spent,
// and no history shrinks below its confirmed cost. Other nodes and regions may
// see up to the credit too much until it is used. The credit given in one cell is at most
// 2^53 in all; cost that is given back beyond that stays counted.
//
// If the key was evicted since, or the table had no room for it, a charge makes a new entry for it.
// Such a key gives nothing back, because the entry that counted the estimate is gone. If there is
// still no room, only the overflow counts the charge, which is not sent to the origin.
//
// The zero Allowance holds nothing. An Allowance must not be copied after Settle,
// nor settled from two goroutines at once.
type Allowance struct {
	engine   *engine
	entry    *cell.Entry // that counted it; it may be evicted since
	sequence int64
	limit    int64
	held     int64 // cost that was accepted; 0 once settled
	outside  bool  // the table had no room for the key: entry is an untracked key's
	early    bool  // the origin's clock was not known when sequence was set
}

// Held is the cost that waits to be settled.
func (r *Allowance) Held() int64 { return r.held }

// Settle replaces the estimate by the true cost, 0 to window.LimitMax, once; after
// that it does nothing. It returns how much was charged on top (> 0), or given back
// (< 0). That is 0 as well when the allowance's cell has expired: then there is
// nothing left to correct; and when its key was evicted or had no room, and there is
// nothing to charge. A cost out of bounds is an error that wraps ErrInvalid,
// and settles nothing.
func (r *Allowance) Settle(cost int64) (change int64, err error) {
	if r.held == 0 {
		return 0, nil
	}
	if err := validateAmounts(0, cost); err != nil {
		return 0, err
	}
	change = r.set(cost)
	r.held = 0
	return change, nil
}

// set charges or gives back the difference between a cost and the one that is held, and returns how much that was.
func (r *Allowance) set(cost int64) (change int64) {
	r.follow()
	change, r.held = cost-r.held, cost
	switch {
	case change > 0:
		return r.charge(change)
	case r.outside:
		return 0
	}
	return -r.entry.Ledger().GiveBack(r.sequence, -change)
}

// follow moves an early allowance to the entry and cell that its cost was moved to, because the origin's clock has
// become known or this node's clock was set back before that.
func (r *Allowance) follow() {
	if !r.early {
		return
	}
	g := r.engine
	r.early = !g.clock.Known()
	if e := g.table.Get(r.entry.Identity()); e != nil && e != r.entry {
		r.entry, r.sequence = e, window.Sequence(g.clock.ReadMs(), e.DurationMs())
	}
}

// charge charges cost on top, to the key's entry of today if its own was evicted or an untracked key's.
func (r *Allowance) charge(cost int64) (charged int64) {
	g, e, h := r.engine, r.entry, r.engine.table.Horizon(false)
	for gone := r.outside; ; gone = false {
		nowMs := g.clock.ReadMs()
		if !gone {
			g.out.ForgetUnsent(e, e.MoveOn(h, r.sequence, nowMs))
			charged, alive := e.Charge(r.sequence, cost, r.limit)
			if alive {
				if charged > 0 {
					g.dirty.Mark(e, g.marks)
				}
				return charged
			}
		}
		current := max(r.sequence, window.Sequence(nowMs, e.DurationMs()))
		if current > r.sequence+1 {
			return 0
		}
		var met cell.Contact
		if e, met = g.table.Again(e, h, current, nowMs); met == cell.Untracked {
			g.chargeOutside(e, r.sequence, cost, r.limit)
			return cost
		}
	}
}

// chargeOutside charges a key without an entry. Requests that are being decided and later requests see the charge.
func (g *engine) chargeOutside(e *cell.Entry, sequence, cost, limit int64) {
	g.out.Spill(e, sequence, cost)
	if untracked := g.table.UntrackedKeys.Find(e.Identity()); untracked != nil {
		untracked.Charge(sequence, cost, limit)
		untracked.Ledger().SettleUnnamed(sequence, cost)
		g.table.UntrackedKeys.Release(e.Identity())
	}
}

// current finds or adds a key's entry and moves it to the current cell. alive is false if the entry
// was removed again each time.
func (g *engine) current(id *cell.Identity, key *window.Key, reset *window.Reset, nowMs int64) (e *cell.Entry,
	met cell.Contact, sequence int64, alive bool) {
	h, durationMs := g.table.Horizon(false), key.DurationMs()
	for range currentTriesMax {
		sequence = window.Sequence(nowMs, durationMs)
		if e, met = g.table.Add(id, key, reset, h, sequence, nowMs); e.Before(nowMs, durationMs) && g.out.SetRight(e) {
			continue
		}
		var v cell.Verdict
		alive = e.Judge(&v, h, nowMs, durationMs, 0, 0, false)
		if g.out.ForgetUnsent(e, v.AgedOut); alive {
			return e, met, v.Sequence, true
		}
		nowMs = h.Bound(nowMs)
	}
	return e, met, sequence, false
}

// Absorb merges the region's total of a cell that came with a reservation into the key's entry.
func (g *engine) Absorb(sh *outbox.Shard, c *window.Cell, reset *window.Reset, total *store.Total, nowMs int64) {
	id := g.table.IdentityOfKey(&c.Key, reset)
	if e, met, _, alive := g.current(&id, &c.Key, reset, nowMs); alive && met != cell.Untracked {
		sh.Absorb(e, c.Sequence, total)
	}
}

// Counted returns the count of a cell as this node knows it, 0 if the table has no entry for the key.
func (g *engine) Counted(c *window.Cell, reset *window.Reset) int64 {
	id := g.table.IdentityOfKey(&c.Key, reset)
	e := g.table.Get(&id)
	if e == nil {
		return 0
	}
	is := e.LookAt(c.Sequence)
	return is.Counted + is.Others
}

// currentTriesMax bounds how often current retries if a full table evicts the entry at once, or if
// the clock keeps being set back.
const currentTriesMax = 8
