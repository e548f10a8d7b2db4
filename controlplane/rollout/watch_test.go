package rollout

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/fleet"
	"github.com/weirhq/weir/controlplane/internal/controltest"
	"github.com/weirhq/weir/controlplane/rollout/plan"
	"github.com/weirhq/weir/controlplane/tunings"
	"github.com/weirhq/weir/shared/heartbeat"
)

// relayRows makes a node's relay write and read rows.
func relayRows(h *heartbeat.Health, rows int64) {
	if h.Relay == nil {
		h.Relay = &heartbeat.Relay{Shards: 1, Held: []int{0}}
	}
	h.Relay.Rows += rows
}

func well(h *heartbeat.Health) { h.AllowedTotal += 90; h.DeniedTotal += 10 }

func wantRolledBack(t *testing.T, r *Rollout, why ...string) {
	t.Helper()
	if r.Phase != RolledBack {
		t.Errorf("%s, %q", r.Phase, r.Why)
	}
	for _, part := range why {
		if !strings.Contains(r.Why, part) {
			t.Errorf("%q does not say %q", r.Why, part)
		}
	}
	if strings.Contains(r.Why, "\n") {
		t.Errorf("more than a line: %q", r.Why)
	}
}

// A tuning that kills every node that applies it reaches no other region, because no node from before the stage is
// left.
func TestNodesThatDieAsTheyApplyAreABreach(t *testing.T) {
	l := newLand("eu", "us", "ap")
	r, steps := begin(t, l, spec(canary, plan.Stage{Regions: []string{"us"}, BakeMs: 60_000}, all))
	l.fate = func(n *fleet.Row, document string) {
		if document == document30 {
			l.dead[n.Heartbeat.NodeID] = true
		}
	}
	play(t, r, steps, nil)
	wantRolledBack(t, r, "stage 1 (eu): nodes without heartbeats: 2 of 2, more than a share of 0, of region eu (eu1, eu2)")
	if len(r.Touched) != 1 || len(l.dead) != 2 {
		t.Errorf("touched %+v, dead %v", r.Touched, l.dead)
	}
	wantFleet(t, l, defaultDocument, "eu", "us", "ap")
}

// The nodes from before the stage are watched in its bake, and in later stages.
func TestANodeThatDiesLaterIsABreach(t *testing.T) {
	for _, c := range []struct {
		victim string
		stage  int
		why    string
	}{
		{"eu2", 0, "stage 1 (eu): nodes without heartbeats: 1 of 2, more than a share of 0, of region eu (eu2)"},
		{"eu2", 1, "stage 1 (eu): nodes without heartbeats: 1 of 2, more than a share of 0, of region eu (eu2)"},
		{"us1", 1, "stage 2 (all other regions): nodes without heartbeats: 1 of 2, more than a share of 0, of region us (us1)"},
	} {
		l := newLand("eu", "us")
		r, steps := begin(t, l, spec(canary, all))
		play(t, r, steps, func() bool { return r.Phase == Baking && r.Stage == c.stage })
		l.dead[c.victim] = true
		play(t, r, steps, nil)
		wantRolledBack(t, r, c.why)
	}
}

// A bake can be shorter than the time after which a node counts as gone. So the stage ends only when each node has sent
// a heartbeat after it, or counts as lost.
func TestANodeThatDiesInAShortBakeIsABreach(t *testing.T) {
	l := newLand("eu", "us")
	r, steps := begin(t, l, spec(plan.Stage{Regions: []string{"eu"}, BakeMs: 2000}, all))
	waited := false
	play(t, r, steps, func() bool {
		l.dead["eu2"] = l.dead["eu2"] || r.Phase == Baking
		waited = waited || r.Waiting == "no heartbeat since the bake is over: eu2 in eu"
		return r.Phase.Over()
	})
	wantRolledBack(t, r, "stage 1 (eu): nodes without heartbeats: 1 of 2, more than a share of 0, of region eu (eu2)")
	if !waited || len(r.Touched) != 1 {
		t.Errorf("waited for: %v, touched %+v", waited, r.Touched)
	}
}

