// Package leases keeps leases by id, for holders outside the process.
//
// Each lease owns one of its key's slots at the origin, as nodes own others (see store.Grants). So any node renews and
// releases it, and it outlives the node that has granted it. A node keeps leases only to list them for operators, and
// to avoid renewing a lease that was released or lost. Without an origin, or if the origin does not answer and the
// outage policy is local, a lease belongs to this process: package slots grants it one of this node's slots.
package leases

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir/dataplane/internal/fair"
	"github.com/weirhq/weir/dataplane/internal/slots"
	"github.com/weirhq/weir/dataplane/store"
)

const (
	retryMin   = 20 * time.Millisecond // between two calls for a request that waits
	retryMax   = 250 * time.Millisecond
	waitersMax = 1000   // requests that wait for the same key
	fullMax    = 10_000 // keys whose last refusal is remembered
)

// Origin grants leases.
type Origin interface {
	slots.Origin

	// Say makes a call about leases of a shard, as store.Grants does. It must return at once if ctx ends, and after some
	// time without an answer. A call that has begun then goes on, and late receives its answers unless it is nil.
	Say(ctx context.Context, shard int, asks []store.GrantAsk,
		late func([]store.GrantAnswer)) ([]store.GrantAnswer, error)

	// Go runs f in a goroutine, unless no further call may be made.
	Go(f func())
}

// Book acquires, renews and releases leases by id, and lists those of the origin that this node has seen. Set its
// fields before its first call. All methods are safe for concurrent use.
type Book struct {
	Origin Origin       // nil: all leases are this process's
	Table  *slots.Table // calls Ended
	// SteadyMs returns the milliseconds of a clock that never goes back and never shows 0.
	SteadyMs func() int64

	// Judge sets the Limit, OutEnds and Local of an ask that waits by the settings in force, and reports whether it may go
	// on waiting. Changed returns a channel that is closed when other settings are in force. If both are nil, settings
	// never change.
	Judge   func(*Ask) (waits bool)
	Changed func() <-chan struct{}

	// Busy is the error of Origin.Say if too many calls are under way. It does not count as an outage.
	Busy error

	granted, refused atomic.Int64

	mu      sync.Mutex
	known   index
	full    map[slots.Name]refusal
	waiting map[slots.Name]*waiting
}

// waiting has the requests that wait for a lease of the same key, in a line for each limit, in which callers take
// turns. The first request of a line calls the origin, and the others follow. So no request waits for a request with a
// smaller limit.
type waiting struct {
	places fair.Places
	lines  map[int64]*fair.Line[chan struct{}] // by the limit of the requests; the channel is closed for the first
}

// Ask is a request for an unattended lease by ID.
type Ask struct {
	slots.Ask
	Drawn bool // the id was drawn for this request, so no node has granted it before
	Local bool // if the origin does not answer, this process grants its own slots

	Sent time.Time // set by Acquire: when the call left that was granted

	mu     sync.Mutex
	left   bool // the request was answered without a lease
	unused bool // a call was granted the lease after the request had ceased to wait for its answer
}

// Acquire requests a lease, until ctx ends. With wait set, it waits for a lease.
func (b *Book) Acquire(ctx context.Context, a *Ask, wait bool) (r slots.Result) {
	if _, here := b.Table.ByID(&a.Name, a.ID); here || b.Origin == nil {
		return b.acquireHere(ctx, a, wait)
	}
	if !wait || a.Limit == 0 {
		r = b.ask(ctx, a)
	} else {
		r = b.wait(ctx, a)
	}
	if !r.Granted && a.leave() {
		b.Origin.Go(func() { b.giveBack(ctx, a) })
	}
	if r.Out && a.Local && ctx.Err() == nil {
		return b.acquireHere(ctx, a, false)
	}
	return r
}

// grantedLate records that a call was granted the lease after the request had stopped waiting for it. It reports
// whether the lease has become useless: its ID was drawn for a request that has ended without it.
func (a *Ask) grantedLate() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.unused = true
	return a.Drawn && a.left
}

