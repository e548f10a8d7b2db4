package dataplane_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/memstore"
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
}

func newClock() *clock { return &clock{now: epoch} }

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
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
	origins map[string]*memstore.Origin
}

func newWorld(t testing.TB) *world {
	c := newClock()
	return &world{t: t, clock: c, origins: make(map[string]*memstore.Origin),
		counts: memstore.NewCounts(memstore.CountsOptions{Clock: c.Now})}
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
	}
	return w.origins[region]
}

// node is one limiter, not started: the test turns its loops.
type node struct {
	*dataplane.Limiter
	w *world
}

func (w *world) node(region, id string, change ...func(*dataplane.Config)) *node {
	w.t.Helper()
	cfg := dataplane.Config{Region: region, NodeID: id, Origin: w.origin(region), Counts: w.counts, Clock: w.clock.Now,
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
	if cfg.Counts != nil {
		if err := l.LoadSettings(context.Background()); err != nil {
			w.t.Fatal(err)
		}
	}
	w.t.Cleanup(func() { l.AwaitCalls() })
	return &node{l, w}
}

// alone is a node without anybody above it.
func (w *world) alone(change ...func(*dataplane.Config)) *node {
	return w.node("", "", append([]func(*dataplane.Config){func(c *dataplane.Config) { c.Origin, c.Counts = nil, nil }}, change...)...)
}

func (n *node) replay() {
	n.w.t.Helper()
	if err := n.ReplayOnce(context.Background()); err != nil {
		n.w.t.Fatal(err)
	}
	n.AwaitCalls()
}

func (n *node) flush() {
	n.w.t.Helper()
	if err := n.FlushOnce(context.Background()); err != nil {
		n.w.t.Fatal(err)
	}
}

func (n *node) imports() {
	n.w.t.Helper()
	if err := n.ImportOnce(context.Background()); err != nil {
		n.w.t.Fatal(err)
	}
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

// published is the component of a region in a cell, 0 for no row.
func (w *world) published(region string, c window.Cell) int64 {
	for _, r := range w.counts.Rows() {
		if r.Region == region && r.Cell == c {
			return r.Count
		}
	}
	return 0
}

func wantAllowed(t testing.TB, what string, d dataplane.Decision, allowed bool, remaining int64) {
	t.Helper()
	if d.Allowed != allowed || d.Remaining != remaining {
		t.Errorf("%s: allowed %v, remaining %d; want %v, %d (current %v, source %v)", what, d.Allowed, d.Remaining, allowed, remaining, d.Current, d.Source)
	}
}
