package controlplane

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/shared/heartbeat"
	"github.com/weirhq/weir/shared/tuning"
)

// land is a fleet and its database in memory, in a time of its own. Every node takes a
// second to take its tuning up, and speaks every second.
type land struct {
	now   time.Time
	skew  time.Duration // of the database's clock
	nodes []FleetRow
	rows  []TuningWrite // index + 1 is the version
	err   error         // of every statement
	stubborn,
	silent bool // nodes do not take anything up, or do not speak
	sick func(*heartbeat.Health, bool)      // what a second does to a node, with or without the new tuning
	fate func(n *FleetRow, document string) // what else it does to one that is to run a document; may be nil
	runs map[string]int64                   // the version that each node runs, whether it has said so or not
	dead map[string]bool                    // nodes that do nothing any more
}

func newLand(regions ...string) *land {
	l := &land{now: day, dead: map[string]bool{}, runs: map[string]int64{}, sick: func(h *heartbeat.Health, _ bool) { h.AllowedTotal += 90; h.DeniedTotal += 10 }}
	for _, r := range regions {
		for _, n := range []string{"1", "2"} {
			l.nodes = append(l.nodes, FleetRow{Beat: heartbeat.Beat{NodeID: r + n, Region: r, StartedAtMs: 1}})
		}
	}
	l.pass(time.Second)
	return l
}

// newest is the version in force for a region, and its document.
func (l *land) newest(region string) (version int64, document string) {
	for _, want := range []string{region, ""} {
		for i, w := range slices.Backward(l.rows) {
			if w.Region == want {
				return int64(i + 1), w.Document
			}
		}
	}
	d, _ := tuning.Default().Document()
	return 0, string(d)
}

// pass lets time pass, in seconds.
func (l *land) pass(d time.Duration) {
	for end := l.now.Add(max(d, time.Millisecond)); l.now.Before(end); {
		l.now = l.now.Add(min(time.Second, end.Sub(l.now)))
		for i := range l.nodes {
			n := &l.nodes[i]
			version, document := l.newest(n.Beat.Region)
			if l.fate != nil && !l.dead[n.Beat.NodeID] {
				l.fate(n, document)
			}
			if l.dead[n.Beat.NodeID] {
				continue
			}
			if !l.stubborn {
				l.runs[n.Beat.NodeID] = version
			}
			if l.silent {
				continue
			}
			var h heartbeat.Health
			_ = json.Unmarshal([]byte(n.Health), &h)
			l.sick(&h, document == string(document30))
			text, _ := json.Marshal(h)
			n.Beat.TuningVersion = l.runs[n.Beat.NodeID]
			n.Health, n.SeenAt, n.Beat.SentAtMs = string(text), l.now.Add(l.skew), l.now.UnixMilli()
		}
	}
}

func (l *land) FleetNodes(context.Context, int) (time.Time, []FleetRow, error) {
	return l.now.Add(l.skew), slices.Clone(l.nodes), l.err
}

func (l *land) NewestTunings(context.Context) (newest []RegionTuning, err error) {
	seen := map[string]bool{}
	for i, w := range slices.Backward(l.rows) {
		if !seen[w.Region] {
			seen[w.Region] = true
			newest = append(newest, RegionTuning{Region: w.Region, Version: int64(i + 1), Document: w.Document})
		}
	}
	return newest, l.err
}

