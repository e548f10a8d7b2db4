package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/relay"
	"github.com/weirhq/weir/dataplane/sim/internal/fleet"
	"github.com/weirhq/weir/dataplane/sim/internal/network"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// Shape is the fleet of a scenario, and its network.
type Shape struct {
	Nodes      []int         // number of nodes, by region
	Origin     Profile       // link of every node to its region's Redis
	Counts     Profile       // link of every node to MySQL
	Shards     int           // shards of each region's Redis; 0 means 1
	EntriesMax int           // bound of each node's table; 0 means the limiter's default
	Skew       time.Duration // nodes' clocks are wrong by up to this, in either direction

	names []string // of the regions; nil means the usual names
}

// nodes returns the number of all nodes.
func (s *Shape) nodes() (n int) {
	for _, of := range s.Nodes {
		n += of
	}
	return n
}

// name returns the name of the i-th region.
func (s *Shape) name(i int) string {
	switch {
	case s.names != nil:
		return s.names[i]
	case i < len(regionNames):
		return regionNames[i]
	}
	return fmt.Sprintf("region-%02d", i)
}

// regionNames are the usual names of simulated regions.
var regionNames = []string{
	"eu-west", "us-east", "ap-south", "us-west", "eu-north", "ap-east", "sa-east", "me-south", "af-south", "ca-central",
}

// world is regions of nodes over one count store. All of it belongs to one bubble.
type world struct {
	*fleet.World
	began   time.Time // when traffic begins
	shape   Shape
	regions []*region
	nodes   []*node

	meters     meters
	ledger     *ledger
	plant      plant
	losesCost  bool   // lost cost is no violation: see Scenario
	keepsBooks bool   // compared cells stay in the ledger until the end: see audit
	firstLost  string // describes the first cell that lacks cost

	requests  sync.WaitGroup // requests on their way
	decisions decisions

	mu         sync.Mutex
	violations map[violation]*Violation
}

type region struct {
	index  int
	name   string
	origin *memstore.Origin
	nodes  []*node
	clock  fleet.Clock // of the origin

	synths []*synth         // in a relayWorld, instead of nodes
	relays []*fleet.Process // in a relayWorld
	killed int              // number of relays that were killed, oldest first
}

// node is a machine. When its process is killed, another process takes its place, under the same index.
type node struct {
	index  int
	region *region
	lives  int
	clock  fleet.Clock
	life   atomic.Pointer[fleet.Process]
}

func (n *node) limiter() *dataplane.Limiter { return n.life.Load().Limiter }

// decisions are counters of decisions.
type decisions struct {
	allowed, denied, degraded, offeredCost, admittedCost atomic.Int64
	waits                                                waits // since the warm-up
}

// count counts a decision.
func (t *decisions) count(cost int64, allowed bool) {
	t.offeredCost.Add(cost)
	if !allowed {
		t.denied.Add(1)
		return
	}
	t.allowed.Add(1)
	t.admittedCost.Add(cost)
}

// newWorld returns a world whose regions have no nodes. grace is how long origins keep cells after their expiry.
func newWorld(shape Shape, began time.Time, grace time.Duration, seed uint64) *world {
	w := &world{
		World: fleet.NewWorld(seed, purpose("database", 0)), began: began, shape: shape,
		violations: make(map[violation]*Violation),
	}
	for i := range shape.Nodes {
		r := &region{index: i, name: shape.name(i)}
		r.origin = memstore.NewOrigin(memstore.OriginOptions{Grace: grace, Shards: shape.Shards, Clock: r.clock.Now})
		w.regions = append(w.regions, r)
	}
	return w
}

// newLimiterWorld returns a world whose nodes have limiters.
func newLimiterWorld(shape Shape, document []byte, began time.Time, grace time.Duration, seed uint64) *world {
	w := newWorld(shape, began, grace, seed)
	w.Counts.SetTuning("", 1, document)
	w.ledger = newLedger(w.began, len(shape.Nodes), shape.nodes())
	for _, r := range w.regions {
		for range shape.Nodes[r.index] {
			nd := &node{index: len(w.nodes), region: r}
			if shape.Skew > 0 {
				nd.clock.Set(time.Duration(w.stream("skew", nd.index).Int64N(int64(2*shape.Skew)+1)) - shape.Skew)
			}
			r.nodes = append(r.nodes, nd)
			w.nodes = append(w.nodes, nd)
		}
	}
	return w
}

