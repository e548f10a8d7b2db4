package sim

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/weirhq/weir/dataplane/relay"
	"github.com/weirhq/weir/dataplane/sim/internal/fleet"
	"github.com/weirhq/weir/dataplane/sim/internal/network"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/tuning"
	"github.com/weirhq/weir/shared/window"
)

// relayWorld is regions of real relays, each over an origin of its own, with one MySQL. Its nodes are synthetic: see
// synth.
type relayWorld struct {
	*world // has no limiters
	plan   fleetPlan
	tuning relay.Tuning
	until  time.Time // end of the traffic
	synths []*synth  // of all regions
	track  *tracker
	loops  sync.WaitGroup
	keys   int // number of opened keys
}

// fleetPlan is the part of a scenario of relays that is not in its Shape.
type fleetPlan struct {
	relays  int  // relays of each region, of which one leads; 0 means 1
	metered bool // the first region's relay runs on a separate thread, whose processor time is measured
	deaf    bool // nodes do not listen for their origins' messages: only answers have foreign totals
	peers   bool // relays also send each other their rows, with a delay of peerWay

	plan func(f *relayWorld, duration time.Duration) agenda
}

func newRelayWorld(s Scenario, set tuning.Tuning, began time.Time, seed uint64) *relayWorld {
	w := newWorld(s.Shape, began, 3*auditAfter, seed)
	f := &relayWorld{world: w, plan: *s.fleet}
	f.tuning = relay.Tuning{Interval: set.FeedInterval.Std(), Floor: set.Floor, Step: set.Step,
		MinGlobalDuration: set.MinGlobalDuration.Std(),
		StoreFloor:        relay.StoreFloor, StoreSteps: relay.StoreSteps}
	f.until = began // no traffic until it is planned
	f.track = newTracker(w, len(s.Shape.Nodes), set.Floor)
	for _, r := range f.regions {
		for range s.Shape.Nodes[r.index] {
			f.addNode(r)
		}
	}
	return f
}

// link makes a process's link to a server.
func (f *relayWorld) link(p Profile, process string, index int) *network.Link {
	return f.Link(p, func(op string) string { return purpose(process+" "+op, index) })
}

// addRelay makes a relay of a region without starting it.
func (f *relayWorld) addRelay(r *region) (*fleet.Process, error) {
	process := fmt.Sprintf("relay %d of %s", len(r.relays), r.name)
	far := f.shape.Counts
	if f.metered(r) {
		far = f.shape.Origin
	}
	p := f.NewProcess(f.watched(r), f.link(f.shape.Origin, process+" to origin", r.index),
		f.link(far, process+" to mysql", r.index))
	r.relays = append(r.relays, p)
	return p, f.AddRelay(p, relay.Config{
		Region: r.name, Holder: process, Counts: f.Counts,
		Tuning: func() relay.Tuning { return f.tuning }, Publish: f.peersOf(r),
	})
}

// watched returns a region's origin, whose answers the tracker records.
func (f *relayWorld) watched(r *region) store.FullOrigin {
	return &watchedOrigin{r.origin.Client(), f.track, r.index}
}

// peerWay is the delay of a stream between two relays. It has no jitter, because a stream keeps its order.
const peerWay = 80 * time.Millisecond

// peersOf returns a function that sends a row for peers to the relays of all other regions, which arrives after
// peerWay. A relay without a lease returns an error.
func (f *relayWorld) peersOf(from *region) func(store.FeedRow) {
	if !f.plan.peers {
		return nil
	}
	return func(row store.FeedRow) {
		f.requests.Go(func() {
			time.Sleep(peerWay)
			for _, r := range f.regions {
				for _, to := range r.relays {
					if r != from && to.Relay.Leads() {
						_ = to.Relay.Apply(row) // the feed has the counts too
					}
				}
			}
		})
	}
}

// bootAll starts relays, at moments spread over a second, and nodes. It returns when the traffic should begin.
func (f *relayWorld) bootAll(ctx context.Context) error {
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
		for _, n := range r.synths {
			f.loops.Go(func() { n.Run(ctx, n.generate) })
			if !f.plan.deaf {
				f.loops.Go(func() { n.Listen(ctx) })
			}
		}
	}
	time.Sleep(time.Until(f.began))
	return nil
}

// metered reports whether the processor time of a region's relay is measured.
func (f *relayWorld) metered(r *region) bool { return f.plan.metered && r.index == 0 }

// run runs a relay until ctx ends.
func (f *relayWorld) run(ctx context.Context, r *region, made *fleet.Process) {
	if f.metered(r) {
		f.meters.cpu.Run(ctx, made.Relay)
		return
	}
	if err := made.Start(); err != nil {
		f.violate(violationError, "a relay of %s: %v", r.name, err)
	}
}

// fleetRest is how long after the last request counts still need to reach other regions.
const fleetRest = 5 * time.Second

// live runs the world: start, traffic, rest, stop, and audit.
func (f *relayWorld) live(s Scenario, duration time.Duration, report *Report) error {
	time.Sleep(time.Until(f.began.Add(-2 * time.Second))) // idle loops would take real time, too
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	g := s.fleet.plan(f, duration)
	f.until = f.began.Add(duration)
	if err := f.bootAll(ctx); err != nil {
		return err
	}
	audit := func() { f.audit(time.Now().Add(-fleetRest)) }
	f.traffic(g, s, duration, func() {}, audit, report)
	time.Sleep(fleetRest)
	f.requests.Wait()
	stop()
	f.loops.Wait()
	var stops []func()
	for _, r := range f.regions {
		for _, made := range r.relays {
			stops = append(stops, func() { made.Stop(stopTimeout) })
		}
	}
	f.End(stops...)
	f.audit(time.Now().Add(24 * time.Hour))
	f.sum(report, f.keys, f.track.groups, &f.track.convergence)
	return nil
}

// audit compares the tracker with the origins for every cell that has expired before the given time.
func (f *relayWorld) audit(before time.Time) {
	f.track.closeBefore(before.UnixMilli(), func(region int, cells []window.Cell) []store.Total {
		reply, err := f.regions[region].origin.Read(context.Background(), cells) // without a network in between
		if err != nil {
			f.violate(violationError, "the audit could not read an origin: %v", err)
			return nil
		}
		return reply.Totals
	})
}