func (l *land) WriteTunings(_ context.Context, writes []TuningWrite) (written TuningsWritten, err error) {
	if l.err != nil {
		return written, l.err
	}
	rows := slices.Clone(l.rows)
	newest := func(region string) (version int64) {
		for i, w := range rows {
			if w.Region == region {
				version = int64(i + 1)
			}
		}
		return version
	}
	own := map[string]int64{}
	for _, w := range writes {
		over, again := own[w.Region]
		if !again {
			over = w.Over
		}
		i := slices.IndexFunc(rows, func(have TuningWrite) bool { return have.ID == w.ID })
		switch {
		case i >= 0 && (rows[i].Document != w.Document || rows[i].Region != w.Region):
			return TuningsWritten{Refused: &TuningRefusal{ID: w.ID, Region: w.Region, Newest: newest(w.Region), IDTaken: true}}, nil
		case i < 0 && newest(w.Region) != over:
			return TuningsWritten{Refused: &TuningRefusal{ID: w.ID, Region: w.Region, Newest: newest(w.Region)}}, nil
		case i < 0:
			rows = append(rows, w)
			i = len(rows) - 1
		}
		own[w.Region] = int64(i + 1)
		written.Versions = append(written.Versions, int64(i+1))
	}
	l.rows = rows
	return written, nil
}

func (l *land) TracesOfTunings(context.Context, int) (traces []TuningTrace, err error) {
	for i, w := range slices.Backward(l.rows) {
		id, _, _ := strings.Cut(w.ID, "/")
		if !slices.ContainsFunc(traces, func(t TuningTrace) bool { return t.ID == id }) {
			traces = append(traces, TuningTrace{ID: id, By: w.By, Newest: int64(i + 1)})
		}
	}
	return traces, l.err
}

func (l *land) TuningsOf(_ context.Context, id string, _ int) (of []RegionTuning, err error) {
	for i, w := range l.rows {
		if strings.HasPrefix(w.ID, id+"/") {
			of = append(of, RegionTuning{Region: w.Region, Version: int64(i + 1), Document: w.Document})
		}
	}
	return of, l.err
}

// inLand executes steps once each, in the time of the land.
type inLand struct {
	*land
	work *RolloutWork
}

func (s inLand) NowMs() (int64, error) { return s.now.UnixMilli(), s.err }
func (s inLand) InForce(regions []string) ([]RegionTuning, error) {
	return s.work.InForce(context.Background(), regions)
}
func (s inLand) Write(writes []TuningWrite) (TuningsWritten, error) {
	return s.work.Write(context.Background(), writes)
}
func (s inLand) Look(scope RolloutScope) (FleetLook, error) {
	return s.work.Look(context.Background(), scope)
}
func (s inLand) Queries(regions []string, rails []QueryRail) ([]QueryValue, error) {
	return s.work.Queries(context.Background(), regions, rails)
}

var document30 = func() []byte {
	d, err := mustTuning(`{"floor":0.3}`).Document()
	if err != nil {
		panic(err)
	}
	return d
}()

func mustTuning(document string) tuning.Tuning {
	t, err := tuning.Read([]byte(document))
	if err != nil {
		panic(err)
	}
	return t
}

var ann = By{Actor: "ann", Reason: "fewer rows"}

func spec(stages ...RolloutStage) RolloutSpec {
	plan := DefaultRolloutPlan()
	plan.Stages, plan.BaselineMs = stages, 10_000
	return RolloutSpec{Tuning: string(document30), Plan: plan}
}

var (
	canary = RolloutStage{Regions: []string{"eu"}, BakeMs: 60_000}
	all    = RolloutStage{All: true, BakeMs: 60_000}
)

// order is an action by somebody who has just looked.
func order(r *Rollout, action RolloutAction, by By) RolloutOrder {
	return RolloutOrder{Action: action, By: by, Stage: r.Stage + 1, Asked: max(r.Asked, 1)}
}

func begin(t testing.TB, l *land, s RolloutSpec) (*Rollout, inLand) {
	t.Helper()
	steps := inLand{l, NewRolloutWork(l, 30*time.Second)}
	regions, err := steps.work.Regions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r, err := NewRollout("r1", s, ann, regions, l.now.UnixMilli())
	if err != nil {
		t.Fatal(err)
	}
	return r, steps
}