// The plan can allow a planned scale-down, but never the loss of a region's last node.
func TestAPlannedScaleDown(t *testing.T) {
	for dead, want := range map[int]Phase{1: Done, 2: RolledBack} {
		l := newLand("eu", "us")
		s := spec(canary, all)
		s.Plan.Guardrails.NodesLostShare = 1
		r, steps := begin(t, l, s)
		play(t, r, steps, func() bool { return r.Phase == Baking })
		for i := range dead {
			l.dead[fmt.Sprintf("eu%d", i+1)] = true
		}
		play(t, r, steps, nil)
		if r.Phase != want || (want == RolledBack) != strings.Contains(r.Why, "2 of 2, and none is left (1 or more), of region eu") {
			t.Errorf("%d dead: %s %q", dead, r.Phase, r.Why)
		}
	}
}

// A node that restarts again and again has healthy counters in between, so its restarts count as a guardrail.
func TestACrashLoopIsABreach(t *testing.T) {
	l := newLand("eu", "us")
	r, steps := begin(t, l, spec(plan.Stage{Regions: []string{"eu"}, BakeMs: time.Hour.Milliseconds()}, all))
	l.fate = func(n *fleet.Row, document string) {
		if n.Heartbeat.NodeID == "eu2" && document == document30 && l.now.Unix()%60 == 0 {
			n.Heartbeat.StartedAtMs, n.Health = l.now.UnixMilli(), `{}`
		}
	}
	play(t, r, steps, nil)
	wantRolledBack(t, r, "stage 1 (eu): restarts of a node within an hour: 2, more than 1, of node eu2 in region eu")
}

// A healthy hour does not hide a bad end of the bake.
func TestALateBurstIsNotDiluted(t *testing.T) {
	l := newLand("eu", "us")
	r, steps := begin(t, l, longBaseline(spec(plan.Stage{Regions: []string{"eu"}, BakeMs: time.Hour.Milliseconds()}, all)))
	play(t, r, steps, func() bool { return r.Phase == Baking })
	baking := l.now
	play(t, r, steps, func() bool { return l.now.Sub(baking) > 55*time.Minute })
	from := l.now
	l.sick = func(h *heartbeat.Health, hasNew bool) {
		well(h)
		if hasNew {
			h.SettingsErrors++ // 60 a minute: within 5 of 60 minutes that is 5 a minute of the bake
		}
	}
	play(t, r, steps, nil)
	wantRolledBack(t, r, "stage 1 (eu): errors of relays and settings a node and minute", "region eu")
	if took := l.now.Sub(from); took > 3*time.Minute {
		t.Errorf("it took %v", took)
	}
}

// Nine healthy regions do not hide a region in which nothing passes, and healthy nodes do not hide a sick node of their
// region.
func TestOneSickRegionOrNodeIsNotDiluted(t *testing.T) {
	for ill, why := range map[string]string{
		"c":  "stage 1 (all regions): share of denied decisions: |, off by more than 0.2 (before the stage 0.1), of |region c",
		"h2": "stage 1 (all regions): share of denied decisions: |, off by more than 0.2 (before the stage 0.1), of |region h",
	} {
		l := newLand("a", "b", "c", "d", "e", "f", "g", "h", "i", "j")
		r, steps := begin(t, l, spec(all))
		play(t, r, steps, func() bool { return r.Phase == Baking })
		var now *fleet.Row
		l.fate = func(n *fleet.Row, _ string) { now = n }
		l.sick = func(h *heartbeat.Health, _ bool) {
			if strings.HasPrefix(now.Heartbeat.NodeID, ill) {
				h.AllowedTotal, h.DeniedTotal = h.AllowedTotal+4, h.DeniedTotal+196
			} else {
				well(h)
			}
		}
		play(t, r, steps, nil)
		wantRolledBack(t, r, strings.Split(why, "|")...)
	}
}

