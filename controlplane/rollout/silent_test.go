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

// A node that falls silent while it runs a trial runs it until its lease ends. A rollback names such nodes and waits
// for their leases; no other rollout begins before.
func TestARollbackOutlastsTheLeasesOfSilentNodes(t *testing.T) {
	l := newLand("eu", "us")
	r, steps := begin(t, l, spec(canary, all))
	play(t, r, steps, func() bool { return r.Stage == 1 && r.Phase == Baking })
	for _, n := range l.nodes {
		l.dead[n.Heartbeat.NodeID] = true
	}
	waited := ""
	play(t, r, steps, func() bool {
		if r.TrialsEnded && strings.Contains(r.Waiting, "silent") {
			waited = r.Waiting
		}
		return r.Phase.Over()
	})
	if r.Phase != RolledBack || r.Unknown != "" ||
		!strings.Contains(waited, "4 nodes are silent: eu1 in eu, eu2 in eu, us1 in us, us2 in us, and may run the tuning until their leases end in ") {
		t.Errorf("%s (unknown %q), waited for %q", r.Phase, r.Unknown, waited)
	}
	for id, try := range l.tries {
		if l.now.Before(try.until) {
			t.Errorf("%s runs trial %d for another %v", id, try.number, try.until.Sub(l.now))
		}
	}
}

// A silent node that should run a stored version has no lease. Any outcome names it as unknown.
func TestAnOutcomeNamesTheNodesThatAreSilent(t *testing.T) {
	const unknown = "1 node is silent: us2 in us, so their tuning is unknown"
	plan := spec(canary, all)
	plan.Plan.Guardrails.NodesLostShare = 1
	l := newLand("eu", "us")
	r, steps := begin(t, l, plan)
	play(t, r, steps, func() bool { return r.Stage == 1 && r.Phase == Baking })
	l.dead["us2"] = true
	play(t, r, steps, nil)
	if last := r.Events[len(r.Events)-1]; r.Phase != Done || r.Unknown != unknown || !strings.Contains(last.Text, unknown) {
		t.Errorf("%s, unknown %q, %+v", r.Phase, r.Unknown, last)
	}
	if _, err := r.Operate(order(r, RollBack, controltest.Ann), l.now.UnixMilli()); err != nil {
		t.Fatal(err)
	}
	if play(t, r, steps, nil); r.Phase != RolledBack || r.Unknown != unknown {
		t.Errorf("%s, unknown %q", r.Phase, r.Unknown)
	}
}

// A node that was silent before the rollout began does not delay a rollback.
func TestANodeThatWasSilentBeforeIsNotWaitedFor(t *testing.T) {
	l := newLand("eu", "us")
	l.nodes = append(l.nodes, fleet.Row{Heartbeat: heartbeat.Heartbeat{NodeID: "eu9", Region: "eu"}, SeenAt: l.now.Add(-10 * time.Minute)})
	l.dead["eu9"] = true
	r, steps := begin(t, l, spec(canary, all))
	play(t, r, steps, func() bool { return r.Phase == Baking })
	from := l.now
	if _, err := r.Operate(order(r, Abort, controltest.Ann), l.now.UnixMilli()); err != nil {
		t.Fatal(err)
	}
	if play(t, r, steps, nil); r.Phase != Aborted || l.now.Sub(from) > time.Minute {
		t.Errorf("%s after %v, waiting for %q", r.Phase, l.now.Sub(from), r.Waiting)
	}
}

// While a rollout waits for a person, it looks at most four times a minute, however short its bake is, but often enough
// that no trial ends.
func TestARolloutThatWaitsForAPersonIsInNoHurry(t *testing.T) {
	for name, wait := range map[string]func(*Rollout, *land){
		"an approval": nil,
		"a resumption": func(r *Rollout, l *land) {
			if _, err := r.Operate(order(r, Pause, controltest.Ann), l.now.UnixMilli()); err != nil {
				t.Fatal(err)
			}
		},
	} {
		l := newLand("eu", "us")
		gated := plan.Stage{All: true, BakeMs: 100, Approval: wait == nil}
		r, steps := begin(t, l, spec(plan.Stage{Regions: []string{"eu"}, BakeMs: 100}, gated))
		play(t, r, steps, func() bool { return r.Phase == Awaiting || wait != nil && r.Phase == Baking })
		if wait != nil {
			wait(r, l)
		}
		from, epoch := l.now, r.Epoch
		play(t, r, steps, func() bool { return l.now.Sub(from) >= 10*time.Minute })
		if looks := r.Epoch - epoch; looks > 41 || looks < 2 || !r.waits() {
			t.Errorf("waiting for %s: %d looks in 10 minutes, %s %q", name, looks, r.Phase, r.Why)
		}
	}
}

