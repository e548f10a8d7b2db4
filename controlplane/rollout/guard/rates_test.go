package guard

import (
	"slices"
	"testing"
	"time"

	"github.com/weirhq/weir/controlplane/fleet"
	"github.com/weirhq/weir/controlplane/internal/controltest"
	"github.com/weirhq/weir/controlplane/rollout/plan"
)

// regionWatch returns a region after some looks: the first ends its baseline, and the others follow.
func regionWatch(before []fleet.NodeFigures, since ...[]fleet.NodeFigures) RegionWatch {
	w := RegionWatch{Region: "eu"}
	w.observe(before, true, false)
	w.rotate(0)
	for _, look := range since {
		w.observe(look, false, false)
	}
	return w
}

func tally(errors, decisions, denied, rows, dropped int64) (t fleet.Tally) {
	t[fleet.TallyErrors], t[fleet.TallyDecisions], t[fleet.TallyDenied], t[fleet.TallyRows], t[fleet.TallyDropped] = errors, decisions, denied, rows, dropped
	return t
}

// A restarted node counts from 0, so all of its counts, and its time, are since the restart. A node without a new
// heartbeat adds nothing, and a node that is gone is lost.
func TestRatesOfARegion(t *testing.T) {
	w := regionWatch([]fleet.NodeFigures{
		{ID: "runs", StartedMs: 1, SentMs: 1000, SeenMs: 1000, Totals: tally(100, 1000, 500, 10, 0)},
		{ID: "restarts", StartedMs: 1, SentMs: 1000, SeenMs: 1000, Totals: tally(1000, 5000, 5000, 0, 7)},
		{ID: "silent", StartedMs: 1, SentMs: 1000, SeenMs: 1000},
		{ID: "gone", StartedMs: 1, SentMs: 1000, SeenMs: 1000},
	}, []fleet.NodeFigures{
		{ID: "runs", StartedMs: 1, SentMs: 31_000, SeenMs: 31_000, Totals: tally(103, 1100, 510, 70, 0)},
		{ID: "restarts", StartedMs: 21_000, SentMs: 31_000, SeenMs: 31_000, Totals: tally(5, 100, 40, 0, 0)},
		{ID: "silent", StartedMs: 1, SentMs: 1000, SeenMs: 1000, Totals: tally(99, 0, 0, 0, 0)},
	})
	r := w.rates(0)
	if r.Nodes != 2 || r.NodesLost != 1 || r.DroppedCost != 0 {
		t.Errorf("%+v", r)
	}
	for name, f := range map[string]struct {
		got  *float64
		want float64
	}{
		"errors a node and minute": {r.ErrorsPerMinute, 12}, // 3 + 5 in 30 s and 10 s
		"rows a region and second": {r.RowsPerSecond, 3},    // 60 in 20 s of both
		"share denied":             {r.DeniedShare, 0.25},   // 10 + 40 of 100 + 100
		"share degraded":           {r.DegradedShare, 0},
	} {
		if f.got == nil || *f.got != f.want {
			t.Errorf("%s: %v, want %v", name, f.got, f.want)
		}
	}
	if r := w.rates(time.Minute); *r.ErrorsPerMinute != 4 { // as if each node had reported for a minute
		t.Errorf("errors in less than a minute: %v", *r.ErrorsPerMinute)
	}
	few := regionWatch([]fleet.NodeFigures{{ID: "a", SeenMs: 1}}, []fleet.NodeFigures{{ID: "a", SeenMs: 2, Totals: tally(0, decisionsMin-1, 50, 0, 0)}})
	if r := few.rates(0); r.DeniedShare != nil {
		t.Errorf("a share of %d decisions: %v", decisionsMin-1, *r.DeniedShare)
	}
}

// Counters that fall mean a restart, even if the start time is unchanged, and never give figures below zero.
func TestCountersThatFallAreARestart(t *testing.T) {
	w := regionWatch([]fleet.NodeFigures{{ID: "a", StartedMs: 1, SeenMs: 1000, Totals: tally(100, 0, 0, 9000, 0)}},
		[]fleet.NodeFigures{{ID: "a", StartedMs: 1, SeenMs: 61_000, Totals: tally(2, 0, 0, 60, 0)}},
		[]fleet.NodeFigures{{ID: "a", StartedMs: 1, SeenMs: 121_000, Totals: tally(4, 0, 0, 120, 0)}})
	if r := w.rates(0); *r.ErrorsPerMinute != 2 || *r.RowsPerSecond != 1 || !slices.Equal(w.Nodes[0].Restarts, []int64{61_000}) {
		t.Errorf("%v errors, %v rows, restarts %v", *r.ErrorsPerMinute, *r.RowsPerSecond, w.Nodes[0].Restarts)
	}
}

