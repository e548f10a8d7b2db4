package node

import (
	"context"
	"errors"
	"io"

	"connectrpc.com/connect"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"
	"google.golang.org/protobuf/proto"

	"github.com/weirhq/weir/shared/bounded"
)

// rpc is a call on the port for gRPC that can be cut off.
type rpc struct {
	ctx  context.Context
	hold bounded.Hold
}

// receive waits for the call's message. The message's length is unknown before it has arrived.
func (m *arrived) receive(memory *bounded.Memory, caller *bounded.Caller, decode func(any) error) error {
	m.hold.Caller, m.hold.Cutter = caller, &m.rpc
	if err := memory.Take(m.ctx, &m.hold, messageBytesMax); err != nil {
		return err
	}
	err := decode(m)
	if err == nil {
		m.hold.Work(int64(m.len()))
		return nil
	}
	switch code := status.Code(err); {
	case m.hold.WasCut(), errors.Is(context.Cause(m.ctx), errLate):
		return &bounded.Refusal{Bound: bounded.BoundTime, Message: errLate.Error()}
	case code == codes.ResourceExhausted:
		return tooLong(messageBytesMax)
	case code == codes.Internal: // how grpc-go has a message that does not unpack
		return status.Error(codes.InvalidArgument, status.Convert(err).Message())
	}
	return err
}

// errLate ends a call whose message takes too long.
var errLate = errors.New("message did not arrive in time")

// refusedRPC is like refusedBy, but keeps errors of grpc-go.
func refusedRPC(err error) error {
	if status.Code(err) != codes.Unknown {
		return err
	}
	return refusedBy(err)
}

// Cut ends the call, if that was prepared, or else its connection: grpc-go has no other way to end
// a call that it reads or whose answer it sends.
func (c *rpc) Cut() {
	if cuttable, ok := c.ctx.Value(cuttableKey{}).(*cuttable); ok {
		cuttable.cancel()
		return
	}
	if conn := connOf(c.ctx); conn != nil {
		conn.Drop()
	}
}

// cuttable is the context of a call that can be canceled separately.
type cuttable struct {
	context.Context
	cancel context.CancelFunc
}

type cuttableKey struct{}

func (c *cuttable) Value(key any) any {
	if key == (cuttableKey{}) {
		return c
	}
	return c.Context.Value(key)
}

// prepare is called for each call before it begins. A message usually arrives together with its call's headers, and a
// deadline for other cases would make every call slower. Calls therefore get a deadline, and can be canceled
// separately, only if more of them wait for their messages than well-behaved clients cause.
func (b *bounds) prepare(ctx context.Context, call *tap.Info) (context.Context, error) {
	if !b.calls.Busy() || call.FullMethodName == streamProcedure {
		return ctx, nil
	}
	late, cancel := context.WithTimeoutCause(ctx, readTimeout, errLate)
	return &cuttable{late, cancel}, nil
}

// connOf returns the connection of a call, or nil in tests without a connection.
func connOf(ctx context.Context) *bounded.Conn {
	if p, ok := peer.FromContext(ctx); ok {
		return bounded.ConnAt(p.Addr)
	}
	return nil
}

// answerBytesMin is the shortest answer that is held on to until its caller takes it. HTTP/2 lets
// a connection leave no more than streamsMax shorter answers, whose buffers are at most twice as long.
const answerBytesMin = 2 << 10

// sends counts the bytes of an answer until grpc-go has sent it, which is after its call has ended.
func (g *gate) sends(ctx context.Context, caller *bounded.Caller, answer any) (any, error) {
	var b *[]byte
	switch a := answer.(type) {
	case mem.BufferSlice:
		if a.Len() < answerBytesMin {
			return answer, nil
		}
		b = room(a.Len())
		*b = (*b)[:a.CopyTo((*b)[:a.Len()])]
		a.Free()
	case proto.Message:
		n := proto.Size(a)
		if n < answerBytesMin {
			return answer, nil
		}
		b = room(n)
		var err error
		if *b, err = (proto.MarshalOptions{UseCachedSize: true}).MarshalAppend(*b, a); err != nil {
			return nil, grpcError(connect.NewError(connect.CodeInternal, err))
		}
	default:
		return answer, nil
	}
	s := &sent{rpc: rpc{ctx: ctx}, conn: connOf(ctx)}
	s.hold.Caller, s.hold.Cutter = caller, s
	if err := g.calls.Take(ctx, &s.hold, int64(cap(*b))); err != nil {
		mem.DefaultBufferPool().Put(b)
		g.count(err)
		return nil, grpcError(refusedBy(err))
	}
	s.conn.Keep(&s.hold)
	return mem.BufferSlice{mem.NewBuffer(b, s)}, nil
}

