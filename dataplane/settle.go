package dataplane

import (
	"context"

	"github.com/weirhq/weir/shared/window"
)

// Reservation is cost that was accepted as an estimate and is settled once its true
// size is known: the tokens of an answer, the bytes of a transfer.
//
// What settling does, in the cell of the reservation, while it can still influence a
// decision:
//
//   - More than the estimate is charged at once, even past the limit: it has been
//     spent. It reaches the other nodes and regions as any accepted cost does.
//   - Less is given back. What nobody else has been told of yet (the last replay tick,
//     on a node with an origin) vanishes as if it had never been accepted. What others
//     know is not taken from them, because their counts only grow; it becomes this
//     node's credit in that cell: decisions here see it at once, and the next cost that
//     this node accepts there is paid from it instead of being sent, which brings the
//     others' counts back to the truth. Credit that is left ends with its cell.
//
// So a count is never negative, never below what this node's callers really spent,
// and nobody's history shrinks below what was confirmed. Other nodes and regions may
// see up to the credit too much until it is used. The credit given in one cell is at most
// 2^53 in all; what is given back beyond that stays counted.
//
// A key that was evicted since, or that a full table had no room for, comes back for what is
// charged. It gives nothing back: what this node knows of the key is not what the reservation
// was counted in. Where there is still no room, the overflow has what is charged, and no origin
// hears of it.
//
// The zero Reservation holds nothing. A Reservation must not be copied after Settle,
// nor settled from two goroutines at once.
type Reservation struct {
	limiter  *Limiter
	entry    *entry // that counted it; it may be evicted since
	sequence int64
	limit    int64
	held     int64 // cost that was accepted; 0 once settled
	outside  bool  // the table had no room for the key: entry is a guest's
}

// Reserve is Allow for a cost that is an estimate. The Reservation holds nothing
// when the decision is a denial.
func (l *Limiter) Reserve(ctx context.Context, r Request) (held Reservation, d Decision) {
	nowMs, told := l.clock.NowMs()
	l.decide(ctx, nowMs, told, &r, &held, &d)
	return held, d
}

// Held is the cost that waits to be settled.
func (r *Reservation) Held() int64 { return r.held }

// Settle replaces the estimate by the true cost, 0 to window.LimitMax, once; after
// that it does nothing. It returns how much was charged on top (> 0), or given back
// (< 0). That is 0 as well when the reservation's cell has expired: then there is
// nothing left to correct; and when its key was evicted or had no room, and there is
// nothing to charge. A cost out of bounds is an error that wraps ErrInvalid,
// and settles nothing.
func (r *Reservation) Settle(cost int64) (change int64, err error) {
	if r.held == 0 {
		return 0, nil
	}
	if err := validateAmounts(0, cost); err != nil {
		return 0, err
	}
	change = cost - r.held
	r.held = 0
	if change <= 0 && r.outside {
		return 0, nil
	}
	if change <= 0 {
		return -r.entry.giveBack(r.sequence, -change), nil
	}
	return r.charge(change), nil
}

// charge charges cost on top, to the key's entry of today if its own was evicted or a guest's.
func (r *Reservation) charge(cost int64) (charged int64) {
	l, e := r.limiter, r.entry
	for gone := r.outside; ; gone = false {
		if !gone {
			charged, alive := e.charge(r.sequence, cost, r.limit)
			if alive {
				if charged > 0 {
					l.mark(e, l.marks)
				}
				return charged
			}
		}
		nowMs := l.nowMs()
		current := max(r.sequence, window.Sequence(nowMs, e.names.durationMs()))
		if current > r.sequence+1 {
			return 0
		}
		var met contact
		if e, met = l.table.again(e, current, nowMs); met == untracked {
			l.chargeOutside(e, r.sequence, cost, r.limit, nowMs)
			return cost
		}
	}
}

