package hunt

import (
	"errors"
	"fmt"
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

const (
	workspace, namespace = "acme", "api"

	// originGrace is how long origins keep cells: until the history is over.
	originGrace = time.Hour

	// readTimeout bounds how long a decision waits.
	readTimeout = 50 * time.Millisecond
)

// world is a fleet with its MySQL. Everything in it lives in the same bubble.
type world struct {
	*fleet.World
	plan    Plan
	began   time.Time // of the steps
	regions []*region

	replica    *replica // of Counts
	statements refusals // of MySQL

	operators operators
	ledger    ledger
	callers   callers

	reservations reservations
	holders      holders

	windows *realWindows

	views  views
	record record

	steps sync.WaitGroup // on their way: requests, and faults that are not over
}

type region struct {
	name   string
	index  int
	origin *memstore.Origin        // each of its shards is a part: Fleet.parts
	client func() store.FullOrigin // another way to it, which refuses nothing
	nodes  []*node
	leases leases
	clock  fleet.Clock  // of its origin
	setAt  atomic.Int64 // ns, since the history began, of the last step of that clock; 0: none

	refusals refusals
}

// node is a place for a sequence of processes.
type node struct {
	region *region
	index  int
	clock  fleet.Clock
	steps  atomic.Int64 // of its own clock
	away   atomic.Bool  // it has not joined yet, or has left for good
	life   atomic.Pointer[life]

	slowUntil atomic.Int64 // ns since 1970: end of the latest Slow
}

// isBusy reports whether the node denies because it has no room for another call. It makes at most 5 calls at once for
// each processor, and tries calls twice that a slow link delays.
func (n *node) isBusy(err error) bool {
	const tries = 2 * time.Second
	return errors.Is(err, dataplane.ErrBusy) && time.Now().UnixNano() < n.slowUntil.Load()+int64(tries)
}

// here returns the lives of the nodes that have not left, and have joined.
func (r *region) here() (lives []*life) {
	for _, n := range r.nodes {
		if !n.away.Load() {
			lives = append(lives, n.life.Load())
		}
	}
	return lives
}

// lives returns the lives of all regions.
func (w *world) lives() (all []*life) {
	for _, r := range w.regions {
		all = append(all, r.here()...)
	}
	return all
}

// life is a process: a limiter and, on a node with MySQL, a relay.
type life struct {
	*fleet.Process
	node     *node
	number   int
	ended    atomic.Bool // it was killed, or stopped
	answered atomic.Bool // by its origin, in time for a decision
	timed    atomic.Bool // it goes by its origin's clock
	steps    int64       // of its node's own clock, when it began
}

// String returns a life's name in transcripts.
func (l *life) String() string {
	return fmt.Sprintf("r%d.%d", l.node.region.index, l.node.index)
}

// process returns the name of a life that no other life of its node has.
func (l *life) process() string { return fmt.Sprintf("%v.%d", l, l.number) }

func newWorld(p Plan) (*world, error) {
	w := &world{World: fleet.NewWorld(p.Seed, "database"), plan: p}
	w.ledger = ledger{world: w, byName: make(map[window.Cell]*account), decided: make(map[claimID]bool),
		asked: make(map[asking]int64), unsent: make(map[sending]time.Time)}
	w.operators = operators{world: w, limits: make(map[int64]bool), versions: make(map[string]int64),
		trials: make(map[string]memstore.Trial)}
	w.callers = callers{world: w, asks: asks{world: w}}
	w.windows = newRealWindows(w)
	w.views = views{world: w, foreign: make(map[view]int64)}
	w.reservations = reservations{world: w, cells: make(map[heldCell]*heldCount)}
	w.holders = holders{world: w, taken: make(map[slotOf]taken), fails: make(map[*region]time.Time)}
	w.replica = &replica{Counts: w.Counts}
	w.Feed.Faults.Hook(w.statements.hook(0, func() {}))
	w.Counts.Faults.Hook(w.statements.hook(0, func() {}))
	if err := w.operators.begin(); err != nil {
		return nil, err
	}
	for i, nodes := range p.Fleet.Nodes {
		r := &region{name: fmt.Sprint("r", i), index: i, leases: leases{held: make(map[int]heldLease)}}
		r.clock.Set(p.Fleet.Ahead[i])
		r.open(p.Fleet)
		for n := range nodes {
			r.nodes = append(r.nodes, &node{region: r, index: n})
			r.nodes[n].away.Store(n >= nodes-p.Fleet.Late[i])
		}
		w.regions = append(w.regions, r)
	}
	return w, nil
}

// open makes a region's origin.
func (r *region) open(f Fleet) {
	options := memstore.OriginOptions{Shards: f.Parts(), Grace: originGrace, Clock: r.clock.Now}
	if f.Buckets == 0 {
		r.origin = memstore.NewOrigin(options)
		r.client = func() store.FullOrigin { return r.origin.Client() }
		return
	}
	cluster := memstore.NewCluster(options)
	r.origin = cluster.Origin
	r.client = func() store.FullOrigin { return cluster.Client() }
}

// boot starts a new process on a node. Requests reach the process once it has read its settings, as with a load
// balancer that checks readiness.
func (w *world) boot(n *node) (err error) {
	l := &life{node: n, number: 1, steps: n.steps.Load()}
	if before := n.life.Load(); before != nil {
		l.number = before.number + 1
	}
	process := l.process()
	link := func(to string, trip time.Duration) *network.Link {
		return w.Link(network.Profile{Delay: trip}, func(op string) string { return process + " to " + to + " " + op })
	}
	way, toOrigin := n.region.client(), link("origin", w.plan.Fleet.OriginTrip)
	for part := range n.region.origin.Shards() { // the checks treat a refused call as a call without an answer
		faults := way.(interface{ ShardFaults(int) *memstore.Faults }).ShardFaults(part)
		faults.Hook(n.region.refusals.hook(part, toOrigin.Failed))
	}
	l.Process = w.NewProcess(watchedOrigin{way, w, l}, toOrigin, link("mysql", w.plan.Fleet.MySQLTrip))
	l.ToPeers = link("peers", w.plan.Fleet.PeerTrip)
	l.Limiter, err = dataplane.New(dataplane.Config{
		Region: n.region.name, NodeID: process, ReadTimeout: readTimeout,
		Origin:     l.Origin,
		EntriesMax: w.plan.Fleet.Room,
		Clock:      n.clock.Now,
	})
	if err != nil {
		return fmt.Errorf("start %s: %w", process, err)
	}
	if n.index < w.plan.Fleet.Relays[n.region.index] {
		config := relay.Config{
			Region: n.region.name, Holder: process, Counts: w.replica, Settings: versioned{w.Counts},
		}
		if w.plan.Fleet.PeerTrip > 0 {
			config.Publish = w.publish(l)
		}
		if err := w.AddRelay(l.Process, config); err != nil {
			return err
		}
	}
	if err := l.Start(); err != nil {
		return err
	}
	for l.Limiter.Health().SettingsAt.IsZero() {
		time.Sleep(10 * time.Millisecond)
	}
	n.life.Store(l)
	return nil
}

// kill ends a life as kill -9 does.
func (w *world) kill(l *life) {
	l.ended.Store(true)
	w.Kill(l.Process)
	w.holders.died(l)
}

// stop ends a life in order.
func (w *world) stop(l *life) {
	l.ended.Store(true)
	w.ledger.ends(l)
	l.Stop(stopWithin)
}
