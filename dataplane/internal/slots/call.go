package slots

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/weirhq/weir/dataplane/store"
)

// Run runs the loops until ctx ends. It passes each loop to goes, which must run it in a goroutine.
func (t *Table) Run(ctx context.Context, goes func(func())) {
	t.running.Store(true)
	for _, sh := range t.shards {
		t.runShard(ctx, sh, goes)
	}
}

// runShard runs the loops of a shard until ctx ends. It may run several times concurrently.
func (t *Table) runShard(ctx context.Context, sh *shard, goes func(func())) {
	goes(func() { sh.ends.run(ctx, t.now, func() { t.endDue(sh) }) })
	if sh.asks != nil {
		goes(func() { sh.asks.run(ctx, t.now, func() { t.callDue(context.WithoutCancel(ctx), sh) }) })
	}
}

// endDue ends the leases and the holdings that are due.
func (t *Table) endDue(sh *shard) {
	now := t.now()
	for _, e := range sh.ends.take(now) {
		e.stripe.mu.Lock()
		e.endAt = 0
		busy := e.busy
		e.expire(now)
		if e.serve(now); e.busy < busy {
			e.askBy(now)
		}
		e.nextEnd()
		e.stripe.mu.Unlock()
	}
}

// callDue calls the origin about all keys that are due.
func (t *Table) callDue(ctx context.Context, sh *shard) {
	sh.calling.Lock()
	defer sh.calling.Unlock()
	due := sh.asks.take(t.now())
	for len(due) > 0 {
		part := due[:min(len(due), asksMax)]
		due = due[len(part):]
		_ = t.call(ctx, sh, part) // the waiting requests get its outcome
	}
}

// call requests, renews or hands back the slots of keys, with a single call. While the shard rests, it makes no call.
func (t *Table) call(ctx context.Context, sh *shard, entries []*entry) error {
	sent := t.now()
	if rest := time.Duration(sh.restUntil.Load()); sent < rest {
		for _, e := range entries {
			e.failed(sent, rest)
		}
		return nil
	}
	sh.number++
	call := store.GrantCall{Node: t.node, Number: sh.number}
	asked := entries[:0]
	for _, e := range entries {
		if ask, ok := e.say(sent, sh.number); ok {
			call.Asks, asked = append(call.Asks, ask), append(asked, e)
		}
	}
	if len(asked) == 0 {
		return nil
	}
	within, cancel := context.WithTimeout(ctx, callTimeout)
	reply, err := t.cfg.Origin.Grants(within, sh.index, call)
	cancel()
	now := t.now()
	if err == nil && now-sent > callTimeout {
		err = errLateReply
	}
	t.calls.Add(1)
	if t.asks.Add(int64(len(asked))); err != nil {
		t.errors.Add(1)
	}
	sh.rested(now, err)
	for i, e := range asked {
		if err != nil {
			e.failed(now, time.Duration(sh.restUntil.Load()))
			continue
		}
		e.hear(sent, now, &call.Asks[i], &reply.Answers[i])
	}
	return err
}

var errLateReply = errors.New("slots: the reply came too late")

// rested sets when the shard may be called again.
func (sh *shard) rested(now time.Duration, err error) {
	if err == nil {
		sh.rest = 0
		return
	}
	sh.rest = min(max(2*sh.rest, retryMin), restMax)
	sh.restUntil.Store(int64(now + jittered(sh.rest)))
}

// jittered returns d, or up to a quarter less.
func jittered(d time.Duration) time.Duration { return d - rand.N(d/4+1) }

// say returns the statement of a call about the key. From then on the node holds no more slots than it states. ok is
// false if there is nothing to state, or if a statement would not be safe.
func (e *entry) say(now time.Duration, number int64) (ask store.GrantAsk, ok bool) {
	e.stripe.mu.Lock()
	defer e.stripe.mu.Unlock()
	e.askAt = 0
	e.expire(now)
	e.serve(now)
	if e.busy == 0 && e.waiters.len == 0 && !e.told {
		e.held = 0
		return ask, false
	}
	if e.busy > 0 && now+callTimeout >= e.validUntil {
		e.askBy(e.validUntil) // too late to state or to hand back the held slots
		return ask, false
	}
	limit, want := e.wanted()
	spare := e.spareMax(want)
	keep := min(max(0, e.held-e.busy), spare)
	if now < e.yieldUntil {
		want, keep, spare = 0, 0, 0
	}
	if !e.used || now+callTimeout >= e.validUntil {
		keep, spare = 0, 0
	}
	ttl := e.shortest()
	ask = store.GrantAsk{Key: e.name.SlotsKey(), Limit: limit,
		Have: e.busy + keep, Want: max(0, want-keep), Spare: spare - keep, TTL: ttl + Margin}
	e.held, e.validUntil = ask.Have, min(e.validUntil, now+ttl)
	e.used, e.told, e.inFlight = false, true, true
	for w := range e.waiters.all {
		w.number = number
	}
	if e.held > 0 {
		e.endBy(e.validUntil)
	}
	return ask, true
}