// If each node makes too few decisions for a share, the shares are judged for the whole region.
func TestARegionIsJudgedByWhatItsNodesDoTogether(t *testing.T) {
	l := newLand("eu", "us")
	l.sick = func(h *heartbeat.Health, hasNew bool) {
		h.AllowedTotal += 5
		if hasNew {
			h.DeniedTotal += 5
		}
	}
	r, steps := begin(t, l, spec(canary, all))
	play(t, r, steps, nil)
	wantRolledBack(t, r, "share of denied decisions: 0.5, off by more than 0.2 (before the stage 0), of region eu")
}

// Regions with the tuning are watched until the rollout is over: while a later stage measures and bakes, while it waits
// for an approval, and while it is paused. A breach rolls back.
func TestEverythingTouchedIsWatched(t *testing.T) {
	gated := all
	gated.Approval = true
	for name, c := range map[string]struct {
		last  plan.Stage
		until func(*Rollout) bool
		pause bool
	}{
		"a later stage measures": {all, func(r *Rollout) bool { return r.Stage == 1 && r.Phase == Measuring && r.DueMs > 0 }, false},
		"a later stage bakes":    {all, func(r *Rollout) bool { return r.Stage == 1 && r.Phase == Baking }, false},
		"awaiting approval":      {gated, func(r *Rollout) bool { return r.Phase == Awaiting }, false},
		"paused":                 {all, func(r *Rollout) bool { return r.Phase == Baking }, true},
		"paused while awaiting":  {gated, func(r *Rollout) bool { return r.Phase == Awaiting }, true},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLand("eu", "us")
			r, steps := begin(t, l, spec(canary, c.last))
			play(t, r, steps, func() bool { return c.until(r) })
			if c.pause {
				wait, err := r.Operate(order(r, Pause, controltest.Ann), l.now.UnixMilli())
				if wait <= 0 || err != nil {
					t.Fatalf("it is looked at in %v, %v", wait, err)
				}
			}
			var now *fleet.Row
			l.fate = func(n *fleet.Row, _ string) { now = n }
			l.sick = func(h *heartbeat.Health, _ bool) {
				if well(h); now.Heartbeat.Region == "eu" {
					h.SettingsErrors += 2
				}
			}
			from := l.now
			play(t, r, steps, func() bool { return r.Phase.Over() || l.now.Sub(from) > 10*time.Minute })
			wantRolledBack(t, r, "stage 1 (eu): errors of relays and settings", "of node eu1 in region eu")
			wantFleet(t, l, defaultDocument, "eu", "us")
		})
	}
}

// Before any region has the tuning there is nothing to watch, so a rollout waits without a timer.
func TestNothingTouchedIsNotWatched(t *testing.T) {
	gated := canary
	gated.Approval = true
	l := newLand("eu", "us")
	r, _ := begin(t, l, spec(gated, all))
	if r.Takes(r.Epoch) || r.Overdue(1<<60, 0) {
		t.Error("a timer is waited for")
	}
	if wait, err := r.Operate(order(r, Pause, controltest.Ann), 1); wait >= 0 || err != nil {
		t.Errorf("%v, %v", wait, err)
	}
	if wait, err := r.Operate(order(r, Resume, controltest.Ann), 2); wait >= 0 || err != nil {
		t.Errorf("%v, %v", wait, err)
	}
}

