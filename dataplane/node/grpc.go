package node

import (
	"context"
	"errors"
	"path"
	"time"

	"connectrpc.com/connect"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/weirhq/weir/dataplane/node/access"
	"github.com/weirhq/weir/dataplane/node/rls"
	"github.com/weirhq/weir/shared/bounded"
	kuadrantv1 "github.com/weirhq/weir/shared/gen/proto/kuadrant/service/ratelimit/v1"
	weirv1 "github.com/weirhq/weir/shared/gen/proto/weir/v1"
	"github.com/weirhq/weir/shared/gen/proto/weir/v1/weirv1connect"
)

// describe describes the service for grpc-go, in place of generated code and interceptors. A call passes the gate and
// the service in one step, and a malformed message counts as the caller's fault, as in the other protocols.
func describe(s service, g *gate) *grpc.ServiceDesc {
	described := &grpc.ServiceDesc{
		ServiceName: weirv1connect.RateLimitServiceName,
		Metadata:    "weir/v1/ratelimit.proto",
		Streams:     []grpc.StreamDesc{stream(s, g)},
	}
	for _, m := range s.methods(g) {
		described.Methods = append(described.Methods, m.grpc)
	}
	return described
}

// describeRLS puts Envoy's service on grpc-go.
func describeRLS(s *rls.Service, g *gate) *grpc.ServiceDesc {
	return &grpc.ServiceDesc{
		ServiceName: rlsv3.RateLimitService_ServiceDesc.ServiceName,
		Metadata:    rlsv3.RateLimitService_ServiceDesc.Metadata,
		Methods:     []grpc.MethodDesc{unary(g, rls.Procedure, fastpathRLS(s), s.ShouldRateLimit)},
	}
}

// describeKuadrant puts Kuadrant's service on grpc-go.
func describeKuadrant(k rls.Kuadrant, g *gate) *grpc.ServiceDesc {
	return &grpc.ServiceDesc{
		ServiceName: kuadrantv1.RateLimitService_ServiceDesc.ServiceName,
		Metadata:    kuadrantv1.RateLimitService_ServiceDesc.Metadata,
		Methods: []grpc.MethodDesc{
			unary(g, rls.CheckProcedure, nil, k.CheckRateLimit),
			unary(g, rls.ReportProcedure, nil, k.Report),
			unary(g, rls.ReserveProcedure, nil, k.Reserve),
			unary(g, rls.CommitProcedure, nil, k.Commit),
		},
	}
}

func fastpathRLS(s *rls.Service) fastpath {
	return func(ctx context.Context, message string) (any, bool, error) {
		answer, ok, err := s.Answer(ctx, message)
		return written(&answer), ok, err
	}
}

// unary returns a method of the server's own services. fast may be nil.
func unary[Request, Response any](g *gate, procedure string, fast fastpath,
	do func(context.Context, *Request) (*Response, error)) grpc.MethodDesc {
	check := func(message []byte) error { return checkMessage(procedure, message) }
	return behind(g, procedure, check, func(ctx context.Context, message *arrived) (answer any, err error) {
		if fast != nil {
			if answer, ok, err := fast(ctx, string(message.buffer.ReadOnlyData())); ok {
				return answer, grpcError(err)
			}
		}
		request := new(Request)
		if err := g.readRPC(message, request); err != nil {
			return nil, grpcError(err)
		}
		response, err := do(ctx, request)
		if err != nil {
			return nil, grpcError(err)
		}
		return response, nil
	})
}

// behind puts a method behind the gate, as gate.ServeHTTP does for the other protocols. check checks the message before
// decide is called.
func behind(g *gate, procedure string, check func(message []byte) error,
	decide func(context.Context, *arrived) (any, error)) grpc.MethodDesc {
	call := g.metrics.calls[procedure]
	handle := func(_ any, ctx context.Context, decode func(any) error,
		_ grpc.UnaryServerInterceptor) (answer any, err error) {
		by, err := g.admitRPC(ctx, procedure)
		if err != nil {
			call.count(connect.CodeOf(err).String())
			return nil, grpcError(err)
		}
		caller := by.caller
		ctx = by.label(access.WithScope(ctx, by.scope), procedure)
		g.metrics.inFlight.Inc()
		start := time.Now()
		message := &arrived{rpc: rpc{ctx: ctx}}
		defer func() {
			if p := recover(); p != nil {
				answer, err = nil, grpcError(g.recovered(ctx, procedure, p))
			}
			message.free()
			message.hold.Give()
			g.metrics.inFlight.Dec()
			call.count(codeOf(err))
			call.observe(start)
		}()
		if answer, err = g.workRPC(message, caller, decode, check, decide); err != nil {
			return nil, err
		}
		return g.sends(ctx, caller, answer)
	}
	return grpc.MethodDesc{MethodName: path.Base(procedure), Handler: handle}
}