// play advances until nothing is due, or until is reached; without it, until a person is
// waited for.
func play(t testing.TB, r *Rollout, steps inLand, until func() bool) {
	t.Helper()
	for range 10_000 {
		if until != nil && until() || until == nil && (r.Paused != nil || r.Phase == RolloutAwaiting) {
			return
		}
		wait, err := r.Advance(steps)
		if err != nil {
			t.Fatal(err)
		}
		r.Settle(wait)
		if wait < 0 {
			return
		}
		steps.pass(wait)
	}
	t.Fatalf("no end: %+v", r)
}

func wantFleet(t testing.TB, l *land, document string, regions ...string) {
	t.Helper()
	for _, region := range append(regions, "") {
		if _, got := l.newest(region); got != document {
			t.Errorf("region %q runs %s, want %s", region, got, document)
		}
	}
}

func defaultDocument() string {
	d, _ := tuning.Default().Document()
	return string(d)
}

// Each stage: write the tuning version for the stage's regions -> wait until every live
// node there reports it applied -> bake -> next stage.
func TestRolloutReachesTheFleetStageByStage(t *testing.T) {
	l := newLand("eu", "us", "ap")
	r, steps := begin(t, l, spec(canary, RolloutStage{SharePercent: 60, BakeMs: 60_000}, all))
	play(t, r, steps, func() bool { return r.Phase == RolloutBaking })
	for region, want := range map[string]string{"eu": string(document30), "us": defaultDocument(), "ap": defaultDocument()} {
		if _, got := l.newest(region); got != want {
			t.Errorf("while the canary bakes %s runs %s", region, got)
		}
	}
	if at := l.now; at.Sub(day) < 10*time.Second {
		t.Errorf("no baseline was taken: it bakes after %v", at.Sub(day))
	}
	play(t, r, steps, nil)
	if r.Phase != RolloutDone || r.Why != "" || r.EndedMs != l.now.UnixMilli() {
		t.Errorf("%s, %q", r.Phase, r.Why)
	}
	wantFleet(t, l, string(document30), "eu", "us", "ap", "a region to come")
	var order []string
	for _, w := range l.rows {
		order = append(order, w.Region)
		if w.Actor != "ann" || w.Reason != "rollout r1: fewer rows" {
			t.Errorf("by %+v", w.By)
		}
	}
	if !slices.Equal(order, []string{"eu", "ap", "us", ""}) {
		t.Errorf("written in the order %q", order)
	}
	if least := 3 * 70 * time.Second; l.now.Sub(day) < least {
		t.Errorf("three stages of 10 s and 60 s took %v", l.now.Sub(day))
	}
}

// A rollout rolls back every region touched, in reverse, to the previous version, and the
// status says in one line why: the figure, its bound, the node and the region, of whichever
// stage that is.
func TestRolloutRollsBackOnABreach(t *testing.T) {
	for name, tc := range map[string]struct {
		sick func(*heartbeat.Health)
		why  string
	}{
		"errors":   {func(h *heartbeat.Health) { h.SettingsErrors++ }, "stage 1 (eu): errors of relays and settings a node and minute: 12, more than 6 (before the stage 0), of node eu1 in region eu"},
		"rows":     {func(h *heartbeat.Health) { relayRows(h, 5000) }, "stage 1 (eu): MySQL rows of a region's relays a second: 2000, more than 1000 (before the stage 0), of region eu"},
		"denials":  {func(h *heartbeat.Health) { h.DeniedTotal += 80 }, "stage 2 (all other regions): share of denied decisions: 0.3571, off by more than 0.2 (before the stage 0.1), of node us1 in region us"},
		"degraded": {func(h *heartbeat.Health) { h.DegradedTotal += 50 }, "stage 1 (eu): share of decisions without the origin: 0.05263, more than 0.01 (before the stage 0), of node eu1 in region eu"},
		"slow":     {func(h *heartbeat.Health) { h.DecisionP99Us = 5000 }, "stage 1 (eu): decision latency in µs: 5000, more than 1000 (before the stage 0), of node eu1 in region eu"},
		"dropped":  {func(h *heartbeat.Health) { h.DroppedCost = 3 }, "stage 1 (eu): nodes dropped accepted cost: 3, more than 0, of node eu1 in region eu"},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLand("eu", "us", "ap")
			l.rows = []TuningWrite{{Region: "us", Document: string(mustDocument(`{"floor":0.6}`))}}
			r, steps := begin(t, l, spec(canary, all))
			play(t, r, steps, func() bool { return r.Stage == 1 && r.Phase == RolloutBaking })
			l.sick = func(h *heartbeat.Health, hasNew bool) {
				h.AllowedTotal += 90
				h.DeniedTotal += 10
				if hasNew {
					tc.sick(h)
				}
			}
			from := l.now
			play(t, r, steps, nil)
			if r.Phase != RolloutRolledBack || r.Why != tc.why {
				t.Errorf("%s, %q", r.Phase, r.Why)
			}
			if took := l.now.Sub(from); took > time.Minute {
				t.Errorf("it took %v, more than a bake", took)
			}
			wantFleet(t, l, defaultDocument(), "eu", "ap")
			if _, got := l.newest("us"); got != string(mustDocument(`{"floor":0.6}`)) {
				t.Errorf("us had a tuning of its own, and now runs %s", got)
			}
			var order []string
			for _, w := range l.rows[5:] {
				order = append(order, w.Region)
			}
			if !slices.Equal(order, []string{"", "us", "ap", "eu"}) {
				t.Errorf("reverted in the order %q", order)
			}
		})
	}
}

