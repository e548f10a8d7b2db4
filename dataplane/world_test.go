package dataplane_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/relay"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/tuning"
	"github.com/weirhq/weir/shared/window"
)

// epoch is the start of a one-minute cell, and of a one-second and a one-hour cell.
var epoch = time.UnixMilli(1_735_000_080_000 / 3_600_000 * 3_600_000).UTC()

// clock is a clock that tests move by hand.
type clock struct {
	mu     sync.Mutex
	now    time.Time
	passed time.Duration // of real time: no step changes it
	next   func()        // see onRead
}

func newClock() *clock { return &clock{now: epoch} }

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// hooked returns Now for a node. After the reading, it calls the function that onRead has set, and then returns the
// reading.
func (c *clock) hooked() time.Time {
	c.mu.Lock()
	now, next := c.now, c.next
	c.next = nil
	c.mu.Unlock()
	if next != nil {
		next()
	}
	return now
}

// onRead makes f run right after the next reading by hooked, before the reader gets it.
func (c *clock) onRead(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.next = f
}

// elapsed returns the real time that has passed.
func (c *clock) elapsed() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.passed
}

// advance lets time pass.
func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
	c.passed += max(0, d) // no step reduces it
}

// step sets the wall clock, while no time passes.
func (c *clock) step(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// set lets time pass until a moment after the epoch, or steps back to it.
func (c *clock) set(at time.Duration) { c.advance(epoch.Add(at).Sub(c.Now())) }

// world has regions over in-memory stores, with a single clock that tests move by hand.
type world struct {
	t       testing.TB
	clock   *clock
	counts  *memstore.Counts
	feed    *memstore.Feed
	origins map[string]*memstore.Origin
	relays  map[string]*relay.Relay
	nodes   []*node
	names   []string // of regions, in the order of their creation
}

func newWorld(t testing.TB) *world {
	c := newClock()
	return &world{t: t, clock: c, origins: make(map[string]*memstore.Origin), relays: make(map[string]*relay.Relay),
		counts: memstore.NewCounts(memstore.CountsOptions{Clock: c.Now}), feed: memstore.NewFeed(memstore.FeedOptions{Clock: c.Now})}
}

func (w *world) tune(change func(*tuning.Tuning)) {
	w.t.Helper()
	set := tuning.Default()
	change(&set)
	doc, err := set.Document()
	if err != nil {
		w.t.Fatal(err)
	}
	w.counts.SetTuning("", time.Now().UnixNano(), doc)
}

// flushes sets the namespace of all tests to "flush": its nodes do not wait for their share of a limit.
func (w *world) flushes() {
	w.counts.SetNamespaces(store.NamespaceRow{Workspace: "acme", Namespace: "api", NodeShare: "flush"})
}

func (w *world) origin(region string) *memstore.Origin {
	if w.origins[region] == nil {
		w.origins[region] = memstore.NewOrigin(memstore.OriginOptions{Clock: w.clock.Now})
		w.names = append(w.names, region)
	}
	return w.origins[region]
}

// interval is a relay's interval.
const interval = 200 * time.Millisecond

// relay runs an interval of each region's relay.
func (w *world) relay() {
	w.t.Helper()
	for _, name := range w.names {
		if w.relays[name] == nil {
			made, err := relay.New(relay.Config{Region: name, Holder: name, Origin: w.origins[name].Client(), Feed: w.feed, Counts: w.counts, Clock: w.clock.Now,
				Tuning: func() relay.Tuning {
					return relay.Tuning{Interval: interval, Floor: 0.2, Step: 0.05, MinGlobalDuration: time.Minute}
				}})
			if err != nil {
				w.t.Fatal(err)
			}
			w.relays[name] = made
		}
		if err := w.relays[name].Step(context.Background()); err != nil {
			w.t.Fatal(err)
		}
	}
}

// publish makes the relays publish everything, while no time passes.
func (w *world) publish() {
	w.t.Helper()
	for range 4 {
		w.relay()
	}
	for _, n := range w.nodes {
		n.listen()
	}
}

// listen applies messages as a node's listener does.
func (n *node) listen() {
	if n.origin == nil {
		return
	}
	var foreign []store.Foreign
	for c, t := range n.origin.Totals() {
		if t.Foreign > 0 {
			foreign = append(foreign, store.Foreign{Cell: c, Count: t.Foreign})
		}
	}
	n.ApplyForeign(foreign)
}

// converge makes the relays publish everything.
func (w *world) converge() {
	w.t.Helper()
	for range 5 {
		w.clock.advance(interval)
		w.relay()
	}
	for _, n := range w.nodes {
		n.listen()
	}
}

// node is a limiter that is not started: the test runs its loops.
type node struct {
	*dataplane.Limiter
	w      *world
	origin *memstore.Origin // nil for none
}

func (w *world) node(region, id string, change ...func(*dataplane.Config)) *node {
	w.t.Helper()
	cfg := dataplane.Config{Region: region, NodeID: id, Origin: w.origin(region), Settings: w.counts, Clock: w.clock.Now,
		ReadTimeout: 5 * time.Second,
		Breaker:     dataplane.Breaker{CallsMin: 1_000_000}} // the breaker uses another clock: see breaker_test.go
	for _, f := range change {
		f(&cfg)
	}
	l, err := dataplane.New(cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	l.SetSteady(w.clock.elapsed)
	if cfg.Settings != nil {
		if err := l.LoadSettings(context.Background()); err != nil {
			w.t.Fatal(err)
		}
	}
	w.t.Cleanup(func() { l.AwaitCalls() })
	n := &node{l, w, nil}
	if cfg.Origin != nil && region != "" {
		n.origin = w.origins[region]
	}
	w.nodes = append(w.nodes, n)
	return n
}

// alone returns a node without an origin or settings.
func (w *world) alone(change ...func(*dataplane.Config)) *node {
	return w.node("", "", append([]func(*dataplane.Config){func(c *dataplane.Config) { c.Origin, c.Settings = nil, nil }}, change...)...)
}

func (n *node) replay() {
	n.w.t.Helper()
	if err := n.ReplayOnce(context.Background()); err != nil {
		n.w.t.Fatal(err)
	}
	n.AwaitCalls()
}

// take sends a request with a cost and a limit per minute for the identifier.
func (n *node) take(identifier string, cost, limit int64) dataplane.Decision {
	n.w.t.Helper()
	d := n.Allow(context.Background(), ask(identifier, cost, limit))
	if d.Err != nil {
		n.w.t.Fatal(d.Err)
	}
	return d
}

func ask(identifier string, cost, limit int64) dataplane.Request {
	return dataplane.Request{Workspace: "acme", Namespace: "api", Identifier: identifier, Limit: limit, Duration: time.Minute, Cost: cost, ZeroCost: cost == 0}
}

// cell returns the cell of ask's key at the clock's time.
func (w *world) cell(identifier string) window.Cell {
	return window.Cell{
		Key:      window.Key{Workspace: "acme", Namespace: "api", Identifier: identifier, Duration: time.Minute},
		Sequence: window.Sequence(w.clock.Now().UnixMilli(), 60_000),
	}
}

// published returns the cost that a region's nodes have accepted in a cell, as far as its relay publishes the cell.
func (w *world) published(region string, c window.Cell) (total int64) {
	w.t.Helper()
	cells, _, err := w.origin(region).Client().Scan(context.Background(), 0, 0, 1_000_000)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, change := range cells {
		if change.Cell == c {
			total = change.Total
		}
	}
	return total
}

func wantAllowed(t testing.TB, what string, d dataplane.Decision, allowed bool, remaining int64) {
	t.Helper()
	if d.Allowed != allowed || d.Remaining != remaining {
		t.Errorf("%s: allowed %v, remaining %d; want %v, %d (current %v, source %v)", what, d.Allowed, d.Remaining, allowed, remaining, d.Current, d.Source)
	}
}
