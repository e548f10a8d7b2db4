package dataplane

import (
	"context"
	"math"
	"time"

	"github.com/weirhq/weir/dataplane/internal/turns"
)

// waitMax is how long a waiting request goes without being judged again. A limit may be raised meanwhile, or cost may
// be given back.
const waitMax = time.Second

// Wait is Allow, but if the request is over its limit, Wait waits until it passes. For example, a worker that calls a
// partner's API can wait for its turn:
//
//	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
//	defer cancel()
//	if d := limiter.Wait(ctx, request); !d.Allowed {
//		return fmt.Errorf("no room for 30 s, try again in %v", d.RetryAfter)
//	}
//
// Wait returns a denial at once if, by the limit and the counts at that time, the request cannot pass before ctx's
// deadline, or never. It also returns a denial as soon as ctx ends. A denial counts nothing. Without a deadline it
// waits for as long as it takes, so server code should set one. Behind other waiting requests, Wait has only a lower
// bound of that time, so it can deny a request later than at once.
//
// Requests that wait for the same key on this node pass in the order in which they came: a small cost does not pass a
// larger one that came before. Requests that do not wait, and requests on other nodes, can still pass before the first
// waiting request. A request in shadow mode passes at once, without a turn. A raised limit lets waiting requests pass
// within a second, and a limit of 0 denies them within a second.
//
// A waiting request takes some 200 bytes and no goroutine other than its caller's.
func (l *Limiter) Wait(ctx context.Context, r Request) Decision {
	if ctx == nil {
		ctx = context.Background()
	}
	if !r.valid() || ctx.Err() != nil {
		return ended(l.Peek(ctx, r))
	}
	judged := r // with the limit and the duration of an override
	by := judged.resolve(l.engine.rules.InForce())
	switch {
	case r.Shadow || by.Shadow:
		return l.Allow(ctx, r)
	case r.cost() > judged.Limit: // never passes, so it must not be in the way of others
		return l.finish(ctx, r, l.Peek(ctx, r))
	}
	turn, ahead := l.waits.Join(judged.key(), judged.Limit)
	defer turn.Leave()
	if ahead.Any {
		if d := l.Peek(ctx, r); d.NeverPasses || l.tooLate(ctx, r, &d, ahead) {
			return d
		}
		turn.Stay(r.cost())
	}
	select {
	case <-turn.Came():
	case <-ctx.Done():
	}
	timer := time.NewTimer(waitMax)
	defer timer.Stop()
	for {
		d := l.Peek(ctx, r)
		switch {
		case ctx.Err() != nil:
			return ended(d)
		case d.Allowed || d.NeverPasses || endsWithin(ctx, d.RetryAfter):
			if d = l.finish(ctx, r, d); d.Allowed || d.Err != nil || d.NeverPasses || endsWithin(ctx, d.RetryAfter) {
				return d
			}
		}
		turn.Stay(r.cost())
		timer.Reset(min(max(d.RetryAfter, time.Millisecond), waitMax))
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
	}
}

// finish decides a request whose wait seems to be over. peeked is the decision by Peek.
func (l *Limiter) finish(ctx context.Context, r Request, peeked Decision) Decision {
	judged := r
	if !peeked.Allowed && judged.resolve(l.engine.rules.InForce()).Offered() {
		return peeked // Allow would count the cost of a denial
	}
	return l.Allow(ctx, r)
}

// ended makes d the denial of a request whose context has ended.
func ended(d Decision) Decision {
	d.Allowed, d.Shadowed = false, false
	return d
}

// tooLate reports whether a request behind others that wait cannot pass before ctx's deadline. Then it makes d a
// denial. Its lower bound of the time is the highest of:
//
//   - The time until the request itself would pass.
//   - The time until all the costs would pass at once. That bound ends with the cell, because a cost that passes in
//     this cell weighs less in the next cell.
//   - The windows that the costs take. A span of y windows admits at most (1 + y) times the limit, and a unit more by
//     rounding. Requests may have different limits, so the highest counts.
func (l *Limiter) tooLate(ctx context.Context, r Request, d *Decision, ahead turns.Ahead) bool {
	if d.Err != nil || d.Shadowed || d.Limit == 0 { // need not wait for its room
		return false
	}
	total, limit := ahead.Cost+float64(r.cost()), float64(max(d.Limit, ahead.Limit))
	r.Cost = int64(min(total, float64(d.Limit)))
	r.ZeroCost = r.Cost == 0
	cellEnds := d.ResetAt.Sub(time.UnixMilli(l.engine.clock.Now().Ms))
	windows := (total-1)/limit - 1
	earliest := max(d.RetryAfter, min(l.Peek(ctx, r).RetryAfter, cellEnds),
		time.Duration(min(windows*float64(d.Duration), math.MaxInt64/2)))
	if !endsWithin(ctx, earliest) {
		return false
	}
	d.Allowed, d.RetryAfter = false, earliest
	return true
}

// endsWithin reports whether ctx's deadline comes before the end of a time from now.
func endsWithin(ctx context.Context, after time.Duration) bool {
	deadline, bounded := ctx.Deadline()
	return bounded && time.Until(deadline) < after
}