// An approval that is sent twice approves one stage.
func TestAnApprovalIsOfOneStage(t *testing.T) {
	gate := func(region string) plan.Stage {
		return plan.Stage{Regions: []string{region}, BakeMs: 1000, Approval: true}
	}
	l := newLand("eu", "us", "ap")
	s := spec(gate("eu"), gate("us"), gate("ap"))
	s.Plan.BaselineMs = 0
	r, steps := begin(t, l, s)
	first := order(r, Approve, controltest.Ann)
	if _, err := r.Operate(first, l.now.UnixMilli()); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Operate(first, l.now.UnixMilli()); !errors.Is(err, controlplane.ErrConflict) || !strings.Contains(err.Error(), "nothing waits for an approval") {
		t.Errorf("repeated at once: %v", err)
	}
	play(t, r, steps, nil)
	if r.Phase != Awaiting || r.Stage != 1 {
		t.Fatalf("%s of stage %d", r.Phase, r.Stage)
	}
	for says, o := range map[string]Order{
		fmt.Sprintf("stage 2 (asked %d) waits, and the approval names stage 1 (asked %d): look at the status again", r.Asked, first.Asked): first,
		fmt.Sprintf("the approval names stage 2 (asked %d)", r.Asked-1):                                                                    {Action: Approve, By: controltest.Ann, Stage: 2, Asked: r.Asked - 1, Evidence: r.Evidence()},
	} {
		if _, err := r.Operate(o, l.now.UnixMilli()); !errors.Is(err, controlplane.ErrConflict) || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %q", err, says)
		}
	}
	_, err := r.Operate(Order{Action: Approve, By: controltest.Ann}, 1)
	controltest.WantInvalid(t, err, "an approval names its stage and the request that status showed: stage is 0 and asked is 0")
	if r.Phase != Awaiting || r.Stage != 1 {
		t.Errorf("%s of stage %d", r.Phase, r.Stage)
	}
	if _, err := r.Operate(order(r, Approve, controltest.Ann), l.now.UnixMilli()); err != nil || r.Phase != Measuring {
		t.Errorf("%s, %v", r.Phase, err)
	}
}

// A region without a live node cannot give a baseline: the stage waits for it, and then the rollout rolls back. A
// region whose nodes have been silent for so long that they have no rows is gone.
func TestADarkRegionIsNoBaseline(t *testing.T) {
	for _, c := range []struct {
		dark string
		why  string // empty: done
	}{
		{"eu", "stage 1 (eu): region eu is dark: it has no live node, and 2 silent nodes"},
		{"us", "stage 2 (all other regions): region us is dark: it has no live node, and 2 silent nodes"},
		{"", ""},
	} {
		l := newLand("eu", "us")
		r, steps := begin(t, l, spec(canary, all))
		l.fate = func(n *fleet.Row, _ string) { l.dead[n.Heartbeat.NodeID] = n.Heartbeat.Region == c.dark }
		waited := false
		play(t, r, steps, func() bool {
			waited = waited || strings.Contains(r.Waiting, "is dark")
			return r.Phase.Over()
		})
		if c.why == "" {
			if r.Phase != Done {
				t.Errorf("%s %q", r.Phase, r.Why)
			}
			continue
		}
		wantRolledBack(t, r, c.why)
		if !waited && c.dark == "eu" {
			t.Error("it was not waited for")
		}
	}
	l := newLand("eu")
	l.nodes = nil
	l.rows = []tunings.Write{{Region: "eu", Document: defaultDocument}}
	r, steps := begin(t, l, spec(all))
	play(t, r, steps, nil)
	wantRolledBack(t, r, "no node is live: there is nothing to take a baseline from")
}