// sent is a long answer, and the pool that its buffer is put back to when it has been sent.
type sent struct {
	rpc
	conn *bounded.Conn
}

// Cut closes the connection: the call has ended for grpc-go.
func (s *sent) Cut() { s.conn.Drop() }

// Get is never called.
func (s *sent) Get(n int) *[]byte { return mem.DefaultBufferPool().Get(n) }

// Put is called when the answer has been sent, or never will be.
func (s *sent) Put(b *[]byte) {
	s.hold.Give()
	s.conn.Forget(&s.hold)
	mem.DefaultBufferPool().Put(b)
}

// unpacker unpacks messages of the port for gRPC, up to the length of the longest allowed message. It unpacks only a
// few long messages at a time.
type unpacker struct{}

func (unpacker) Type() string { return "gzip" }

func (unpacker) Do(packed io.Reader) ([]byte, error) {
	var place bounded.Place
	defer place.Give()
	unpacked, err := bounded.Unpack(context.Background(), packed, messageBytesMax, &place, nil)
	if refusal, ok := errors.AsType[*bounded.Refusal](err); ok && refusal.Bound == bounded.BoundUnpacked {
		return overlong[:], nil // grpc-go looks at no more than its length
	}
	return unpacked, err
}

var overlong [messageBytesMax + 1]byte

// describeHealth is grpc.health.v1, bounded: it needs no token and no slot.
func (b *bounds) describeHealth() *grpc.ServiceDesc {
	bounded := healthv1.Health_ServiceDesc
	bounded.Methods = nil
	for _, method := range healthv1.Health_ServiceDesc.Methods {
		bounded.Methods = append(bounded.Methods,
			grpc.MethodDesc{MethodName: method.MethodName, Handler: b.probeRPC(method.Handler)})
	}
	return &bounded
}

func (b *bounds) probeRPC(next grpc.MethodHandler) grpc.MethodHandler {
	return func(server any, ctx context.Context, decode func(any) error,
		between grpc.UnaryServerInterceptor) (any, error) {
		message := &arrived{rpc: rpc{ctx: ctx}}
		defer message.hold.Give()
		defer message.free()
		if err := message.receive(b.probes, connOf(ctx).Caller(), decode); err != nil {
			b.count(err)
			return nil, grpcError(refusedRPC(err))
		}
		if message.len() > probeBytesMax {
			err := tooLong(probeBytesMax)
			b.count(err)
			return nil, grpcError(refusedBy(err))
		}
		read := func(into any) error { return message.read(into) }
		return next(server, ctx, read, between)
	}
}

// keepOpen serves a stream of reflection, and bounds how many are open and for how long.
func (g *gate) keepOpen(server any, stream grpc.ServerStream, at *standing, next grpc.StreamHandler) error {
	return g.serveOpen(stream.Context(), g.streams, at.holder.caller, at.over, func(*bounded.Hold) error {
		return next(server, stream)
	})
}

// watchHealth does the same for a stream of the health service. Such streams need no token, so they use the memory of
// probes. Callers without a token therefore can't end a stream of a caller with a token.
func (g *gate) watchHealth(server any, stream grpc.ServerStream, next grpc.StreamHandler) error {
	ctx := stream.Context()
	return g.serveOpen(ctx, g.probes, connOf(ctx).Caller(), nil, func(hold *bounded.Hold) error {
		return next(server, &watch{stream, g.bounds, hold})
	})
}

// watch is a stream with a single, short request.
type watch struct {
	grpc.ServerStream
	bounds *bounds
	hold   *bounded.Hold
}

// RecvMsg reads the request, and then gives back the memory that the stream no longer needs.
func (w *watch) RecvMsg(into any) error {
	message := &arrived{rpc: rpc{ctx: w.Context()}}
	defer message.free()
	if err := w.ServerStream.RecvMsg(message); err != nil {
		return err
	}
	if message.len() > probeBytesMax {
		err := tooLong(probeBytesMax)
		w.bounds.count(err)
		return grpcError(refusedBy(err))
	}
	w.hold.Shrink(bounded.CallBytes + probeBytesMax)
	return message.read(into)
}

// serveOpen holds memory for a stream, and serves it until it ends, over receives an error, or it is cut off.
func (g *gate) serveOpen(ctx context.Context, of *bounded.Memory, caller *bounded.Caller, over <-chan error,
	serve func(*bounded.Hold) error) error {
	hold, cut, err := g.hold(ctx, of, caller, grpcStreamBytes)
	if err != nil {
		return grpcError(err)
	}
	defer hold.Give()
	done := make(chan error, 1)
	g.readers.Go(func() { done <- serve(hold) })
	select {
	case err := <-done:
		return err
	case err := <-over:
		return grpcError(err)
	case <-cut:
		g.refused[bounded.BoundMemory].Inc()
		return grpcError(errCut)
	}
}