// leave records that the request ends without a lease. It reports whether a late grant is now of no use.
func (a *Ask) leave() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.left = true
	return a.Drawn && a.unused
}

// giveBack releases a lease that has no holder. If the call fails, the lease ends by itself.
func (b *Book) giveBack(ctx context.Context, a *Ask) {
	release := store.GrantAsk{Key: a.Name.SlotsKey(), Lease: a.ID}
	_, _ = b.Origin.Say(context.WithoutCancel(ctx), b.Origin.ShardOf(&release.Key), []store.GrantAsk{release}, nil)
}

// Lease returns the lease that the ask requests.
func (a *Ask) Lease() Lease {
	return Lease{Key: a.Name, ID: a.ID, TTL: a.TTL, SinceMs: a.SinceMs, Holder: a.Holder}
}

func (l *Lease) name() name { return name{l.Key, l.ID} }

// ask calls the origin once.
func (b *Book) ask(ctx context.Context, a *Ask) (r slots.Result) {
	nowMs := b.SteadyMs()
	a.Sent = time.Now()
	if a.Drawn && (a.Limit == 0 || b.isFull(a, nowMs)) {
		r.Held = a.Limit
		return r
	}
	acquire := store.GrantAsk{Key: a.Name.SlotsKey(), Lease: a.ID, Limit: a.Limit, Want: 1, TTL: a.TTL + slots.Margin}
	answers, err := b.Origin.Say(ctx, b.Origin.ShardOf(&acquire.Key), []store.GrantAsk{acquire},
		func(answers []store.GrantAnswer) {
			if answers[0].Held > 0 && a.grantedLate() {
				b.giveBack(ctx, a)
			}
		})
	if err == nil {
		err = answers[0].Err
	}
	if err != nil {
		if errors.Is(err, b.Busy) {
			r.Err = err
			return r
		}
		r.Out = true
		if errors.Is(err, store.ErrRecovering) {
			r.RetryIn = answers[0].RetryIn
		}
		return r
	}
	answer := answers[0]
	if r.Granted = answer.Held > 0; r.Granted {
		b.granted.Add(1)
	} else {
		b.refused.Add(1)
	}
	r.Asked, r.Held, r.RetryIn = true, answer.Held+answer.Others, answer.RetryIn
	if r.Granted {
		if was := b.find(name{a.Name, a.ID}); was != nil && nowMs < was.endsMs {
			a.SinceMs = was.SinceMs // a repeated call has the same lease
		}
		b.keep(ctx, &known{Lease: a.Lease(), endsMs: nowMs + a.TTL.Milliseconds()}) // without room operators do not see it
	} else {
		b.setFull(a, nowMs)
	}
	return r
}

// wait calls the origin until it grants a lease.
func (b *Book) wait(ctx context.Context, a *Ask) (r slots.Result) {
	by := fair.In(ctx)
	at := b.enter(a, by)
	if at == nil {
		return slots.Result{Err: slots.ErrWaiters}
	}
	defer b.leave(a, by, at)
	timer := time.NewTimer(time.Hour)
	timer.Stop() // until the request has the turn
	defer timer.Stop()
	turn, due, pause := at.Value, false, time.Duration(0)
	for {
		var changed <-chan struct{}
		if b.Changed != nil {
			changed = b.Changed() // before Judge, which must not miss a change
			if waits := b.Judge(a); !waits || a.Limit == 0 {
				return b.ask(ctx, a) // the lease of its id may be held
			}
		}
		if due {
			r = b.ask(ctx, a)
		} else {
			select {
			case <-turn:
				turn, due = nil, true
			case <-changed:
				due = turn == nil
			case <-timer.C:
				due = true
			case <-ctx.Done():
			}
			if ctx.Err() == nil {
				continue
			}
		}
		if ctx.Err() != nil {
			r.Out = false // the request has waited, and its last call may have been cut short
			return r
		}
		if r.Granted || r.Out && (a.OutEnds || b.Table.IsStopped()) {
			return r
		}
		due, pause = false, min(max(2*pause, retryMin), retryMax)
		timer.Reset(pause)
	}
}