// A rollout is "rolled back" when no live node reports the withdrawn tuning. Until then it names the nodes that do, and
// after a time it reports trouble.
func TestARollbackIsOverWhenNodesHaveTakenItUp(t *testing.T) {
	l := newLand("eu", "us")
	r, steps := begin(t, l, spec(canary, all))
	play(t, r, steps, func() bool { return r.Phase == Baking })
	l.sick = func(h *heartbeat.Health, hasNew bool) {
		if well(h); hasNew || l.stubborn {
			h.DroppedCost++
		}
	}
	l.stubborn = true
	from := l.now
	play(t, r, steps, func() bool { return r.Trouble != "" || r.Phase.Over() })
	const lag = "2 of 2 live nodes still run the withdrawn tuning: eu1 in eu runs trial 1, eu2 in eu runs trial 1"
	if r.Phase != RollingBack || r.Waiting != lag || r.Trouble != "the rollback has not reached all nodes in time: "+lag {
		t.Errorf("%s, waiting for %q, trouble %q", r.Phase, r.Waiting, r.Trouble)
	}
	if took := l.now.Sub(from); took < 2*time.Minute {
		t.Errorf("trouble after %v", took)
	}
	gaveUp := *r
	if _, err := gaveUp.Operate(order(r, Abort, controlplane.By{Actor: "ben", Reason: "hung"}), l.now.UnixMilli()); err != nil ||
		gaveUp.Phase != Aborted || !strings.HasSuffix(gaveUp.Why, "; ben gave up waiting: hung; "+lag) {
		t.Errorf("%v: %s %q", err, gaveUp.Phase, gaveUp.Why)
	}
	l.stubborn = false
	play(t, r, steps, nil)
	wantRolledBack(t, r, "nodes dropped accepted cost")
	if r.Trouble != "" || r.Waiting != "" {
		t.Errorf("trouble %q, waiting %q", r.Trouble, r.Waiting)
	}
}

// A rollout is "done" when every live node of every region runs the document. A node that fell back while a later stage
// baked prevents it.
func TestDoneIsWhatEveryNodeRuns(t *testing.T) {
	l := newLand("eu", "us")
	r, steps := begin(t, l, spec(canary, all))
	play(t, r, steps, func() bool { return r.Stage == 1 && r.Phase == Baking })
	frozen := false
	l.fate = func(n *fleet.Row, _ string) {
		if n.Heartbeat.NodeID == "eu1" {
			frozen = true
			delete(l.tries, "eu1")
		}
	}
	steps.stubborn = true
	play(t, r, steps, func() bool { return r.Phase == RollingBack })
	if !frozen || !strings.Contains(r.Why, "not all nodes run it when the bake is over: 3 of 4 live nodes have applied it; eu1 in eu runs version 0, not trial 1") {
		t.Errorf("%s %q", r.Phase, r.Why)
	}
}

// A rollback replaces only the rollout's own version. A newer version stays in force, and the history names it.
func TestARollbackLeavesWhatIsNewer(t *testing.T) {
	l := newLand("eu", "us")
	r, steps := begin(t, l, spec(canary, all))
	play(t, r, steps, nil)
	other := controltest.Document("floor=0.7")
	l.rows = append(l.rows, tunings.Write{ID: "r2/apply/us", Region: "us", Document: other})
	inForce, err := steps.on.inForce(r.Touched.rows())
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Overtaken(inForce); !errors.Is(err, controlplane.ErrConflict) || !strings.Contains(err.Error(), "rollout r1 wrote version 2 of region us, which has version 4 since") {
		t.Errorf("%v", err)
	}
	if _, err := r.Operate(order(r, RollBack, controltest.Ann), l.now.UnixMilli()); err != nil { // it came after that look
		t.Fatal(err)
	}
	play(t, r, steps, nil)
	if _, got := l.newest("us"); got != other || r.Phase != RolledBack {
		t.Errorf("us runs %s, %s", got, r.Phase)
	}
	wantFleet(t, l, defaultDocument, "eu")
	if !strings.Contains(fmt.Sprint(r.Events), "not rolled back: region us has version 4, which something else wrote meanwhile") {
		t.Errorf("%+v", r.Events)
	}
}

// An apply is not made if it finds another version than the measured version.
func TestAnApplyIsFenced(t *testing.T) {
	l := newLand("eu", "us")
	r, steps := begin(t, l, spec(canary, all))
	play(t, r, steps, func() bool { return r.Phase == Applying })
	other := controltest.Document("floor=0.7")
	l.rows = append(l.rows, tunings.Write{ID: "r2/apply/eu", Region: "eu", Document: other})
	play(t, r, steps, nil)
	wantRolledBack(t, r, "stage 1 (eu): not applied: region eu has version 1, which something else wrote meanwhile")
	if _, got := l.newest("eu"); got != other || len(l.rows) != 1 {
		t.Errorf("eu runs %s after %d writes", got, len(l.rows))
	}
}

