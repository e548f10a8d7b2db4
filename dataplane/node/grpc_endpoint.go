package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	_ "google.golang.org/grpc/encoding/gzip" // for callers who compress
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

	"github.com/weirhq/weir/shared/servertls"
)

// Bounds of a connection to grpc-go's port, in addition to the bounds in endpoint.go. The windows are fixed, because
// grpc-go's measurement of each connection's bandwidth costs more than messages of some hundred bytes can gain from it.
const (
	streamWindowBytes     = 64 << 10
	connectionWindowBytes = 1 << 20
	handshakeTimeout      = 5 * time.Second
	pingEveryMin          = 10 * time.Second // a peer that pings more often is cut off
	lingerMax             = 500 * time.Millisecond
)

// grpcEndpoint is a port that serves only gRPC, with grpc-go.
//
// It needs its own port for this reason: only a call's headers show which of the two servers it is for, and one HTTP/2
// connection, for example a proxy's, can carry calls for both. A connection cannot be given to a server before all of
// its calls are known. Handing over single calls, as grpc-go's ServeHTTP does, costs as much as the other server would
// save.
type grpcEndpoint struct {
	address  string
	gate     *gate
	most     int // connections
	tls      *servertls.TLS
	spans    trace.TracerProvider // nil: no spans
	age      time.Duration        // maximal age of connections; 0: unlimited
	services []*grpc.ServiceDesc
	server   *grpc.Server // made by listen
	health   *health.Server
	listener net.Listener
}

func newGRPCEndpoint(address string, g *gate, connectionsMax int, tls *servertls.TLS, spans trace.TracerProvider,
	services ...*grpc.ServiceDesc) *grpcEndpoint {
	e := &grpcEndpoint{address: address, gate: g, most: connectionsMax, tls: tls, spans: spans, services: services,
		health: health.NewServer()}
	e.enter(starting)
	return e
}

func (e *grpcEndpoint) listen(ctx context.Context) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", e.address)
	if err != nil {
		return fmt.Errorf("grpc-listen: %w", err)
	}
	e.listener = e.gate.listen(listener, e.most)
	options := []grpc.ServerOption{
		grpc.ForceServerCodecV2(newGRPCCodec()),
		grpc.MaxRecvMsgSize(messageBytesMax),
		grpc.RPCDecompressor(unpacker{}), //nolint:staticcheck // a registered one is global and has no bound
		grpc.InTapHandle(e.gate.prepare),
		grpc.MaxHeaderListSize(headerBytesMax),
		grpc.MaxConcurrentStreams(streamsMax),
		grpc.ConnectionTimeout(handshakeTimeout),
		grpc.StaticStreamWindowSize(streamWindowBytes),
		grpc.StaticConnWindowSize(connectionWindowBytes),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: pingAfter, Timeout: pingTimeout,
			MaxConnectionAge: e.age, MaxConnectionAgeGrace: e.age}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: pingEveryMin, PermitWithoutStream: true}),
		grpc.StreamInterceptor(e.admitStream),
	}
	if e.tls != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(e.tls.Config("h2"))))
	}
	if e.spans != nil {
		options = append(options, grpc.StatsHandler(spansOf(e.spans)))
	}
	e.server = grpc.NewServer(options...)
	for _, service := range e.services {
		e.server.RegisterService(service, nil)
	}
	e.server.RegisterService(e.gate.describeHealth(), e.health)
	reflection.Register(e.server)
	return nil
}

// admitStream requires a token for all streams except health's, and bounds the streams that the gate does not bound.
func (e *grpcEndpoint) admitStream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo,
	next grpc.StreamHandler) error {
	if info.FullMethod == streamProcedure {
		return next(srv, stream)
	}
	if info.FullMethod == healthv1.Health_Watch_FullMethodName {
		return e.gate.watchHealth(srv, stream, next)
	}
	by, err := e.gate.admitRPC(stream.Context(), anyProcedure)
	if err != nil {
		return grpcError(err)
	}
	at := e.gate.stand(e.gate.credentialsOfRPC(stream.Context(), anyProcedure), by)
	defer e.gate.leave(at)
	return e.gate.keepOpen(srv, stream, at, next)
}

func (e *grpcEndpoint) serve() error {
	if err := e.server.Serve(e.listener); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		return fmt.Errorf("grpc-listen: serve on %s: %w", e.listener.Addr(), err)
	}
	return nil
}

// enter sets the status that grpc.health.v1 reports on this port, to checks and watches.
func (e *grpcEndpoint) enter(p phase) {
	now := healthv1.HealthCheckResponse_NOT_SERVING
	if p == serving {
		now = healthv1.HealthCheckResponse_SERVING
	}
	e.health.SetServingStatus("", now)
	for _, service := range e.services {
		e.health.SetServingStatus(service.ServiceName, now)
	}
}

// shutdown takes no more calls and waits until no call is worked on, or ctx is done. Then it cuts the
// remaining calls, whose callers do not send or read, and the streams of reflection and watched
// health, whose callers got a GOAWAY. It returns an error if a call was cut.
func (e *grpcEndpoint) shutdown(ctx context.Context, g *gate) error {
	gone := make(chan struct{})
	go func() { e.server.GracefulStop(); close(gone) }()
	defer func() { e.close(); <-gone }()
	return finished(ctx, gone, g)
}

func (e *grpcEndpoint) close() {
	if e.listener == nil {
		return
	}
	_ = e.listener.Close() // Serve may not have been called
	e.server.Stop()
}
