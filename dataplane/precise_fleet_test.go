package dataplane_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/relay"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/tuning"
)

// fleet has nodes of one or two regions in a namespace with a precise window, and a log of all cost that they
// accepted.
type fleet struct {
	*world
	nodes []*node
	log   acceptedLog
	made  int
}

// soonStale is how long an answer of the origin stays fresh in a fleet: each sync reads again.
const soonStale = 100 * time.Millisecond

// newFleet returns a fleet with a node in each of the named regions.
func newFleet(t *testing.T, regions ...string) *fleet {
	f := &fleet{world: newWorld(t)}
	f.setWindow(store.WindowPrecise)
	f.tune(func(set *tuning.Tuning) { set.FreshFor, set.Floor = tuning.Duration(soonStale), 0 })
	for _, region := range regions {
		f.nodes = append(f.nodes, f.start(region))
	}
	for _, name := range f.names { // relays that hold nothing back, so that a sync publishes everything
		made, err := relay.New(relay.Config{Region: name, Holder: name, Origin: f.origins[name].Client(), Feed: f.feed,
			Counts: f.counts, Clock: f.clock.Now, Tuning: func() relay.Tuning {
				return relay.Tuning{Interval: interval, MinGlobalDuration: time.Minute}
			}})
		if err != nil {
			t.Fatal(err)
		}
		f.relays[name] = made
	}
	return f
}

// setWindow sets the window. No loop runs here, so a decision must not wait for a flush.
func (f *fleet) setWindow(w store.Window) {
	f.counts.SetNamespaces(store.NamespaceRow{Workspace: "acme", Namespace: "api", NodeShare: "flush", Window: w})
}

// start returns a node of a region whose table has room for a few keys.
func (f *fleet) start(region string) *node {
	f.made++
	return f.node(region, fmt.Sprint("n", f.made), func(c *dataplane.Config) { c.EntriesMax = 8 })
}

// restart replaces a node with a new node, after its cost was sent.
func (f *fleet) restart(i int) { f.nodes[i] = f.start(f.region(f.nodes[i])) }

func (f *fleet) region(n *node) string {
	for name, origin := range f.origins {
		if origin == n.origin {
			return name
		}
	}
	return ""
}

// sync makes each node send its cost and read the key, and each relay publish, until all nodes have all cost.
func (f *fleet) sync(identifier string) {
	f.t.Helper()
	for range 2 {
		f.clock.advance(soonStale)
		for _, n := range f.nodes {
			n.replay()
		}
		if len(f.names) > 1 {
			f.publish()
		}
		for _, n := range f.nodes {
			n.take(identifier, 0, 1<<40)
		}
	}
}

// accept logs accepted cost, and checks the real window that ends now against the limit.
func (f *fleet) accept(r *rapid.T, cost, limit int64) {
	at := f.clock.Now()
	f.log = append(f.log, acceptance{at, cost})
	if got := f.log.within(at, time.Minute); got > limit {
		r.Fatalf("%d of %d were accepted within the minute that ends %v after the first cell's start", got, limit, at.Sub(epoch))
	}
}

// If each node has all cost before each decision, no real window of a fleet holds more than the limit that its last
// cost was judged against. This holds with several limits and costs, refunds of cost that was sent, emptied origins,
// restarted nodes, evicted entries and keys that a node has not used before.
//
//weir:unraced
func TestAPreciseWindowOfAFleetNeverHoldsMoreThanTheLimit(t *testing.T) {
	for _, c := range []struct {
		name    string
		regions []string
	}{
		{"two nodes", []string{"r1", "r1"}},
		{"three nodes", []string{"r1", "r1", "r1"}},
		{"two regions", []string{"r1", "r1", "r2"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			rapid.Check(t, func(r *rapid.T) { drawFleet(t, r, newFleet(t, c.regions...)) })
		})
	}
}

