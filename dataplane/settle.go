package dataplane

import (
	"github.com/weirhq/weir/dataplane/internal/cell"
	"github.com/weirhq/weir/dataplane/internal/outbox"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// Allowance is cost that AllowUpTo accepted as an estimate, and that this process settles when it has measured the
// true cost, such as the bytes of a reply.
//
// Settle changes the count of the estimate's cell, while that cell can still influence a decision:
//
//   - Cost above the estimate is charged at once, even past the limit, because it has been spent. It reaches the
//     other nodes and regions like any accepted cost.
//   - Cost below the estimate is given back. Cost that was not sent yet (since the last replay tick, on a node with
//     an origin) is removed as if it had never been accepted. Cost that was sent stays in the counts of other nodes,
//     because counts only grow. It becomes this node's credit in that cell: decisions here subtract it at once, and
//     the next cost that this node accepts there is paid from it instead of being sent. So the other nodes' counts
//     become exact again. Unused credit ends with its cell. In a precise window, credit pays for no later cost, so
//     other nodes keep counting it.
//
// So a count is never negative, and never below the cost that this node's callers spent. In a precise window, the
// record of when the count grew keeps all cost that the origin has confirmed. Until the credit is used, other nodes and
// regions may overcount by up to its amount. The credit given in one cell is at most 2^53 in total; cost that is given
// back beyond that stays counted.
//
// If the key was evicted since, or the table had no room for it, a charge makes a new entry for it. Such a key gives
// nothing back, because the entry that counted the estimate is gone. If there is still no room, only this node's sketch
// for keys without an entry counts the charge, and the origin never receives it.
//
// The zero Allowance holds nothing. An Allowance must not be copied after Settle, and two goroutines must not settle
// it at once.
type Allowance struct {
	engine   *engine
	entry    *cell.Entry // that counted the cost; it may have been evicted since
	sequence int64
	limit    int64
	held     int64 // cost that was accepted; 0 once settled
	outside  bool  // the table had no room for the key: entry is an untracked key's
	early    bool  // sequence was set before the origin's clock was read
}

// Held returns the cost that is not settled yet.
func (r *Allowance) Held() int64 { return r.held }

// Settle replaces the estimate with the true cost, 0 to window.LimitMax. Only the first call has an effect. It
// returns the cost charged in addition (> 0), or given back (< 0). The result is also 0 in two cases:
//
//   - The allowance's cell has expired, so there is nothing left to correct.
//   - Its key was evicted or had no room, and there is nothing to charge.
//
// A cost out of bounds is an error that wraps ErrInvalid, and settles nothing.
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

// set charges or gives back the difference between a cost and the held cost, and returns that difference.
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

// follow moves an early allowance to the entry and cell that now have its cost. The cost was moved because the node
// has read the origin's clock since, or because its own clock was set back before that.
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

// charge charges further cost. If the entry was evicted, or was an untracked key's, it charges the key's current
// entry.
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

// chargeOutside charges a key without an entry. The charge counts for requests that are being decided and for later
// requests.
func (g *engine) chargeOutside(e *cell.Entry, sequence, cost, limit int64) {
	g.out.Spill(e, sequence, cost)
	if untracked := g.table.UntrackedKeys.Find(e.Identity()); untracked != nil {
		untracked.Charge(sequence, cost, limit)
		untracked.Ledger().SettleUnnamed(sequence, cost)
		g.table.UntrackedKeys.Release(e.Identity())
	}
}

// current finds or adds a key's entry and moves it to the current cell. alive is false if the entry was removed again
// each time.
func (g *engine) current(id *cell.Identity, key *window.Key, reset *window.Reset, precise bool,
	nowMs int64) (e *cell.Entry, met cell.Contact, sequence int64, alive bool) {
	h, durationMs := g.table.Horizon(false), key.DurationMs()
	for range currentTriesMax {
		sequence = window.Sequence(nowMs, durationMs)
		e, met = g.table.Add(id, key, reset, precise, h, sequence, nowMs)
		if e.Before(nowMs, durationMs) && g.out.SetRight(e) {
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

// Absorb merges the region's total of a cell into the key's entry, from the reply to a reservation.
func (g *engine) Absorb(sh *outbox.Shard, c *window.Cell, reset *window.Reset, total *store.Total, nowMs int64) {
	id := g.table.IdentityOfKey(&c.Key, reset)
	if e, met, _, alive := g.current(&id, &c.Key, reset, false, nowMs); alive && met != cell.Untracked {
		sh.Absorb(e, c.Sequence, total)
	}
}

// Counted returns this node's count of a cell, 0 if the table has no entry for the key.
func (g *engine) Counted(c *window.Cell, reset *window.Reset) int64 {
	id := g.table.IdentityOfKey(&c.Key, reset)
	e := g.table.Get(&id)
	if e == nil {
		return 0
	}
	is := e.LookAt(c.Sequence)
	return is.Counted + is.Others
}

// currentTriesMax bounds how often current retries if a full table evicts the entry at once, or if the clock keeps
// being set back.
const currentTriesMax = 8