// set stores the settings of the namespace of all requests, before any node reads them.
func (w *world) set(row store.NamespaceRow) error {
	mode, err := window.ParseMode(row.Mode)
	if err != nil {
		return fmt.Errorf("%w: the scenario's namespace: %w", ErrInvalid, err)
	}
	w.ledger.mode = mode
	if row != (store.NamespaceRow{}) {
		names := request("", 0, 0)
		row.Workspace, row.Namespace = names.Workspace, names.Namespace
		w.Counts.SetNamespaces(row)
	}
	return nil
}

// storeSettings stores the settings in the origins, as relays of an earlier fleet would have done.
func (w *world) storeSettings() error {
	for _, r := range w.regions {
		rows, err := w.Counts.Settings(context.Background(), r.name)
		if err != nil {
			return fmt.Errorf("settings of %s: %w", r.name, err)
		}
		r.origin.SetSettings(rows)
	}
	return nil
}

// purpose returns the name of a source of random numbers. Each purpose and index has its own source.
func purpose(of string, index int) string { return fmt.Sprintf("%s/%d", of, index) }

func (w *world) stream(of string, index int) *rand.Rand { return w.Stream(purpose(of, index)) }

// boot starts a process on a node: a limiter, and a relay that waits for its region's lease. If the node had a process
// before, it must have been killed or stopped.
func (w *world) boot(n *node) (err error) {
	n.lives++
	life := n.lives // a copy, because an old link may still draw after the node has started again
	link := func(to string, p Profile) *network.Link {
		return w.Link(p, func(op string) string { return purpose(fmt.Sprint("link to ", to, " ", life, " ", op), n.index) })
	}
	var origin store.FullOrigin = checkedOrigin{n.region.origin.Client(), w, n.region.index}
	if w.plant.origin != nil {
		origin = w.plant.origin(origin)
	}
	p := w.NewProcess(origin, link("origin", w.shape.Origin), link("counts", w.shape.Counts))
	p.Limiter, err = dataplane.New(dataplane.Config{
		Region: n.region.name,
		NodeID: fmt.Sprintf("%s-%d.%d", n.region.name, n.index, n.lives),
		Origin: &nodeOrigin{FullOrigin: p.Origin, world: w, node: n},

		EntriesMax: w.shape.EntriesMax,
		Clock:      n.clock.Now,
	})
	if err != nil {
		return fmt.Errorf("start a node of %s: %w", n.region.name, err)
	}
	err = w.AddRelay(p, relay.Config{
		Region: n.region.name, Holder: fmt.Sprintf("%d.%d", n.index, n.lives),
		Counts: checkedCounts{w.Counts, w, n.region.index}, Settings: w.Counts,
	})
	if err != nil {
		return err
	}
	n.life.Store(p)
	return p.Start()
}

// ask sends a request to a node and records the decision.
func (w *world) ask(n *node, a *account, cost int64) {
	w.requests.Go(func() { w.decide(n, a, cost) })
}

func (w *world) decide(n *node, a *account, cost int64) dataplane.Decision {
	return w.decideBy(n, a, cost, a.limit)
}

// decideBy is decide with another limit.
func (w *world) decideBy(n *node, a *account, cost, limit int64) dataplane.Decision {
	k, began := &a.key, time.Now()
	d := n.limiter().Allow(context.Background(), dataplane.Request{
		Workspace: k.Workspace, Namespace: k.Namespace, Identifier: k.Identifier, Duration: k.Duration, Limit: limit,
		Cost: cost, ZeroCost: cost == 0,
	})
	w.decisions.waits.add(time.Since(began))
	w.note(n, a, cost, limit, began, &d)
	return d
}

func (w *world) note(n *node, a *account, cost, limit int64, began time.Time, d *dataplane.Decision) {
	if d.Err != nil {
		w.violate(violationError, "a decision on %v failed: %v", a.key, d.Err)
		return
	}
	w.decisions.count(cost, d.Allowed)
	if d.Source.Degraded() {
		w.decisions.degraded.Add(1)
	}
	w.ledger.enterReal(a, began, cost, limit, d.Allowed)
	w.ledger.enter(a, n.region.index, cost, d)
}

// Profile is the behavior of a link.
type Profile = network.Profile
