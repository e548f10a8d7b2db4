package rollout

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/controlplane/fleet"
	"github.com/weirhq/weir/controlplane/rollout/plan"
	"github.com/weirhq/weir/shared/heartbeat"
)

// relaysOf makes the first node of each region relay it, now and in each later second.
func relaysOf(l *land, change func(n *fleet.Row, r *heartbeat.Relay)) {
	for i := range l.nodes {
		n := &l.nodes[i]
		r := &heartbeat.Relay{Shards: 1}
		if n.Heartbeat.NodeID == n.Heartbeat.Region+"1" {
			r.Held, r.LagP99Ms = []int{0}, map[string]int64{"elsewhere": 300}
		}
		change(n, r)
		var h heartbeat.Health
		_ = json.Unmarshal([]byte(n.Health), &h)
		h.Relay = r
		text, _ := json.Marshal(h)
		n.Health = string(text)
	}
}

// relayedRollout returns a rollout over a fleet that is relayed, in the bake of its first stage.
func relayedRollout(t *testing.T, g plan.Guardrails) (*land, *Rollout, func(func() bool)) {
	t.Helper()
	l := newLand("eu", "us")
	relaysOf(l, func(*fleet.Row, *heartbeat.Relay) {})
	s := spec(plan.Stage{Regions: []string{"eu"}, BakeMs: (10 * time.Minute).Milliseconds()}, all)
	s.Plan.Guardrails = g
	r, steps := begin(t, l, s)
	until := func(done func() bool) { play(t, r, steps, done) }
	until(func() bool { return r.Phase == Baking })
	return l, r, until
}

// If a region's Redis answers none of its nodes for half a minute, the rollout rolls back, because the tuning may keep
// nodes from it. No stage begins in such a region. If Redis answers some of the nodes, only the share of decisions
// without it counts.
func TestARolloutNeedsOrigins(t *testing.T) {
	for name, c := range map[string]struct {
		down []string
		off  bool
		why  string // empty: it goes on
	}{
		"no node has an answer":         {[]string{"eu1", "eu2"}, false, "stage 1 (eu): the Redis of region eu, or a part of it, has answered no node for 30s"},
		"one has":                       {[]string{"eu1"}, false, ""},
		"elsewhere":                     {[]string{"us1", "us2"}, false, ""},
		"a plan that does not judge it": {[]string{"eu1", "eu2"}, true, ""},
	} {
		l := newLand("eu", "us")
		s := spec(plan.Stage{Regions: []string{"eu"}, BakeMs: 120_000})
		s.Plan.Guardrails.DegradedShare.Off = c.off
		r, steps := begin(t, l, s)
		play(t, r, steps, func() bool { return r.Phase == Baking })
		var now *fleet.Row
		l.fate = func(n *fleet.Row, _ string) { now = n }
		l.sick = func(h *heartbeat.Health, _ bool) {
			if well(h); slices.Contains(c.down, now.Heartbeat.NodeID) {
				h.BreakersOpen = 1
			}
		}
		play(t, r, steps, nil)
		if c.why == "" && r.Phase != Done || !strings.HasPrefix(r.Why, c.why) {
			t.Errorf("%s: %s %q", name, r.Phase, r.Why)
		}
		if c.why != "" {
			again, _ := begin(t, l, s)
			play(t, again, steps, nil)
			wantRolledBack(t, again, "before the stage: the Redis of region")
		}
	}
}

