package peers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/weirhq/weir/dataplane/internal/loop"
	"github.com/weirhq/weir/dataplane/store"
	relayv1 "github.com/weirhq/weir/shared/gen/proto/weir/relay/v1"
)

const (
	streamAge   = 30 * time.Minute       // times 0.5 to 1.5; the next stream uses the current certificates
	openTimeout = 5 * time.Second        // to connect, and to be admitted
	sendTimeout = 10 * time.Second       // of a row; a slower stream is ended
	leadsEvery  = 250 * time.Millisecond // how often both ends check whether they lead
	idleRetry   = time.Second            // before the next attempt, if the address's relay leads no shard
	retryMin    = 250 * time.Millisecond // after a failure; doubles each time
	retryMax    = 10 * time.Second
)

var (
	errNotLeading = errors.New("this relay leads no shard any more")
	errNotRead    = fmt.Errorf("a row was not read within %v", sendTimeout)
	errAnswered   = errors.New("the peer has answered more than once")
	errAged       = errors.New("the stream is opened again")
	errNotOpened  = fmt.Errorf("the stream was not opened within %v", openTimeout)
)

// link keeps a stream to an address while both the own relay and the relay at the address lead a shard.
type link struct {
	peers   *Peers
	peer    *peer
	address string
	queue   *queue

	attempts int           // used by run: selects the host's next address
	retry    time.Duration // used by run: the last pause after a failure
	failing  bool          // used by run: the last attempt failed, and the failure is logged
}

// run opens streams in turn until ctx ends.
func (l *link) run(ctx context.Context) {
	for ctx.Err() == nil {
		if !l.peers.relay.Leads() {
			_ = loop.Pause(ctx, leadsEvery)
			continue
		}
		err := l.talk(ctx)
		l.attempts++
		_ = loop.Pause(ctx, spread(l.judge(ctx, err)))
	}
}

// judge logs when the link starts to fail, and returns the pause before the next attempt.
func (l *link) judge(ctx context.Context, err error) time.Duration {
	switch {
	case ctx.Err() != nil, errors.Is(err, errNotLeading), errors.Is(err, errAged):
		return 0
	case status.Code(err) == codes.FailedPrecondition: // another of the region's relays leads
		return idleRetry
	case !l.failing:
		l.failing = true
		l.peers.cfg.Logger.Warn(
			"relay cannot send rows to a peer; it goes on trying, and MySQL carries the counts meanwhile", "peer",
			l.peer.Region,
			"address", l.address, "error", err)
	}
	l.retry = min(retryMax, max(retryMin, 2*l.retry))
	return l.retry
}

// spread returns d times a random factor between 0.5 and 1.5, for example 5 to 15 s for 10 s, so that relays that lost
// a peer together do not reconnect together.
func spread(d time.Duration) time.Duration {
	return time.Duration((0.5 + rand.Float64()) * float64(d))
}

// talk opens a stream and sends rows on it until it ends.
func (l *link) talk(ctx context.Context) error {
	conn, err := grpc.NewClient("passthrough:///"+l.address, l.options()...)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	stream, err := l.open(ctx, end, relayv1.NewPeerServiceClient(conn))
	if err != nil {
		return cause(ctx, err)
	}
	l.retry = 0
	if l.failing {
		l.failing = false
		l.peers.cfg.Logger.Info("relay sends rows to a peer again", "peer", l.peer.Region, "address", l.address)
	}
	l.peer.connected.Inc()
	defer l.peer.connected.Dec()
	l.queue.setOpen(true)
	defer func() { l.peer.dropped.Add(float64(l.queue.setOpen(false))) }()
	return l.converse(ctx, end, stream)
}

// cause returns the cause of ctx's end, or err if ctx has not ended.
func cause(ctx context.Context, err error) error {
	if why := context.Cause(ctx); why != nil {
		return why
	}
	return err
}