func mustDocument(document string) []byte {
	b, err := mustTuning(document).Document()
	if err != nil {
		panic(err)
	}
	return b
}

// A stage waits until every live node reports the version applied, or times out.
func TestRolloutRollsBackWhatNodesDoNotApply(t *testing.T) {
	l := newLand("eu", "us")
	r, steps := begin(t, l, spec(canary, all))
	l.stubborn = true
	play(t, r, steps, nil)
	if r.Phase != RolloutRolledBack || r.Why != "stage 1 (eu): not applied in time: 0 of 2 live nodes have applied it; eu1 in eu runs version 0, not 1" {
		t.Errorf("%s, %q", r.Phase, r.Why)
	}
	wantFleet(t, l, defaultDocument(), "eu", "us")
}

// Nodes that fall silent while a stage bakes cannot say that all is well.
func TestRolloutRollsBackWhenNodesFallSilent(t *testing.T) {
	l := newLand("eu", "us")
	r, steps := begin(t, l, spec(canary, all))
	play(t, r, steps, func() bool { return r.Phase == RolloutBaking })
	l.silent = true
	play(t, r, steps, nil)
	if r.Phase != RolloutRolledBack || !strings.Contains(r.Why, "nodes not heard of any more: 2 of 2") {
		t.Errorf("%s, %q", r.Phase, r.Why)
	}
}

// A node that starts anew counts from 0: that is no drop, and no loss.
func TestRestartsDuringABake(t *testing.T) {
	l := newLand("eu")
	r, steps := begin(t, l, spec(canary))
	play(t, r, steps, func() bool { return r.Phase == RolloutBaking })
	for i := range l.nodes {
		l.nodes[i].Beat.StartedAtMs, l.nodes[i].Health = 2, `{}`
	}
	play(t, r, steps, nil)
	if r.Phase != RolloutDone {
		t.Errorf("%s, %q", r.Phase, r.Why)
	}
}

// A stage that needs a person stands still until one approves; the one before bakes
// without.
func TestRolloutWaitsForApproval(t *testing.T) {
	l := newLand("eu", "us")
	gated := all
	gated.Approval = true
	r, steps := begin(t, l, spec(canary, gated))
	if _, err := r.Operate(order(r, RolloutApprove, ann), 1); !errors.Is(err, ErrConflict) {
		t.Errorf("an approval that nobody asked for: %v", err)
	}
	play(t, r, steps, nil)
	if r.Phase != RolloutAwaiting || r.Stage != 1 {
		t.Fatalf("%s of stage %d", r.Phase, r.Stage)
	}
	if _, got := l.newest("us"); got != defaultDocument() {
		t.Error("applied without an approval")
	}
	if wait, err := r.Operate(order(r, RolloutApprove, ann), l.now.UnixMilli()); wait != 0 || err != nil {
		t.Errorf("%v, %v", wait, err)
	}
	play(t, r, steps, nil)
	if r.Phase != RolloutDone {
		t.Errorf("%s, %q", r.Phase, r.Why)
	}
}