// enter takes the caller's next place in a's line. It returns nil if the caller has no further place.
func (b *Book) enter(a *Ask, by fair.Caller) *fair.Wait[chan struct{}] {
	b.mu.Lock()
	defer b.mu.Unlock()
	w := b.waiting[a.Name]
	if w == nil {
		w = &waiting{places: fair.Places{Most: waitersMax}, lines: make(map[int64]*fair.Line[chan struct{}])}
	}
	line := w.lines[a.Own]
	if line == nil {
		line = new(fair.Line[chan struct{}])
	}
	if !w.places.Take(fair.Of{Caller: by}, 1) {
		return nil
	}
	if b.waiting == nil {
		b.waiting = make(map[slots.Name]*waiting)
	}
	b.waiting[a.Name], w.lines[a.Own] = w, line
	at := line.Add(by, make(chan struct{}))
	if line.First() == at && at.Next() == nil {
		line.Serve(at)
		close(at.Value)
	}
	return at
}

// leave gives a place up. If the place has the turn, the next in line gets it.
func (b *Book) leave(a *Ask, by fair.Caller, at *fair.Wait[chan struct{}]) {
	b.mu.Lock()
	defer b.mu.Unlock()
	w := b.waiting[a.Name]
	line := w.lines[a.Own]
	first := line.First() == at
	line.Remove(at)
	w.places.Give(fair.Of{Caller: by}, 1)
	switch next := line.First(); {
	case next == nil:
		if delete(w.lines, a.Own); len(w.lines) == 0 {
			delete(b.waiting, a.Name)
		}
	case first:
		line.Serve(next)
		close(next.Value)
	}
}

// Renew extends leases to ttl from now, or with 0 to the TTL of each. It shortens none. It returns the outcome of each:
// nil, slots.ErrLost, or an error of the origin, which leaves the lease unchanged. It does not renew a lease that was
// released or lost, because an origin that has lost its data would store the lease as held.
func (b *Book) Renew(ctx context.Context, leases []Lease, ttl time.Duration) []error {
	errs := make([]error, len(leases))
	var there []int
	sentMs := b.SteadyMs()
	for i := range leases {
		l := &leases[i]
		if here, ok := b.Table.ByID(&l.Key, l.ID); ok && here.Renew(cmp.Or(ttl, l.TTL)) {
			continue
		}
		if k := b.find(l.name()); b.Origin == nil || k != nil && k.over && k.SinceMs == l.SinceMs {
			errs[i] = slots.ErrLost
			continue
		}
		there = append(there, i)
	}
	renew := func(l *Lease) store.GrantAsk { return store.GrantAsk{Have: 1, TTL: cmp.Or(ttl, l.TTL) + slots.Margin} }
	b.each(ctx, leases, there, errs, renew, func(i int, held bool) {
		if errs[i] = nil; !held {
			errs[i] = slots.ErrLost
			b.forget(&leases[i])
			return
		}
		b.keep(ctx, &known{Lease: leases[i], endsMs: sentMs + cmp.Or(ttl, leases[i].TTL).Milliseconds()})
	})
	return errs
}

// Release ends leases. It returns nil for each lease that is not held any more, and otherwise an error of the origin.
func (b *Book) Release(ctx context.Context, leases []Lease) []error {
	errs := make([]error, len(leases))
	var there []int
	for i := range leases {
		if here, ok := b.Table.ByID(&leases[i].Key, leases[i].ID); ok {
			here.Release()
		} else if b.Origin != nil {
			there = append(there, i)
		}
	}
	release := func(*Lease) store.GrantAsk { return store.GrantAsk{} }
	b.each(ctx, leases, there, errs, release, func(i int, _ bool) {
		errs[i] = nil
		b.forget(&leases[i])
		b.setRoom(leases[i].Key)
	})
	return errs
}