// If Restate has lost a rollout, its ID cannot be used again with another tuning, because its writes have the other
// tuning.
func TestAnIDOfAnotherTuningIsRefused(t *testing.T) {
	l := newLand("eu", "us")
	before := controltest.Document("floor=0.7")
	l.rows = []tunings.Write{{ID: "r1/apply/eu", Region: "eu", Document: before}}
	r, steps := begin(t, l, spec(canary, all))
	if used, err := steps.on.used("r1"); err != nil || used != "the id r1 was used before, and version 1 of region eu has it: choose another id" {
		t.Errorf("%q, %v", used, err)
	}
	play(t, r, steps, nil)
	wantRolledBack(t, r, "not stored: the id of write r1/apply/eu was used before, for another tuning: choose another id")
	if _, got := l.newest("eu"); got != before {
		t.Errorf("eu runs %s", got)
	}
}

// Version 1 of the state does not name the nodes from before the stage. So a rollout under way cannot be watched and
// rolls back, and no newer field is read as zero.
func TestADocumentOfAnOlderBuild(t *testing.T) {
	l := newLand("eu", "us")
	r, steps := begin(t, l, spec(canary, all))
	play(t, r, steps, func() bool { return r.Phase == Baking })
	r.Version, r.Watch, r.Spec.Plan.Guardrails.RestartsPerHour = 1, nil, 0
	over := *r
	over.Phase = Done
	over.Upgrade()
	if over.Version != documentVersion || over.Phase != Done {
		t.Errorf("%+v", over)
	}
	r.Upgrade()
	if r.Spec.Plan.Guardrails.RestartsPerHour != 1 {
		t.Error("no restart is borne")
	}
	play(t, r, steps, nil)
	wantRolledBack(t, r, "the rollout's state is of an older build")
	wantFleet(t, l, defaultDocument, "eu", "us")
}

// "Some 300 bytes of state a node": windows are bounded, whatever the length of a bake.
//
//weir:unraced
func TestTheStateOfAThousandNodesIsBounded(t *testing.T) {
	l := newLand()
	for region := range 10 {
		for n := range 100 {
			l.nodes = append(l.nodes, fleet.Row{Heartbeat: heartbeat.Heartbeat{
				NodeID: fmt.Sprintf("node-%d-%02d.eu-west-1.example", region, n), Region: fmt.Sprintf("region-%d", region), StartedAtMs: controltest.Day.UnixMilli(),
			}})
		}
	}
	l.sick = func(h *heartbeat.Health, _ bool) {
		h.AllowedTotal, h.DeniedTotal = h.AllowedTotal+9000, h.DeniedTotal+1000
		relayRows(h, 800)
	}
	l.pass(time.Second)
	r, steps := begin(t, l, spec(plan.Stage{All: true, BakeMs: 10_000}))
	size := func() int {
		b, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		return len(b)
	}
	play(t, r, steps, func() bool { return r.Phase == Baking && r.DueMs-l.now.UnixMilli() <= 1000 })
	if got := size(); len(r.Watch) != 10 || got > 600<<10 || got < 100<<10 {
		t.Errorf("%d bytes with %d regions", got, len(r.Watch))
	}
	if n := len(r.Watch[3].Nodes[7].Window); n != 5 {
		t.Errorf("%d buckets", n)
	}
	t.Logf("%d bytes at 1,000 nodes", size())
	play(t, r, steps, nil)
	if r.Phase != Done || size() > 32<<10 {
		t.Errorf("%s, %q, %d bytes", r.Phase, r.Why, size())
	}
}
