package controlplane

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

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
	began []TuningTrace // oldest first
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

func (l *land) RecordRollout(_ context.Context, trace TuningTrace) error {
	if l.err == nil && !slices.ContainsFunc(l.began, func(t TuningTrace) bool { return t.ID == trace.ID }) {
		l.began = append(slices.Clip(l.began), trace)
	}
	return l.err
}

func (l *land) RolloutRecorded(_ context.Context, id string) (bool, error) {
	return slices.ContainsFunc(l.began, func(t TuningTrace) bool { return t.ID == id }), l.err
}

func (l *land) TracesOfTunings(context.Context, int) (traces []TuningTrace, err error) {
	for _, began := range slices.Backward(l.began) {
		for i, w := range l.rows {
			if strings.HasPrefix(w.ID, began.ID+"/") {
				began.Newest = int64(i + 1)
			}
		}
		traces = append(traces, began)
	}
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

func mustDocument(document string) []byte {
	b, err := mustTuning(document).Document()
	if err != nil {
		panic(err)
	}
	return b
}