// A paused rollout goes nowhere, though what it has touched is watched; once resumed a stage
// bakes in full.
func TestRolloutPause(t *testing.T) {
	l := newLand("eu", "us")
	r, steps := begin(t, l, spec(canary, all))
	play(t, r, steps, func() bool { return r.Phase == RolloutBaking && l.now.Sub(day) > 60*time.Second })
	if wait, err := r.Operate(order(r, RolloutSuspend, ann), l.now.UnixMilli()); wait <= 0 || err != nil || !r.Takes(r.Epoch) {
		t.Errorf("%v, %v", wait, err)
	}
	if _, err := r.Operate(order(r, RolloutSuspend, ann), 1); !errors.Is(err, ErrConflict) || !strings.Contains(err.Error(), "baking, paused by ann") {
		t.Errorf("paused twice: %v", err)
	}
	paused := l.now
	play(t, r, steps, func() bool { return l.now.Sub(paused) > time.Hour })
	if r.Phase != RolloutBaking || r.Paused == nil {
		t.Errorf("%s", r.Phase)
	}
	if wait, err := r.Operate(order(r, RolloutResume, ann), l.now.UnixMilli()); wait != 0 || err != nil || !r.Takes(r.Epoch) {
		t.Errorf("%v, %v", wait, err)
	}
	resumed := l.now
	play(t, r, steps, func() bool { return r.Stage == 1 })
	if baked := l.now.Sub(resumed); baked < time.Minute {
		t.Errorf("it baked for %v more", baked)
	}
	play(t, r, steps, nil)
	if r.Phase != RolloutDone {
		t.Errorf("%s, %q", r.Phase, r.Why)
	}
}

