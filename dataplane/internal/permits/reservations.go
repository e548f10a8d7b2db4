package permits

import (
	"context"
	cryptorand "crypto/rand"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/weirhq/weir/dataplane/internal/clock"
	"github.com/weirhq/weir/dataplane/internal/collect"
	"github.com/weirhq/weir/dataplane/internal/held"
	"github.com/weirhq/weir/dataplane/internal/loop"
	"github.com/weirhq/weir/dataplane/internal/outbox"
	"github.com/weirhq/weir/dataplane/internal/rules"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// IDBytesMax is how long a reservation's id is.
const IDBytesMax = store.ReservationIDBytesMax

// Reservations are a node's. A reservation by id is held at the region's origin, where any node settles it, and ends
// there by itself. Without an origin that grants, and in an outage that the namespace's policy lets it through, it is
// this process's alone. Package held keeps both kinds.
type Reservations struct {
	clock  *clock.Clock
	rules  *rules.Rules
	out    *outbox.Outbox
	calls  *loop.Calls
	engine Engine
	alone  bool          // no origin grants reservations
	within time.Duration // all calls to the origin for one call of a caller's

	there held.There // at the origin
	here  held.Here  // of this process
}

// init sets up what keeps reservations.
func (s *Reservations) init(cfg *Config) {
	s.clock, s.rules, s.out, s.calls, s.engine = cfg.Clock, cfg.Rules, cfg.Out, cfg.Calls, cfg.Engine
	s.alone, s.within = cfg.Origin == nil, cfg.ReadTimeout
	s.here.NowMs, s.there.NowMs = s.clock.ReadMs, s.clock.ReadMs
	if s.there.Heard = s.hear; !s.alone {
		s.there.Origin = cfg.Origin
	}
	s.there.Go, s.there.Stopped, s.there.Busy = cfg.Calls.Start, outbox.ErrStopped, outbox.ErrBusy
	s.there.Call = func(ctx context.Context, shard int, what held.What, items int,
		call func(context.Context) (store.Reply, error)) error {
		return s.out.Shards()[shard].CallTwice(ctx, collect.OpHold+collect.Op(what), items, callTimeout, call)
	}
}

// Ask asks for a reservation.
type Ask struct {
	ID       string
	New      bool // the id was drawn for this call
	TTL      time.Duration
	Returned bool // at the end, what was not spent is given back
	Holder   string
	Items    []Item // one or more
}

// Item is one request of a reservation, as settings have it.
type Item struct {
	Key         window.Key
	Limit, Cost int64
	Rule        *rules.Rule
}

// Judge turns what becomes of a reservation into answers for its caller.
type Judge interface {
	// Answer judges the origin's answers to the items, and reports whether all are reserved. It may mark items of the
	// record as shadowed. The origin was not asked if it has just refused as much.
	Answer(r *held.Record, answers []store.HoldAnswer, asked bool) (ok bool, err error)

	// Count counts the items in this process, all or nothing.
	Count(ctx context.Context, r *held.Record) (counts []held.Count, ok bool, answer any)

	// Refuse denies the items, because a namespace's policy is closed in an outage.
	Refuse(r *held.Record, retryIn time.Duration)
}

// Reserved is what an Ask has come to.
type Reserved struct {
	Allowed bool // all of it is reserved at the origin
	EndsMs  int64
	Out     bool // the origin has not answered
	Here    any  // the answer of Judge.Count, if this process has decided
}

// DrawID draws an ID for a reservation whose first item is of a key.
func (s *Reservations) DrawID(of *window.Key) string {
	if s.alone {
		return cryptorand.Text() // an ID is what settles: it must not be guessed
	}
	return s.there.DrawID(of, cryptorand.Text)
}

// Reserve reserves all items or none.
func (s *Reservations) Reserve(ctx context.Context, a *Ask, by Judge) (got Reserved, err error) {
	if !s.calls.Begin() {
		return got, outbox.ErrStopped
	}
	defer s.calls.Done()
	caller := ctx
	ctx, cancel := context.WithTimeout(ctx, s.within)
	defer cancel()
	s.out.LearnTime(ctx, &a.Items[0].Key)
	r := a.record(s.clock.ReadMs())
	if s.alone || s.here.Find(a.ID) != nil {
		got.Here, err = s.reserveHere(caller, a, r, by)
		return got, err
	}
	err = s.reserveThere(ctx, a, r, by, &got)
	if nowMs := s.clock.ReadMs(); err == nil && !got.Allowed && r.Turned(nowMs) { // nothing new fits there
		err = s.reserveThere(ctx, a, a.record(nowMs), by, &got)
	}
	if errors.As(err, new(held.Away)) && caller.Err() == nil {
		return s.reserveOut(ctx, a, r, by)
	}
	return got, err
}

// reserveThere reserves at the origin.
func (s *Reservations) reserveThere(ctx context.Context, a *Ask, r *held.Record, by Judge, got *Reserved) error {
	if s.there.Full() {
		return held.ErrFull
	}
	is, ok, err := s.there.Reserve(ctx, a.ID, r, func(answers []store.HoldAnswer, asked bool) (bool, error) {
		return by.Answer(r, answers, asked)
	})
	if got.Allowed = ok; ok {
		got.EndsMs = is.EndsMs
	}
	return err
}

// reserveOut reserves in an outage: here, unless a namespace's policy is closed.
func (s *Reservations) reserveOut(ctx context.Context, a *Ask, r *held.Record, by Judge) (got Reserved, err error) {
	got.Out = true
	if slices.ContainsFunc(a.Items, func(it Item) bool {
		return it.Rule.Outage == rules.OutageClosed && !it.Rule.Shadow
	}) {
		by.Refuse(r, callTimeout)
		return got, nil
	}
	got.Here, err = s.reserveHere(ctx, a, r, by)
	return got, err
}

// reserveHere reserves in this process, as a batch is counted.
func (s *Reservations) reserveHere(ctx context.Context, a *Ask, r *held.Record, by Judge) (answer any, err error) {
	return s.here.Reserve(a.ID, r, func() ([]held.Count, bool, any) { return by.Count(ctx, r) })
}

// record is the reservation that a asks for.
func (a *Ask) record(nowMs int64) *held.Record {
	r := &held.Record{New: a.New, Returned: a.Returned, Holder: a.Holder, MadeMs: nowMs,
		EndsMs: nowMs + a.TTL.Milliseconds(), MadeBy: rand.Uint64() | 1, Items: make([]held.Item, len(a.Items))}
	for i := range a.Items {
		q := &a.Items[i]
		it := held.Item{Workspace: q.Key.Workspace, Namespace: q.Key.Namespace, Identifier: q.Key.Identifier,
			DurationMs: q.Key.DurationMs(), Limit: q.Limit, Held: q.Cost, Shadow: q.Rule.Shadow}
		it.Sequence = window.Sequence(nowMs, it.DurationMs)
		if q.Rule.Reset != nil {
			it.Generation = uint16(q.Rule.Reset.GenerationOf(it.Sequence, it.DurationMs))
			it.GenerationBefore = uint16(q.Rule.Reset.GenerationOf(it.Sequence-1, it.DurationMs))
		}
		r.Items[i] = it
	}
	return r
}

// Change changes a reservation. late is true if it was settled or had ended.
func (s *Reservations) Change(ctx context.Context, id string, by held.Change) (r *held.Record, late bool, err error) {
	if id == "" || len(id) > IDBytesMax {
		return nil, false, fmt.Errorf("%w: id has %d bytes (1 to %d)", window.ErrInvalid, len(id), IDBytesMax)
	}
	if !s.calls.Begin() {
		return nil, false, outbox.ErrStopped
	}
	defer s.calls.Done()
	if own := s.here.Find(id); own != nil {
		return own.Change(by)
	}
	if !s.alone {
		ctx, cancel := context.WithTimeout(ctx, s.within)
		defer cancel()
		return s.there.Change(ctx, id, by)
	}
	s.here.Stats.Unknown.Add(1)
	return nil, false, held.ErrNone
}

// Send sends what an origin has not received of reservations, or has lost.
func (s *Reservations) Send(ctx context.Context) error { return s.there.Send(ctx) }

// Lose notes that some part of the origin has lost what it held.
func (s *Reservations) Lose() { s.there.Lose() }

// Stop ends the reservations of this process.
func (s *Reservations) Stop() { s.here.Stop() }

// hear merges the totals that came with holds: what this node reserves is for its other decisions as what other
// nodes accept, and an origin that loses it is told again by each node that has heard of it.
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
