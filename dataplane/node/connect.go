package node

import (
	"context"
	"strconv"

	"connectrpc.com/connect"

	weirv1 "github.com/weirhq/weir/shared/gen/proto/weir/v1"
)

// connectService is the service on every wire that connect speaks.
type connectService struct {
	service
	gate *gate
}

func (s *connectService) Limit(ctx context.Context,
	call *connect.Request[weirv1.LimitRequest]) (*connect.Response[weirv1.LimitResponse], error) {
	message, decision, err := s.limit(ctx, call.Msg)
	if err != nil {
		return nil, err
	}
	answer := connect.NewResponse(message)
	if seconds := retryAfterSeconds(decision); seconds > 0 && call.Peer().Protocol == connect.ProtocolConnect {
		answer.Header().Set("Retry-After", strconv.FormatInt(seconds, 10))
	}
	return answer, nil
}

func (s *connectService) LimitMany(ctx context.Context,
	call *connect.Request[weirv1.LimitManyRequest]) (*connect.Response[weirv1.LimitManyResponse], error) {
	return respond(s.limitMany(ctx, call.Msg))
}

func (s *connectService) Peek(ctx context.Context,
	call *connect.Request[weirv1.PeekRequest]) (*connect.Response[weirv1.PeekResponse], error) {
	return respond(s.peek(ctx, call.Msg))
}

func (s *connectService) Refund(ctx context.Context,
	call *connect.Request[weirv1.RefundRequest]) (*connect.Response[weirv1.RefundResponse], error) {
	return respond(s.refund(ctx, call.Msg))
}

func (s *connectService) Reserve(ctx context.Context,
	call *connect.Request[weirv1.ReserveRequest]) (*connect.Response[weirv1.ReserveResponse], error) {
	return respond(s.reserve(ctx, call.Msg))
}

func (s *connectService) Settle(ctx context.Context,
	call *connect.Request[weirv1.SettleRequest]) (*connect.Response[weirv1.SettleResponse], error) {
	return respond(s.settle(ctx, call.Msg))
}

func (s *connectService) Cancel(ctx context.Context,
	call *connect.Request[weirv1.CancelRequest]) (*connect.Response[weirv1.CancelResponse], error) {
	return respond(s.cancel(ctx, call.Msg))
}

func (s *connectService) Extend(ctx context.Context,
	call *connect.Request[weirv1.ExtendRequest]) (*connect.Response[weirv1.ExtendResponse], error) {
	return respond(s.extend(ctx, call.Msg))
}

func (s *connectService) Acquire(ctx context.Context,
	call *connect.Request[weirv1.AcquireRequest]) (*connect.Response[weirv1.AcquireResponse], error) {
	return respond(s.acquire(ctx, call.Msg))
}

func (s *connectService) Renew(ctx context.Context,
	call *connect.Request[weirv1.RenewRequest]) (*connect.Response[weirv1.RenewResponse], error) {
	return respond(s.renew(ctx, call.Msg))
}

func (s *connectService) Release(ctx context.Context,
	call *connect.Request[weirv1.ReleaseRequest]) (*connect.Response[weirv1.ReleaseResponse], error) {
	return respond(s.release(ctx, call.Msg))
}

func (s *connectService) ExplainLease(ctx context.Context,
	call *connect.Request[weirv1.ExplainLeaseRequest]) (*connect.Response[weirv1.ExplainLeaseResponse], error) {
	return respond(s.explainLease(ctx, call.Msg))
}

func (s *connectService) Explain(ctx context.Context,
	call *connect.Request[weirv1.ExplainRequest]) (*connect.Response[weirv1.ExplainResponse], error) {
	return respond(s.explain(ctx, call.Msg))
}

func (s *connectService) TopKeys(ctx context.Context,
	call *connect.Request[weirv1.TopKeysRequest]) (*connect.Response[weirv1.TopKeysResponse], error) {
	return respond(s.topKeys(ctx, call.Msg))
}

func (s *connectService) LimitStream(ctx context.Context, stream *connect.BidiStream[weirv1.LimitStreamRequest,
	weirv1.LimitStreamResponse]) error {
	return s.gate.converse(ctx, httpStreamBytes, &conversation{service: s.service, standing: standingIn(ctx),
		receive: stream.Receive, send: stream.Send})
}

func respond[T any](message *T, err error) (*connect.Response[T], error) {
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(message), nil
}