// Exactly one outcome, with the fleet's tuning consistent with it: whatever operators
// do at whatever moment, whichever steps fail or are executed twice, and however sick
// nodes become.
func TestRolloutHasOneOutcome(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := newLand("eu", "us", "ap")
		gated := all
		gated.Approval = rapid.Bool().Draw(t, "gated")
		r, steps := beginRapid(t, l, spec(canary, RolloutStage{SharePercent: 50, BakeMs: 5_000}, gated))
		outcomes := 0
		actions := []RolloutAction{"", "", "", "", RolloutApprove, RolloutSuspend, RolloutResume, RolloutAbort, "sick", "stubborn", "mute", "kill", "fail", "lose"}
		over := func() bool { return r.Phase.Over() }
		for range rapid.IntRange(0, 60).Draw(t, "moves") {
			if over() {
				break
			}
			switch a := rapid.SampledFrom(actions).Draw(t, "action"); a {
			case "":
				if r.Takes(r.Epoch) {
					advance(t, r, steps)
				}
			case "sick":
				l.sick = func(h *heartbeat.Health, hasNew bool) {
					if hasNew {
						h.SettingsErrors += 10
					}
				}
			case "stubborn":
				l.stubborn = !l.stubborn
			case "mute": // for less than it takes to be lost
				l.silent = true
				l.pass(time.Duration(rapid.IntRange(1, 5).Draw(t, "seconds")) * time.Second)
				l.silent = false
			case "kill":
				l.dead[l.nodes[rapid.IntRange(0, len(l.nodes)-1).Draw(t, "victim")].Beat.NodeID] = true
			case "fail": // nothing is written down of a step that fails
				l.err = errors.New("MySQL is down")
				if _, err := clone(t, r).Advance(steps); err == nil && r.Takes(r.Epoch) {
					t.Fatalf("%s: a failing step went unseen", r.Phase)
				}
				l.err = nil
			case "lose": // executed, and its answer lost
				if r.Takes(r.Epoch) {
					_, _ = clone(t, r).Advance(steps)
				}
			default:
				_, _ = r.Operate(order(r, a, ann), l.now.UnixMilli())
			}
		}
		for range 5_000 {
			if over() {
				break
			}
			if r.Phase == RolloutRollingBack { // nodes that never follow are waited for for ever
				l.stubborn = false
			}
			switch {
			case r.Paused != nil:
				_, _ = r.Operate(order(r, RolloutResume, ann), l.now.UnixMilli())
			case r.Phase == RolloutAwaiting:
				_, _ = r.Operate(order(r, RolloutApprove, ann), l.now.UnixMilli())
			default:
				advance(t, r, steps)
			}
		}
		for _, e := range r.Events {
			if RolloutPhase(e.What).Over() {
				outcomes++
			}
		}
		if !over() || outcomes != 1 {
			t.Fatalf("%s, with %d outcomes: %+v", r.Phase, outcomes, r.Events)
		}
		want := defaultDocument()
		if r.Phase == RolloutDone {
			want = string(document30)
		}
		for _, n := range l.nodes { // what is said of nodes is so
			if _, ran := documentOf(l, l.runs[n.Beat.NodeID]); l.now.Sub(n.SeenAt) < 30*time.Second && ran != want {
				t.Fatalf("%s, and %s runs %s", r.Phase, n.Beat.NodeID, ran)
			}
		}
		for _, region := range []string{"eu", "us", "ap", ""} {
			if _, got := l.newest(region); got != want {
				t.Fatalf("%s, and %q runs %s", r.Phase, region, got)
			}
		}
		writes := map[string]bool{}
		for _, w := range l.rows {
			if writes[w.ID] {
				t.Fatalf("%s is written twice", w.ID)
			}
			writes[w.ID] = true
		}
	})
}

func documentOf(l *land, version int64) (int64, string) {
	if version == 0 {
		return 0, defaultDocument()
	}
	return version, l.rows[version-1].Document
}

func beginRapid(t *rapid.T, l *land, s RolloutSpec) (*Rollout, inLand) {
	r, err := NewRollout("r1", s, ann, []string{"eu", "us", "ap"}, l.now.UnixMilli())
	if err != nil {
		t.Fatal(err)
	}
	return r, inLand{l, NewRolloutWork(l, 30*time.Second)}
}

func advance(t *rapid.T, r *Rollout, steps inLand) {
	wait, err := r.Advance(steps)
	if err != nil {
		t.Fatal(err)
	}
	r.Epoch++
	steps.pass(max(wait, 0))
	*r = *clone(t, r) // nothing lives but the document
}

func clone(t *rapid.T, r *Rollout) *Rollout {
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var c Rollout
	if err := json.Unmarshal(b, &c); err != nil {
		t.Fatal(err)
	}
	return &c
}

// An attempt at a write that arrives after the rollback changes nothing.
func TestALateWriteChangesNothing(t *testing.T) {
	l := newLand("eu", "us")
	r, steps := begin(t, l, spec(canary, all))
	play(t, r, steps, func() bool { return r.Phase == RolloutApplying })
	late := r.applyWrite(r.Touched[0])
	if _, err := r.Operate(order(r, RolloutAbort, ann), l.now.UnixMilli()); err != nil {
		t.Fatal(err)
	}
	play(t, r, steps, nil)
	if _, err := steps.Write([]TuningWrite{late}); err != nil {
		t.Fatal(err)
	}
	if r.Phase != RolloutAborted || r.Why != "aborted by ann: fewer rows" {
		t.Errorf("%s, %q", r.Phase, r.Why)
	}
	wantFleet(t, l, defaultDocument(), "eu", "us")
}

