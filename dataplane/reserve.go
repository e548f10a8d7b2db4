package dataplane

import (
	"cmp"
	"context"
	cryptorand "crypto/rand"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/weirhq/weir/dataplane/internal/cell"
	"github.com/weirhq/weir/dataplane/internal/collect"
	"github.com/weirhq/weir/dataplane/internal/held"
	"github.com/weirhq/weir/dataplane/internal/outbox"
	"github.com/weirhq/weir/dataplane/internal/rules"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// A reservation by id is held at the region's origin, where any node settles it, and ends there by itself. Without an
// origin, and in an outage that the namespace's policy lets it through, it is this process's alone. Package held keeps
// both kinds; what is here judges, and counts.

const (
	// ReservedMax is how many requests a reservation has.
	ReservedMax = 32

	// ReservationIDBytesMax is how long a reservation's id is.
	ReservationIDBytesMax = store.ReservationIDBytesMax - held.HoldIDBytes

	// ReservationTTLMax is how long a reservation lasts.
	ReservationTTLMax = 24 * time.Hour

	// ReservationsMax is how many reservations that have not ended a node has made, or changed; fewer, if they would take
	// more than 256 MiB of it.
	ReservationsMax = held.Max

	reservationTTL = time.Minute // where none is given
	reserveWithin  = time.Second // for one call to the origin
)

var (
	// ErrNoReservation is returned of an id that nothing is known of: it never was, ended more than ten minutes ago, or
	// is another process's that was cut off from the origin.
	ErrNoReservation = held.ErrNone

	// ErrReservationUsed is returned of an id under which something else is reserved.
	ErrReservationUsed = held.ErrUsed

	// ErrReservationOver wraps ErrReservationUsed where the same was reserved, and was settled or has ended.
	ErrReservationOver = held.ErrOver

	// ErrReservations is returned when there is no room for a reservation: this node has ReservationsMax, or
	// a key has store.HoldsMax.
	ErrReservations = held.ErrMany
)

// ReserveRequest asks for a reservation.
type ReserveRequest struct {
	// ID identifies the reservation in the region: 1 to ReservationIDBytesMax bytes. Set it to make
	// retries safe: calls with the same ID, at any node of the region, share one reservation, and
	// return ErrReservationOver after its end. If ID is empty, one is drawn.
	ID string

	// Drawn must be set only if the caller drew ID for this very call, as an adapter does whose IDs
	// have a form of their own. A denial then skips the search for an earlier reservation with this
	// ID. Do not set it on a call that may be a retry.
	Drawn bool

	// Requests are what is reserved, 1 to ReservedMax. Their costs are what may be spent at most, if that is known.
	Requests []Request

	// TTL is how long the reservation lasts unless it is settled or extended, 1 s to ReservationTTLMax; 0 is a minute.
	TTL time.Duration

	// Returned gives back at the end what was not reported as spent. Otherwise all that was reserved counts as spent.
	Returned bool

	// Holder is the caller's name for operators, at most HolderBytesMax bytes. It may be left out.
	Holder string
}

// Reserved answers a ReserveRequest.
type Reserved struct {
	ID        string
	Allowed   bool       // all of it is reserved; otherwise nothing is
	Decisions []Decision // of each request
	EndsAt    time.Time  // by the origin's clock
	Err       error      // about the request, ErrReservationUsed, ErrReservations, ErrStopped, or the context's
}

// Settlement is what a reservation is after a call about it.
type Settlement struct {
	ID      string
	Spent   []int64 // of each request, as it was reported: not what a reservation that ended by itself counts
	Settled bool    // nothing can change any more
	Late    bool    // it was settled or had ended before: the call has changed nothing
	EndsAt  time.Time
}

// ReserveAll reserves the costs of one or more keys, all or nothing, until the reservation is
// settled or ends. Reserved cost counts like accepted cost. The origin decides, because it has the
// region's counts: that takes two round trips, or three for several keys. For 20 ms after a denial,
// this node denies requests that do not fit either by itself. Such a denial takes no round trip, or
// one if the request has an ID that is not Drawn, because it may be a retry.
//
// While the origin answers and keeps the writes that it has acknowledged, the reservations of all
// nodes together do not exceed the remaining limit.
//
// Requests in the estimate mode cannot be reserved.
func (l *Limiter) ReserveAll(ctx context.Context, r ReserveRequest) (out Reserved) {
	if out.Err = r.check(); out.Err != nil {
		return out
	}
	if out.ID = r.ID; out.ID == "" {
		out.ID = cryptorand.Text() // an id is what settles: it must not be guessed
	}
	asks, err := l.resolveAll(r.Requests)
	if err != nil {
		out.Err = err
		return out
	}
	if !l.calls.Begin() {
		out.Err = ErrStopped
		return out
	}
	defer l.calls.Done()
	first := asks[0].key()
	l.out.LearnTime(ctx, &first)
	rec := l.recordOf(&r, asks)
	if l.alone() || l.here.Find(out.ID) != nil {
		return l.reserveHere(ctx, &r, rec, out.ID)
	}
	if out.Err = l.reserveThere(ctx, asks, rec, &out); errors.As(out.Err, new(held.Away)) && ctx.Err() == nil {
		return l.reserveOut(ctx, &r, asks, rec, out.ID)
	}
	return out
}

// reserveThere reserves at the origin.
func (l *Limiter) reserveThere(ctx context.Context, asks []ask, rec *held.Record, out *Reserved) error {
	if l.there.Full() {
		return held.ErrFull
	}
	is, ok, err := l.there.Reserve(ctx, out.ID, rec, func(answers []store.HoldAnswer, asked bool) (bool, error) {
		ok := true
		out.Decisions = make([]Decision, len(asks))
		for i := range asks {
			if err := holdProblem(&answers[i]); err != nil {
				return false, err
			}
			d := &out.Decisions[i]
			answerHold(&asks[i], &rec.Items[i], &answers[i], rec.MadeMs, asked, d)
			rec.Items[i].Shadowed = d.Shadowed
			ok = ok && d.Allowed
		}
		return ok, nil
	})
	if out.Allowed = ok; ok {
		out.EndsAt = time.UnixMilli(is.EndsMs)
	}
	if err != nil {
		out.Decisions = nil
	}
	for i := range out.Decisions {
		if d, key := &out.Decisions[i], rec.Items[i].Cell().Key; !d.Allowed || d.Shadowed {
			l.engine.refused(&key, asks[i].rule.Reset, d.Limit)
		}
	}
	return err
}

// reserveOut reserves in an outage: here, unless a namespace's policy is closed.
func (l *Limiter) reserveOut(ctx context.Context, r *ReserveRequest, asks []ask, rec *held.Record,
	id string) (out Reserved) {
	if !slices.ContainsFunc(asks, func(q ask) bool { return q.rule.Outage == rules.OutageClosed }) {
		out = l.reserveHere(ctx, r, rec, id)
		for i := range out.Decisions {
			out.Decisions[i].Source = max(out.Decisions[i].Source, SourceDegraded)
		}
		return out
	}
	out.ID, out.Decisions = id, make([]Decision, len(asks))
	for i := range asks {
		it := &rec.Items[i]
		c := call{request: &asks[i].Request, nowMs: rec.MadeMs, durationMs: it.DurationMs, limit: it.Limit, cost: it.Held}
		v := cell.Verdict{Sequence: it.Sequence, AtMs: rec.MadeMs, Allowed: true}
		v.Refuse(rec.MadeMs, reserveWithin)
		out.Decisions[i].answer(&v, &c, asks[i].rule, SourceDegradedClosed)
	}
	return out
}

// reserveHere reserves in this process, as a batch is counted.
func (l *Limiter) reserveHere(ctx context.Context, r *ReserveRequest, rec *held.Record, id string) Reserved {
	answer, err := l.here.Reserve(id, rec, func() ([]held.Count, bool, any) {
		by := make([]Reservation, len(r.Requests))
		var b Batch
		l.allowBatch(ctx, l.clock.Now(), nil, r.Requests, by, &b)
		out := Reserved{ID: id, Allowed: b.Allowed, Decisions: b.Decisions, Err: b.Err}
		if !out.Allowed {
			return nil, false, out
		}
		out.EndsAt = time.UnixMilli(rec.EndsMs)
		counts := make([]held.Count, len(by))
		for i := range by {
			if by[i].engine != nil {
				counts[i] = (*reserved)(&by[i])
			}
		}
		return counts, true, out
	})
	if err != nil {
		return Reserved{ID: id, Err: err}
	}
	return answer.(Reserved)
}

// reserved is a Reservation as what a reservation by id has counted.
type reserved Reservation

func (r *reserved) Charge(cost int64) { (*Reservation)(r).charge(cost) }

func (r *reserved) Return(cost int64) {
	if !r.outside {
		r.entry.Ledger().GiveBack(r.sequence, cost)
	}
}

func (r *ReserveRequest) check() error {
	switch {
	case len(r.ID) > ReservationIDBytesMax:
		return fmt.Errorf("%w: id has %d bytes (1 to %d)", ErrInvalid, len(r.ID), ReservationIDBytesMax)
	case len(r.Requests) < 1 || len(r.Requests) > ReservedMax:
		return fmt.Errorf("%w: requests holds %d items (1 to %d)", ErrInvalid, len(r.Requests), ReservedMax)
	case len(r.Holder) > HolderBytesMax:
		return fmt.Errorf("%w: holder has %d bytes (at most %d)", ErrInvalid, len(r.Holder), HolderBytesMax)
	}
	for i := range r.Requests {
		if err := r.Requests[i].Validate(); err != nil {
			return fmt.Errorf("requests[%d]: %w", i, err)
		}
	}
	return checkTTL(cmp.Or(r.TTL, reservationTTL), time.Second, ReservationTTLMax)
}

func checkTTL(ttl, least, most time.Duration) error {
	if ttl < least || ttl > most {
		return fmt.Errorf("%w: ttl is %v (%v to %v)", ErrInvalid, ttl, least, most)
	}
	return nil
}

// ask is one request of a reservation, as settings have it.
type ask struct {
	Request
	rule *rules.Rule
}

func (l *Limiter) resolveAll(requests []Request) ([]ask, error) {
	set, asks := l.rules.InForce(), make([]ask, len(requests))
	for i := range requests {
		asks[i].Request = requests[i]
		asks[i].rule = asks[i].resolve(set)
		if asks[i].rule.Estimate != nil {
			return nil, fmt.Errorf("requests[%d]: %w: namespace %q is in the estimate mode (reservations are exact)", i,
				ErrInvalid, requests[i].Namespace)
		}
	}
	return asks, nil
}

// recordOf is what asks are as a reservation.
func (l *Limiter) recordOf(r *ReserveRequest, asks []ask) *held.Record {
	nowMs := l.nowMs()
	rec := &held.Record{New: r.ID == "" || r.Drawn, Returned: r.Returned, Holder: r.Holder, MadeMs: nowMs,
		EndsMs: nowMs + cmp.Or(r.TTL, reservationTTL).Milliseconds(), MadeBy: rand.Uint64() | 1,
		Items: make([]held.Item, len(asks))}
	for i := range asks {
		q := &asks[i]
		it := held.Item{Workspace: q.Workspace, Namespace: q.Namespace, Identifier: q.Identifier,
			DurationMs: q.Duration.Milliseconds(), Limit: q.Limit, Held: q.cost()}
		it.Sequence = window.Sequence(nowMs, it.DurationMs)
		if q.rule.Reset != nil {
			it.Generation = uint16(q.rule.Reset.GenerationOf(it.Sequence, it.DurationMs))
			it.GenerationBefore = uint16(q.rule.Reset.GenerationOf(it.Sequence-1, it.DurationMs))
		}
		rec.Items[i] = it
	}
	return rec
}

func holdProblem(a *store.HoldAnswer) error {
	switch err := a.Total.Err; {
	case errors.Is(err, store.ErrHoldUsed):
		return ErrReservationUsed
	case errors.Is(err, store.ErrHolds):
		return fmt.Errorf("%w: the key has %d", ErrReservations, store.HoldsMax)
	case err != nil:
		return err
	}
	return nil
}

// answerHold words what came of one request.
func answerHold(q *ask, it *held.Item, a *store.HoldAnswer, nowMs int64, asked bool, d *Decision) {
	v := cell.Verdict{Sequence: it.Sequence, AtMs: max(nowMs, window.Start(it.Sequence, it.DurationMs)),
		Current: a.Used, Previous: a.UsedBefore, Allowed: a.Granted}
	if a.Granted {
		v.Current = max(0, a.Used-it.Held)
	}
	c := call{request: &q.Request, nowMs: nowMs, durationMs: it.DurationMs, limit: it.Limit, cost: it.Held}
	if !v.Allowed {
		setRetry(&v, &c, q.rule)
	}
	source := SourceOrigin
	if !asked {
		source = SourceLocal
	}
	d.answer(&v, &c, q.rule, source)
}

// Settle reports what was spent of a reservation, one cost for each of its requests, in their order, and ends it. More
// than what was reserved counts too, past the limit; less leaves room for other reservations at once. A reservation
// is settled once: a call that repeats it, or comes after its end, returns what holds, and Late.
func (l *Limiter) Settle(ctx context.Context, id string, costs ...int64) (Settlement, error) {
	return l.change(ctx, id, held.Spend(costs, true))
}

// Spend reports what was spent of a reservation so far, in all, and does not end it. If it ends unsettled, and
// was made with Returned, this counts. Less than was reported before changes nothing.
func (l *Limiter) Spend(ctx context.Context, id string, costs ...int64) (Settlement, error) {
	return l.change(ctx, id, held.Spend(costs, false))
}

// Cancel settles a reservation with what was reported as spent, which may be nothing.
func (l *Limiter) Cancel(ctx context.Context, id string) (Settlement, error) {
	return l.change(ctx, id, held.Cancel)
}

// Extend has a reservation end ttl from now, if that is later than it would: 1 s to ReservationTTLMax; 0 is a minute.
func (l *Limiter) Extend(ctx context.Context, id string, ttl time.Duration) (Settlement, error) {
	ttl = cmp.Or(ttl, reservationTTL)
	if err := checkTTL(ttl, time.Second, ReservationTTLMax); err != nil {
		return Settlement{}, err
	}
	return l.change(ctx, id, held.Extend(ttl))
}

func (l *Limiter) change(ctx context.Context, id string, by held.Change) (Settlement, error) {
	if id == "" || len(id) > ReservationIDBytesMax {
		return Settlement{}, fmt.Errorf("%w: id has %d bytes (1 to %d)", ErrInvalid, len(id), ReservationIDBytesMax)
	}
	if !l.calls.Begin() {
		return Settlement{}, ErrStopped
	}
	defer l.calls.Done()
	var r *held.Record
	var late bool
	err := ErrNoReservation
	if own := l.here.Find(id); own != nil {
		r, late, err = own.Change(by)
	} else if !l.alone() {
		r, late, err = l.there.Change(ctx, id, by)
	} else {
		l.here.Stats.Unknown.Add(1)
	}
	if err != nil {
		return Settlement{}, err
	}
	return settlementOf(id, r, late), nil
}

func settlementOf(id string, r *held.Record, late bool) Settlement {
	s := Settlement{ID: id, Settled: r.Settled, Late: late, EndsAt: time.UnixMilli(r.EndsMs)}
	for i := range r.Items {
		s.Spent = append(s.Spent, r.Items[i].Spent)
	}
	return s
}

// holds sets up what keeps reservations.
func (l *Limiter) holds() {
	l.here.NowMs, l.there.NowMs = l.nowMs, l.nowMs
	l.there.Origin, l.there.Heard = l.cfg.Origin, l.hearHolds
	l.there.Call = func(ctx context.Context, shard int, what held.What, items int,
		call func(context.Context) (store.Reply, error)) error {
		return l.out.Shards()[shard].CallTwice(ctx, collect.OpHold+collect.Op(what), items, reserveWithin, call)
	}
}

// hearHolds merges the totals that came with holds: what this node reserves is for its other decisions as what other
// nodes accept, and an origin that loses it is told again by each node that has heard of it.
func (l *Limiter) hearHolds(shard int, words []store.Hold, totals []store.Total) {
	sh := l.out.Shards()[shard]
	sh.CountedIn(totals, func(i int) *window.Cell { return &words[i].Cell })
	set, nowMs := l.rules.InForce(), l.nowMs()
	for i := range words {
		c := &words[i].Cell
		if reset, ok := set.ResetOfCell(c); ok && totals[i].Err == nil {
			l.hearHold(sh, c, reset, &totals[i], nowMs)
		}
	}
}

func (l *Limiter) hearHold(sh *outbox.Shard, c *window.Cell, reset *window.Reset, total *store.Total, nowMs int64) {
	id := l.table.IdentityOfKey(&c.Key, reset)
	if e, met, _, alive := l.engine.current(&id, &c.Key, reset, nowMs); alive && met != cell.Untracked {
		sh.Absorb(e, c.Sequence, total)
	}
}
