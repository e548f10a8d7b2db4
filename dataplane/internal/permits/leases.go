package permits

import (
	"context"
	cryptorand "crypto/rand"
	"errors"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir/dataplane/internal/clock"
	"github.com/weirhq/weir/dataplane/internal/fair"
	"github.com/weirhq/weir/dataplane/internal/leases"
	"github.com/weirhq/weir/dataplane/internal/outbox"
	"github.com/weirhq/weir/dataplane/internal/rules"
	"github.com/weirhq/weir/dataplane/internal/slots"
)

// Leases are a node's leases of concurrency limits.
type Leases struct {
	clock  *clock.Clock
	rules  *rules.Rules
	engine Engine
	slots  *slots.Table // of holders in this process
	book   leases.Book  // of holders outside of this process

	full [bounds]atomic.Int64 // requests that were refused because a bound of this node was reached
}

// bound is a bound of a node that refuses requests for leases.
type bound int

const (
	boundKeys    bound = iota // slots.ErrFull
	boundWaiters              // slots.ErrWaiters
	boundLeases               // slots.ErrLeases
	boundCalls                // outbox.ErrBusy
	bounds
)

// init makes the table of slots, and the book of leases by id.
func (l *Leases) init(cfg *Config) {
	l.clock, l.rules, l.engine = cfg.Clock, cfg.Rules, cfg.Engine
	table := slots.Config{EntriesMax: cfg.EntriesMax, Nodes: func() int64 { return cfg.Rules.InForce().Nodes },
		AnswerTimeout: cfg.ReadTimeout, Go: cfg.Calls.Start,
		Judge: func(a *slots.Ask) bool { return !l.Judge(a).Shadow }, Changed: cfg.Rules.Replaced}
	table.Now, table.Recent = cfg.Clock.Monotonic, cfg.Clock.Recent
	if cfg.Origin != nil { // an interface of a nil interface is none
		origin := &grants{cfg.Origin, cfg.Out, cfg.Calls, cfg.ReadTimeout}
		table.Origin, table.Ended, l.book.Origin = origin, l.book.Ended, origin
	}
	l.slots = slots.New(table)
	l.book.Table = l.slots
	l.book.SteadyMs = func() int64 { return int64(cfg.Clock.ReadSteady()) }
	l.book.Judge, l.book.Changed = l.judgeToken, cfg.Rules.Replaced
	l.book.Busy = outbox.ErrBusy
}

// Run renews and ends leases until ctx ends; goes starts its loops.
func (l *Leases) Run(ctx context.Context, goes func(func())) { l.slots.Run(ctx, goes) }

// End ends all leases of this process, and all waits for leases.
func (l *Leases) End() { l.slots.End() }

// Stop hands all slots back to the origin.
func (l *Leases) Stop(ctx context.Context) error { return l.slots.Stop(ctx) }

// Judge sets a request's limit by the settings in force, and returns the rule that applies to it.
func (l *Leases) Judge(ask *slots.Ask) *rules.Rule {
	n, duration := &ask.Name, time.Second
	ask.Limit = ask.Own
	by := l.rules.InForce().Resolve(n.Workspace, n.Namespace, n.Identifier, &ask.Limit, &duration)
	ask.OutEnds = by.Outage == rules.OutageOpen
	return by
}

// judgeToken is Judge for a lease by id, and reports whether the request may wait for it.
func (l *Leases) judgeToken(a *leases.Ask) bool {
	by := l.Judge(&a.Ask)
	a.Local = by.Outage == rules.OutageLocal
	return !by.Shadow
}

// Acquire requests a lease that this process holds, by the settings in force. It returns the rule that decided.
func (l *Leases) Acquire(ctx context.Context, ask *slots.Ask, wait bool, r *slots.Result) *rules.Rule {
	by := l.Judge(ask)
	if by.Outage == rules.OutageClosed && l.slots.Out(&ask.Name) {
		r.Out = true
	} else if l.slots.Acquire(ctx, ask, wait && !by.Shadow, r); wait || !r.Granted {
		by = l.Judge(ask) // it may have waited
	}
	l.refused(ask, r)
	return by
}

// AcquireToken requests a lease by id, by the settings in force. Without an id it draws an id. It returns the rule that
// decided, and how long a granted lease lasts from the call on.
func (l *Leases) AcquireToken(ctx context.Context, ask *slots.Ask, id string, wait bool) (token string,
	lasts time.Duration, by *rules.Rule, r slots.Result) {
	of := leases.Ask{Ask: *ask, Drawn: id == ""}
	if of.ID, of.Unattended, of.SinceMs = id, true, l.clock.ReadMs(); of.Drawn {
		of.ID = cryptorand.Text()
	}
	waits := l.judgeToken(&of)
	began := time.Now()
	r = l.book.Acquire(fair.OrSpace(ctx, space(&ask.Name)), &of, wait && waits)
	by = l.Judge(ask) // it may have waited
	if l.refused(ask, &r); r.Granted {
		granted := of.Lease()
		token, lasts = granted.Token(), of.Sent.Sub(began)+ask.TTL
	}
	return token, lasts, by, r
}

// refused counts a refusal, unless the reason is a missing answer.
func (l *Leases) refused(ask *slots.Ask, r *slots.Result) {
	if r.Err != nil {
		for of, err := range [bounds]error{slots.ErrFull, slots.ErrWaiters, slots.ErrLeases, outbox.ErrBusy} {
			if errors.Is(r.Err, err) {
				l.full[of].Add(1)
			}
		}
	}
	if !r.Granted && !r.Out && !errors.Is(r.Err, outbox.ErrBusy) {
		l.engine.Refused(ask.Name.SlotsKey(), nil, ask.Limit)
	}
}

// space returns a key's namespace.
func space(n *slots.Name) fair.Space {
	return fair.Space{Workspace: n.Workspace, Namespace: n.Namespace}
}

// Renew extends leases by id to ttl from now: see leases.Book.
func (l *Leases) Renew(ctx context.Context, of []leases.Lease, ttl time.Duration) []error {
	return l.book.Renew(fair.OrSpace(ctx, space(&of[0].Key)), of, ttl)
}

// Release ends leases by id: see leases.Book.
func (l *Leases) Release(ctx context.Context, of []leases.Lease) []error {
	return l.book.Release(fair.OrSpace(ctx, space(&of[0].Key)), of)
}

// Look returns this node's state of a key, and in r the result that Acquire would give.
func (l *Leases) Look(ask *slots.Ask, r *slots.Result) (at slots.Look, known bool) {
	return l.slots.Look(ask, r)
}
