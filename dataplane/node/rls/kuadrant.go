package rls

import (
	"context"
	cryptorand "crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/shared/bounded"
	kuadrantv1 "github.com/weirhq/weir/shared/gen/proto/kuadrant/service/ratelimit/v1"
)

// The paths of Kuadrant's calls.
const (
	CheckProcedure   = kuadrantv1.RateLimitService_CheckRateLimit_FullMethodName
	ReportProcedure  = kuadrantv1.RateLimitService_Report_FullMethodName
	ReserveProcedure = kuadrantv1.RateLimitService_Reserve_FullMethodName
	CommitProcedure  = kuadrantv1.RateLimitService_Commit_FullMethodName
)

// Kuadrant responds to kuadrant.service.ratelimit.v1.RateLimitService with the rules of a Service. Its methods are safe
// for concurrent use. All rules of a call count alike. A call is denied if any rule is over, or if all quotas are.
type Kuadrant struct{ Service *Service }

// CheckRateLimit decides without counting. Hits of 0 check whether anything is left.
func (k Kuadrant) CheckRateLimit(ctx context.Context, call *rlsv3.RateLimitRequest) (*rlsv3.RateLimitResponse, error) {
	ctx, cancel := k.Service.within(ctx)
	defer cancel()
	return k.each(call, func(items []item) (denied bool) {
		together(items, func(it *item) {
			if !it.limited() {
				return
			}
			if it.request.ZeroCost && !it.refund {
				it.request.Cost, it.request.ZeroCost = 1, false
			}
			it.look(k.Service.Limiter.Peek(ctx, it.request))
		})
		quotas, quotasOver := 0, 0
		for i := range items {
			switch it := &items[i]; {
			case !it.limited():
			case it.limit.Quota && !it.refund:
				if quotas++; it.over {
					quotasOver++
				}
			case !it.limit.Shadow:
				denied = denied || it.over
			}
		}
		return denied || quotas > 0 && quotasOver == quotas
	})
}

// Report counts all hits of a call, or gives them back. It denies nothing.
func (k Kuadrant) Report(ctx context.Context, call *rlsv3.RateLimitRequest) (*rlsv3.RateLimitResponse, error) {
	ctx, cancel := k.Service.within(ctx)
	defer cancel()
	return k.each(call, func(items []item) (denied bool) {
		together(items, func(it *item) {
			switch {
			case !it.limited():
			case it.refund:
				if _, it.decision.Err = k.Service.Limiter.Refund(it.request); it.decision.Err == nil {
					it.look(k.Service.Limiter.Peek(ctx, it.request))
				}
			default:
				it.decision.Err = k.Service.charge(ctx, it)
			}
		})
		return false
	})
}

// each handles a call that uses Envoy's messages.
func (k Kuadrant) each(call *rlsv3.RateLimitRequest,
	decide func([]item) (denied bool)) (*rlsv3.RateLimitResponse, error) {
	if err := check(call); err != nil {
		return nil, err
	}
	w, _ := works.Get().(*work)
	defer w.put()
	w.take(len(call.GetDescriptors()))
	k.Service.resolve(call, w)
	denied := decide(w.items)
	if err := firstError(w.items); err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	return k.Service.answer(w.items, denied, time.Now()), nil
}

// Reserve holds an amount of every limit of the call, or of none, until Commit or for ttl. A reservation that ends
// without a commit counts nothing. Shadowed rules and quotas are held like others. If a shadowed rule has no room, it
// holds nothing and the call passes.
func (k Kuadrant) Reserve(ctx context.Context, m *kuadrantv1.ReserveRequest) (*kuadrantv1.ReserveResponse, error) {
	var found faults
	requests := k.requests(&found, m.GetDomain(), m.GetDescriptors(), "amount", amount(m.GetAmount()))
	ttl := found.ttl(m.GetTtl())
	if err := found.err(); err != nil {
		return nil, err
	}
	if len(requests) == 0 {
		return &kuadrantv1.ReserveResponse{Code: rlsv3.RateLimitResponse_OK}, nil
	}
	place := bounded.PlaceOf(ctx)
	place.Leave()
	reserved := k.Service.Limiter.Reserve(ctx, dataplane.ReserveRequest{ID: cryptorand.Text() + keysMark(requests),
		Drawn: true, Requests: requests, TTL: ttl, Returned: true})
	place.Return(ctx)
	if reserved.Err != nil {
		return nil, refusal(reserved.Err)
	}
	response := &kuadrantv1.ReserveResponse{Code: overall(!reserved.Allowed)}
	if reserved.Allowed {
		response.ReservationId = reserved.ID
	}
	return response, nil
}