func (l *link) options() []grpc.DialOption {
	secure := insecure.NewCredentials()
	if !l.peers.cfg.Plaintext {
		secure = credentials.NewTLS(l.peers.cfg.TLS.client(l.peer.Name))
	}
	return []grpc.DialOption{
		grpc.WithTransportCredentials(secure),
		grpc.WithAuthority(l.authority()),
		grpc.WithContextDialer(l.dial),
		grpc.WithNoProxy(),
		grpc.WithDisableServiceConfig(),
		grpc.WithDisableRetry(),
		grpc.WithIdleTimeout(0),
		grpc.WithMaxHeaderListSize(headerBytesMax),
		grpc.WithStaticStreamWindowSize(answerWindowBytes),
		grpc.WithStaticConnWindowSize(answerWindowBytes),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: pingAfter, Timeout: pingTimeout}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(answerBytesMax), grpc.MaxCallSendMsgSize(messageBytesMax)),
	}
}

// authority returns the name that the peer's certificate must have.
func (l *link) authority() string {
	if l.peers.cfg.Plaintext {
		return l.address
	}
	return l.peer.Name
}

// dial connects to the address. If the address has a host name, each attempt takes the next of the host's IP addresses.
func (l *link) dial(ctx context.Context, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	if net.ParseIP(host) == nil {
		all, err := l.peers.network.lookup(ctx, host)
		if err != nil {
			return nil, err
		}
		slices.Sort(all)
		if len(all) > 0 {
			address = net.JoinHostPort(all[l.attempts%len(all)], port)
		}
	}
	return l.peers.network.dial(ctx, address)
}

type outgoing = grpc.BidiStreamingClient[relayv1.PublishRequest, relayv1.PublishResponse]

// open sends hello and waits for the answer.
func (l *link) open(ctx context.Context, end context.CancelCauseFunc,
	client relayv1.PeerServiceClient) (outgoing, error) {
	late := time.AfterFunc(openTimeout, func() { end(errNotOpened) })
	defer late.Stop()
	stream, err := client.Publish(ctx)
	if err != nil {
		return nil, err
	}
	hello := &relayv1.Hello{FromRegion: l.peers.cfg.Region, ToRegion: l.peer.Region}
	// if Send fails, Recv returns the reason
	_ = stream.Send(&relayv1.PublishRequest{Message: &relayv1.PublishRequest_Hello{Hello: hello}})
	if _, err := stream.Recv(); err != nil {
		return nil, err
	}
	return stream, nil
}

// converse repeats the counts that were sent before, because the peer's relay may have received
// none of them, and does so again when the queue has dropped rows. Then it sends the rows in the
// queue, until the peer ends the stream or stops reading, or the relay no longer leads.
func (l *link) converse(ctx context.Context, end context.CancelCauseFunc, stream outgoing) error {
	var watching sync.WaitGroup
	defer watching.Wait()
	defer end(errNotLeading)
	watching.Go(func() {
		_, err := stream.Recv()
		if err == nil {
			err = errAnswered
		}
		end(err)
	})
	watching.Go(func() {
		for ctx.Err() == nil && l.peers.relay.Leads() {
			_ = loop.Pause(ctx, leadsEvery)
		}
		end(errNotLeading)
	})
	aged := time.AfterFunc(spread(streamAge), func() { end(errAged) })
	defer aged.Stop()
	stuck := time.AfterFunc(sendTimeout, func() { end(errNotRead) })
	defer stuck.Stop()
	send := func(row *store.FeedRow) bool {
		stuck.Reset(sendTimeout)
		defer stuck.Stop()
		return l.send(ctx, end, stream, row)
	}
	for {
		if l.queue.takeLacks() {
			for row := range l.peers.relay.Handed() {
				if !send(&row) {
					return context.Cause(ctx)
				}
			}
		}
		if row, ok := l.queue.take(ctx); !ok || !send(&row) {
			return context.Cause(ctx)
		}
	}
}

// send sends a row. ok is false if the stream has ended.
func (l *link) send(ctx context.Context, end context.CancelCauseFunc, stream outgoing, row *store.FeedRow) (ok bool) {
	if err := stream.Send(message(row)); err != nil {
		l.peer.dropped.Inc()
		if !errors.Is(err, io.EOF) { // otherwise Recv returns the reason
			end(err)
		}
		<-ctx.Done()
		return false
	}
	l.peer.sent.Inc()
	return ctx.Err() == nil
}

func message(row *store.FeedRow) *relayv1.PublishRequest {
	return &relayv1.PublishRequest{Message: &relayv1.PublishRequest_Row{Row: &relayv1.Row{
		Shard: int32(row.Shard), Sequence: row.Sequence, Payload: row.Payload}}}
}