// chargeOutside charges a key without an entry: those who decide on it now see it, and so does
// the next to come.
func (l *Limiter) chargeOutside(e *entry, sequence, cost, limit, nowMs int64) {
	l.spill(e, sequence, cost, nowMs)
	if guest := l.table.guests.find(&e.id); guest != nil {
		guest.charge(sequence, cost, limit)
		guest.settleUnnamed(sequence, cost)
		l.table.guests.leave(&e.id)
	}
}

// Refund gives back cost of r's key that was accepted in its current cell, at most
// what the cell holds, and returns how much that was: for callers who cannot keep a
// Reservation. Given the request that Allow was given it takes back what that counted: r.Cost,
// or 1 where it is left out; r.Limit does not matter. It cannot know which cost is meant: of a key
// that was evicted meanwhile it takes from what has been counted since. Semantics as for
// Reservation.
func (l *Limiter) Refund(r Request) (refunded int64, err error) {
	if err := r.Validate(); err != nil {
		return 0, err
	}
	by := l.settings.Load().resolve(&r)
	key := r.key()
	key.Mode = by.mode()
	id := l.table.ofKey(&key, by.reset)
	e := l.table.get(&id)
	if e == nil || r.cost() == 0 {
		return 0, nil
	}
	nowMs := l.nowMs()
	return e.giveBack(window.Sequence(nowMs, key.DurationMs()), r.cost()), nil
}

// charge adds own cost to a cell whatever its limit. alive is false when the entry was
// evicted.
func (e *entry) charge(sequence, cost, limit int64) (charged int64, alive bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.flags.Load()&flagDead != 0 {
		return 0, false
	}
	slot, ok := e.slotLocked(sequence)
	if !ok {
		return 0, true
	}
	e.flags.Or(flagPressed << slot) // it may be past its limit now: no flood must wash that away
	e.noteLow(slot, limit)
	return e.addLocked(slot, cost), true
}

// giveBack takes up to cost back from a cell: first what nobody has been told of,
// the rest as credit.
func (e *entry) giveBack(sequence, cost int64) (given int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	slot, ok := e.slotLocked(sequence)
	if !ok {
		return 0
	}
	if e.book == nil { // all of it is this node's own, and nobody is told
		given = min(cost, wordCount(e.words[slot].Load()))
		e.takeLocked(slot, given)
		return given
	}
	given = min(cost, e.untoldLocked(slot))
	e.takeLocked(slot, given)
	return given + e.creditLocked(slot, cost-given)
}

// credit turns what others know of, and is not spent after all, into this node's credit.
func (e *entry) credit(sequence, cost int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if slot, ok := e.slotLocked(sequence); ok {
		e.creditLocked(slot, cost)
	}
}

// creditLocked turns up to cost that others know of into this node's credit.
func (e *entry) creditLocked(slot int, cost int64) (credit int64) {
	b := e.book
	credit = max(0, min(cost, e.acceptedLocked(slot)-b.credit(slot), creditMax-b.credit(slot)-b.netted(slot)))
	if credit > 0 {
		b.rarely().credit[slot] += credit
		e.foreign(slot).Add(-credit)
	}
	return credit
}

// netLocked pays what this node has accepted and told nobody of from its credit. What a
// decision reads stays as it is: taking the cost out of the word instead, and the credit
// out of others, would let a word come back to an earlier value while others has
// changed, and a decision that was judged before count after.
func (e *entry) netLocked(slot int) {
	if n := min(e.book.credit(slot), e.untoldLocked(slot)); n > 0 {
		e.book.rare.credit[slot] -= n
		e.book.rare.netted[slot] += n
	}
}

// untoldLocked is own cost that certainly neither the origin nor another region knows of.
func (e *entry) untoldLocked(slot int) int64 {
	if e.flags.Load()&(flagOffered<<slot) != 0 {
		return 0
	}
	return max(0, min(e.unsentLocked(slot), e.acceptedLocked(slot)-max(e.book.cells[slot].flushed, e.book.told(slot))))
}
