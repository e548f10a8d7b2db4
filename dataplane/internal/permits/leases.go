package permits

import (
	"context"
	cryptorand "crypto/rand"
	"errors"
	"time"

	"github.com/weirhq/weir/dataplane/internal/clock"
	"github.com/weirhq/weir/dataplane/internal/leases"
	"github.com/weirhq/weir/dataplane/internal/outbox"
	"github.com/weirhq/weir/dataplane/internal/rules"
	"github.com/weirhq/weir/dataplane/internal/slots"
)

// Leases are a node's leases of concurrency limits.
type Leases struct {
	clock  *clock.Clock
	engine Engine
	slots  *slots.Table // of holders in this process
	book   leases.Book  // of holders outside of this process
}

// init makes the table of slots, and the book of leases by id.
func (l *Leases) init(cfg *Config) {
	l.clock, l.engine = cfg.Clock, cfg.Engine
	table := slots.Config{EntriesMax: cfg.EntriesMax, Nodes: func() int64 { return cfg.Rules.InForce().Nodes },
		AnswerTimeout: cfg.ReadTimeout, Go: cfg.Calls.Start}
	if cfg.Origin != nil { // an interface of a nil interface is none
		table.Origin = cfg.Origin
		l.book.Origin = &leaseOrigin{cfg.Origin, cfg.Out, cfg.Calls, cfg.ReadTimeout}
	}
	l.slots = slots.New(table)
	l.book.Table = l.slots
	l.book.SteadyMs = func() int64 { return int64(cfg.Clock.ReadSteady()) }
	l.book.Busy = outbox.ErrBusy
}

// Run renews and ends leases until ctx ends; goes starts its loops.
func (l *Leases) Run(ctx context.Context, goes func(func())) { l.slots.Run(ctx, goes) }

// End ends all leases of this process, and all waits for one.
func (l *Leases) End() { l.slots.End() }

// Stop hands all slots back to the origin.
func (l *Leases) Stop(ctx context.Context) error { return l.slots.Stop(ctx) }

// Acquire asks for a lease that this process holds, under the rule that applies to its key.
func (l *Leases) Acquire(ctx context.Context, ask *slots.Ask, by *rules.Rule, wait bool, r *slots.Result) {
	if by.Outage == rules.OutageClosed && l.slots.Out(&ask.Name) {
		r.Out = true
	} else {
		l.slots.Acquire(ctx, ask, wait && !by.Shadow, r)
	}
	l.refused(ask, r)
}

// AcquireToken asks for a lease by id, under the rule that applies to its key; without an id it draws one. lasts is
// how long a granted lease lasts from the call on.
func (l *Leases) AcquireToken(ctx context.Context, ask *slots.Ask, by *rules.Rule, id string, wait bool) (token string,
	lasts time.Duration, r slots.Result) {
	drawn := id == ""
	if drawn {
		id = cryptorand.Text()
	}
	of := leases.Ask{Limit: ask.Limit, Drawn: drawn, OutEnds: ask.OutEnds, Local: by.Outage == rules.OutageLocal,
		Lease: leases.Lease{Key: ask.Name, ID: id, TTL: ask.TTL, SinceMs: l.clock.ReadMs(), Holder: ask.Holder}}
	began := time.Now()
	r = l.book.Acquire(ctx, &of, wait && !by.Shadow)
	if l.refused(ask, &r); r.Granted {
		token, lasts = of.Lease.Token(), of.Sent.Sub(began)+ask.TTL
	}
	return token, lasts, r
}

// refused counts what was refused, and not for want of an answer.
func (l *Leases) refused(ask *slots.Ask, r *slots.Result) {
	if !r.Granted && !r.Out && !errors.Is(r.Err, outbox.ErrBusy) {
		l.engine.Refused(ask.Name.SlotsKey(), nil, ask.Limit)
	}
}

// Renew has leases by id end ttl from now: see leases.Book.
func (l *Leases) Renew(ctx context.Context, of []leases.Lease, ttl time.Duration) []error {
	return l.book.Renew(ctx, of, ttl)
}

// Release ends leases by id: see leases.Book.
func (l *Leases) Release(ctx context.Context, of []leases.Lease) []error {
	return l.book.Release(ctx, of)
}

// Look returns what this node knows of a key, and in r what Acquire would decide by it.
func (l *Leases) Look(ask *slots.Ask, r *slots.Result) (at slots.Look, known bool) {
	return l.slots.Look(ask, r)
}
