package dataplane

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weirhq/weir/dataplane/internal/cell"
	"github.com/weirhq/weir/dataplane/internal/held"
	"github.com/weirhq/weir/dataplane/internal/holds"
	"github.com/weirhq/weir/dataplane/internal/permits"
	"github.com/weirhq/weir/dataplane/internal/rules"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// Package permits makes reservations. This file judges and counts their requests, and builds the answers.

const (
	// ReservedMax is the highest number of requests in a reservation.
	ReservedMax = 32

	// ReservationIDBytesMax is the length of the longest reservation ID, in bytes.
	ReservationIDBytesMax = permits.IDBytesMax

	// ReservationTTLMax is the longest TTL of a reservation.
	ReservationTTLMax = 24 * time.Hour

	// ReservationsMax is the highest number of open reservations that a node has made or changed. The number is lower if
	// they would take more than 256 MiB. One caller can have at most three quarters of them, which is 75,000: see
	// WithCaller. Reservations that this process makes by itself during an outage of the origin have separate room of
	// the same size.
	ReservationsMax = held.Max

	reservationTTL = time.Minute // if no TTL is given
)

var (
	// ErrNoReservation is returned for an ID without a reservation. Either there was none, or it was settled or ended
	// more than a minute ago, or another process that was cut off from the origin has it.
	ErrNoReservation = held.ErrNone

	// ErrReservationUsed is returned for an ID under which other costs are reserved.
	ErrReservationUsed = held.ErrUsed

	// ErrReservationOver wraps ErrReservationUsed. It is returned for an ID under which the same costs were reserved, if
	// that reservation was settled or has ended.
	ErrReservationOver = held.ErrOver

	// ErrReservations is returned when there is no room for a reservation: this node has ReservationsMax, or a key has
	// store.HoldsMax, or the caller has its whole share of them (see WithCaller).
	ErrReservations = held.ErrMany
)

// ReserveRequest requests a reservation.
type ReserveRequest struct {
	// ID identifies the reservation in the region: 1 to ReservationIDBytesMax bytes. Set it to make retries safe: calls
	// with the same ID, at any node of the region, share one reservation, and return ErrReservationOver after its end.
	// If ID is empty, Reserve draws a random ID.
	ID string

	// Drawn must be set only if the caller drew ID for this very call: for example, an adapter whose IDs have their own
	// format. A denial then skips the search for an earlier reservation with this ID. Do not set it on a call that may
	// be a retry.
	Drawn bool

	// Requests are the costs to reserve, for 1 to ReservedMax keys. Reserve the highest cost that is possible, if there
	// is such a bound.
	Requests []Request

	// TTL is the time until the reservation ends unless it is settled or extended, 1 s to ReservationTTLMax; 0 means a
	// minute.
	TTL time.Duration

	// Returned selects the cost that counts if a reservation ends unsettled: if true, the cost that Spend reported, and
	// otherwise its whole cost. For example, of 500 reserved and 120 reported, 380 are given back if Returned is true,
	// and none if it is false.
	Returned bool

	// Holder is the caller's name for operators, at most HolderBytesMax bytes. It can be left out.
	Holder string
}

// Reserved is the answer to a ReserveRequest.
type Reserved struct {
	ID        string
	Allowed   bool       // everything is reserved; otherwise nothing is
	Decisions []Decision // for each request
	EndsAt    time.Time  // by the origin's clock
	Err       error      // about the request, or ErrReservationUsed, ErrReservations, ErrStopped, or the context's
}

// Settlement is the state of a reservation after a call about it.
type Settlement struct {
	ID      string
	Spent   []int64 // reported cost of each request; a reservation that ended by itself may count more
	Settled bool    // no further call can change the reservation
	Late    bool    // the call changed nothing, because the reservation was settled or had ended before
	EndsAt  time.Time
}

