package hunt

import (
	"context"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/relay"
	"github.com/weirhq/weir/dataplane/sim/internal/network"
	"github.com/weirhq/weir/dataplane/store"
)

const (
	workspace, namespace = "acme", "api"

	// originGrace keeps cells at the origins until a history is over.
	originGrace = time.Hour

	// readTimeout is how long a decision waits at most.
	readTimeout = 50 * time.Millisecond
)

// world is a fleet over one MySQL. Everything in it lives in one bubble.
type world struct {
	plan    Plan
	began   time.Time // of the steps
	regions []*region

	counts   *memstore.Counts
	replica  *replica // of counts
	feed     *memstore.Feed
	database network.Database
	origins  network.OriginMeters

	statements refusals // of MySQL
	mysql      network.MySQLMeters

	operators operators
	ledger    ledger

	reservations reservations
	holders      holders

	views  views
	record record

	steps   sync.WaitGroup // on their way: requests, and faults that are not over
	retired sync.WaitGroup // killed nodes that are coming to rest

	linksMu sync.Mutex
	links   []*network.Link // of all lives: nodes join and restart side by side
}

type region struct {
	name   string
	index  int
	origin *memstore.Origin         // each of its shards is a part: Fleet.parts
	client func() store.RelayOrigin // another way to it, which refuses nothing
	nodes  []*node
	leases leases

	refusals refusals
}

// node is a place for one process after the other.
type node struct {
	region *region
	index  int
	ahead  atomic.Int64 // ns, of its own clock
	steps  atomic.Int64 // of its own clock
	away   atomic.Bool  // it has not joined yet, or has left for good
	life   atomic.Pointer[life]
}

// here are the nodes that have not left, and have joined.
func (r *region) here() (nodes []*node) {
	for _, n := range r.nodes {
		if !n.away.Load() {
			nodes = append(nodes, n)
		}
	}
	return nodes
}

// life is one process: a limiter and a relay.
type life struct {
	node              *node
	number            int
	limiter           *dataplane.Limiter
	relay             *relay.Relay // nil on a node without MySQL
	toOrigin, toMySQL *network.Link
	toPeers           *network.Link
	ended             atomic.Bool // it was killed, or stopped
	answered          atomic.Bool // by its origin, in time for a decision
	timed             atomic.Bool // it goes by its origin's clock
	steps             int64       // of its node's own clock, when it began
	sent              atomic.Bool // all that it had accepted when it was stopped is at its origin
}

// String names a life in transcripts.
func (l *life) String() string {
	return fmt.Sprintf("r%d.%d", l.node.region.index, l.node.index)
}

// process names a life and no other of its node.
func (l *life) process() string { return fmt.Sprintf("%v.%d", l, l.number) }

// stream is a source of random numbers of its own for each purpose, so that a step that is left out changes little
// for others.
func (w *world) stream(purpose string) *rand.Rand {
	h := fnv.New64a()
	_, _ = h.Write([]byte(purpose))
	return rand.New(rand.NewPCG(w.plan.Seed, h.Sum64()))
}

func newWorld(p Plan) (*world, error) {
	w := &world{
		plan: p, counts: memstore.NewCounts(memstore.CountsOptions{}),
	}
	w.feed = memstore.NewFeed(memstore.FeedOptions{Settings: w.counts.SettingsVersion})
	w.ledger.decided, w.ledger.asked = make(map[claimID]bool), make(map[asking]int64)
	w.ledger.unsent = make(map[sending]time.Time)
	w.operators.world, w.ledger.world, w.views.world, w.replica = w, w, w, &replica{Counts: w.counts}
	w.database.Random = w.stream("database")
	w.feed.Faults.Hook(w.statements.hook(0, func() {}))
	w.counts.Faults.Hook(w.statements.hook(0, func() {}))
	if err := w.operators.begin(); err != nil {
		return nil, err
	}
	for i, nodes := range p.Fleet.Nodes {
		ahead := p.Fleet.Ahead[i]
		r := &region{name: fmt.Sprint("r", i), index: i}
		r.open(p.Fleet, func() time.Time { return time.Now().Add(ahead) })
		for n := range nodes {
			r.nodes = append(r.nodes, &node{region: r, index: n})
			r.nodes[n].away.Store(n >= nodes-p.Fleet.Late[i])
		}
		w.regions = append(w.regions, r)
	}
	w.reservations.world, w.holders.world = w, w
	return w, nil
}