// Optional figures of nodes are compared with their ceilings if they are reported.
func TestReportedFigures(t *testing.T) {
	row := fleet.Row{Health: `{"relay":{"shards":1,"held":[0],"lag_p99_ms":{"us":300,"ap":40000}},"decision_p99_us":12}`, SeenAt: controltest.Day}
	row.Heartbeat.NodeID, row.Heartbeat.Region = "n", "eu"
	node := fleet.ReadNode(row, controltest.Day, 0)
	look := fleet.TakeLook(fleet.Fleet{Nodes: []fleet.Node{node, {Live: true, Heartbeat: node.Heartbeat}}}, fleet.Scope{Rest: true})
	slow := look.Nodes[0].ConvergenceMs
	if slow == nil || *slow != 40000 || *look.Nodes[0].LatencyUs != 12 || look.Nodes[1].ConvergenceMs != nil {
		t.Fatalf("%+v", look)
	}
	g := plan.DefaultGuardrails()
	held := func(before, now fleet.HealthRates) string {
		j := judgement{bounds: bounds{g}, baseline: before, now: now, over: &Overdue{}, others: true}
		j.note(0)
		why, _ := j.worst()
		return why
	}
	if got := held(fleet.HealthRates{}, fleet.HealthRates{ConvergenceMs: slow}); got != "convergence delay in ms: 40000, more than 30000 (before the stage 0)" {
		t.Errorf("%q", got)
	}
	if got := held(fleet.HealthRates{ConvergenceMs: slow}, fleet.HealthRates{ConvergenceMs: slow}); got != "" {
		t.Errorf("as before: %q", got)
	}
	for _, health := range []string{`{}`, `{"allowed_total":9}`} { // too few decisions to measure
		row.Health = health
		if quiet := fleet.ReadNode(row, controltest.Day, 0); quiet.Reported.LatencyUs != nil {
			t.Errorf("%s: %v µs", health, *quiet.Reported.LatencyUs)
		}
	}
	quick, slower := 1.0, 4000.0
	if got := held(fleet.HealthRates{LatencyUs: &slower}, fleet.HealthRates{}); got != "" {
		t.Errorf("no latency measured: %q", got)
	}
	if got := held(fleet.HealthRates{}, fleet.HealthRates{LatencyUs: &slower}); got != "decision latency in µs: 4000, more than 1000 (before the stage 0)" {
		t.Errorf("no latency measured before the stage: %q", got)
	}
	noise := 900.0
	if got := held(fleet.HealthRates{LatencyUs: &quick}, fleet.HealthRates{LatencyUs: &noise}); got != "" {
		t.Errorf("noise below a millisecond: %q", got)
	}
	g.ConvergenceMs.Off = true
	if got := held(fleet.HealthRates{}, fleet.HealthRates{ConvergenceMs: slow}); got != "" {
		t.Errorf("turned off: %q", got)
	}
}

// A node is compared with its own past or its region's, whichever is more lenient, so moving callers between nodes is
// not a breach.
func TestANodeMayDoWhatItsRegionDid(t *testing.T) {
	g := plan.DefaultGuardrails()
	idle := fleet.NodeFigures{ID: "idle", SeenMs: 1000, Totals: tally(0, 0, 0, 0, 0)}
	busy := fleet.NodeFigures{ID: "busy", SeenMs: 1000}
	w := RegionWatch{Region: "eu"}
	w.observe([]fleet.NodeFigures{idle, busy}, true, false)
	idle.SeenMs, busy.SeenMs = 61_000, 61_000
	busy.Totals = tally(0, 60_000, 36_000, 60*1800, 0)
	w.observe([]fleet.NodeFigures{idle, busy}, true, false)
	for i := range int64(watchBuckets) {
		w.rotate(0)
		idle.SeenMs, busy.SeenMs = idle.SeenMs+60_000, busy.SeenMs+60_000
		idle.Totals = tally(0, 60_000*(i+1), 36_000*(i+1), 60*1800*(i+1), 0)
		w.observe([]fleet.NodeFigures{idle, busy}, false, false)
		if why := breachIn(g, &w, idle.SeenMs, time.Minute); why != "" {
			t.Errorf("the nodes changed roles: %s", why)
		}
	}
	for range watchBuckets {
		w.rotate(0)
		idle.SeenMs += 60_000
		idle.Totals[fleet.TallyDecisions], idle.Totals[fleet.TallyDenied] = idle.Totals[fleet.TallyDecisions]+60_000, idle.Totals[fleet.TallyDenied]+51_000
		w.observe([]fleet.NodeFigures{idle, busy}, false, false)
	}
	want := "share of denied decisions: 0.85, off by more than 0.18 (before the stage 0.6), of node idle in region eu"
	g.DeniedShareShift = 0.18
	if why := breachIn(g, &w, idle.SeenMs, time.Minute); why != want {
		t.Errorf("%q, want %q", why, want)
	}
}
