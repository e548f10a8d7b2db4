//go:build !race

// Hours of virtual time in a single goroutine, so the race detector would find nothing.

package dataplane_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane"
)

// Behaviour 20: "Steady offered load r*L over 10 nodes: the preset admits about 0.65 L at r = 1.05, 0.2 at 1.10, 0
// from 1.2 on (a cut-off); the mode's default admits 0.98–1.15 L for all r in 1.05…5."
func TestSteadyLoad(t *testing.T) {
	for _, c := range []struct {
		settings    string
		r           float64
		least, most float64
	}{
		{"", 1.05, 0.98, 1.15}, {"", 1.1, 0.98, 1.15}, {"", 1.2, 0.98, 1.15}, {"", 1.5, 0.98, 1.15},
		{"", 2, 0.98, 1.15}, {"", 3, 0.98, 1.15}, {"", 5, 0.98, 1.15},
		{posthog, 0.9, 0.9, 0.9}, {posthog, 1.05, 0.5, 0.8}, {posthog, 1.1, 0.1, 0.3}, {posthog, 1.2, 0, 0}, {posthog, 2, 0, 0}, {posthog, 5, 0, 0},
	} {
		if got := steady(t, c.settings, c.r); got < c.least-0.005 || got > c.most+0.005 {
			t.Errorf("%q at %v of the limit admits %.3f, want %v to %v", c.settings, c.r, got, c.least, c.most)
		} else {
			t.Logf("%-22q %.2f L offered: %.3f L admitted", c.settings, c.r, got)
		}
	}
}

// steady offers r*L a minute to 10 nodes at random, and returns the share of L that they admit a minute, after a
// start phase.
func steady(t *testing.T, settings string, r float64) float64 {
	const (
		limit   = 1000
		tick    = 100 * time.Millisecond
		minutes = 30
		warm    = 6
	)
	w := newWorld(t)
	w.estimates(settings)
	var nodes []*node
	for i := range 10 {
		nodes = append(nodes, w.node("eu", fmt.Sprint(i)))
	}
	random := rand.New(rand.NewPCG(1, 2))
	offered, admitted, due := 0, 0, 0.0
	for now := time.Duration(0); now < minutes*time.Minute; now += tick {
		w.clock.set(now)
		for due += r * limit * tick.Minutes(); due >= 1; due-- {
			d := nodes[random.IntN(len(nodes))].take("k", 1, limit)
			if now >= warm*time.Minute {
				offered++
				if d.Allowed {
					admitted++
				}
			}
		}
		for _, n := range nodes {
			n.sync()
		}
	}
	return float64(admitted) / float64(limit*(minutes-warm))
}

// Behaviour 19: "Simulated population 100,000 keys (90/8/1.5/0.5 % at 5/30/65/90 % pressure, each touched once a
// second, tick 1 s): reads a tick without tiers 6,250–6,667; with tiers 287–300."
//
// To test this arithmetic, the keys are only peeked at, so that each sync is a read. If each request also counts,
// replies of increments replace reads. The cost of hot keys (500 a second) is sent with every tick; 1,500 are idle
// keys above their floor, once in 60 s; 233 are from the tiers between; and the rest are idle keys that pass a step.
// All 90,000 do so once in these two minutes, because they all count alike.
func TestTiersSpareTheOrigin(t *testing.T) {
	const keys = 100_000
	shares := []struct {
		share, pressure float64
	}{{.9, .05}, {.08, .3}, {.015, .65}, {.005, .9}}
	population := keys
	if raced {
		population /= 50
	}
	scale := float64(keys) / float64(population)

	untiered := float64(keys) / 15
	if untiered < 6250 || untiered > 6667 {
		t.Errorf("%.0f reads a tick without tiers", untiered)
	}
	for _, cost := range []int64{0, 1} {
		const limit = 100_000 // per hour, so that no pressure changes much meanwhile
		w := newWorld(t)
		w.estimates(`{"pending_max":1000000,"batch_max":20000}`)
		n := w.node("eu", "a")
		random := rand.New(rand.NewPCG(3, 4))
		requests := make([]dataplane.Request, 0, population)
		var met [60][]dataplane.Request // over a minute, so that they are not all due at once
		for _, s := range shares {
			for range int(s.share * float64(population)) {
				r := ask(fmt.Sprint(len(requests)), cost, limit)
				r.Duration = time.Hour
				requests = append(requests, r)
				first, second := r, random.IntN(60)
				first.Cost, first.ZeroCost = int64(s.pressure*limit), false
				met[second] = append(met[second], first)
			}
		}
		for second, firsts := range met {
			w.clock.set(time.Duration(second) * time.Second)
			for _, first := range firsts {
				n.Allow(t.Context(), first)
				n.sync()
			}
		}
		const seconds = 120
		touch := func() {
			for i := range requests {
				n.Allow(t.Context(), requests[i])
			}
			n.sync()
		}
		for s := range 60 {
			w.clock.set(time.Duration(60+s) * time.Second)
			touch()
		}
		before := w.origin("eu").Stats()
		for s := range seconds {
			w.clock.set(time.Duration(120+s) * time.Second)
			touch()
		}
		after := w.origin("eu").Stats()
		reads := scale * float64(after.CellsRead-before.CellsRead) / seconds
		adds := scale * float64(after.CellsAdded-before.CellsAdded) / seconds
		t.Logf("cost %d a touch: %.0f cells read and %.0f written a tick; without tiers %.0f reads", cost, reads, adds, untiered)
		switch {
		case cost == 0 && (reads < 280 || reads > 305 || adds != 0):
			t.Errorf("with tiers: %.0f reads and %.0f writes a tick, want 287 to 300 reads", reads, adds)
		case cost == 1 && (reads > 5 || adds > 3100):
			t.Errorf("counting: %.0f reads and %.0f writes a tick, want no reads, and 500 + 1,500 + 233 + 750 writes", reads, adds)
		}
	}
}