// If no node relays a region, or measures its delay any more, its convergence cannot be judged. After half a minute the
// rollout rolls back. A takeover takes seconds.
func TestARolloutNeedsRelays(t *testing.T) {
	for name, c := range map[string]struct {
		change func(n *fleet.Row, r *heartbeat.Relay)
		why    string // empty: it goes on
	}{
		"as before": {func(*fleet.Row, *heartbeat.Relay) {}, ""},
		"another node takes over": {func(n *fleet.Row, r *heartbeat.Relay) {
			if r.Held = nil; n.Heartbeat.NodeID == n.Heartbeat.Region+"2" {
				r.Held, r.LagP99Ms = []int{0}, map[string]int64{"elsewhere": 400}
			}
		}, ""},
		"no node relays it": {func(n *fleet.Row, r *heartbeat.Relay) {
			if n.Heartbeat.Region == "eu" {
				r.Held = nil
			}
		}, "stage 1 (eu): no node has relayed shard 0 of the Redis of region eu for 30s"},
		"it has one more shard": {func(_ *fleet.Row, r *heartbeat.Relay) { r.Shards = 2 },
			"stage 1 (eu): no node has relayed shard 1 of the Redis of region eu for 30s"},
		"it reads no changes": {func(_ *fleet.Row, r *heartbeat.Relay) { r.LagP99Ms = nil },
			"stage 1 (eu): no node of region eu has measured the convergence delay for 30s (before the stage 300 ms)"},
		"changes are late": {func(_ *fleet.Row, r *heartbeat.Relay) {
			if r.LagP99Ms != nil {
				r.LagP99Ms["elsewhere"] = 40_000
			}
		}, "stage 1 (eu): convergence delay in ms: 40000, more than 30000 (before the stage 300), of node eu1 in region eu"},
	} {
		t.Run(name, func(t *testing.T) {
			l, r, until := relayedRollout(t, plan.DefaultGuardrails())
			relaysOf(l, c.change)
			until(func() bool { return r.Stage == 1 })
			if c.why == "" && r.Phase.Over() || c.why != "" && (r.Phase != RolledBack || r.Why != c.why) {
				t.Errorf("%s: %q", r.Phase, r.Why)
			}
		})
	}
}

// A gap that another node closes, and a jump of the database's clock within a gap, do not add up to half a minute.
func TestAGapBetweenRelaysIsBorne(t *testing.T) {
	l, r, until := relayedRollout(t, plan.DefaultGuardrails())
	for range 3 {
		relaysOf(l, func(_ *fleet.Row, r *heartbeat.Relay) { r.Held = nil })
		gap := l.now.Add(20 * time.Second)
		until(func() bool { return l.now.After(gap) })
		l.skew += 3 * time.Minute
		relaysOf(l, func(*fleet.Row, *heartbeat.Relay) {})
		well := l.now.Add(20 * time.Second)
		until(func() bool { return l.now.After(well) })
	}
	if r.Phase != Baking {
		t.Errorf("%s: %q", r.Phase, r.Why)
	}
}

// A plan that does not judge convergence allows regions without relays.
func TestARolloutThatDoesNotJudgeConvergence(t *testing.T) {
	g := plan.DefaultGuardrails()
	g.ConvergenceMs.Off = true
	l, r, until := relayedRollout(t, g)
	relaysOf(l, func(_ *fleet.Row, r *heartbeat.Relay) { r.Held, r.LagP99Ms = nil, nil })
	until(func() bool { return r.Stage == 1 && r.Phase == Baking })
	if r.Phase.Over() {
		t.Errorf("%s: %q", r.Phase, r.Why)
	}
}

// The baseline of a region that is not relayed waits for a relay, because its figures could not be compared later.
func TestABaselineWaitsForRelays(t *testing.T) {
	l := newLand("eu", "us")
	relaysOf(l, func(_ *fleet.Row, r *heartbeat.Relay) { r.Held, r.LagP99Ms = nil, nil })
	r, steps := begin(t, l, spec(canary, all))
	later := l.now.Add(time.Minute)
	play(t, r, steps, func() bool { return l.now.After(later) })
	if r.Phase != Measuring || len(r.Touched) > 0 {
		t.Fatalf("%s: %q", r.Phase, r.Why)
	}
	relaysOf(l, func(*fleet.Row, *heartbeat.Relay) {})
	play(t, r, steps, func() bool { return r.Phase == Baking })
	if r.Phase.Over() {
		t.Errorf("%s: %q", r.Phase, r.Why)
	}
}
