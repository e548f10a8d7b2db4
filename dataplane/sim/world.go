package sim

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
	"github.com/weirhq/weir/shared/window"
)

// Shape is the world that a scenario takes place in.
type Shape struct {
	Nodes      []int         // by region: how many nodes it has
	Origin     Profile       // every node's way to its region's Redis
	Counts     Profile       // every node's way to MySQL
	Shards     int           // of each region's Redis; 0 is 1
	EntriesMax int           // of each node's table; 0 is the limiter's default
	Skew       time.Duration // nodes' clocks are wrong by up to this, either way

	names []string // of the regions; nil for the usual ones
}

// regionNames are where the simulated regions stand, as many as there can be.
var regionNames = []string{
	"eu-west", "us-east", "ap-south", "us-west", "eu-north", "ap-east", "sa-east", "me-south", "af-south", "ca-central",
}

// world is regions of nodes over one count store. Everything in it lives in one bubble.
type world struct {
	seed    uint64
	began   time.Time // of traffic
	shape   Shape
	regions []*region
	nodes   []*node

	counts    *memstore.Counts
	feed      *memstore.Feed
	database  network.Database
	meters    meters
	ledger    *ledger
	plant     plant
	losesCost bool            // no wonder here: see Scenario
	firstLost string          // the first cell of which something is missing
	ways      []*network.Link // of all nodes that ever were

	requests  sync.WaitGroup // on their way
	decisions decisions

	mu         sync.Mutex
	violations map[violation]*breach
	retired    sync.WaitGroup // killed limiters that are coming to rest
}

type region struct {
	index  int
	name   string
	origin *memstore.Origin
	nodes  []*node
}

// node is one machine: a limiter, a relay that waits for its region's lease, and their ways to the servers. When it is
// killed another takes its place, under the same index.
type node struct {
	index   int
	region  *region
	lives   int
	skew    atomic.Int64 // ns that its clock is ahead
	limiter atomic.Pointer[dataplane.Limiter]
	relay   *relay.Relay

	toOrigin, toCounts *network.Link
}

// decisions count what was decided.
type decisions struct {
	allowed, denied, degraded, offeredCost, admittedCost atomic.Int64
}

func newWorld(shape Shape, document []byte, began time.Time, grace time.Duration, seed uint64) *world {
	w := &world{
		seed: seed, began: began, shape: shape,
		counts:     memstore.NewCounts(memstore.CountsOptions{}),
		violations: make(map[violation]*breach),
	}
	w.feed = memstore.NewFeed(memstore.FeedOptions{Settings: w.counts.SettingsVersion})
	w.counts.SetTuning("", 1, document)
	w.database.Random = w.stream("database", 0)
	names := shape.names
	if names == nil {
		names = regionNames
	}
	total := 0
	for _, n := range shape.Nodes {
		total += n
	}
	w.ledger = newLedger(w.began, len(shape.Nodes), total)
	for i, n := range shape.Nodes {
		r := &region{index: i, name: names[i],
			origin: memstore.NewOrigin(memstore.OriginOptions{Grace: grace, Shards: shape.Shards})}
		w.regions = append(w.regions, r)
		for range n {
			nd := &node{index: len(w.nodes), region: r}
			if shape.Skew > 0 {
				nd.skew.Store(w.stream("skew", nd.index).Int64N(int64(2*shape.Skew)+1) - int64(shape.Skew))
			}
			r.nodes = append(r.nodes, nd)
			w.nodes = append(w.nodes, nd)
		}
	}
	return w
}

// set stores what is set for the namespace of all requests, before any node reads it.
func (w *world) set(row store.NamespaceRow) error {
	mode, err := window.ParseMode(row.Mode)
	if err != nil {
		return fmt.Errorf("%w: the scenario's namespace: %w", ErrInvalid, err)
	}
	w.ledger.mode = mode
	if row != (store.NamespaceRow{}) {
		names := request("", 0, 0)
		row.Workspace, row.Namespace = names.Workspace, names.Namespace
		w.counts.SetNamespaces(row)
	}
	return nil
}

// storeSettings leaves the settings at the origins, as relays of an earlier fleet have.
func (w *world) storeSettings() error {
	for _, r := range w.regions {
		rows, err := w.counts.Settings(context.Background(), r.name)
		if err != nil {
			return fmt.Errorf("settings of %s: %w", r.name, err)
		}
		r.origin.SetSettings(rows)
	}
	return nil
}

// stream is a source of random numbers of its own for each purpose and index, so that
// what one actor draws changes nothing for the others.
func (w *world) stream(purpose string, index int) *rand.Rand {
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "%s/%d", purpose, index)
	return rand.New(rand.NewPCG(w.seed, h.Sum64()))
}