// A rollback that waits for a hung node looks just as seldom once that is reported as trouble.
func TestARollbackInTroubleIsInNoHurry(t *testing.T) {
	l := newLand("eu", "us")
	plan := spec(canary, all)
	r, steps := begin(t, l, plan)
	play(t, r, steps, func() bool { return r.Phase == Baking })
	l.stubborn = true
	if _, err := r.Operate(order(r, Abort, controltest.Ann), l.now.UnixMilli()); err != nil {
		t.Fatal(err)
	}
	play(t, r, steps, func() bool { return r.Trouble != "" })
	from, epoch := l.now, r.Epoch
	play(t, r, steps, func() bool { return l.now.Sub(from) >= 2*time.Minute })
	if looks := r.Epoch - epoch; looks > 9 {
		t.Errorf("%d looks in 2 minutes", looks)
	}
}

// If MySQL was restored from a copy from before the trial began, the rollout finds that the trial has ended, and rolls
// back. It waits for nodes that still report the trial under its former number.
func TestATrialThatARestoreHasTakenAwayEndsTheRollout(t *testing.T) {
	l := newLand("eu", "us")
	r, steps := begin(t, l, spec(canary, all))
	play(t, r, steps, func() bool { return r.Phase == Baking })
	l.trials[0].ID, l.trials[0].endsMs = "of another MySQL", 0
	l.stubborn = true
	play(t, r, steps, func() bool { return r.Phase == RollingBack && strings.Contains(r.Waiting, "live nodes") })
	if !strings.Contains(r.Why, "MySQL does not have the trial r1/try/eu any more: it was restored from an older copy") ||
		!strings.Contains(r.Waiting, "2 of 2 live nodes still run the withdrawn tuning: eu1 in eu runs trial 1") {
		t.Errorf("%q, waiting for %q", r.Why, r.Waiting)
	}
	l.stubborn = false
	play(t, r, steps, nil)
	wantRolledBack(t, r, "stage 1 (eu): MySQL does not have the trial")
	wantFleet(t, l, defaultDocument, "eu", "us")
}

// The same for versions that the rollout has stored: nothing is left to revert, and the rollback ends.
func TestARollbackOfVersionsThatARestoreHasTakenAwayEnds(t *testing.T) {
	l := newLand("eu", "us")
	r, steps := begin(t, l, spec(canary, all))
	play(t, r, steps, func() bool { return r.Phase == Keeping && r.DueMs > 0 })
	l.rows = nil
	if _, err := r.Operate(order(r, Abort, controltest.Ann), l.now.UnixMilli()); err != nil {
		t.Fatal(err)
	}
	play(t, r, steps, nil)
	text := ""
	for _, e := range r.Events {
		text += e.Text + "\n"
	}
	if r.Phase != Aborted || !strings.Contains(text, "region us has version 0, which is older than version 2: MySQL was restored from an older copy") {
		t.Errorf("%s:\n%s", r.Phase, text)
	}
}

// A node that was shut down in order is not lost, even if the plan allows no loss, because it reports its shutdown. If
// another node dies at the same time, that is a loss, and shutdowns elsewhere do not excuse it.
func TestLeavingIsNotDying(t *testing.T) {
	for name, c := range map[string]struct {
		leave, die []string
		want       Phase
	}{
		"one of a stage leaves":                      {[]string{"eu1"}, nil, Done},
		"all of a stage leave":                       {[]string{"eu1", "eu2"}, nil, Done},
		"one leaves and the other dies":              {[]string{"eu1"}, []string{"eu2"}, RolledBack},
		"one dies while nodes leave everywhere else": {[]string{"us1", "ap1"}, []string{"eu1"}, RolledBack},
	} {
		l := newLand("eu", "us", "ap")
		r, steps := begin(t, l, spec(plan.Stage{Regions: []string{"eu"}, BakeMs: 120_000}))
		play(t, r, steps, func() bool { return r.Phase == Baking })
		l.left = c.leave
		for _, id := range c.die {
			l.dead[id] = true
		}
		evidence := r.Evidence()
		play(t, r, steps, func() bool { return r.Phase != Baking || r.DueMs-l.now.UnixMilli() < 30_000 })
		if c.die == nil && r.Evidence() != evidence {
			t.Errorf("%s: the evidence of an approval has changed", name)
		}
		if play(t, r, steps, nil); r.Phase != c.want {
			t.Errorf("%s: %s %q", name, r.Phase, r.Why)
		}
	}
}
