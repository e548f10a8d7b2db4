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

// nodes is how many there are in all.
func (s *Shape) nodes() (n int) {
	for _, of := range s.Nodes {
		n += of
	}
	return n
}

// name is how the i-th region is called.
func (s *Shape) name(i int) string {
	switch {
	case s.names != nil:
		return s.names[i]
	case i < len(regionNames):
		return regionNames[i]
	}
	return fmt.Sprintf("region-%02d", i)
}

// regionNames are where simulated regions stand.
var regionNames = []string{
	"eu-west", "us-east", "ap-south", "us-west", "eu-north", "ap-east", "sa-east", "me-south", "af-south", "ca-central",
}

// world is regions of nodes over one count store. Everything in it lives in one bubble.
type world struct {
	*fleet.World
	began   time.Time // of traffic
	shape   Shape
	regions []*region
	nodes   []*node

	meters    meters
	ledger    *ledger
	plant     plant
	losesCost bool   // no wonder here: see Scenario
	firstLost string // the first cell of which something is missing

	requests  sync.WaitGroup // on their way
	decisions decisions

	mu         sync.Mutex
	violations map[violation]*Violation
}

type region struct {
	index  int
	name   string
	origin *memstore.Origin
	nodes  []*node

	synths []*synth         // instead of nodes, in a relayWorld
	relays []*fleet.Process // the same
	killed int              // of relays, the first ones
}

// node is one machine. When its process is killed another takes its place, under the same index.
type node struct {
	index  int
	region *region
	lives  int
	skew   atomic.Int64 // ns that its clock is ahead
	life   atomic.Pointer[fleet.Process]
}

func (n *node) limiter() *dataplane.Limiter { return n.life.Load().Limiter }

// decisions count what was decided.
type decisions struct {
	allowed, denied, degraded, offeredCost, admittedCost atomic.Int64
}

// newWorld returns a world whose regions have no nodes. grace is how long origins keep cells that have expired.
func newWorld(shape Shape, began time.Time, grace time.Duration, seed uint64) *world {
	w := &world{
		World: fleet.NewWorld(seed, purpose("database", 0)), began: began, shape: shape,
		violations: make(map[violation]*Violation),
	}
	for i := range shape.Nodes {
		r := &region{index: i, name: shape.name(i)}
		r.origin = memstore.NewOrigin(memstore.OriginOptions{Grace: grace, Shards: shape.Shards})
		w.regions = append(w.regions, r)
	}
	return w
}

// newLimiterWorld returns a world of nodes that have limiters.
func newLimiterWorld(shape Shape, document []byte, began time.Time, grace time.Duration, seed uint64) *world {
	w := newWorld(shape, began, grace, seed)
	w.Counts.SetTuning("", 1, document)
	w.ledger = newLedger(w.began, len(shape.Nodes), shape.nodes())
	for _, r := range w.regions {
		for range shape.Nodes[r.index] {
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
		w.Counts.SetNamespaces(row)
	}
	return nil
}

// storeSettings leaves the settings at the origins, as relays of an earlier fleet have.
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

// purpose names what random numbers are for: each purpose and index has a source of its own.
func purpose(of string, index int) string { return fmt.Sprintf("%s/%d", of, index) }

func (w *world) stream(of string, index int) *rand.Rand { return w.Stream(purpose(of, index)) }

// boot starts a process on a node: a limiter, and a relay that waits for its region's lease. The process before it
// under this index, if there was one, has been killed or stopped.
func (w *world) boot(n *node) (err error) {
	n.lives++
	life := n.lives // a link may still draw when its node lives again
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
		Clock:      func() time.Time { return time.Now().Add(time.Duration(n.skew.Load())) },
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

// ask sends one request to a node and writes down what came of it.
func (w *world) ask(n *node, a *account, cost int64) {
	w.requests.Go(func() { w.decide(n, a, cost) })
}

func (w *world) decide(n *node, a *account, cost int64) dataplane.Decision {
	k := &a.key
	d := n.limiter().Allow(context.Background(), dataplane.Request{
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