// Reserve reserves the costs of one or more keys, all or nothing, until the reservation is settled or ends. Reserved
// cost counts like accepted cost. The origin decides, because it has the region's counts. That takes one round trip if
// a single Redis has all keys, and up to three if they are spread over several servers or over a Cluster, within
// Config.ReadTimeout in total. The first reservation in a server, or in a bucket of a Cluster, takes one more.
//
// For 20 ms after a denial, this node itself denies further requests that do not fit. Such a denial takes no round
// trip, or one round trip if the request has an ID that is not Drawn, because it may be a retry.
//
// In a namespace with a precise window, RetryAfter of a denial is only an upper bound: the end of the cell that has
// to leave the window. Part of that cell's cost, and so enough room, may leave earlier.
//
// While the origin answers and keeps the writes that it has acknowledged, the reservations of all nodes together do
// not exceed the remaining limit.
//
// Without an origin, or with an origin that is not a store.Granter, this process reserves by itself, and decides as
// AllowMany does. Its reservations count at the origin as accepted cost does, and only this process can settle them.
// The same holds while the origin does not answer, unless the outage policy of a request's namespace is closed: then
// the reservation is denied.
//
// For example, the answer of a model takes at most 4,096 tokens. Reserve a cost of 4,096. If the answer takes 812,
// call Settle(ctx, id, 812), and 3,284 are free for other reservations.
//
// Requests in the estimate mode cannot be reserved.
func (l *Limiter) Reserve(ctx context.Context, r ReserveRequest) (out Reserved) {
	if out.Err = r.check(); out.Err != nil {
		return out
	}
	w := reserving{engine: &l.engine, request: r, id: r.ID}
	var a *permits.Ask
	if a, out.Err = w.ask(); out.Err != nil {
		out.ID = r.ID
		return out
	}
	if w.id == "" {
		w.id = l.permits.Reservations.DrawID(&a.Items[0].Key)
	}
	a.ID, out.ID = w.id, w.id
	got, err := l.permits.Reservations.Reserve(ctx, a, &w)
	if err != nil {
		return Reserved{ID: w.id, Err: err}
	}
	if out.Allowed, out.Decisions = got.Allowed, w.decisions; got.Allowed {
		out.EndsAt = time.UnixMilli(got.EndsMs)
	}
	switch {
	case got.Out:
		for i := range out.Decisions {
			out.Decisions[i].Source = max(out.Decisions[i].Source, SourceDegraded)
		}
	case !w.counted:
		w.refused()
	}
	return out
}

// reserving is a call of Reserve. It implements permits.Judge.
type reserving struct {
	engine  *engine
	request ReserveRequest
	id      string

	asks      []ask
	record    *held.Record
	decisions []Decision
	counted   bool // decisions holds the decisions of a batch, which this process has counted or denied
}

// ask is a request of a reservation, after overrides.
type ask struct {
	Request
	rule *rules.Rule
}

// ask resolves the requests by the settings in force.
func (w *reserving) ask() (*permits.Ask, error) {
	r, set := &w.request, w.engine.rules.InForce()
	a := &permits.Ask{New: r.ID == "" || r.Drawn, TTL: cmp.Or(r.TTL, reservationTTL), Returned: r.Returned,
		Holder: r.Holder, Items: make([]permits.Item, len(r.Requests))}
	w.asks = make([]ask, len(r.Requests))
	for i := range r.Requests {
		q := &w.asks[i]
		q.Request = r.Requests[i]
		q.rule = q.resolve(set)
		if q.rule.Estimate != nil {
			return nil, fmt.Errorf("requests[%d]: %w: namespace %q is in the estimate mode (reservations are exact)", i,
				ErrInvalid, r.Requests[i].Namespace)
		}
		a.Items[i] = permits.Item{Key: q.key(), Limit: q.Limit, Cost: q.cost(), Rule: q.rule,
			Shadow: q.rule.Shadow || q.Shadow}
	}
	return a, nil
}

// Answer implements permits.Judge.
func (w *reserving) Answer(r *held.Record, answers []store.HoldAnswer, asked bool) (ok bool, err error) {
	w.record, ok = r, true
	if !w.counted {
		w.decisions = make([]Decision, len(w.asks))
	}
	for i := range w.asks {
		problem := holdProblem(&answers[i])
		if problem != nil && !r.Items[i].Shadow {
			return false, problem
		}
		d := &w.decisions[i]
		if !w.counted {
			answerHold(&w.asks[i], &r.Items[i], &answers[i], r.MadeMs, asked, d)
		}
		d.Shadowed = d.Shadowed || problem != nil // the item passes without a hold
		r.Items[i].Shadowed = d.Shadowed
		ok = ok && d.Allowed
	}
	return ok, nil
}

// refused samples the denials of the origin, for TopDenied.
func (w *reserving) refused() {
	for i := range w.decisions {
		if d := &w.decisions[i]; !d.Allowed || d.Shadowed {
			w.engine.Refused(w.record.Items[i].Cell().Key, w.asks[i].rule.Reset, d.Limit)
		}
	}
}

