package peers

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/dataplane/internal/loop"
	"github.com/weirhq/weir/dataplane/store"
)

// Relay is the relay that rows are received for. *relay.Relay implements it.
type Relay interface {
	// Apply applies a row of another region. If the error wraps store.ErrRefused, only the row is
	// refused. After any other error the relay accepts no rows, and the stream ends.
	Apply(row store.FeedRow) error

	// Leads reports whether the relay leads a shard. Only then it has rows to send, and applies rows.
	Leads() bool

	// Lost returns how often the relay has forgotten the rows that peers sent. Peers must then open
	// their streams again.
	Lost() int

	// Handed returns rows that repeat all counts sent to peers before. Each stream begins with them.
	Handed() iter.Seq[store.FeedRow]
}

// Peers carries rows between the relays of different regions. Call New, Start and Stop in this order. Start and Stop
// may be called concurrently, and each twice. Publish may be called at any time.
type Peers struct {
	cfg     Config
	relay   Relay
	metrics *metrics
	peers   []*peer
	server  *server // nil without Listen
	loops   loop.Lifecycle
	network network
}

// peer is another region, with a link to each of its addresses.
type peer struct {
	Peer
	counters
	links  []*link
	taking chan struct{} // has capacity 1; filled while a row of the region is applied
}

// network makes connections. Tests replace it.
type network struct {
	listen func(ctx context.Context, address string) (net.Listener, error)
	dial   func(ctx context.Context, address string) (net.Conn, error)
	lookup func(ctx context.Context, host string) (addresses []string, err error)
}

func tcp() network {
	return network{
		listen: func(ctx context.Context, address string) (net.Listener, error) {
			return (&net.ListenConfig{}).Listen(ctx, "tcp", address)
		},
		dial: func(ctx context.Context, address string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", address)
		},
		lookup: net.DefaultResolver.LookupHost,
	}
}

// ErrStarted is returned by Start on Peers that were started or stopped before.
var ErrStarted = errors.New("relay peers: were started before")

// New returns peers that do nothing until Start is called. Set the relay's Config.Publish to the Publish method.
func New(cfg Config) (*Peers, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("relay peers: %w", err)
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	p := &Peers{cfg: cfg, metrics: newMetrics(), network: tcp()}
	for _, one := range cfg.Peers {
		to := &peer{Peer: one, counters: p.metrics.of(one.Region), taking: make(chan struct{}, 1)}
		for _, address := range one.Addresses {
			to.links = append(to.links, &link{peers: p, peer: to, address: address, queue: newQueue()})
		}
		p.peers = append(p.peers, to)
	}
	return p, nil
}

// Start listens, and starts to connect to the peers on behalf of relay. It uses ctx's values, but ignores its end: Stop
// ends all streams.
func (p *Peers) Start(ctx context.Context, relay Relay) error {
	ctx, ok := p.loops.Start(ctx)
	if !ok {
		return ErrStarted
	}
	p.relay = relay
	if p.cfg.Listen != "" {
		if err := p.listen(ctx); err != nil {
			p.loops.Stop()
			return fmt.Errorf("relay peers: listen: %w", err)
		}
	}
	for _, to := range p.peers {
		for _, l := range to.links {
			p.loops.Go(func() { l.run(ctx) })
		}
	}
	return nil
}

func (p *Peers) listen(ctx context.Context) error {
	listener, err := p.network.listen(ctx, p.cfg.Listen)
	if err != nil {
		return err
	}
	p.server = newServer(p, listener)
	p.loops.Go(func() { p.server.serve(ctx) })
	p.loops.Go(func() { <-ctx.Done(); p.server.stop() })
	return nil
}

// Stop closes all streams and waits for all goroutines. Rows in the queues are dropped: the change feed has their
// counts.
func (p *Peers) Stop() { p.loops.Stop() }

// Addr returns the address on which rows are received, or nil without Listen. It is valid after Start.
func (p *Peers) Addr() net.Addr {
	if p.server == nil {
		return nil
	}
	return p.server.listener.Addr()
}

// Collector reports the peers to Prometheus.
func (p *Peers) Collector() prometheus.Collector { return p.metrics }

// Publish queues a row for all peers with an open stream. It never blocks. It keeps row.Payload until the row is sent
// or dropped, so the payload must not change.
func (p *Peers) Publish(row store.FeedRow) {
	for _, to := range p.peers {
		reached := false
		for _, l := range to.links {
			taken, dropped := l.queue.push(row)
			reached = reached || taken
			to.dropped.Add(float64(dropped))
		}
		if !reached {
			to.dropped.Inc()
		}
	}
}

// find returns the peer of a region, or nil if the region is not a peer.
func (p *Peers) find(region string) *peer {
	for _, to := range p.peers {
		if to.Region == region {
			return to
		}
	}
	return nil
}