func TestAFinishedRolloutIsRolledBack(t *testing.T) {
	l := newLand("eu", "us")
	r, steps := begin(t, l, spec(canary, all))
	play(t, r, steps, nil)
	if _, err := r.Operate(order(r, RolloutAbort, ann), 1); !errors.Is(err, ErrConflict) || !strings.Contains(err.Error(), "take it back with rollback") {
		t.Errorf("%v", err)
	}
	if _, err := r.Operate(order(r, RolloutTakeBack, ann), l.now.UnixMilli()); err != nil {
		t.Fatal(err)
	}
	play(t, r, steps, nil)
	if r.Phase != RolloutRolledBack || r.Why != "rolled back by ann: fewer rows" {
		t.Errorf("%s, %q", r.Phase, r.Why)
	}
	wantFleet(t, l, defaultDocument(), "eu", "us")
	for _, action := range []RolloutAction{RolloutApprove, RolloutSuspend, RolloutResume, RolloutAbort, RolloutTakeBack} {
		if _, err := r.Operate(order(r, action, ann), 1); !errors.Is(err, ErrConflict) {
			t.Errorf("%s of one that is rolled back: %v", action, err)
		}
	}
	if _, err := r.Operate(order(r, "explode", ann), 1); !errors.Is(err, ErrInvalid) {
		t.Error(err)
	}
	if _, err := r.Operate(order(r, RolloutResume, By{Actor: "ann"}), 1); !errors.Is(err, ErrInvalid) {
		t.Error(err)
	}
}

func TestRolloutSpecRefusals(t *testing.T) {
	good := spec(canary, all)
	for words, change := range map[string]func(*RolloutSpec){
		"floor is 2":                                 func(s *RolloutSpec) { s.Tuning = `{"floor":2}` },
		"the plan has 0 stages (1 to 20)":            func(s *RolloutSpec) { s.Plan.Stages = nil },
		"stage 1: invalid: want exactly one of":      func(s *RolloutSpec) { s.Plan.Stages[0].All = true },
		"stage 1 covers all regions and is not":      func(s *RolloutSpec) { s.Plan.Stages = []RolloutStage{all, all} },
		"share_percent is 101 (1 to 100)":            func(s *RolloutSpec) { s.Plan.Stages[0] = RolloutStage{SharePercent: 101} },
		"bake_ms is 99 (100 to 604800000)":           func(s *RolloutSpec) { s.Plan.Stages[1].BakeMs = 99 },
		"baseline_ms is -1 (0 to 3600000)":           func(s *RolloutSpec) { s.Plan.BaselineMs = -1 },
		"apply_timeout_ms is 999 (1000 to 86400000)": func(s *RolloutSpec) { s.Plan.ApplyTimeoutMs = 999 },
		"guardrail rows_per_second: factor is 0.5":   func(s *RolloutSpec) { s.Plan.Guardrails.RowsPerSecond.Factor = 0.5 },
		"guardrail latency_us: least is -1":          func(s *RolloutSpec) { s.Plan.Guardrails.LatencyUs.Least = -1 },
		"denied_share_shift is 1.1 (0 to 1)":         func(s *RolloutSpec) { s.Plan.Guardrails.DeniedShareShift = 1.1 },
		"nodes_lost_share is -0.1 (0 to 1)":          func(s *RolloutSpec) { s.Plan.Guardrails.NodesLostShare = -0.1 },
		"restarts_per_hour is 11 (0 to 10)":          func(s *RolloutSpec) { s.Plan.Guardrails.RestartsPerHour = 11 },
		`stage 1: region "mars" has no live node`:    func(s *RolloutSpec) { s.Plan.Stages[0].Regions = []string{"mars"} },
	} {
		bad := good
		bad.Plan.Stages = slices.Clone(good.Plan.Stages)
		change(&bad)
		_, err := NewRollout("r1", bad, ann, []string{"eu", "us"}, 1)
		wantInvalid(t, err, words)
	}
	for _, id := range []string{"", "a/b", "a b", strings.Repeat("x", 65)} {
		if _, err := NewRollout(id, good, ann, []string{"eu"}, 1); !errors.Is(err, ErrInvalid) {
			t.Errorf("id %q: %v", id, err)
		}
	}
	if _, err := NewRollout("r1", good, By{}, []string{"eu"}, 1); !errors.Is(err, ErrInvalid) {
		t.Errorf("by nobody: %v", err)
	}
}

