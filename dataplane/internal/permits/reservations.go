package permits

import (
	"context"
	cryptorand "crypto/rand"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir/dataplane/internal/clock"
	"github.com/weirhq/weir/dataplane/internal/collect"
	"github.com/weirhq/weir/dataplane/internal/fair"
	"github.com/weirhq/weir/dataplane/internal/held"
	"github.com/weirhq/weir/dataplane/internal/holds"
	"github.com/weirhq/weir/dataplane/internal/loop"
	"github.com/weirhq/weir/dataplane/internal/outbox"
	"github.com/weirhq/weir/dataplane/internal/rules"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// IDBytesMax is the length of the longest reservation ID, in bytes.
const IDBytesMax = store.ReservationIDBytesMax

// Reservations makes and changes a node's reservations. The region's origin holds them, so any node settles them. The
// origin in this process holds them instead if the region's origin is no store.Granter, or does not answer and no
// namespace's outage policy is closed. Then only this process settles them. All methods may be called concurrently.
type Reservations struct {
	clock  *clock.Clock
	rules  *rules.Rules
	out    *outbox.Outbox
	calls  *loop.Calls
	engine Engine
	alone  bool          // no origin of the region grants reservations
	within time.Duration // bounds the time of all calls to the region's origin for a call of a caller

	region  held.Reservations // at the region's origin
	own     held.Reservations // at local
	local   local
	flights flights

	full [heldBounds]atomic.Int64 // calls that were refused because a bound was reached
}

// heldBound is a bound that refuses calls about reservations.
type heldBound int

const (
	boundReservations heldBound = iota // held.ErrMany of this node
	boundHolds                         // held.ErrMany of a key
	boundHeldCalls                     // outbox.ErrBusy
	heldBounds
)

// refused counts a call that was refused because a bound was reached.
func (s *Reservations) refused(err error) {
	switch {
	case err == nil:
	case errors.Is(err, held.ErrFull):
		s.full[boundReservations].Add(1)
	case errors.Is(err, held.ErrMany):
		s.full[boundHolds].Add(1)
	case errors.Is(err, outbox.ErrBusy):
		s.full[boundHeldCalls].Add(1)
	}
}

// init sets up both origins.
func (s *Reservations) init(cfg *Config) {
	s.clock, s.rules, s.out, s.calls, s.engine = cfg.Clock, cfg.Rules, cfg.Out, cfg.Calls, cfg.Engine
	s.alone, s.within = cfg.Origin == nil, cfg.ReadTimeout
	if !s.alone {
		s.region.Origin = cfg.Origin
	}
	s.region.NowMs, s.region.Heard = s.clock.ReadMs, s.hear
	s.region.Go, s.region.Stopped, s.region.Busy = cfg.Calls.Start, outbox.ErrStopped, outbox.ErrBusy
	s.region.NotBegun = func(shard int) func(error) error {
		sh := s.out.Shards()[shard]
		answers := sh.Answers()
		return func(err error) error { return sh.NotBegun(err, answers) }
	}
	s.region.Call = func(ctx context.Context, shard int, what held.What, items int,
		call func(context.Context) (store.Reply, error)) error {
		return s.out.Shards()[shard].CallTwice(ctx, collect.OpHold+collect.Op(what), items, callTimeout, call)
	}
	s.local.init(cfg, &s.flights)
	s.own.Origin, s.own.NowMs, s.own.Near, s.own.Trim = &s.local, s.local.nowMs, true, s.local.trim
}

// Ask is a request for a reservation.
type Ask struct {
	ID       string
	New      bool // the id was drawn for this call
	TTL      time.Duration
	Returned bool // at the end, cost that was not spent is given back
	Holder   string
	Items    []Item // at least 1
}

// Item is an item of a reservation, by the settings.
type Item struct {
	Key         window.Key
	Limit, Cost int64
	Rule        *rules.Rule
	Shadow      bool // it passes over its limit
}

// Judge turns the result of a request for a reservation into answers for its caller.
type Judge interface {
	// Answer judges an origin's answers to the items, and reports whether all are reserved. It can mark items of the
	// record as shadowed. asked is false if the region's origin was not called.
	Answer(r *held.Record, answers []store.HoldAnswer, asked bool) (ok bool, err error)

	// Grant checks all items and counts them in this process, in one step. It returns the charge of each item, nil for an
	// item that passes over its limit and counts nothing. If an item is denied, it returns no charges. out means that the
	// region's origin has just not answered, so the outage policies decide.
	Grant(ctx context.Context, out bool) []holds.Charge

	// Refuse denies the items, because a namespace's policy is closed in an outage.
	Refuse(r *held.Record, retryIn time.Duration)
}

// Reserved is the result of a request for a reservation.
type Reserved struct {
	Allowed bool // all of it is reserved
	EndsMs  int64
	Out     bool // the region's origin has not answered
}

// DrawID draws an ID for a reservation. of is the key of its first item. The ID must not be guessable, because anybody
// who has it can settle the reservation.
func (s *Reservations) DrawID(of *window.Key) string {
	if s.alone {
		return cryptorand.Text()
	}
	return held.DrawID(s.region.Origin, of, cryptorand.Text)
}

// Reserve reserves all items or none.
func (s *Reservations) Reserve(ctx context.Context, a *Ask, by Judge) (got Reserved, err error) {
	if !s.calls.Begin() {
		return got, outbox.ErrStopped
	}
	defer s.calls.Done()
	defer func() { s.refused(err) }()
	deadline := time.Now().Add(s.within)
	s.out.LearnTime(ctx, &a.Items[0].Key)
	flight, before, err := s.flights.begin(ctx, a.ID, by)
	if err != nil {
		return got, err
	}
	defer s.flights.end(a.ID, flight)
	r := a.record(fair.InOrSpace(ctx, a.space()), s.clock.ReadMs())
	if s.isOwn(a.ID) {
		return s.reserveOwn(ctx, a, r, by)
	}
	caller := ctx
	ctx, cancel := context.WithDeadline(fair.OrSpace(ctx, a.space()), deadline)
	defer cancel()
	isLate := before != nil && !before.out && ctx.Err() != nil
	got, err = s.reserve(ctx, &s.region, a, r, by)
	if nowMs := s.clock.ReadMs(); err == nil && !got.Allowed && r.Turned(nowMs) { // nothing new fits there
		r = a.record(r.By, nowMs)
		got, err = s.reserve(ctx, &s.region, a, r, by)
	}
	switch {
	case !errors.As(err, new(held.Away)) || caller.Err() != nil:
		return got, err
	case isLate: // the origin has answered another request while this request waited for it
		return got, outbox.ErrBusy
	}
	flight.out = true
	if slices.ContainsFunc(a.Items, func(it Item) bool { return it.Rule.Outage == rules.OutageClosed && !it.Shadow }) {
		by.Refuse(r, callTimeout)
		return Reserved{Out: true}, nil
	}
	got, err = s.reserveOwn(ctx, a, r, by)
	got.Out = true
	return got, err
}

// reserve reserves at the region's origin or in this process.
func (s *Reservations) reserve(ctx context.Context, at *held.Reservations, a *Ask, r *held.Record,
	by Judge) (got Reserved, err error) {
	if at.Full(r) {
		return got, held.ErrFull
	}
	is, ok, err := at.Reserve(ctx, a.ID, r, func(answers []store.HoldAnswer, asked bool) (bool, error) {
		return by.Answer(r, answers, asked && at == &s.region)
	})
	if got.Allowed = ok; ok {
		got.EndsMs = is.EndsMs
	}
	return got, err
}

// reserveOwn reserves in this process.
func (s *Reservations) reserveOwn(ctx context.Context, a *Ask, r *held.Record, by Judge) (got Reserved, err error) {
	got, err = s.reserve(ctx, &s.own, a, r, by)
	got.EndsMs += s.ahead()
	return got, err
}

// isOwn reports whether the reservation of an ID is, or would be, this process's.
func (s *Reservations) isOwn(id string) bool { return s.alone || s.local.knows(id) }

// ahead returns how far the clock that callers see is ahead of that of local, in milliseconds.
func (s *Reservations) ahead() int64 { return s.clock.ReadMs() - s.local.nowMs() }

// space returns the namespace whose share the reservation takes.
func (a *Ask) space() fair.Space {
	key := &a.Items[0].Key
	return fair.Space{Workspace: key.Workspace, Namespace: key.Namespace}
}

// record returns the reservation that the request describes.
func (a *Ask) record(by fair.Caller, nowMs int64) *held.Record {
	r := &held.Record{By: by, New: a.New, Returned: a.Returned, Holder: a.Holder, MadeMs: nowMs,
		EndsMs: nowMs + a.TTL.Milliseconds(), MadeBy: rand.Uint64() | 1, Items: make([]held.Item, len(a.Items))}
	for i := range a.Items {
		q := &a.Items[i]
		it := held.Item{Workspace: q.Key.Workspace, Namespace: q.Key.Namespace, Identifier: q.Key.Identifier,
			DurationMs: q.Key.DurationMs(), Limit: q.Limit, Held: q.Cost, Shadow: q.Shadow,
			Precise: q.Rule.Precise}
		it.Sequence = window.Sequence(nowMs, it.DurationMs)
		if q.Rule.Reset != nil {
			it.Generation = uint16(q.Rule.Reset.GenerationOf(it.Sequence, it.DurationMs))
			it.GenerationBefore = uint16(q.Rule.Reset.GenerationOf(it.Sequence-1, it.DurationMs))
		}
		r.Items[i] = it
	}
	return r
}

// Change changes a reservation. late reports whether the reservation was settled or had ended before.
func (s *Reservations) Change(ctx context.Context, id string, by held.Change) (r *held.Record, late bool, err error) {
	if id == "" || len(id) > IDBytesMax {
		return nil, false, fmt.Errorf("%w: id has %d bytes (1 to %d)", window.ErrInvalid, len(id), IDBytesMax)
	}
	if !s.calls.Begin() {
		return nil, false, outbox.ErrStopped
	}
	defer s.calls.Done()
	defer func() { s.refused(err) }()
	if !s.isOwn(id) {
		ctx, cancel := context.WithTimeout(ctx, s.within)
		defer cancel()
		return s.region.Change(ctx, id, by)
	}
	if r, late, err = s.own.Change(ctx, id, by); err == nil {
		r = new(*r)
		r.EndsMs += s.ahead()
	}
	return r, late, err
}

// Send sends again the parts of reservations that an origin has not received, or has lost.
func (s *Reservations) Send(ctx context.Context) error {
	return errors.Join(s.region.Send(ctx), s.own.Send(ctx))
}

// Lose records that some part of the region's origin has lost its data.
func (s *Reservations) Lose() { s.region.Lose() }

// Stop ends the reservations of this process.
func (s *Reservations) Stop() { s.local.stop() }

// hear merges the totals that came with holds. This node's other decisions treat reserved cost as cost of other nodes,
// and each node that has the totals restores them to an origin that loses its data.
func (s *Reservations) hear(shard int, holds []store.Hold, totals []store.Total) {
	sh := s.out.Shards()[shard]
	sh.CountedIn(totals, func(i int) *window.Cell { return &holds[i].Cell })
	set, nowMs := s.rules.InForce(), s.clock.ReadMs()
	for i := range holds {
		c := &holds[i].Cell
		if reset, ok := set.ResetOfCell(c); ok && totals[i].Err == nil {
			s.engine.Absorb(sh, c, reset, &totals[i], nowMs)
		}
	}
}