// wanted returns the highest limit of the waiting requests, or else the last request's, and the number of slots that
// would serve them.
func (e *entry) wanted() (limit, slots int64) {
	if e.waiters.len == 0 {
		return e.limit, 0
	}
	for w := range e.waiters.all {
		if limit = max(limit, w.ask.Limit); w.ask.Limit > e.busy {
			slots++
		}
	}
	return limit, min(slots, limit)
}

// shortest returns the shortest time to live of the leases and the waiting requests, or else the last request's.
func (e *entry) shortest() time.Duration {
	shortest := e.shortestTTL()
	for w := range e.waiters.all {
		shortest = min(shortest, w.ask.TTL)
	}
	if shortest == forever {
		return e.ttl
	}
	return shortest
}

// failed records a call whose outcome is unknown. The held slots stay in use while they are valid.
func (e *entry) failed(now, again time.Duration) {
	e.stripe.mu.Lock()
	defer e.stripe.mu.Unlock()
	e.inFlight = false
	if e.askAt <= now {
		e.askAt = 0
	}
	e.expire(now)
	e.serve(now)
	out := Result{Out: true, Held: e.busy + e.others, RetryIn: again - now}
	e.answer(out, func(w *waiter) bool { return w.once || w.ask.OutEnds })
	if e.told || e.waiters.len > 0 {
		e.askBy(again)
	}
}

// hear applies an answer.
func (e *entry) hear(sent, now time.Duration, ask *store.GrantAsk, a *store.GrantAnswer) {
	recovering := errors.Is(a.Err, store.ErrRecovering)
	if a.Err != nil && !recovering {
		e.failed(now, now+jittered(retryMax))
		return
	}
	e.stripe.mu.Lock()
	defer e.stripe.mu.Unlock()
	e.inFlight = false
	e.expire(now)
	e.others, e.starved, e.retryIn = a.Others, a.Starved, a.RetryIn
	e.lose(a.Held, ErrRevoked)
	ttl := ask.TTL - Margin
	e.held, e.validUntil, e.told = a.Held, sent+ttl, a.Held > 0
	e.serve(now)
	refused := Result{Out: recovering, Asked: !recovering, Held: e.busy + e.others, RetryIn: a.RetryIn}
	e.answer(refused, func(w *waiter) bool {
		if w.number > 0 && (w.once || recovering && w.ask.OutEnds) {
			e.stripe.stats.Refused++
			return true
		}
		return false
	})
	if !recovering && a.Held < ask.Have+ask.Want {
		e.fullUntil = now + retryMin
	}
	e.next(sent, now, ttl, recovering)
}

// next schedules the key's next call.
func (e *entry) next(sent, now, ttl time.Duration, recovering bool) {
	if e.waiters.len == 0 {
		e.backoff = 0
	} else {
		e.backoff = min(max(retryMin, 2*e.backoff), retryMax)
		again := now + jittered(e.backoff)
		if recovering {
			again = now + max(e.retryIn, retryMin)
		}
		for w := range e.waiters.all {
			if w.number == 0 {
				again = now // queued while the call was under way
			}
		}
		e.askBy(max(again, e.yieldUntil))
	}
	if e.held > 0 {
		e.askBy(sent + ttl/3)
		e.endBy(e.validUntil)
	}
	if e.spare = e.spareMax(0); e.held-e.busy > e.spare {
		e.askBy(now + tick)
	}
}

// End ends all leases and answers all waiting callers. After End, no lease is granted.
func (t *Table) End() {
	t.stopped.Store(true)
	for i := range t.stripes {
		s := &t.stripes[i]
		s.mu.Lock()
		for _, e := range s.entries {
			e.lose(0, ErrStopped)
			e.held, e.validUntil = 0, 0
			e.answer(Result{Out: true, Err: ErrStopped}, func(*waiter) bool { return true })
		}
		s.mu.Unlock()
	}
}

// Stop calls End and then hands this node's slots back to the origin, until ctx ends. The loops must have ended.
func (t *Table) Stop(ctx context.Context) error {
	t.End()
	by := make(map[*shard][]*entry)
	for i := range t.stripes {
		s := &t.stripes[i]
		s.mu.Lock()
		for _, e := range s.entries {
			if e.told {
				by[e.shard] = append(by[e.shard], e)
			}
		}
		s.mu.Unlock()
	}
	var errs []error
	for sh, entries := range by {
		sh.restUntil.Store(0)
		for part := range slices.Chunk(entries, asksMax) {
			errs = append(errs, t.call(ctx, sh, part))
		}
	}
	return errors.Join(errs...)
}
