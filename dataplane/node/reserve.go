package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"connectrpc.com/connect"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/shared/bounded"
	weirv1 "github.com/weirhq/weir/shared/gen/proto/weir/v1"
)

// Reservations on the wire. All calls wait for the origin, and leave their place to others meanwhile.

func (s service) reserve(ctx context.Context, m *weirv1.ReserveRequest) (*weirv1.ReserveResponse, error) {
	request, err := readReserve(m)
	if err != nil {
		return nil, err
	}
	place := bounded.PlaceOf(ctx)
	place.Leave()
	reserved := s.limiter.ReserveAll(ctx, request)
	place.Return(ctx)
	if reserved.Err != nil {
		return nil, refusalOfReservation(reserved.Err)
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
	settle := s.limiter.Settle
	if m.GetMore() {
		settle = s.limiter.Spend
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
		return s.limiter.Cancel(ctx, m.GetId())
	})
	return &weirv1.CancelResponse{Settlement: settlement}, err
}

func (s service) extend(ctx context.Context, m *weirv1.ExtendRequest) (*weirv1.ExtendResponse, error) {
	var found violations
	found.reservation(m.GetId())
	ttl := found.ttl(m.GetTtlMs())
	settlement, err := settled(ctx, found, func() (dataplane.Settlement, error) {
		return s.limiter.Extend(ctx, m.GetId(), ttl)
	})
	return &weirv1.ExtendResponse{Settlement: settlement}, err
}

// settled makes a call about a reservation, unless something is wrong with its message.
func settled(ctx context.Context, found violations,
	call func() (dataplane.Settlement, error)) (*weirv1.Settlement, error) {
	if err := found.err(); err != nil {
		return nil, err
	}
	place := bounded.PlaceOf(ctx)
	place.Leave()
	s, err := call()
	place.Return(ctx)
	if err != nil {
		return nil, refusalOfReservation(err)
	}
	return &weirv1.Settlement{Id: s.ID, Spent: s.Spent, Settled: s.Settled, Late: s.Late,
		EndsAtMs: s.EndsAt.UnixMilli()}, nil
}

// refusalOfReservation is refusal for the calls that may find nothing, something else, no room, or no origin.
func refusalOfReservation(err error) error {
	switch {
	case errors.Is(err, dataplane.ErrInvalid):
		return connect.NewError(connect.CodeInvalidArgument, err)
	case errors.Is(err, dataplane.ErrNoReservation):
		return connect.NewError(connect.CodeNotFound, err)
	case errors.Is(err, dataplane.ErrReservationUsed):
		return connect.NewError(connect.CodeAlreadyExists, err)
	case errors.Is(err, dataplane.ErrReservations):
		return connect.NewError(connect.CodeResourceExhausted, err)
	case errors.Is(err, context.Canceled):
		return connect.NewError(connect.CodeCanceled, err)
	}
	return connect.NewError(connect.CodeUnavailable, errNoOrigin)
}

// errNoOrigin does not say where the origin is.
var errNoOrigin = errors.New("the origin has not answered: try again")

func readReserve(m *weirv1.ReserveRequest) (dataplane.ReserveRequest, error) {
	var found violations
	items := m.GetRequests()
	if n := len(items); n < 1 || n > dataplane.ReservedMax {
		found.add("requests", "has %d items (1 to %d)", n, dataplane.ReservedMax)
		return dataplane.ReserveRequest{}, found.err()
	}
	r := dataplane.ReserveRequest{ID: m.GetId(), Returned: m.GetReturned(), Holder: m.GetHolder(),
		TTL:      found.ttl(m.GetTtlMs()),
		Requests: make([]dataplane.Request, len(items))}
	for i, item := range items {
		r.Requests[i] = found.readItem(i, item)
	}
	if n := len(r.ID); n > dataplane.ReservationIDBytesMax {
		found.add("id", "is %d bytes long (1 to %d bytes)", n, dataplane.ReservationIDBytesMax)
	}
	if n := len(r.Holder); n > dataplane.HolderBytesMax {
		found.add("holder", "is %d bytes long (0 to %d bytes)", n, dataplane.HolderBytesMax)
	}
	return r, found.err()
}

func (v *violations) reservation(id string) { v.name("id", id, dataplane.ReservationIDBytesMax) }

func (v *violations) ttl(ms int64) time.Duration {
	const most = int64(dataplane.ReservationTTLMax / time.Millisecond)
	if ms != 0 && (ms < 1000 || ms > most) {
		v.add("ttl_ms", "is %d (1000 to %d, or 0)", ms, most)
		return 0
	}
	return time.Duration(ms) * time.Millisecond
}