// Refuse implements permits.Judge.
func (w *reserving) Refuse(r *held.Record, retryIn time.Duration) {
	w.decisions = make([]Decision, len(w.asks))
	for i := range w.asks {
		it := &r.Items[i]
		c := call{request: &w.asks[i].Request, nowMs: r.MadeMs, durationMs: it.DurationMs, limit: it.Limit, cost: it.Held}
		v := cell.Verdict{Sequence: it.Sequence, AtMs: r.MadeMs, Allowed: true}
		v.Refuse(r.MadeMs, retryIn)
		w.decisions[i].answer(&v, &c, w.asks[i].rule, SourceDegradedClosed)
	}
}

// Grant implements permits.Judge: this process counts the items as a batch.
func (w *reserving) Grant(ctx context.Context, out bool) (charges []holds.Charge) {
	by := make([]Allowance, len(w.request.Requests))
	var b Batch
	w.engine.allowBatch(ctx, w.engine.clock.Now(), nil, w.request.Requests, by, out, &b)
	w.decisions, w.counted = b.Decisions, true
	if !b.Allowed {
		return nil
	}
	charges = make([]holds.Charge, len(by))
	for i := range by {
		if by[i].engine != nil {
			charges[i] = (*charge)(&by[i])
		}
	}
	return charges
}

// charge wraps an Allowance as the charge of a hold.
type charge Allowance

// Set implements holds.Charge.
func (c *charge) Set(cost int64) { (*Allowance)(c).set(cost) }

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

func holdProblem(a *store.HoldAnswer) error {
	switch err := a.Total.Err; {
	case errors.Is(err, store.ErrHolds):
		return fmt.Errorf("%w: the key has %d", ErrReservations, store.HoldsMax)
	case err != nil:
		return err
	}
	return nil
}

// answerHold fills the decision about one request from the answer about its hold.
func answerHold(q *ask, it *held.Item, a *store.HoldAnswer, nowMs int64, asked bool, d *Decision) {
	v := cell.Verdict{Sequence: it.Sequence, AtMs: max(nowMs, window.Start(it.Sequence, it.DurationMs)),
		Current: a.Used, Previous: a.UsedBefore, Allowed: a.Fits, Precise: q.rule.Precise}
	c := call{request: &q.Request, nowMs: nowMs, durationMs: it.DurationMs, limit: it.Limit, cost: it.Held}
	if !v.Allowed {
		setRetry(nil, &v, &c, q.rule)
	}
	source := SourceOrigin
	if !asked {
		source = SourceLocal
	}
	d.answer(&v, &c, q.rule, source)
}

// Settle reports the spent cost of a reservation, in the order of its requests, and ends it. A cost above the
// reserved cost counts too, past the limit. A smaller cost leaves room for other reservations at once. For example,
// with 500 reserved, Settle(ctx, id, 120) leaves room for 380. A reservation can be settled only once. A later call,
// or a call after the reservation's end, changes nothing, and returns its state with Late set.
func (l *Limiter) Settle(ctx context.Context, id string, costs ...int64) (Settlement, error) {
	return l.change(ctx, id, held.Change{Spent: append([]int64{}, costs...), Settled: true})
}

// Spend reports the total cost that a reservation has spent so far, and does not end it. Use it for long work,
// together with Returned: if the reservation then ends unsettled, only the reported cost counts. A smaller cost than
// the one reported before changes nothing.
func (l *Limiter) Spend(ctx context.Context, id string, costs ...int64) (Settlement, error) {
	return l.change(ctx, id, held.Change{Spent: append([]int64{}, costs...)})
}

// Cancel settles a reservation with the costs that Spend reported, or 0. For example, if Spend has reported 120 of
// 500, Cancel leaves room for 380.
func (l *Limiter) Cancel(ctx context.Context, id string) (Settlement, error) {
	return l.change(ctx, id, held.Change{Settled: true})
}

// Extend moves the end of a reservation to ttl from now, unless it already ends later: 1 s to ReservationTTLMax; 0
// means a minute.
func (l *Limiter) Extend(ctx context.Context, id string, ttl time.Duration) (Settlement, error) {
	ttl = cmp.Or(ttl, reservationTTL)
	if err := checkTTL(ttl, time.Second, ReservationTTLMax); err != nil {
		return Settlement{}, err
	}
	return l.change(ctx, id, held.Change{TTL: ttl})
}

func (l *Limiter) change(ctx context.Context, id string, by held.Change) (Settlement, error) {
	r, late, err := l.permits.Reservations.Change(ctx, id, by)
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
