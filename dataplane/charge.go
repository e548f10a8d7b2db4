package dataplane

import (
	"context"

	"github.com/weirhq/weir/dataplane/internal/cell"
	"github.com/weirhq/weir/shared/window"
)

// AllowUpTo is Allow for a cost that this process knows within moments, such as the bytes of a reply: r.Cost is the
// most that it should be, and Allowance.Settle replaces it by the true cost. For example, a reply may have 64 KiB, so
// AllowUpTo counts 65,536; it has 1,200 bytes, so Settle(1200) gives back the rest. AllowUpTo waits for the origin only
// where Allow does, and Settle never does. If the process dies in between, r.Cost counts. Use Reserve if another node
// may settle, or if the work takes longer. The Allowance holds nothing if the request is denied.
func (l *Limiter) AllowUpTo(ctx context.Context, r Request) (held Allowance, d Decision) {
	l.engine.decide(ctx, l.engine.clock.Now(), &r, &held, &d)
	return held, d
}

// Charge counts the cost of r on its key whatever the limit and the namespace's policies say, and returns how much it
// counted: for cost that is known only after it was spent. It waits for nothing, and is sent as accepted cost is.
func (l *Limiter) Charge(r Request) (charged int64, err error) {
	if err := r.Validate(); err != nil {
		return 0, err
	}
	by := r.resolve(l.engine.rules.InForce())
	key, known := r.key(), l.engine.clock.Known()
	key.Mode = by.Mode()
	id := l.engine.table.IdentityOfKey(&key, by.Reset)
	e, met, sequence, _ := l.engine.current(&id, &key, by.Reset, l.engine.clock.ReadMs())
	held := Allowance{&l.engine, e, sequence, r.Limit, 0, met == cell.Untracked, !known}
	held.follow()
	if charged = held.charge(r.cost()); !known && l.engine.clock.Known() {
		l.engine.out.Place(held.entry)
	}
	if by.Estimate != nil && met != cell.Untracked && e.Flags().Estimates() && !e.Flags().Asked() {
		l.engine.out.AskSync(e, by.Estimate) // to send it
	}
	return charged, nil
}

// Refund gives back cost of r's key that was accepted in its current cell, at most
// what the cell holds, and returns how much that was: for callers who cannot keep an
// Allowance. Given the request that Allow was given it takes back what that counted: r.Cost,
// or 1 where it is left out; r.Limit does not matter. It cannot know which cost is meant: of a key
// that was evicted meanwhile it takes from what has been counted since. Semantics as for
// Allowance.
func (l *Limiter) Refund(r Request) (refunded int64, err error) {
	if err := r.Validate(); err != nil {
		return 0, err
	}
	by := r.resolve(l.engine.rules.InForce())
	key := r.key()
	key.Mode = by.Mode()
	id, cost := l.engine.table.IdentityOfKey(&key, by.Reset), r.cost()
	for known := l.engine.clock.Known(); refunded == 0 && cost > 0; known = true {
		e, nowMs := l.engine.table.Get(&id), l.engine.clock.ReadMs()
		if e != nil && e.Before(nowMs, key.DurationMs()) && l.engine.out.SetRight(e) {
			e = l.engine.table.Get(&id)
		}
		if e == nil {
			break
		}
		refunded = e.Ledger().GiveBack(window.Sequence(nowMs, key.DurationMs()), cost)
		if known || !l.engine.clock.Known() {
			break // otherwise the key moved to another cell in between: try again
		}
	}
	return refunded, nil
}
