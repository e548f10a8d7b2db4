package node

import (
	"context"
	"net/http"
	"strconv"

	"connectrpc.com/connect"
	"google.golang.org/grpc"

	weirv1 "github.com/weirhq/weir/shared/gen/proto/weir/v1"
	"github.com/weirhq/weir/shared/gen/proto/weir/v1/weirv1connect"
)

// method is a method of the service on both ports: for all protocols of connect, and for grpc-go.
type method struct {
	procedure string
	connect   http.Handler
	grpc      grpc.MethodDesc
}

// methods returns all methods except the stream.
func (s service) methods(g *gate) []method {
	return []method{
		both(g, weirv1connect.RateLimitServiceLimitProcedure, s.fastpathLimit, s.limitOne),
		both(g, weirv1connect.RateLimitServiceLimitManyProcedure, s.fastpathBatch, s.limitMany),
		both(g, weirv1connect.RateLimitServicePeekProcedure, nil, s.peek),
		both(g, weirv1connect.RateLimitServiceRefundProcedure, nil, s.refund),
		both(g, weirv1connect.RateLimitServiceReserveProcedure, nil, s.reserve),
		both(g, weirv1connect.RateLimitServiceSettleProcedure, nil, s.settle),
		both(g, weirv1connect.RateLimitServiceCancelProcedure, nil, s.cancel),
		both(g, weirv1connect.RateLimitServiceExtendProcedure, nil, s.extend),
		both(g, weirv1connect.RateLimitServiceAcquireProcedure, nil, s.acquire),
		both(g, weirv1connect.RateLimitServiceRenewProcedure, nil, s.renew),
		both(g, weirv1connect.RateLimitServiceReleaseProcedure, nil, s.release),
		both(g, weirv1connect.RateLimitServiceExplainProcedure, nil, s.explain),
		both(g, weirv1connect.RateLimitServiceExplainLeaseProcedure, nil, s.explainLease),
		both(g, weirv1connect.RateLimitServiceTopKeysProcedure, nil, s.topKeys),
	}
}

// both returns a method that do implements on both ports. fast, which may be nil, is for grpc-go; see unary.
func both[Request, Response any](g *gate, procedure string, fast fastpath,
	do func(context.Context, *Request) (*Response, error)) method {
	return method{procedure, connect.NewUnaryHandlerSimple(procedure, do, connectOptions()), unary(g, procedure, fast, do)}
}

// connectOptions returns the options of all handlers of the service.
func connectOptions() connect.HandlerOption {
	return connect.WithHandlerOptions(codecs(), boundMessages(), connect.WithCompressMinBytes(compressBytesMin))
}

// byPath serves the procedures of the service that the gate accepts.
type byPath map[string]http.Handler

func (b byPath) ServeHTTP(w http.ResponseWriter, r *http.Request) { b[r.URL.Path].ServeHTTP(w, r) }

// limitOne is limit with a Retry-After for clients of Connect's protocol.
func (s service) limitOne(ctx context.Context, m *weirv1.LimitRequest) (*weirv1.LimitResponse, error) {
	answer, decision, err := s.limit(ctx, m)
	if err != nil {
		return nil, err
	}
	call, ok := connect.CallInfoForHandlerContext(ctx) // none on grpc-go
	if seconds := retryAfterSeconds(decision); ok && seconds > 0 && call.Peer().Protocol == connect.ProtocolConnect {
		call.ResponseHeader().Set("Retry-After", strconv.FormatInt(seconds, 10))
	}
	return answer, nil
}

// connectStream is LimitStream for all protocols of connect.
func connectStream(s service, g *gate) http.Handler {
	return connect.NewBidiStreamHandler(streamProcedure, func(ctx context.Context,
		stream *connect.BidiStream[weirv1.LimitStreamRequest, weirv1.LimitStreamResponse]) error {
		return g.converse(ctx, httpStreamBytes, &conversation{service: s, standing: standingIn(ctx),
			receive: stream.Receive, send: stream.Send})
	}, connectOptions())
}
