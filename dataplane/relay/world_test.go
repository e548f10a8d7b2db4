package relay_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/relay"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

const interval = 200 * time.Millisecond

// world is a fleet in a single process. Its time moves only when a test moves it.
type world struct {
	testing.TB
	now       time.Time
	clockFrom func() time.Time // replaces now, if not nil
	feed      *memstore.Feed
	counts    *memstore.Counts
	regions   []*region
	tuning    relay.Tuning
	seen      map[string]map[window.Cell]int64 // by region: foreign totals, for R1
}

// region has an origin, a relay, and nodes that a test plays.
type region struct {
	*world
	name        string
	origin      *memstore.Origin // the nodes' connection
	relayOrigin *memstore.Origin // the relay's connection
	relay       *relay.Relay
	accepted    map[window.Cell]int64
	chunks      int64
	away        bool // its relay does nothing
}

func newWorld(t testing.TB, names ...string) *world {
	w := &world{TB: t, tuning: relay.DefaultTuning(), now: time.UnixMilli(1_700_000_040_000), seen: map[string]map[window.Cell]int64{}}
	w.counts = memstore.NewCounts(memstore.CountsOptions{Clock: w.clock})
	w.feed = memstore.NewFeed(memstore.FeedOptions{Clock: w.clock, Settings: w.counts.SettingsVersion})
	for _, name := range names {
		w.addRegion(name, w.clock, 1)
	}
	return w
}

// newPair returns a world of two regions.
func newPair(t testing.TB) (w *world, eu, us *region) {
	w = newWorld(t, "eu", "us")
	return w, w.regions[0], w.regions[1]
}

// failing returns a hook that makes an operation fail.
func failing(fails memstore.Op) func(memstore.Op) error {
	return func(op memstore.Op) error {
		if op == fails {
			return errDown
		}
		return nil
	}
}

func (w *world) clock() time.Time {
	if w.clockFrom != nil {
		return w.clockFrom()
	}
	return w.now
}

func (w *world) addRegion(name string, clock func() time.Time, shards int) *region {
	origin := memstore.NewOrigin(memstore.OriginOptions{Clock: clock, Shards: shards})
	r := &region{world: w, name: name, origin: origin, relayOrigin: origin.Client(), accepted: map[window.Cell]int64{}}
	r.relay = r.newRelay("first")
	w.regions = append(w.regions, r)
	return r
}

func (r *region) newRelay(holder string) *relay.Relay {
	return r.relayOver(holder, r.relayOrigin, r.feed, r.counts)
}

func (r *region) relayOver(holder string, origin store.FullOrigin, feed store.Feed, counts store.CountStore) *relay.Relay {
	made, err := relay.New(relay.Config{Region: r.name, Holder: holder, Origin: origin, Feed: feed, Counts: counts, Clock: r.clock,
		Tuning: func() relay.Tuning { return r.tuning }})
	if err != nil {
		r.Fatal(err)
	}
	return made
}

func (r *region) stopRelay() {
	r.Helper()
	if err := r.relay.Stop(context.Background()); err != nil {
		r.Fatal(err)
	}
}

// cell returns the cell that the region's origin counts in now.
func (r *region) cell(identifier string, duration time.Duration) window.Cell {
	reply, err := r.origin.Send(context.Background(), store.Chunk{Stream: 1, Number: 1})
	if err != nil {
		r.Fatal(err)
	}
	key := window.Key{Workspace: "acme", Namespace: "api", Identifier: identifier, Duration: duration}
	return window.Cell{Key: key, Sequence: window.Sequence(reply.Now.UnixMilli(), key.DurationMs())}
}

// accept makes a node accept a cost and send it.
func (r *region) accept(c window.Cell, cost, limit int64) {
	r.Helper()
	r.chunks++
	reply, err := r.origin.Send(context.Background(), store.Chunk{Shard: r.origin.ShardOf(&c.Key), Stream: 2, Number: r.chunks,
		Costs: []store.Cost{{Cell: c, Add: cost, Limit: limit}}})
	if err != nil || reply.Totals[0].Err != nil {
		r.Fatalf("%s: %v, %+v", r.name, err, reply)
	}
	r.accepted[c] += cost
}

// ask makes a node decide by its origin's answer, as it does on first contact with a key.
func (r *region) ask(c window.Cell, limit int64) bool {
	r.Helper()
	total := r.total(c)
	if total.Region+total.Foreign+1 > limit {
		return false
	}
	r.accept(c, 1, limit)
	return true
}

func (r *region) total(c window.Cell) store.Total {
	r.Helper()
	reply, err := r.origin.Read(context.Background(), []window.Cell{c})
	if err != nil {
		r.Fatal(err)
	}
	return reply.Totals[0]
}

// step runs a step of all relays, region by region. It ignores their errors, which faults in the stores cause.
func (w *world) step() {
	w.Helper()
	for _, r := range w.regions {
		if !r.away {
			_ = r.relay.Step(context.Background())
		}
	}
	w.checkR1()
}

// run lets time pass.
func (w *world) run(d time.Duration) {
	w.Helper()
	for end := w.now.Add(d); w.now.Before(end); {
		w.now = w.now.Add(interval)
		w.step()
	}
}

// checkR1 checks that an origin's foreign total of a cell never exceeds the cost that other regions accepted, and never
// falls.
func (w *world) checkR1() {
	w.Helper()
	for _, r := range w.regions {
		for c, total := range r.origin.Totals() {
			if others := w.fleet(c) - r.accepted[c]; total.Foreign > others {
				w.Fatalf("R1: %s has %d of %v from others, who accepted %d", r.name, total.Foreign, c, others)
			}
			if before := w.seen[r.name][c]; total.Foreign < before {
				w.Fatalf("R1: in %s the foreign total of %v fell from %d to %d", r.name, c, before, total.Foreign)
			}
			if w.seen[r.name] == nil {
				w.seen[r.name] = map[window.Cell]int64{}
			}
			w.seen[r.name][c] = total.Foreign
		}
	}
}

// fleet returns the cost that all regions accepted.
func (w *world) fleet(c window.Cell) (sum int64) {
	for _, r := range w.regions {
		sum += r.accepted[c]
	}
	return sum
}

// unknown returns the regions in which an answer about a cell lacks some of the fleet's total.
func (w *world) unknown(c window.Cell) (where []string) {
	w.Helper()
	for _, r := range w.regions {
		if total := r.total(c); total.Region+total.Foreign != w.fleet(c) {
			where = append(where, fmt.Sprintf("%s: %d and %d of %d", r.name, total.Region, total.Foreign, w.fleet(c)))
		}
	}
	return where
}

// intervalsUntilKnown runs until every origin's answer has the fleet's total, and returns the number of intervals.
func (w *world) intervalsUntilKnown(c window.Cell) int {
	w.Helper()
	for n := range 100 {
		if len(w.unknown(c)) == 0 {
			return n
		}
		w.run(interval)
	}
	w.Fatalf("after 100 intervals unknown in %v", w.unknown(c))
	return 0
}

// wantKnown checks R2.
func (w *world) wantKnown(cells ...window.Cell) {
	w.Helper()
	for _, c := range cells {
		if where := w.unknown(c); len(where) > 0 {
			w.Errorf("R2: the total of %v is unknown in %v", c, where)
		}
	}
}