// A canary region → a share of regions → all: a region is covered once, and a share
// counts those that have been covered.
func TestStagesCoverRegionsOnce(t *testing.T) {
	plan := DefaultRolloutPlan()
	plan.Stages = []RolloutStage{{Regions: []string{"d"}, BakeMs: 100}, {SharePercent: 10, BakeMs: 100}, {SharePercent: 50, BakeMs: 100}, {All: true, BakeMs: 100}}
	stages, err := plan.resolve([]string{"e", "d", "c", "b", "a", "a"})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range stages {
		got = append(got, fmt.Sprint(s.Scope.Regions, s.Scope.rows()))
	}
	if want := []string{"[d] [d]", "[a b] [a b]", "[c e] [c e ]"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	last := stages[2].Scope
	for region, want := range map[string]bool{"a": false, "c": true, "d": false, "to come": true} {
		if last.Has(region) != want {
			t.Errorf("the last stage has %s: %v", region, !want)
		}
	}
}

// A state document is versioned: one of a newer build is left alone.
func TestADocumentOfANewerBuild(t *testing.T) {
	if err := (&Rollout{Version: rolloutVersion}).Check(); err != nil {
		t.Error(err)
	}
	if err := (&Rollout{Version: rolloutVersion + 1}).Check(); err == nil || !strings.Contains(err.Error(), "run the newer weir-control") {
		t.Error(err)
	}
}

// A timer is lost when it is later than can be explained; what waits for a person, or is
// over, has none to lose.
func TestRolloutIsDeadWhenItsTimerIsLate(t *testing.T) {
	l := newLand("eu")
	r, steps := begin(t, l, spec(RolloutStage{All: true, BakeMs: 1000}))
	at := l.now.UnixMilli()
	wait, err := r.Advance(steps)
	if err != nil {
		t.Fatal(err)
	}
	epoch := r.Epoch
	r.Settle(wait)
	if r.Epoch != epoch+1 || r.TimerMs != at+wait.Milliseconds() {
		t.Errorf("epoch %d after %d, timer at %d", r.Epoch, epoch, r.TimerMs)
	}
	for _, c := range []struct {
		what   string
		change func(*Rollout)
		afterS int64
		want   bool
	}{
		{"due", func(*Rollout) {}, 0, false},
		{"a little late", func(*Rollout) {}, 10, false},
		{"too late", func(*Rollout) {}, 11, true},
		{"paused", func(r *Rollout) { r.Paused = &RolloutPause{} }, 11, false},
		{"waits for a person", func(r *Rollout) { r.Phase = RolloutAwaiting }, 11, false},
		{"paused, with something to watch", func(r *Rollout) { r.Paused, r.Touched = &RolloutPause{}, []Touched{{}} }, 11, true},
		{"waits for a person, with something to watch", func(r *Rollout) { r.Phase, r.Touched = RolloutAwaiting, []Touched{{}} }, 11, true},
		{"over", func(r *Rollout) { r.Phase = RolloutDone }, 11, false},
		{"written by an older build", func(r *Rollout) { r.TimerMs = 0 }, 0, true},
	} {
		one := *r
		c.change(&one)
		if got := one.Overdue(r.TimerMs+1000*c.afterS, 10*time.Second); got != c.want {
			t.Errorf("%s: dead is %v", c.what, got)
		}
	}
	r.Revive(at + 99)
	r.Settle(0)
	if last := r.Events[len(r.Events)-1]; last.What != "revive" || r.TimerMs != at+99 {
		t.Errorf("%+v, timer at %d", last, r.TimerMs)
	}
}
