package rollout

import (
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/controlplane/fleet"
	"github.com/weirhq/weir/controlplane/internal/controltest"
	"github.com/weirhq/weir/controlplane/rollout/plan"
	"github.com/weirhq/weir/shared/heartbeat"
)

// A node runs a tuning before it reports it. So a node whose last heartbeat is from before the rollback may run the
// withdrawn tuning: the rollback waits for its next heartbeat.
func TestARollbackHearsOfEachNode(t *testing.T) {
	l := newLand("eu", "us")
	r, steps := begin(t, l, spec(canary, all))
	play(t, r, steps, func() bool {
		l.silent = r.Phase == Applying // between two heartbeats
		return r.Phase == Converging
	})
	l.silent = true
	if _, err := r.Operate(order(r, Abort, controltest.Ann), l.now.UnixMilli()); err != nil {
		t.Fatal(err)
	}
	l.stubborn = true // the next reading of settings is also later
	from := l.now
	play(t, r, steps, func() bool { return r.Phase.Over() || l.now.Sub(from) > 5*time.Second })
	if got := l.tries["eu1"].number; r.Phase != RollingBack || got != 1 ||
		!strings.Contains(r.Waiting, "2 of 2 live nodes have sent no heartbeat since the tuning was withdrawn: eu1 in eu, eu2 in eu") {
		t.Errorf("%s while eu1 runs trial %d, waiting for %q", r.Phase, got, r.Waiting)
	}
	l.silent, l.stubborn = false, false
	play(t, r, steps, nil)
	if r.Phase != Aborted || l.now.Sub(from) > time.Minute {
		t.Errorf("%s after %v", r.Phase, l.now.Sub(from))
	}
}

// Touched regions are watched until the rollout is over. So the last bake also waits for heartbeats of nodes of earlier
// stages, even if it is short.
func TestANodeOfAnEarlierStageThatDiesInAShortBakeIsABreach(t *testing.T) {
	l := newLand("eu", "us")
	r, steps := begin(t, l, spec(canary, plan.Stage{All: true, BakeMs: 2000}))
	play(t, r, steps, func() bool {
		if r.Stage == 1 && r.Phase == Baking {
			l.dead["eu1"], l.dead["eu2"] = true, true
		}
		return r.Phase.Over()
	})
	wantRolledBack(t, r, "stage 1 (eu): nodes without heartbeats: 2 of 2")
}

// If the clock of the database steps back, as after a failover to a replica, new heartbeats are dated before older
// ones. They still count, because the node's own time goes forward.
func TestTheDatabaseClockStepsBack(t *testing.T) {
	for name, c := range map[string]struct {
		sick func(*heartbeat.Health)
		want Phase
	}{
		"well": {func(h *heartbeat.Health) { relayRows(h, 200) }, Done},
		"sick": {func(h *heartbeat.Health) { h.SettingsErrors += 2 }, RolledBack},
	} {
		l := newLand("eu", "us")
		r, steps := begin(t, l, spec(plan.Stage{Regions: []string{"eu"}, BakeMs: (10 * time.Minute).Milliseconds()}, all))
		play(t, r, steps, func() bool { return r.Phase == Baking })
		l.skew = -5 * time.Minute
		l.sick = func(h *heartbeat.Health, hasNew bool) {
			if well(h); hasNew {
				c.sick(h)
			}
		}
		from := l.now
		play(t, r, steps, nil)
		if r.Phase != c.want {
			t.Errorf("%s: %s %q", name, r.Phase, r.Why)
		}
		if took := l.now.Sub(from); c.want == RolledBack && took > 2*time.Minute {
			t.Errorf("%s: it took %v", name, took)
		}
	}
}

// If a deploy renames all nodes of a region during a bake, that is a breach with a clear reason, unless the plan allows
// it. Then the new nodes are watched.
func TestADeployUnderOtherNames(t *testing.T) {
	for _, c := range []struct {
		share float64
		sick  bool
		want  Phase
		why   string
	}{
		{0, false, RolledBack, "stage 1 (eu): nodes without heartbeats: 2 of 2, more than a share of 0, of region eu (eu1, eu2)"},
		{1, false, Done, ""},
		{1, true, RolledBack, "errors of relays and settings a node and minute: 60, more than 6 (before the stage 0), of region eu"},
	} {
		l := newLand("eu", "us")
		s := longBaseline(spec(canary, all))
		s.Plan.Guardrails.NodesLostShare = c.share
		r, steps := begin(t, l, s)
		play(t, r, steps, func() bool { return r.Phase == Baking })
		for i, id := range []string{"eu8", "eu9"} {
			l.dead[l.nodes[i].Heartbeat.NodeID] = true
			l.nodes = append(l.nodes, fleet.Row{Heartbeat: heartbeat.Heartbeat{NodeID: id, Region: "eu", StartedAtMs: l.now.UnixMilli()}, SeenAt: l.now})
		}
		if c.sick {
			l.sick = func(h *heartbeat.Health, hasNew bool) {
				if well(h); hasNew {
					h.SettingsErrors++
				}
			}
		}
		play(t, r, steps, nil)
		if r.Phase != c.want || !strings.Contains(r.Why, c.why) {
			t.Errorf("share %v, sick %v: %s %q", c.share, c.sick, r.Phase, r.Why)
		}
	}
}

// A region that stays dark during a rollback does not block it: it has no live node that could run the withdrawn
// tuning.
func TestARollbackOfADarkRegionEnds(t *testing.T) {
	l := newLand("eu", "us")
	r, steps := begin(t, l, spec(canary, all))
	play(t, r, steps, func() bool { return r.Stage == 1 && r.Phase == Baking })
	l.dead["us1"], l.dead["us2"] = true, true
	play(t, r, steps, nil)
	wantRolledBack(t, r, "of region us (us1, us2)")
	wantFleet(t, l, defaultDocument, "eu", "us")
}