// open makes a region's origin.
func (r *region) open(f Fleet, clock func() time.Time) {
	options := memstore.OriginOptions{Shards: f.parts(), Grace: originGrace, Clock: clock}
	if f.Buckets == 0 {
		r.origin = memstore.NewOrigin(options)
		r.client = func() store.RelayOrigin { return r.origin.Client() }
		return
	}
	cluster := memstore.NewCluster(options)
	r.origin = cluster.Origin
	r.client = func() store.RelayOrigin { return cluster.Client() }
}

// boot starts a new process on a node, and has callers ask it once it has read its settings, as a load balancer does
// that looks whether it is ready.
func (w *world) boot(n *node) error {
	l := &life{node: n, number: 1, steps: n.steps.Load()}
	if before := n.life.Load(); before != nil {
		l.number = before.number + 1
	}
	process := l.process()
	link := func(to string, trip time.Duration) *network.Link {
		made := &network.Link{
			Profile: network.Profile{Delay: trip},
			Stream:  func(op string) *rand.Rand { return w.stream(process + " to " + to + " " + op) },
		}
		w.linksMu.Lock()
		defer w.linksMu.Unlock()
		w.links = append(w.links, made)
		return made
	}
	l.toOrigin, l.toMySQL = link("origin", w.plan.Fleet.OriginTrip), link("mysql", w.plan.Fleet.MySQLTrip)
	l.toPeers = link("peers", w.plan.Fleet.PeerTrip)
	way := n.region.client()
	n.region.refusals.ofOrigin(way.(faulty), n.region.origin.Shards(), l.toOrigin)
	origin := &network.Origin{RelayOrigin: watchedOrigin{way, w, l}, Link: l.toOrigin, Meters: &w.origins}
	var err error
	l.limiter, err = dataplane.New(dataplane.Config{
		Region: n.region.name, NodeID: process, ReadTimeout: readTimeout,
		Origin:     origin,
		EntriesMax: w.plan.Fleet.Room,
		Clock:      func() time.Time { return time.Now().Add(time.Duration(n.ahead.Load())) },
	})
	if err != nil {
		return fmt.Errorf("start %s: %w", process, err)
	}
	if n.index < w.plan.Fleet.Relays[n.region.index] {
		if err := w.relay(l, process, origin); err != nil {
			return err
		}
	}
	if err := l.limiter.Start(context.Background()); err != nil {
		return err
	}
	if l.relay != nil {
		if err := l.relay.Start(context.Background()); err != nil {
			return err
		}
	}
	for l.limiter.Health().SettingsAt.IsZero() {
		time.Sleep(10 * time.Millisecond)
	}
	n.life.Store(l)
	return nil
}

// relay makes a life's relay.
func (w *world) relay(l *life, process string, origin store.RelayOrigin) error {
	way := &network.Statements{Link: l.toMySQL, Database: &w.database, Meters: &w.mysql}
	config := relay.Config{
		Region: l.node.region.name, Holder: process, Origin: origin,
		Feed:     network.Feed{Feed: w.feed, Statements: way},
		Counts:   network.Counts{CountStore: w.replica, Statements: way},
		Settings: &network.Settings{From: versioned{w.counts}, Statements: way},
		Tuning: func() relay.Tuning {
			t := l.limiter.RelayTuning()
			return relay.Tuning{
				Interval: t.FeedInterval, SettingsInterval: t.SettingsInterval, Floor: t.Floor, Step: t.Step,
				MinGlobalDuration: t.MinGlobalDuration, StoreFloor: relay.StoreFloor, StoreSteps: relay.StoreSteps,
			}
		},
	}
	if w.plan.Fleet.PeerTrip > 0 {
		config.Publish = w.publish(l)
	}
	made, err := relay.New(config)
	if err != nil {
		return fmt.Errorf("start the relay of %s: %w", process, err)
	}
	l.relay = made
	return nil
}

// kill ends a life as kill -9 does.
func (w *world) kill(l *life) {
	l.ended.Store(true)
	for _, link := range []*network.Link{l.toOrigin, l.toMySQL, l.toPeers} {
		link.Set(func(link *network.Link) { link.Dead = true })
	}
	w.holders.died(l)
	w.retired.Go(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		l.end(ctx) // the relay's lease ends by itself
	})
}

// stop ends a life in order, within a time.
func (w *world) stop(l *life, within time.Duration) {
	l.ended.Store(true)
	w.ledger.ends(l)
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	l.end(ctx)
}

// end stops what runs, which says what it could not send.
func (l *life) end(ctx context.Context) {
	l.sent.Store(l.limiter.Stop(ctx) == nil)
	if l.relay != nil {
		_ = l.relay.Stop(ctx)
	}
}