func drawFleet(t *testing.T, r *rapid.T, f *fleet) {
	limit := rapid.OneOf(rapid.Int64Range(1, 40), rapid.Int64Range(1, 2000)).Draw(r, "limit")
	ops := []string{"allow", "allow", "burst", "burst", "batch", "edge", "refund", "restart", "wipe", "flood"}
	for range 40 {
		f.clock.advance(time.Duration(rapid.OneOf(rapid.Int64Range(0, 50), rapid.Int64Range(0, 20_000)).Draw(r, "ms")) *
			time.Millisecond)
		i := rapid.IntRange(0, len(f.nodes)-1).Draw(r, "node")
		ask := ask("k", rapid.Int64Range(1, max(1, limit/3)).Draw(r, "cost"), limit)
		if rapid.IntRange(0, 5).Draw(r, "other limit") == 0 {
			ask.Limit = rapid.Int64Range(1, 2*limit).Draw(r, "limit here")
		}
		op := rapid.SampledFrom(ops).Draw(r, "op")
		if op == "edge" {
			f.clock.advance(time.Minute - time.Duration(f.clock.Now().UnixMilli()%60_000+1000)*time.Millisecond)
		}
		f.sync("k")
		n := f.nodes[i]
		switch op {
		case "allow":
			if n.Allow(t.Context(), ask).Allowed {
				f.accept(r, ask.Cost, ask.Limit)
			}
		case "burst", "edge":
			for n.Allow(t.Context(), ask).Allowed {
				f.accept(r, ask.Cost, ask.Limit)
			}
		case "batch":
			if n.AllowMany(t.Context(), []dataplane.Request{ask, ask}).Allowed {
				f.accept(r, 2*ask.Cost, ask.Limit)
			}
		case "refund":
			cell := f.clock.Now().Truncate(time.Minute)
			got, err := n.Refund(ask)
			if err != nil {
				t.Fatal(err)
			}
			f.log.giveBack(cell, time.Minute, got)
		case "restart":
			f.restart(i)
		case "wipe":
			n.origin.Wipe()
			f.clock.advance(2 * time.Second) // each second, nodes check whether their origin has lost its data
			f.sync("k")
		case "flood":
			for j := range 20 {
				n.take(fmt.Sprint("other-", i, "-", j), 1, 10)
			}
		}
		f.log = slices.DeleteFunc(f.log, func(a acceptance) bool { return !a.at.After(f.clock.Now().Add(-2 * time.Minute)) })
	}
}

// A node that first uses a key in the cell after the key was used counts the previous cell by the origin's history.
// It then admits nearly as much as a log admits, instead of waiting until the whole cell has left the window.
func TestANewNodeCountsThePreviousCellByTheOriginsHistory(t *testing.T) {
	f := newFleet(t, "r1", "r1")
	f.wantsNearlyALog(t, func(int) {})
}

// The origin of a region that has used a key once keeps a history of the cost that all regions accept.
func TestARegionCountsThePreviousCellByItsOwnHistoryOfForeignCost(t *testing.T) {
	f := newFleet(t, "r1", "r2")
	f.wantsNearlyALog(t, func(second int) {
		if second == 0 && !f.nodes[1].take("k", 1, 100).Allowed {
			t.Fatal("the first request is denied")
		}
		f.nodes[1].replay()
		f.publish()
	})
}

// wantsNearlyALog has the first node spend 90 of 100, evenly over a cell. In the next cell the second node gets
// requests for more than the remaining limit, and should admit nearly as much as a log admits.
func (f *fleet) wantsNearlyALog(t *testing.T, each func(second int)) {
	t.Helper()
	const limit = 100
	var log acceptedLog
	for s := range 60 {
		f.clock.set(time.Duration(s) * time.Second)
		if s%2 == 0 {
			if !f.nodes[0].take("k", 3, limit).Allowed {
				t.Fatal("a caller below the limit is denied")
			}
			log = append(log, acceptance{f.clock.Now(), 3})
		}
		f.nodes[0].replay()
		each(s)
	}
	admitted, admits := 0, 0
	for s := 61; s < 120; s++ {
		f.clock.set(time.Duration(s) * time.Second)
		for range 4 {
			if now := f.clock.Now(); log.within(now, time.Minute) < limit {
				log = append(log, acceptance{now, 1})
				admits++
			}
			if f.nodes[1].take("k", 1, limit).Allowed {
				admitted++
			}
		}
	}
	if share := float64(admitted) / float64(admits); share > 1 || share < 0.9 {
		t.Errorf("%d admitted, and a log admits %d", admitted, admits)
	}
}

// Changing the window of a namespace keeps its counts, sent or not: a node counts them in full until it has a
// history.
func TestChangingTheWindowKeepsCounts(t *testing.T) {
	f := newFleet(t, "r1", "r1")
	n, other := f.nodes[0], f.nodes[1]
	set := func(w store.Window) {
		f.setWindow(w)
		for _, n := range f.nodes {
			if err := n.LoadSettings(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	set(store.WindowCells)
	f.clock.set(30 * time.Second)
	wantAllowed(t, "by cells, sent", n.take("k", 30, 100), true, 70)
	n.replay()
	wantAllowed(t, "by cells, not sent", n.take("k", 30, 100), true, 40)
	set(store.WindowPrecise)
	wantAllowed(t, "by a precise window", n.take("k", 10, 100), true, 30)
	set(store.WindowCells)
	wantAllowed(t, "by cells again", n.take("k", 10, 100), true, 20)
	set(store.WindowPrecise)
	f.sync("k")
	wantAllowed(t, "on another node", other.take("k", 5, 100), true, 15)

	// In the next cell the first 60 have no marks of their own time. They count in full until their history shows their
	// times.
	f.clock.set(61 * time.Second)
	wantAllowed(t, "a second into the next cell", other.take("k", 15, 100), true, 0)
	wantAllowed(t, "above the limit", other.take("k", 1, 100), false, 0)
}
