package peers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	peerinfo "google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/bounded"
	relayv1 "github.com/weirhq/weir/shared/gen/proto/weir/relay/v1"
)

// Bounds on the resources that callers can take.
const (
	messageBytesMax     = store.FeedBytesMax + 1<<10 // a row and its envelope
	streamWindowBytes   = 512 << 10                  // two rows ahead of the row being merged
	answerWindowBytes   = 64 << 10
	answerBytesMax      = 64
	headerBytesMax      = 8 << 10
	connectionsMax      = 256 // another connection is accepted, and an existing connection is closed
	connectionStreams   = 2   // streams on a connection
	streamsMax          = 8   // streams of a region: each of its relays that leads a shard opens a stream
	handshakeTimeout    = 5 * time.Second
	helloTimeout        = 5 * time.Second
	pingAfter           = 10 * time.Second // the shortest that grpc-go allows
	pingTimeout         = 5 * time.Second
	pingEveryMin        = 5 * time.Second
	connectionIdleMax   = 30 * time.Second
	connectionAgeMax    = time.Hour
	connectionAgeLinger = time.Second
)

// server receives rows.
type server struct {
	relayv1.UnimplementedPeerServiceServer

	peers    *Peers
	listener net.Listener
	grpc     *grpc.Server
	callers  bounded.Callers
	streams  map[*peer]*atomic.Int64
	readers  sync.WaitGroup
}

func newServer(p *Peers, listener net.Listener) *server {
	s := &server{peers: p, streams: make(map[*peer]*atomic.Int64)}
	s.listener = bounded.Listen(listener, &s.callers, connectionsMax, p.metrics.closed.Inc)
	var names []string
	for _, to := range p.peers {
		s.streams[to] = new(atomic.Int64)
		names = append(names, to.Name)
	}
	options := []grpc.ServerOption{
		grpc.MaxRecvMsgSize(messageBytesMax),
		grpc.MaxHeaderListSize(headerBytesMax),
		grpc.MaxConcurrentStreams(connectionStreams),
		grpc.ConnectionTimeout(handshakeTimeout),
		grpc.StaticStreamWindowSize(streamWindowBytes),
		grpc.StaticConnWindowSize(streamWindowBytes),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: pingAfter, Timeout: pingTimeout,
			MaxConnectionIdle: connectionIdleMax, MaxConnectionAge: connectionAgeMax,
			MaxConnectionAgeGrace: connectionAgeLinger}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: pingEveryMin, PermitWithoutStream: true}),
		grpc.WaitForHandlers(true),
	}
	if !p.cfg.Plaintext {
		options = append(options, grpc.Creds(credentials.NewTLS(p.cfg.TLS.server(names))))
	}
	s.grpc = grpc.NewServer(options...)
	relayv1.RegisterPeerServiceServer(s.grpc, s)
	return s
}

// serve serves until stop is called.
func (s *server) serve(ctx context.Context) {
	if err := s.grpc.Serve(s.listener); err != nil && !errors.Is(err, grpc.ErrServerStopped) && ctx.Err() == nil {
		s.peers.cfg.Logger.Error("relay receives no more rows from peers", "listen", s.listener.Addr().String(), "error", err)
	}
}

// stop ends all streams and waits until they have ended.
func (s *server) stop() {
	s.grpc.Stop()
	s.readers.Wait()
}

type incoming = grpc.BidiStreamingServer[relayv1.PublishRequest, relayv1.PublishResponse]

// Publish implements relayv1.PeerServiceServer. It reads in a separate goroutine, which ends with the stream, so that
// Publish can end the stream while no message arrives.
func (s *server) Publish(stream incoming) error {
	lost := s.peers.relay.Lost()
	admitted, ended := make(chan struct{}), make(chan error, 1)
	s.readers.Go(func() { ended <- s.receive(stream, admitted) })
	late := time.NewTimer(helloTimeout)
	defer late.Stop()
	leads := time.NewTicker(leadsEvery)
	defer leads.Stop()
	for {
		select {
		case err := <-ended:
			return err
		case <-late.C:
			return s.refuse(refusedHello, codes.DeadlineExceeded, "no hello within %v", helloTimeout)
		case <-admitted:
			late.Stop()
			admitted = nil
		case <-leads.C:
			if !s.peers.relay.Leads() || s.peers.relay.Lost() != lost {
				return s.refuseIdle()
			}
		}
	}
}

