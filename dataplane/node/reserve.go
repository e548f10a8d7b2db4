package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"connectrpc.com/connect"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/node/access"
	"github.com/weirhq/weir/shared/bounded"
	weirv1 "github.com/weirhq/weir/shared/gen/proto/weir/v1"
)

// Reservations on the wire. All calls wait for the origin, and leave their place to others meanwhile.

func (s service) reserve(ctx context.Context, m *weirv1.ReserveRequest) (*weirv1.ReserveResponse, error) {
	request, err := readReserve(m)
	if err != nil {
		return nil, err
	}
	var reserved dataplane.Reserved
	leavingPlace(ctx, func() { reserved = s.limiter(ctx).Reserve(ctx, request) })
	if reserved.Err != nil {
		return nil, refusalOfCall(reserved.Err)
	}
	answer := &weirv1.ReserveResponse{Allowed: reserved.Allowed, Id: reserved.ID}
	for i := range reserved.Decisions {
		answer.Responses = append(answer.Responses, writeDecision(reserved.Decisions[i]))
	}
	if reserved.Allowed {
		answer.EndsAtMs = reserved.EndsAt.UnixMilli()
	}
	return answer, nil
}

func (s service) settle(ctx context.Context, m *weirv1.SettleRequest) (*weirv1.SettleResponse, error) {
	var found violations
	found.reservation(m.GetId())
	if n := len(m.GetCosts()); n < 1 || n > dataplane.ReservedMax {
		found.add("costs", "has %d items (1 to %d)", n, dataplane.ReservedMax)
	} else {
		for i, cost := range m.GetCosts() {
			found.amount(fmt.Sprintf("costs[%d]", i), cost)
		}
	}
	settle := s.limiter(ctx).Settle
	if m.GetMore() {
		settle = s.limiter(ctx).Spend
	}
	settlement, err := settled(ctx, found, func() (dataplane.Settlement, error) {
		return settle(ctx, m.GetId(), m.GetCosts()...)
	})
	return &weirv1.SettleResponse{Settlement: settlement}, err
}

func (s service) cancel(ctx context.Context, m *weirv1.CancelRequest) (*weirv1.CancelResponse, error) {
	var found violations
	found.reservation(m.GetId())
	settlement, err := settled(ctx, found, func() (dataplane.Settlement, error) {
		return s.limiter(ctx).Cancel(ctx, m.GetId())
	})
	return &weirv1.CancelResponse{Settlement: settlement}, err
}

func (s service) extend(ctx context.Context, m *weirv1.ExtendRequest) (*weirv1.ExtendResponse, error) {
	var found violations
	found.reservation(m.GetId())
	ttl := found.reservationTTL(m.GetTtlMs())
	settlement, err := settled(ctx, found, func() (dataplane.Settlement, error) {
		return s.limiter(ctx).Extend(ctx, m.GetId(), ttl)
	})
	return &weirv1.ExtendResponse{Settlement: settlement}, err
}

// settled makes a call about a reservation, unless something is wrong with its message.
func settled(ctx context.Context, found violations,
	call func() (dataplane.Settlement, error)) (*weirv1.Settlement, error) {
	if err := found.err(); err != nil {
		return nil, err
	}
	var s dataplane.Settlement
	var err error
	leavingPlace(ctx, func() { s, err = call() })
	if err != nil {
		return nil, refusalOfCall(err)
	}
	return &weirv1.Settlement{Id: s.ID, Spent: s.Spent, Settled: s.Settled, Late: s.Late,
		EndsAtMs: s.EndsAt.UnixMilli()}, nil
}

// leavingPlace makes a call that waits for the origin, and leaves its place to others meanwhile.
func leavingPlace(ctx context.Context, call func()) {
	place := bounded.PlaceOf(ctx)
	place.Leave()
	defer place.Return(ctx)
	call()
}

// refusalOfCall is refusal for calls about reservations and leases, which may find nothing, something else, no room, or
// no origin.
func refusalOfCall(err error) error {
	switch {
	case access.IsOutOfScope(err):
		return access.OutOfScope()
	case errors.Is(err, dataplane.ErrInvalid):
		return connect.NewError(connect.CodeInvalidArgument, err)
	case errors.Is(err, dataplane.ErrNoReservation):
		return connect.NewError(connect.CodeNotFound, err)
	case errors.Is(err, dataplane.ErrReservationUsed):
		return connect.NewError(connect.CodeAlreadyExists, err)
	case errors.Is(err, dataplane.ErrReservations), errors.Is(err, dataplane.ErrTooManyKeys),
		errors.Is(err, dataplane.ErrTooManyWaiters), errors.Is(err, dataplane.ErrTooManyLeases),
		errors.Is(err, dataplane.ErrBusy):
		return tryLater(connect.CodeResourceExhausted, err)
	case errors.Is(err, context.Canceled):
		return connect.NewError(connect.CodeCanceled, err)
	}
	return connect.NewError(connect.CodeUnavailable, errNoOrigin)
}

// errNoOrigin does not contain the origin's address.
var errNoOrigin = errors.New("the origin has not answered: try again")

func readReserve(m *weirv1.ReserveRequest) (dataplane.ReserveRequest, error) {
	var found violations
	items := m.GetRequests()
	if n := len(items); n < 1 || n > dataplane.ReservedMax {
		found.add("requests", "has %d items (1 to %d)", n, dataplane.ReservedMax)
		return dataplane.ReserveRequest{}, found.err()
	}
	r := dataplane.ReserveRequest{ID: m.GetId(), Returned: m.GetReturned(), Holder: m.GetHolder(),
		TTL:      found.reservationTTL(m.GetTtlMs()),
		Requests: make([]dataplane.Request, len(items))}
	for i, item := range items {
		r.Requests[i] = found.readItem(i, item)
	}
	found.bytes("id", r.ID, 1, dataplane.ReservationIDBytesMax)
	found.bytes("holder", r.Holder, 0, dataplane.HolderBytesMax)
	return r, found.err()
}

func (v *violations) reservation(id string) { v.name("id", id, dataplane.ReservationIDBytesMax) }

func (v *violations) reservationTTL(ms int64) time.Duration {
	return v.ttl(ms, time.Second, dataplane.ReservationTTLMax)
}

// ttl reads a time to live, which may be left out.
func (v *violations) ttl(ms int64, least, most time.Duration) time.Duration {
	if ms != 0 && (ms < least.Milliseconds() || ms > most.Milliseconds()) {
		v.add("ttl_ms", "is %d (%d to %d, or 0)", ms, least.Milliseconds(), most.Milliseconds())
		return 0
	}
	return time.Duration(ms) * time.Millisecond
}