// Commit counts the cost that was spent, even above the limits, and releases the reservation. It also counts the cost
// if the reservation is unknown or has ended. A reservation that was already committed is not counted again, so a
// repeated call counts once.
func (k Kuadrant) Commit(ctx context.Context, m *kuadrantv1.CommitRequest) (*kuadrantv1.CommitResponse, error) {
	var found faults
	requests := k.requests(&found, m.GetDomain(), m.GetDescriptors(), "actual_amount", amount(m.GetActualAmount()))
	id := m.GetReservationId()
	if n := len(id); n > dataplane.ReservationIDBytesMax {
		found.add("reservation_id", "is %d bytes long (0 to %d)", n, dataplane.ReservationIDBytesMax)
	}
	if err := found.err(); err != nil {
		return nil, err
	}
	released, counted := false, false
	if id != "" {
		place := bounded.PlaceOf(ctx)
		place.Leave()
		var err error
		released, counted, err = k.settle(ctx, id, requests, amount(m.GetActualAmount()))
		place.Return(ctx)
		if err != nil {
			return nil, refusal(err)
		}
	}
	if !counted {
		for _, r := range requests {
			if _, err := k.Service.Limiter.Charge(r); err != nil {
				return nil, refusal(err)
			}
		}
	}
	return &kuadrantv1.CommitResponse{ReservationReleased: released}, nil
}

// settle ends a reservation. released reports whether this call ended it; counted, whether the cost needs no further
// charge.
func (k Kuadrant) settle(ctx context.Context, id string, requests []dataplane.Request,
	cost int64) (released, counted bool, err error) {
	var s dataplane.Settlement
	same := len(requests) > 0 && strings.HasSuffix(id, keysMark(requests))
	if same {
		s, err = k.Service.Limiter.Settle(ctx, id, slices.Repeat([]int64{cost}, len(requests))...)
	} else { // the rules have changed since, or the ID is not from Reserve
		s, err = k.Service.Limiter.Cancel(ctx, id)
	}
	switch {
	case errors.Is(err, dataplane.ErrNoReservation):
		return false, false, nil
	case err != nil:
		return false, false, err
	case s.Late:
		return false, s.Settled, nil
	}
	return true, same, nil
}

// requests returns the limits of the descriptors as requests, at most one per descriptor.
func (k Kuadrant) requests(found *faults, domain string, descriptors []*ratelimitv3.RateLimitDescriptor, field string,
	cost int64) (requests []dataplane.Request) {
	call := &rlsv3.RateLimitRequest{Domain: domain, Descriptors: descriptors}
	found.check(call, dataplane.ReservedMax)
	for _, d := range descriptors {
		if d.GetHitsAddend() != nil || d.GetIsNegativeHits() {
			found.add("descriptors", "have their own hits (%s counts instead)", field)
			break
		}
	}
	if len(*found) > 0 {
		return nil
	}
	w, _ := works.Get().(*work)
	defer w.put()
	w.take(len(descriptors))
	k.Service.resolve(call, w)
	for i := range w.items {
		if it := &w.items[i]; it.limited() {
			it.request.Cost, it.request.ZeroCost = cost, cost == 0
			requests = append(requests, it.request)
		}
	}
	return requests
}

func (f *faults) ttl(d *durationpb.Duration) time.Duration {
	if d == nil {
		return 0
	}
	ttl := d.AsDuration()
	if err := d.CheckValid(); err != nil || ttl != 0 && (ttl < time.Second || ttl > dataplane.ReservationTTLMax) {
		f.add("ttl", "is %v (1s to %v, or left out)", ttl, dataplane.ReservationTTLMax)
	}
	return ttl
}

// keysMark returns a part of a reservation's ID. With it Commit recognizes a reservation for the same keys, because the
// rules of the descriptors can have changed since.
func keysMark(requests []dataplane.Request) string {
	sum := sha256.New()
	var length [8]byte
	for i := range requests {
		r := &requests[i]
		for _, name := range []string{r.Workspace, r.Namespace, r.Identifier, r.Duration.String()} {
			binary.LittleEndian.PutUint64(length[:], uint64(len(name)))
			sum.Write(length[:])
			sum.Write([]byte(name))
		}
	}
	return "-" + base64.RawURLEncoding.EncodeToString(sum.Sum(nil)[:12])
}

var retryInfo = &errdetails.RetryInfo{RetryDelay: durationpb.New(bounded.RetryAfter)}

// refusal returns the status of a call that is invalid, finds no room, or gets no answer of the origin.
func refusal(err error) error {
	switch {
	case errors.Is(err, dataplane.ErrInvalid):
		return status.Error(codes.InvalidArgument, err.Error())
	case errors.Is(err, dataplane.ErrReservations), errors.Is(err, dataplane.ErrBusy):
		full := status.New(codes.ResourceExhausted, err.Error())
		if later, detailErr := full.WithDetails(retryInfo); detailErr == nil {
			full = later
		}
		return full.Err()
	case errors.Is(err, dataplane.ErrReservationUsed): // a retry would fail again
		return status.Error(codes.AlreadyExists, "the reservation ID is in use for something else")
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return status.FromContextError(err).Err()
	}
	return status.Error(codes.Unavailable, "the origin has not answered: try again") // without the origin's address
}