// receive admits a stream and applies its rows until it ends.
func (s *server) receive(stream incoming, admitted chan<- struct{}) error {
	from, err := s.admit(stream)
	if err != nil {
		return err
	}
	close(admitted)
	open := s.streams[from]
	defer open.Add(-1)
	if open.Add(1) > streamsMax {
		return s.refuse(refusedStreams, codes.ResourceExhausted, "region %q has %d streams already", from.Region, streamsMax)
	}
	if err := stream.Send(&relayv1.PublishResponse{}); err != nil {
		return err
	}
	for {
		request, err := stream.Recv()
		if err != nil {
			return err
		}
		row := request.GetRow()
		if row == nil {
			from.refused.Inc() // a kind of message of another version
			continue
		}
		if !s.take(from, row) {
			return s.refuseIdle()
		}
	}
}

// admit reads hello, and checks that the sender is the peer that hello names.
func (s *server) admit(stream incoming) (*peer, error) {
	request, err := stream.Recv()
	if err != nil {
		return nil, err
	}
	hello := request.GetHello()
	if hello == nil || hello.ToRegion != s.peers.cfg.Region {
		return nil, s.refuse(refusedHello, codes.InvalidArgument, "hello has to_region %.80q, and this relay's region is %q",
			hello.GetToRegion(), s.peers.cfg.Region)
	}
	from := s.peers.find(hello.FromRegion)
	switch {
	case from == nil:
		return nil, s.refuse(refusedRegion, codes.PermissionDenied, "from_region %.80q is no peer of region %q",
			hello.FromRegion, s.peers.cfg.Region)
	case !s.peers.cfg.Plaintext && !isNamed(stream.Context(), from.Name):
		return nil, s.refuse(refusedName, codes.PermissionDenied,
			"the certificate was not issued to %q, the name of region %q", from.Name, from.Region)
	case !s.peers.relay.Leads():
		return nil, s.refuseIdle()
	}
	return from, nil
}

// isNamed reports whether the caller's certificate was issued to name.
func isNamed(ctx context.Context, name string) bool {
	caller, _ := peerinfo.FromContext(ctx)
	if caller == nil {
		return false
	}
	info, ok := caller.AuthInfo.(credentials.TLSInfo)
	if !ok || len(info.State.PeerCertificates) == 0 {
		return false
	}
	return info.State.PeerCertificates[0].VerifyHostname(name) == nil
}

// take applies a row. Rows of the same peer are applied in turn. A refused row does not end the stream: a region with
// another version may send rows that this relay cannot decode, and MySQL carries their counts as well. open is false if
// the relay accepts no rows; the sender must then open a new stream.
func (s *server) take(from *peer, row *relayv1.Row) (open bool) {
	received := store.FeedRow{Stream: store.Stream{Region: from.Region, Shard: int(row.GetShard())},
		Sequence: row.GetSequence(), Payload: row.GetPayload()}
	from.taking <- struct{}{} // not held long, because Apply does no I/O
	err := s.peers.relay.Apply(received)
	<-from.taking
	switch {
	case err == nil:
		from.applied.Inc()
	case errors.Is(err, store.ErrRefused):
		from.refused.Inc()
		s.peers.cfg.Logger.Debug("relay refuses a row of a peer", "peer", from.Region, "sequence", received.Sequence,
			"error", err)
	default:
		return false
	}
	return true
}

// refuseIdle ends a stream whose rows the relay does not accept, because it leads no shard now.
func (s *server) refuseIdle() error {
	return s.refuse(refusedIdle, codes.FailedPrecondition, "this relay leads no shard of region %q", s.peers.cfg.Region)
}

func (s *server) refuse(reason string, code codes.Code, format string, args ...any) error {
	s.peers.metrics.refused.WithLabelValues(reason).Inc()
	return status.Error(code, fmt.Sprintf(format, args...))
}
