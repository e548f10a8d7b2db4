package dataplane_test

import (
	"context"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/heartbeat"
)

// usage sends a heartbeat, and returns the costs that it reports, by namespace; "" is all others.
func (n *node) usage(id string) map[string]heartbeat.UsageCost {
	n.w.t.Helper()
	if err := n.Heartbeat(context.Background()); err != nil {
		n.w.t.Fatal(err)
	}
	costs := make(map[string]heartbeat.UsageCost)
	for _, b := range n.w.counts.Heartbeats() {
		if b.NodeID != id {
			continue
		}
		u, err := heartbeat.ReadUsage([]byte(b.Usage))
		if err != nil {
			n.w.t.Fatal(err)
		}
		of, _ := u.Since(&heartbeat.Usage{})
		for k, cost := range of {
			if cost != (heartbeat.UsageCost{}) {
				costs[k.Namespace] = cost
			}
		}
	}
	return costs
}

func askIn(namespace, identifier string, cost, limit int64) dataplane.Request {
	r := ask(identifier, cost, limit)
	r.Namespace = namespace
	return r
}

// Each unit of accepted cost is in the usage of its namespace once, when the origin has it or when it is given up: cost
// of tracked and untracked keys, of batches, of claims, and of the estimate mode.
func TestUsageHasAllAcceptedCost(t *testing.T) {
	w := newWorld(t)
	w.counts.SetNamespaces(store.NamespaceRow{Workspace: "acme", Namespace: "flush", NodeShare: "flush"},
		store.NamespaceRow{Workspace: "acme", Namespace: "precise", NodeShare: "flush", Window: "precise"},
		store.NamespaceRow{Workspace: "acme", Namespace: "estimate", Mode: "estimate"})
	a := w.node("eu", "a", func(c *dataplane.Config) { c.EntriesMax = 256 })
	b := w.node("eu", "b")
	want := make(map[string]int64)
	count := func(namespace string, cost int64, allowed bool) {
		if allowed {
			want[namespace] += cost
		}
	}
	random := rand.New(rand.NewPCG(1, 2))
	for round := range 40 {
		for range 60 {
			namespace := []string{"wait", "flush", "precise", "estimate"}[random.IntN(4)]
			key, cost := fmt.Sprint("k", random.IntN(100)), random.Int64N(20)
			n := []*node{a, b}[random.IntN(2)]
			count(namespace, cost, n.Allow(t.Context(), askIn(namespace, key, cost, 300)).Allowed)
		}
		batch := []dataplane.Request{askIn("wait", fmt.Sprint("k", round), 5, 300), askIn("flush", "k1", 3, 300)}
		d := a.AllowMany(t.Context(), batch)
		for i := range batch {
			count(batch[i].Namespace, batch[i].Cost, d.Allowed && d.Decisions[i].Allowed && !d.Decisions[i].Shadowed)
		}
		for _, n := range []*node{a, b} {
			n.replay()
			n.sync()
		}
		if round%3 == 0 {
			w.clock.advance(40 * time.Second)
		}
	}
	w.clock.advance(5 * time.Minute)
	for _, n := range []*node{a, b} {
		n.replay()
		n.sync()
		n.Sweep() // cost of the estimate mode below its floor is given up with its entry
	}
	got := make(map[string]int64)
	for id, n := range map[string]*node{"a": a, "b": b} {
		for namespace, cost := range n.usage(id) {
			got[namespace] += cost.Accepted
		}
	}
	if !maps.Equal(got, want) {
		t.Errorf("reported %v, accepted %v", got, want)
	}
}

// A node without an origin compares the cells of its table. Windows that are longer than the time between two reports
// are counted exactly.
func TestUsageOfANodeWithoutAnOrigin(t *testing.T) {
	w := newWorld(t)
	n := w.node("eu", "a", func(c *dataplane.Config) { c.Origin = nil })
	want, got := make(map[string]int64), make(map[string]int64)
	random := rand.New(rand.NewPCG(3, 4))
	for range 50 {
		for range 20 {
			r := askIn(fmt.Sprint("n", random.IntN(3)), fmt.Sprint(random.IntN(10)), random.Int64N(50), 300)
			r.Duration = []time.Duration{time.Minute, time.Hour, 30 * time.Second}[random.IntN(3)]
			if n.Allow(t.Context(), r).Allowed {
				want[r.Namespace] += r.Cost
			}
			w.clock.advance(time.Duration(random.IntN(500)) * time.Millisecond)
		}
		w.clock.advance(heartbeat.UsageEvery)
		for namespace, cost := range n.usage("a") {
			got[namespace] = cost.Accepted
		}
	}
	if !maps.Equal(got, want) {
		t.Errorf("reported %v, accepted %v", got, want)
	}
}

// A window that is shorter than the time between two reports is estimated from its last complete cell.
func TestUsageOfShortWindowsIsAnEstimate(t *testing.T) {
	w := newWorld(t)
	n := w.node("eu", "a", func(c *dataplane.Config) { c.Origin = nil })
	var want int64
	random := rand.New(rand.NewPCG(5, 6))
	for range 200 {
		n.usage("a")
		for range 160 { // 16 s
			r := askIn("short", fmt.Sprint(random.IntN(5)), 1+random.Int64N(9), 1000)
			r.Duration = time.Second
			if n.Allow(t.Context(), r).Allowed {
				want += r.Cost
			}
			w.clock.advance(100 * time.Millisecond)
		}
	}
	got := n.usage("a")["short"].Accepted
	off := float64(got)/float64(want) - 1
	t.Logf("accepted %d, reported %d: off by %+.1f %%", want, got, 100*off)
	if math.Abs(off) > 0.05 {
		t.Errorf("reported %d of %d", got, want)
	}
}

// Denied cost is an estimate: the cost of sampled denials, each standing for the denials since the sample before. With
// 90 % of the denials in one namespace and 10 % in another, both are within some percent after ten seconds of a flood:
// a flood of one stripe has about a sample a millisecond, so 10 % of 10,000 samples err by about 3 % (one sigma).
// The sample errs where the costs of denials differ much, or where callers send in step with milliseconds.
func TestUsageOfDenialsIsWithinSomePercent(t *testing.T) {
	w := newWorld(t)
	n := w.node("eu", "a", func(c *dataplane.Config) { c.Origin = nil })
	want := make(map[string]int64)
	random := rand.New(rand.NewPCG(7, 8))
	for range 10_000 {
		w.clock.advance(time.Millisecond)
		for range 50 + random.IntN(100) {
			namespace := "most"
			if random.IntN(10) == 0 {
				namespace = "few"
			}
			if r := askIn(namespace, fmt.Sprint(random.IntN(50)), 2+random.Int64N(2), 1); !n.Allow(t.Context(), r).Allowed {
				want[namespace] += r.Cost
			}
		}
	}
	w.clock.advance(heartbeat.UsageEvery)
	got := n.usage("a")
	for namespace, most := range map[string]float64{"most": 0.03, "few": 0.20} {
		off := float64(got[namespace].Denied)/float64(want[namespace]) - 1
		t.Logf("%s: denied %d, reported %d: off by %+.1f %%", namespace, want[namespace], got[namespace].Denied, 100*off)
		if math.Abs(off) > most {
			t.Errorf("%s: reported %d of %d", namespace, got[namespace].Denied, want[namespace])
		}
	}
	if got["most"].Accepted+got["few"].Accepted+got[""].Accepted != 0 {
		t.Errorf("nothing was accepted: %v", got)
	}
}
