package dataplane

import (
	"context"

	"github.com/weirhq/weir/dataplane/internal/cell"
	"github.com/weirhq/weir/shared/window"
)

// AllowUpTo is Allow for a cost that this process learns within moments, such as the bytes of a reply. r.Cost should
// be the highest possible cost, and Allowance.Settle replaces it with the true cost. For example, a reply has at most
// 64 KiB, so AllowUpTo counts 65,536. If it then has 1,200 bytes, Settle(1200) gives back the rest.
//
// AllowUpTo waits for the origin only where Allow does, and Settle never waits. If the process dies in between,
// r.Cost counts. Use Reserve if another node may settle, or if the work takes longer. If the request is denied, the
// Allowance holds nothing.
func (l *Limiter) AllowUpTo(ctx context.Context, r Request) (held Allowance, d Decision) {
	l.engine.decide(ctx, l.engine.clock.Now(), &r, &held, &d)
	return held, d
}

// Charge counts the cost of r on its key, whatever the limit and the namespace's policies, and returns the counted
// cost. Use it for a cost that is only measured after it was spent: for example, the seconds that a query ran. It
// waits for nothing, and the cost is sent in the same way as accepted cost.
func (l *Limiter) Charge(r Request) (charged int64, err error) {
	if err := r.Validate(); err != nil {
		return 0, err
	}
	by := r.resolve(l.engine.rules.InForce())
	key, known := r.key(), l.engine.clock.Known()
	key.Mode = by.Mode()
	id := l.engine.table.IdentityOfKey(&key, by.Reset)
	e, met, sequence, _ := l.engine.current(&id, &key, by.Reset, by.Precise, l.engine.clock.ReadMs())
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

// Refund gives back cost of r's key that was accepted in its current cell, and returns the refunded cost. It refunds
// at most the cost that the cell holds. Use it if you cannot keep an Allowance. To take back a call of Allow, pass
// the same request: Refund uses r.Cost, or 1 if r.Cost is left out, and ignores r.Limit.
//
// Refund does not know which request's cost it gives back. If the key was evicted meanwhile, Refund takes from the cost
// that was counted since then. Otherwise its semantics are those of Allowance.
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