// workRPC reads a message, within its bounds, and holds a slot while it is worked on.
func (g *gate) workRPC(message *arrived, caller *bounded.Caller, decode func(any) error,
	check func(message []byte) error, decide func(context.Context, *arrived) (any, error)) (answer any, err error) {
	ctx := message.ctx
	if err := message.receive(g.calls, caller, decode); err != nil {
		g.count(err)
		return nil, grpcError(refusedRPC(err))
	}
	err = message.alone(check)
	if err == nil {
		err = g.slots.Take(caller)
	}
	if err != nil {
		g.count(err)
		return nil, grpcError(refusedRPC(err))
	}
	defer g.slots.Give(caller)
	return decide(ctx, message)
}

// readRPC reads messages that the fast path did not read. A long message takes a place again while it is read, but not
// while its decision waits.
func (g *gate) readRPC(message *arrived, request any) error {
	malformed := false
	err := message.alone(func([]byte) error {
		err := message.read(request)
		malformed = err != nil
		return err
	})
	switch {
	case malformed:
		return status.Error(codes.InvalidArgument, "unmarshal message: "+plain(err))
	case err != nil:
		g.count(err)
		return refusedBy(err)
	}
	return nil
}

func stream(s service, g *gate) grpc.StreamDesc {
	call := g.metrics.calls[streamProcedure]
	handle := func(_ any, raw grpc.ServerStream) (err error) {
		defer func() { call.count(codeOf(err)) }()
		by, err := g.admitRPC(raw.Context(), streamProcedure)
		if err != nil {
			return grpcError(err)
		}
		at := g.stand(g.credentialsOfRPC(raw.Context(), streamProcedure), by)
		defer g.leave(at)
		ctx := withStanding(by.label(raw.Context(), streamProcedure), at)
		err = g.converse(ctx, grpcStreamBytes, &conversation{service: s, standing: at,
			receive: func() (*weirv1.LimitStreamRequest, error) { return g.receiveStreamed(raw) },
			send:    func(answer *weirv1.LimitStreamResponse) error { return raw.SendMsg(answer) }})
		return grpcError(err)
	}
	return grpc.StreamDesc{StreamName: path.Base(streamProcedure), Handler: handle, ServerStreams: true,
		ClientStreams: true}
}

// receiveStreamed receives a message of LimitStream, and looks at it before it is decoded.
func (g *gate) receiveStreamed(raw grpc.ServerStream) (*weirv1.LimitStreamRequest, error) {
	message := &arrived{rpc: rpc{ctx: raw.Context()}}
	defer message.free()
	if err := raw.RecvMsg(message); err != nil {
		return nil, err
	}
	if err := message.alone(func(data []byte) error { return checkStreamed("proto", data) }); err != nil {
		g.count(err)
		return nil, refusedBy(err)
	}
	request := new(weirv1.LimitStreamRequest)
	if err := message.read(request); err != nil {
		return nil, status.Error(codes.InvalidArgument, "unmarshal message: "+plain(err))
	}
	return request, nil
}

// grpcError is a service's error as grpc-go sends it, details included.
func grpcError(err error) error {
	var e *connect.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &e):
	case status.Code(err) != codes.Unknown:
		return err
	default:
		return status.FromContextError(err).Err()
	}
	s := &spb.Status{Code: int32(e.Code()), Message: e.Message()}
	for _, d := range e.Details() {
		s.Details = append(s.Details, &anypb.Any{TypeUrl: "type.googleapis.com/" + d.Type(), Value: d.Bytes()})
	}
	return status.ErrorProto(s)
}

// codeOf returns a label of weir_rpc_requests_total.
func codeOf(err error) string {
	if err == nil {
		return codeOK
	}
	return connect.Code(status.Code(err)).String()
}
