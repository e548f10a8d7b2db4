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

// Relay takes in what peers send. *relay.Relay is one.
type Relay interface {
	// Apply applies a row of another region. If the error wraps store.ErrRefused, only the row is
	// refused. After any other error the relay accepts no rows, and the stream ends.
	Apply(row store.FeedRow) error

	// Leads tells whether the relay has rows to send, and takes rows in.
	Leads() bool

	// Lost returns how often the relay has forgotten the rows that peers sent. Peers must then open
	// their streams again.
	Lost() int

	// Handed returns rows that repeat all counts sent to peers before. A stream begins with them.
	Handed() iter.Seq[store.FeedRow]
}

// Peers carries rows of news between the relays of different regions. Its life is New, Start, Stop. Start and Stop may
// be called concurrently, and both twice; Publish at any time.
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
	taking chan struct{} // holds one element while a row of the region is taken in
}

// network is how connections are made.
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

// New makes peers that do nothing until they are started. Give their Publish to the relay as its Publish.
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

// Start listens, and begins to connect to the peers on behalf of relay. ctx gives its values, not its end. Stop ends
// what it begins.
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

// Stop closes all streams and waits for what Start began. Rows that wait are dropped: MySQL brings them.
func (p *Peers) Stop() { p.loops.Stop() }

// Addr is where rows are heard; nil without Listen. Valid after Start.
func (p *Peers) Addr() net.Addr {
	if p.server == nil {
		return nil
	}
	return p.server.listener.Addr()
}

// Collector reports the peers to Prometheus.
func (p *Peers) Collector() prometheus.Collector { return p.metrics }

// Publish sends a row to all peers whose relay can be reached. It never blocks, and keeps row.Payload, which must not
// change, until it is sent or dropped.
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

// find is the peer of a region; nil if it is none.
func (p *Peers) find(region string) *peer {
	for _, to := range p.peers {
		if to.Region == region {
			return to
		}
	}
	return nil
}