// each makes the same call for some of the leases, to all of their shards at once. So a shard that hangs delays no
// other.
func (b *Book) each(ctx context.Context, leases []Lease, which []int, errs []error,
	askOf func(*Lease) store.GrantAsk, heard func(i int, held bool)) {
	type call struct {
		asks []store.GrantAsk
		of   []int // the leases of asks
	}
	calls := make(map[int]*call)
	for _, i := range which {
		ask := askOf(&leases[i])
		ask.Key, ask.Lease = leases[i].Key.SlotsKey(), leases[i].ID
		shard := b.Origin.ShardOf(&ask.Key)
		if calls[shard] == nil {
			calls[shard] = new(call)
		}
		c := calls[shard]
		c.asks, c.of = append(c.asks, ask), append(c.of, i)
	}
	var running sync.WaitGroup
	for shard, c := range calls {
		running.Go(func() {
			answers, err := b.Origin.Say(ctx, shard, c.asks, nil)
			for n, i := range c.of {
				if errs[i] = err; err == nil {
					if errs[i] = answers[n].Err; errs[i] == nil {
						heard(i, answers[n].Held > 0)
					}
				}
			}
		})
	}
	running.Wait()
}

// acquireHere requests the lease from this node's table, because there is no origin, it has not answered, or this
// process granted the lease before.
func (b *Book) acquireHere(ctx context.Context, a *Ask, wait bool) (r slots.Result) {
	a.Sent, a.Free = time.Now(), b.Origin != nil
	if b.Table.Acquire(ctx, &a.Ask, wait, &r); r.Granted {
		a.SinceMs = r.SinceMs // a repeated call has the same lease
		if wait {
			a.Sent = time.Now()
			r.Lease.Renew(a.TTL)
		}
	}
	r.Out = r.Out || b.Origin != nil
	return r
}

// find returns this node's information on a lease, or nil.
func (b *Book) find(n name) *known {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.known.find(n)
}

// Ended records that a lease of this process has ended: see slots.Config. The origin must not be called to renew it.
func (b *Book) Ended(key slots.Name, id string, sinceMs int64) {
	b.forget(&Lease{Key: key, ID: id, SinceMs: sinceMs})
}

// forget records that a lease was released or lost.
func (b *Book) forget(l *Lease) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.known.end(l, b.SteadyMs())
}

// keep records a lease of the origin, if there is room.
func (b *Book) keep(ctx context.Context, k *known) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.known.keep(k, fair.In(ctx), b.SteadyMs())
}

// refusal is the origin's last refusal of a key.
type refusal struct {
	limit   int64
	untilMs int64 // when the next call may be made
}

// isFull reports whether the key was refused so recently that another new lease within the same limit would be refused
// too. It is false for a lease whose ID the caller chose, because another node may have granted it already.
func (b *Book) isFull(a *Ask, nowMs int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	last := b.full[a.Name]
	return nowMs < last.untilMs && a.Limit <= last.limit
}

// setFull records a refusal.
func (b *Book) setFull(a *Ask, nowMs int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.full == nil || len(b.full) >= fullMax {
		b.full = make(map[slots.Name]refusal)
	}
	b.full[a.Name] = refusal{a.Limit, nowMs + retryMin.Milliseconds()}
}

// setRoom records that there is room.
func (b *Book) setRoom(key slots.Name) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.full, key)
}

// Stats returns how many leases of the origin this node has, and how many of its calls for leases were granted and
// refused.
func (b *Book) Stats() (leases, granted, refused int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.known.expire(b.SteadyMs())
	return int64(len(b.known.live)), b.granted.Load(), b.refused.Load()
}

// Each calls f with each held lease of the origin that this node has, and the milliseconds until it ends.
func (b *Book) Each(f func(l *Lease, leftMs int64)) {
	nowMs := b.SteadyMs()
	b.mu.Lock()
	b.known.expire(nowMs)
	live := b.known.all()
	b.mu.Unlock()
	for _, k := range live {
		if nowMs < k.endsMs {
			f(&k.Lease, k.endsMs-nowMs)
		}
	}
}
