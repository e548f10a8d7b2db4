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

// epoch is the start of a one-minute cell, and of a one-second and one-hour one.
var epoch = time.UnixMilli(1_735_000_080_000 / 3_600_000 * 3_600_000).UTC()

// clock is a time that tests move by hand.
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

// hooked is Now for a node whose next reading comes before something that onRead has set.
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

// onRead has f run right after the next reading by hooked, before the reader gets it.
func (c *clock) onRead(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.next = f
}

// elapsed is the real time that has passed.
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
	c.passed += max(0, d) // nothing brings it back
}

// step sets the wall clock, while no time passes.
func (c *clock) step(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// set lets time pass until a moment after the epoch, or steps back to it.
func (c *clock) set(at time.Duration) { c.advance(epoch.Add(at).Sub(c.Now())) }

// world is regions over in-memory stores, on one clock that tests move by hand.
type world struct {
	t       testing.TB
	clock   *clock
	counts  *memstore.Counts
	feed    *memstore.Feed
	origins map[string]*memstore.Origin
	relays  map[string]*relay.Relay
	nodes   []*node
	names   []string // of regions, in the order in which they came
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

func (w *world) origin(region string) *memstore.Origin {
	if w.origins[region] == nil {
		w.origins[region] = memstore.NewOrigin(memstore.OriginOptions{Clock: w.clock.Now})
		w.names = append(w.names, region)
	}
	return w.origins[region]
}

// interval is a relay's.
const interval = 200 * time.Millisecond

// relay has the relay of each region do what it does in an interval.
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

// publish lets the relays tell all that they have to tell, in no time.
func (w *world) publish() {
	w.t.Helper()
	for range 4 {
		w.relay()
	}
	for _, n := range w.nodes {
		n.listen()
	}
}

// listen is what a node's listener does.
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

// converge lets the relays tell all that they have to tell.
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

// node is one limiter, not started: the test turns its loops.
type node struct {
	*dataplane.Limiter
	w      *world
	origin *memstore.Origin // nil for none
}

func (w *world) node(region, id string, change ...func(*dataplane.Config)) *node {
	w.t.Helper()
	cfg := dataplane.Config{Region: region, NodeID: id, Origin: w.origin(region), Settings: w.counts, Clock: w.clock.Now,
		ReadTimeout: 5 * time.Second,
		Breaker:     dataplane.Breaker{CallsMin: 1_000_000}} // it goes by another clock: see breaker_test.go
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

// alone is a node without anybody above it.
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

// take asks for cost of limit per minute on the identifier.
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

// cell is the cell of ask's key at the clock's time.
func (w *world) cell(identifier string) window.Cell {
	return window.Cell{
		Key:      window.Key{Workspace: "acme", Namespace: "api", Identifier: identifier, Duration: time.Minute},
		Sequence: window.Sequence(w.clock.Now().UnixMilli(), 60_000),
	}
}

// published is what a region's nodes have accepted in a cell that the relay tells others of.
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