// boot starts a limiter on a node. The node before it under this index, if there was
// one, has been killed or stopped.
func (w *world) boot(n *node) error {
	n.lives++
	life := n.lives // a link may still draw when its node lives again
	stream := func(to string) func(op string) *rand.Rand {
		return func(op string) *rand.Rand {
			return w.stream(fmt.Sprint("link to ", to, " ", life, " ", op), n.index)
		}
	}
	n.toOrigin = &network.Link{Profile: w.shape.Origin, Stream: stream("origin")}
	n.toCounts = &network.Link{Profile: w.shape.Counts, Stream: stream("counts")}
	w.mu.Lock()
	w.ways = append(w.ways, n.toOrigin, n.toCounts)
	w.mu.Unlock()
	origin := w.originOf(n)
	mysql := &network.Statements{Link: n.toCounts, Database: &w.database, Meters: &w.meters.mysql}
	limiter, err := dataplane.New(dataplane.Config{
		Region: n.region.name,
		NodeID: fmt.Sprintf("%s-%d.%d", n.region.name, n.index, n.lives),
		Origin: &nodeOrigin{Origin: origin, world: w, node: n},

		EntriesMax: w.shape.EntriesMax,
		Clock:      func() time.Time { return time.Now().Add(time.Duration(n.skew.Load())) },
	})
	if err != nil {
		return fmt.Errorf("start a node of %s: %w", n.region.name, err)
	}
	n.limiter.Store(limiter)
	if err := limiter.Start(context.Background()); err != nil {
		return err
	}
	return w.bootRelay(n, limiter, origin, mysql)
}

// originOf is the origin of a node's region over the node's link.
func (w *world) originOf(n *node) store.RelayOrigin {
	var origin store.RelayOrigin = checkedOrigin{n.region.origin.Client(), w, n.region.index}
	if w.plant.origin != nil {
		origin = w.plant.origin(origin)
	}
	return &network.Origin{RelayOrigin: origin, Link: n.toOrigin, Meters: &w.meters.origins}
}

func (w *world) bootRelay(n *node, limiter *dataplane.Limiter, origin store.RelayOrigin,
	mysql *network.Statements) (err error) {
	n.relay, err = relay.New(relay.Config{
		Region: n.region.name, Holder: fmt.Sprintf("%d.%d", n.index, n.lives),
		Origin: origin, Feed: network.Feed{Feed: w.feed, Statements: mysql},
		Counts:   network.Counts{CountStore: checkedCounts{w.counts, w, n.region.index}, Statements: mysql},
		Settings: &network.Settings{From: w.counts, Statements: mysql},
		Tuning: func() relay.Tuning {
			t := limiter.RelayTuning()
			return relay.Tuning{Interval: t.FeedInterval, SettingsInterval: t.SettingsInterval, Floor: t.Floor, Step: t.Step,
				MinGlobalDuration: t.MinGlobalDuration,
				StoreFloor:        relay.StoreFloor, StoreSteps: relay.StoreSteps}
		},
	})
	if err != nil {
		return fmt.Errorf("start a relay of %s: %w", n.region.name, err)
	}
	return n.relay.Start(context.Background())
}

// kill ends a node as kill -9 does: nothing is sent any more, and what had not been
// sent is gone. The loops of its limiter are ended too, without anybody to talk to.
func (w *world) kill(n *node) {
	limiter, relayed := n.limiter.Load(), n.relay
	for _, l := range []*network.Link{n.toOrigin, n.toCounts} {
		l.Set(func(l *network.Link) { l.Dead = true })
	}
	w.retired.Go(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = limiter.Stop(ctx) // says what it could not send, which is the point
		_ = relayed.Stop(ctx) // its lease ends by itself
	})
}

// ask sends one request to a node and writes down what came of it.
func (w *world) ask(n *node, a *account, cost int64) {
	w.requests.Go(func() { w.decide(n, a, cost) })
}

func (w *world) decide(n *node, a *account, cost int64) dataplane.Decision {
	k := &a.key
	d := n.limiter.Load().Allow(context.Background(), dataplane.Request{
		Workspace: k.Workspace, Namespace: k.Namespace, Identifier: k.Identifier, Duration: k.Duration, Limit: a.limit,
		Cost: cost, ZeroCost: cost == 0,
	})
	w.note(n, a, cost, &d)
	return d
}

func (w *world) note(n *node, a *account, cost int64, d *dataplane.Decision) {
	if d.Err != nil {
		w.violate(violationError, "a decision on %v failed: %v", a.key, d.Err)
		return
	}
	t := &w.decisions
	t.offeredCost.Add(cost)
	if d.Allowed {
		t.allowed.Add(1)
		t.admittedCost.Add(cost)
	} else {
		t.denied.Add(1)
	}
	if d.Source.Degraded() {
		t.degraded.Add(1)
	}
	w.ledger.enter(a, n.region.index, cost, d)
}

// Profile is how a way through the network behaves.
type Profile = network.Profile
