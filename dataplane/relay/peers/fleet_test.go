package peers_test

import (
	"context"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/relay"
	"github.com/weirhq/weir/dataplane/relay/peers"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/testcert"
	"github.com/weirhq/weir/shared/window"
)

// Delays of the stores and of other regions, unless a test sets others.
const (
	interval = 200 * time.Millisecond
	mysqlRTT = 100 * time.Millisecond
	redisRTT = time.Millisecond
	oneWay   = 40 * time.Millisecond // to another region
)

// fleet is a set of regions in a synctest bubble, whose relays are connected by a network in memory.
type fleet struct {
	testing.TB
	network   *network
	feed      *memstore.Feed
	counts    *memstore.Counts
	authority *testcert.Authority
	names     []string
	regions   []*region
}

// region has an origin, nodes that a test plays, and one or more relays.
type region struct {
	*fleet
	name     string
	origin   *memstore.Origin
	accepted map[window.Cell]int64
	chunks   int64
	relays   []*node
}

// node is a relay and its peers.
type node struct {
	relay  *relay.Relay
	peers  *peers.Peers
	origin *memstore.Origin // its connection to the region's origin
}

// newFleet starts relaysEach relays in each region. The first relay of each region leads.
func newFleet(t testing.TB, relaysEach int, names ...string) *fleet {
	f := &fleet{TB: t, network: newNetwork(oneWay), authority: testcert.New(t), names: names}
	f.feed = memstore.NewFeed(memstore.FeedOptions{})
	f.feed.Faults.Delay(mysqlRTT)
	f.counts = memstore.NewCounts(memstore.CountsOptions{})
	for _, name := range names {
		r := &region{fleet: f, name: name, origin: memstore.NewOrigin(memstore.OriginOptions{}), accepted: map[window.Cell]int64{}}
		f.regions = append(f.regions, r)
		for range relaysEach {
			r.start(f.config(name, len(r.relays), relaysEach))
			<-time.After(37 * time.Millisecond)
		}
	}
	<-time.After(5 * time.Second)
	return f
}

func addressOf(region string, i int) string { return fmt.Sprintf("%s-%d:7000", region, i) }

func nameOf(region string) string { return region + ".relays.test" }

// config returns the configuration of the i-th relay of a region.
func (f *fleet) config(name string, i, relaysEach int) peers.Config {
	c := peers.Config{Region: name, Listen: addressOf(name, i), TLS: issued(f, f.authority, nameOf(name))}
	for _, other := range f.names {
		if other == name {
			continue
		}
		p := peers.Peer{Region: other, Name: nameOf(other)}
		for i := range relaysEach {
			p.Addresses = append(p.Addresses, addressOf(other, i))
		}
		c.Peers = append(c.Peers, p)
	}
	return c
}

// start starts a relay with its peers.
func (r *region) start(cfg peers.Config) *node {
	r.Helper()
	made, err := peers.New(cfg)
	if err != nil {
		r.Fatal(err)
	}
	n := &node{peers: peers.Over(made, r.network), origin: r.origin.Client()}
	n.origin.Faults.Delay(redisRTT)
	n.relay, err = relay.New(relay.Config{Region: r.name, Holder: fmt.Sprint("relay", len(r.relays)), Origin: n.origin, Feed: r.feed,
		Counts: r.counts, Publish: n.peers.Publish})
	if err != nil {
		r.Fatal(err)
	}
	if err := n.relay.Start(r.Context()); err != nil {
		r.Fatal(err)
	}
	if err := n.peers.Start(r.Context(), n.relay); err != nil {
		r.Fatal(err)
	}
	r.relays = append(r.relays, n)
	return n
}

// stop stops all relays and peers, so that the bubble can end.
func (f *fleet) stop() {
	for _, r := range f.regions {
		for _, n := range r.relays {
			n.peers.Stop()
			_ = n.relay.Stop(context.Background())
		}
	}
	f.network.cut()
	f.network.wait()
}

func (r *region) cell(identifier string, duration time.Duration) window.Cell {
	key := window.Key{Workspace: "acme", Namespace: "api", Identifier: identifier, Duration: duration}
	return window.Cell{Key: key, Sequence: window.Sequence(time.Now().UnixMilli(), key.DurationMs())}
}

// accept makes a node of the region accept a cost and send it.
func (r *region) accept(c window.Cell, cost, limit int64) {
	r.Helper()
	r.chunks++
	reply, err := r.origin.Send(context.Background(), store.Chunk{Stream: 2, Number: r.chunks,
		Costs: []store.Cost{{Cell: c, Add: cost, Limit: limit}}})
	if err != nil || reply.Totals[0].Err != nil {
		r.Fatalf("%s: %v, %+v", r.name, err, reply)
	}
	r.accepted[c] += cost
}

func (r *region) foreign(c window.Cell) int64 {
	r.Helper()
	reply, err := r.origin.Read(context.Background(), []window.Cell{c})
	if err != nil {
		r.Fatal(err)
	}
	return reply.Totals[0].Foreign
}

// known reports whether every region's foreign total has all cost that the others accepted. It fails on R1 if a total
// has more.
func (f *fleet) known(cells ...window.Cell) bool {
	f.Helper()
	all := true
	for _, c := range cells {
		sum := int64(0)
		for _, r := range f.regions {
			sum += r.accepted[c]
		}
		for _, r := range f.regions {
			switch got, want := r.foreign(c), sum-r.accepted[c]; {
			case got > want:
				f.Fatalf("R1: %s knows %d of %v from others, who accepted %d", r.name, got, c, want)
			case got < want:
				all = false
			}
		}
	}
	return all
}

// untilKnown waits until known returns true, and returns how long that took.
func (f *fleet) untilKnown(cells ...window.Cell) time.Duration {
	f.Helper()
	for began := time.Now(); ; <-time.After(time.Millisecond) {
		switch took := time.Since(began); {
		case f.known(cells...):
			return took
		case took > time.Minute:
			f.Fatalf("%v are not known after a minute", cells)
		}
	}
}

// Lookup returns the addresses of a host, or the host itself if it has none.
func (n *network) Lookup(_ context.Context, host string) ([]string, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if all := n.hosts[host]; len(all) > 0 {
		return all, nil
	}
	return []string{host}, nil
}

var _ net.Listener = (*listener)(nil)
