package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/relay"
	"github.com/weirhq/weir/dataplane/sim/internal/network"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/tuning"
)

// fleet is regions of real relays, each over an origin of its own, and one MySQL. Its nodes are
// synthetic: see synth. Everything in it lives in one bubble.
type fleet struct {
	*world  // seed, faults and violations; it has no limiters
	plan    fleetPlan
	tuning  relay.Tuning
	until   time.Time // of traffic
	feed    *memstore.Feed
	regions []*fleetRegion
	synths  []*synth // of all regions
	track   *tracker
	origins network.OriginMeters
	mysql   network.MySQLMeters
	cpu     cpuMeter
	loops   sync.WaitGroup
	links   []*network.Link // of all processes
	keys    int             // opened
}

// fleetPlan is what a scenario of relays has beside its Shape.
type fleetPlan struct {
	relays  int  // a region has; the others wait for the lease. 0 is 1
	metered bool // the first region's relay runs on a thread of its own, whose processor time is measured
	deaf    bool // nodes do not listen to their origins' messages: they learn from answers alone
	peers   bool // relays hand their rows to each other too, over peerWay

	plan func(f *fleet, duration time.Duration) agenda
}

// fleetRegion is an origin, its relays and its nodes.
type fleetRegion struct {
	index  int
	name   string
	origin *memstore.Origin
	relays []*fleetRelay
	killed int // of relays, the first ones
	nodes  []*synth
}

// fleetRelay is a process that relays, if it has the lease.
type fleetRelay struct {
	*relay.Relay
	toOrigin, toMySQL *network.Link
}

// fleetName is how the i-th region is called.
func fleetName(i int) string {
	if i < len(regionNames) {
		return regionNames[i]
	}
	return fmt.Sprintf("region-%02d", i)
}

func newFleet(s Scenario, set tuning.Tuning, began time.Time, seed uint64) *fleet {
	w := &world{seed: seed, began: began, shape: s.Shape, counts: memstore.NewCounts(memstore.CountsOptions{}),
		violations: make(map[violation]*breach)}
	w.database.Random = w.stream("database", 0)
	f := &fleet{world: w, plan: *s.fleet, feed: memstore.NewFeed(memstore.FeedOptions{})}
	f.tuning = relay.Tuning{Interval: set.FeedInterval.Std(), Floor: set.Floor, Step: set.Step,
		MinGlobalDuration: set.MinGlobalDuration.Std(),
		StoreFloor:        relay.StoreFloor, StoreSteps: relay.StoreSteps}
	f.until = began // until traffic is planned
	f.track = newTracker(w, len(s.Shape.Nodes), set.Floor)
	for i, nodes := range s.Shape.Nodes {
		origin := memstore.NewOrigin(memstore.OriginOptions{Grace: 3 * auditAfter})
		r := &fleetRegion{index: i, name: fleetName(i), origin: origin}
		f.regions = append(f.regions, r)
		for range nodes {
			f.addNode(r)
		}
	}
	return f
}

// newLink makes a process's way to a server. Each draws from streams of its own.
func (f *fleet) newLink(p Profile, process string, index int) *network.Link {
	l := &network.Link{Profile: p, Stream: func(op string) *rand.Rand { return f.stream(process+" "+op, index) }}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.links = append(f.links, l)
	return l
}

// way is a region's origin over a link.
func (f *fleet) way(r *fleetRegion, l *network.Link) *network.Origin {
	return &network.Origin{RelayOrigin: &watchedOrigin{r.origin.Client(), f.track, r.index}, Link: l, Meters: &f.origins}
}

// addRelay makes a relay of a region; it does nothing yet.
func (f *fleet) addRelay(r *fleetRegion) (*fleetRelay, error) {
	process := fmt.Sprintf("relay %d of %s", len(r.relays), r.name)
	far := f.shape.Counts
	if f.metered(r) {
		far = f.shape.Origin
	}
	made := &fleetRelay{toOrigin: f.newLink(f.shape.Origin, process+" to origin", r.index),
		toMySQL: f.newLink(far, process+" to mysql", r.index)}
	way := &network.Statements{Link: made.toMySQL, Database: &f.database, Meters: &f.mysql}
	var err error
	made.Relay, err = relay.New(relay.Config{
		Region: r.name, Holder: process, Origin: f.way(r, made.toOrigin), Feed: network.Feed{Feed: f.feed, Statements: way},
		Counts: network.Counts{CountStore: f.counts, Statements: way},
		Tuning: func() relay.Tuning { return f.tuning }, Publish: f.peersOf(r),
	})
	r.relays = append(r.relays, made)
	return made, err
}

// peerWay is a stream between two relays: it keeps order, so that it does not jitter.
const peerWay = 80 * time.Millisecond

// peersOf hands a row that a region's relay is about to append to the relays of all other regions, a way later. One
// that has no lease refuses it.
func (f *fleet) peersOf(from *fleetRegion) func(store.FeedRow) {
	if !f.plan.peers {
		return nil
	}
	return func(row store.FeedRow) {
		f.requests.Go(func() {
			time.Sleep(peerWay)
			for _, r := range f.regions {
				for _, to := range r.relays {
					if r != from && to.Leads() {
						_ = to.Apply(row) // Feed has it too
					}
				}
			}
		})
	}
}

// bootAll starts relays, at moments spread over a second, and nodes, and returns when traffic is due.
func (f *fleet) bootAll(ctx context.Context) error {
	random := f.stream("starts", 0)
	for _, r := range f.regions {
		for range max(1, f.plan.relays) {
			made, err := f.addRelay(r)
			if err != nil {
				return fmt.Errorf("a relay of %s: %w", r.name, err)
			}
			wait := soon(random, time.Second)
			f.loops.Go(func() {
				time.Sleep(wait)
				f.run(ctx, r, made)
			})
		}
		for _, n := range r.nodes {
			f.loops.Go(func() { n.run(ctx) })
			if !f.plan.deaf {
				f.loops.Go(func() { n.listen(ctx) })
			}
		}
	}
	time.Sleep(time.Until(f.began))
	return nil
}

// metered tells whether a region's relay is the one whose processor time is measured.
func (f *fleet) metered(r *fleetRegion) bool { return f.plan.metered && r.index == 0 }

// run has a relay work until ctx ends.
func (f *fleet) run(ctx context.Context, r *fleetRegion, made *fleetRelay) {
	if f.metered(r) {
		f.cpu.run(ctx, made.Relay)
		return
	}
	if err := made.Start(ctx); err != nil {
		f.violate(violationError, "a relay of %s: %v", r.name, err)
	}
}

// kill ends a relay as kill -9 does.
func (f *fleet) kill(made *fleetRelay) {
	for _, l := range []*network.Link{made.toOrigin, made.toMySQL} {
		l.Set(func(l *network.Link) { l.Dead = true })
	}
	f.retired.Go(func() { f.stop(made) })
}

func (f *fleet) stop(made *fleetRelay) {
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	_ = made.Stop(ctx) // a lease that is not released ends by itself
}

// toMySQL changes the way to MySQL of all of a region's relays.
func (r *fleetRegion) toMySQL(change func(*network.Link)) {
	for _, made := range r.relays {
		made.toMySQL.Set(change)
	}
}
