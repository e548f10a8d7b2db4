package rollout

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/audit"
	"github.com/weirhq/weir/controlplane/fleet"
	"github.com/weirhq/weir/controlplane/internal/controltest"
	"github.com/weirhq/weir/controlplane/rollout/plan"
	"github.com/weirhq/weir/controlplane/tunings"
	"github.com/weirhq/weir/shared/heartbeat"
	"github.com/weirhq/weir/shared/settings"
	"github.com/weirhq/weir/shared/tuning"
)

// land is a fleet and its database in memory, in a time of its own. Every node takes a second to apply its tuning, and
// sends a heartbeat every second.
type land struct {
	now   time.Time
	skew  time.Duration // of the database's clock
	nodes []fleet.Row
	rows  []tunings.Write // index + 1 is the version
	saves []Row           // oldest first
	err   error           // of every statement
	stubborn,
	silent bool // nodes apply nothing, or send no heartbeats
	sick   func(*heartbeat.Health, bool)       // effects of a second on a node, with or without the new tuning
	fate   func(n *fleet.Row, document string) // further effects on a node that should run a document; may be nil
	runs   map[string]int64                    // the stored version that each node has, reported or not
	tries  map[string]lease                    // the trial that each node runs in its place
	trials []landTrial                         // index + 1 is the number
	dead   map[string]bool                     // nodes that have died
	left   []string                            // nodes that were shut down in order, and have no row
	limited
	effect func(h *heartbeat.Health, node, region, mode string) // of a second of a trial of limits on a node; may be nil
}

func newLand(regions ...string) *land {
	l := &land{now: controltest.Day, dead: map[string]bool{}, runs: map[string]int64{}, tries: map[string]lease{}, sick: func(h *heartbeat.Health, _ bool) { h.AllowedTotal += 90; h.DeniedTotal += 10 }}
	for _, r := range regions {
		for _, n := range []string{"1", "2"} {
			l.nodes = append(l.nodes, fleet.Row{Heartbeat: heartbeat.Heartbeat{NodeID: r + n, Region: r, StartedAtMs: 1}})
		}
	}
	l.pass(time.Second)
	return l
}

// landTrial is a row of a trial.
type landTrial struct {
	tunings.TrialWrite
	endsMs int64 // by the clock of the database
}

// lease is a trial that a node runs, and the time at which it ends unless the node reads a renewal.
type lease struct {
	number int64
	until  time.Time
}

func (l *land) databaseMs() int64 { return l.now.Add(l.skew).UnixMilli() }

// own returns a region's own newest version, 0 if it has none.
func (l *land) own(region string) (version int64) {
	for i, w := range l.rows {
		if w.Region == region {
			version = int64(i + 1)
		}
	}
	return version
}

// trial returns the number of the trial that nodes of a region should run, and the time left; 0: none.
func (l *land) trial(region string) (number int64, left time.Duration) {
	for _, of := range []string{region, ""} {
		for i, row := range slices.Backward(l.trials) {
			if row.Region != of {
				continue
			}
			if leftMs := row.endsMs - l.databaseMs(); leftMs > 0 && l.own(of) == row.Over && !l.voids(row.Document) {
				return int64(i + 1), time.Duration(leftMs) * time.Millisecond
			}
			break
		}
		if l.own(region) != 0 {
			return 0, 0
		}
	}
	return 0, 0
}

// inForce returns the document that a node of a region should run.
func (l *land) inForce(id, region string) string {
	if number, _ := l.trial(region); number != 0 && tuning.TrialShare(id) < l.trials[number-1].Below {
		return l.trials[number-1].Document
	}
	_, document := l.newest(region)
	return document
}

// take makes a node read its settings.
func (l *land) take(id, region string) {
	l.runs[id], _ = l.newest(region)
	delete(l.tries, id)
	if number, left := l.trial(region); number != 0 && tuning.TrialShare(id) < l.trials[number-1].Below {
		l.tries[id] = lease{number, l.now.Add(left)}
	}
}

// run returns the document that a node runs, and the number of its trial.
func (l *land) run(id string) (document string, trial int64) {
	if t, tries := l.tries[id]; tries {
		return l.trials[t.number-1].Document, t.number
	}
	_, document = documentOf(l, l.runs[id])
	return document, 0
}

// newest returns the version stored for a region, and its document.
func (l *land) newest(region string) (version int64, document string) {
	for _, want := range []string{region, ""} {
		for i, w := range slices.Backward(l.rows) {
			if w.Region == want {
				return int64(i + 1), w.Document
			}
		}
	}
	return 0, defaultDocument
}

// pass lets time pass, in seconds.
func (l *land) pass(d time.Duration) {
	for end := l.now.Add(max(d, time.Millisecond)); l.now.Before(end); {
		l.now = l.now.Add(min(time.Second, end.Sub(l.now)))
		for i := range l.nodes {
			n := &l.nodes[i]
			document := l.inForce(n.Heartbeat.NodeID, n.Heartbeat.Region)
			if t, tries := l.tries[n.Heartbeat.NodeID]; tries && !l.now.Before(t.until) {
				delete(l.tries, n.Heartbeat.NodeID)
			}
			if l.fate != nil && !l.dead[n.Heartbeat.NodeID] {
				l.fate(n, document)
			}
			if l.dead[n.Heartbeat.NodeID] {
				continue
			}
			if !l.stubborn {
				l.take(n.Heartbeat.NodeID, n.Heartbeat.Region)
			}
			if l.silent {
				continue
			}
			var h heartbeat.Health
			_ = json.Unmarshal([]byte(n.Health), &h)
			l.sick(&h, document == document30)
			runs, trial := l.run(n.Heartbeat.NodeID)
			if h.Trial != trial {
				h.Limits = nil
			}
			h.Trial, h.TuningHash = trial, hashed(runs)
			if limits, err := settings.ReadLimitsTrial([]byte(runs)); err == nil && l.effect != nil {
				if h.Limits == nil {
					h.Limits = new(heartbeat.Limits)
				}
				l.effect(&h, n.Heartbeat.NodeID, n.Heartbeat.Region, limits.Mode)
			}
			text, _ := json.Marshal(h)
			n.Heartbeat.TuningVersion = l.runs[n.Heartbeat.NodeID]
			n.Health, n.SeenAt, n.Heartbeat.SentAtMs = string(text), l.now.Add(l.skew), l.now.UnixMilli()
		}
	}
}

func (l *land) FleetNodes(context.Context, int) (time.Time, []fleet.Row, error) {
	rows := slices.Clone(l.nodes)
	for _, id := range l.left {
		rows = slices.DeleteFunc(rows, func(n fleet.Row) bool { return n.Heartbeat.NodeID == id })
		rows = append(rows, fleet.Row{Left: true, Heartbeat: heartbeat.Heartbeat{NodeID: id}})
	}
	return l.now.Add(l.skew), rows, l.err
}

func (l *land) NewestTunings(context.Context) (newest []tunings.RegionTuning, err error) {
	seen := map[string]bool{}
	for i, w := range slices.Backward(l.rows) {
		if !seen[w.Region] {
			seen[w.Region] = true
			newest = append(newest, tunings.RegionTuning{Region: w.Region, Version: int64(i + 1), Document: w.Document})
		}
	}
	return newest, l.err
}

func (l *land) WriteTunings(_ context.Context, writes []tunings.Write) (written tunings.Written, err error) {
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
		i := slices.IndexFunc(rows, func(have tunings.Write) bool { return have.ID == w.ID })
		switch {
		case i >= 0 && (rows[i].Document != w.Document || rows[i].Region != w.Region):
			return tunings.Written{Refused: &tunings.Refusal{ID: w.ID, Region: w.Region, Newest: newest(w.Region), IDTaken: true}}, nil
		case i < 0 && newest(w.Region) != over:
			return tunings.Written{Refused: &tunings.Refusal{ID: w.ID, Region: w.Region, Newest: newest(w.Region)}}, nil
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

func (l *land) WriteTrials(_ context.Context, writes []tunings.TrialWrite, _ audit.Entry) (written tunings.TrialsWritten, err error) {
	trials := slices.Clone(l.trials)
	for _, w := range writes {
		i := slices.IndexFunc(trials, func(have landTrial) bool { return have.ID == w.ID })
		switch {
		case i >= 0 && (trials[i].Document != w.Document || trials[i].Region != w.Region):
			return tunings.TrialsWritten{Refused: &tunings.Refusal{ID: w.ID, Region: w.Region, IDTaken: true}}, l.err
		case (i < 0 || trials[i].Below < w.Below) && l.own(w.Region) != w.Over:
			return tunings.TrialsWritten{Refused: &tunings.Refusal{ID: w.ID, Region: w.Region, Newest: l.own(w.Region)}}, l.err
		case i < 0:
			trials = append(trials, landTrial{w, l.databaseMs() + w.LeaseMs})
			i = len(trials) - 1
		}
		trials[i].Below = max(trials[i].Below, w.Below)
		written.Numbers = append(written.Numbers, int64(i+1))
	}
	if l.err != nil {
		return tunings.TrialsWritten{}, l.err
	}
	if l.voids(writes[0].Document) {
		return tunings.TrialsWritten{Refused: &tunings.Refusal{ID: writes[0].ID, Conflict: "edited"}}, nil
	}
	l.trials = trials
	return written, nil
}

func (l *land) RenewTrials(_ context.Context, ids []string, leaseMs int64, change *settings.Change) (renewed tunings.TrialsRenewed, err error) {
	if change != nil {
		if conflicts := change.Conflicts(&l.stored); conflicts.Items() > 0 {
			return tunings.TrialsRenewed{Ended: &tunings.TrialEnded{Conflict: Differences(conflicts)}}, l.err
		}
	}
	trials := slices.Clone(l.trials)
	for _, id := range ids {
		i := slices.IndexFunc(trials, func(have landTrial) bool { return have.ID == id })
		if i < 0 {
			return tunings.TrialsRenewed{Ended: &tunings.TrialEnded{Lost: id}}, l.err
		}
		t := &trials[i]
		switch own := l.own(t.Region); {
		case own != t.Over:
			return tunings.TrialsRenewed{Ended: &tunings.TrialEnded{Region: t.Region, Newer: own}}, l.err
		case t.endsMs <= l.databaseMs():
			return tunings.TrialsRenewed{Ended: &tunings.TrialEnded{Region: t.Region}}, l.err
		}
		t.endsMs = l.databaseMs() + leaseMs
	}
	if l.err == nil {
		l.trials = trials
	}
	return renewed, l.err
}

func (l *land) EndTrials(_ context.Context, writes []tunings.TrialWrite) (numbers []int64, err error) {
	if l.err != nil {
		return nil, l.err
	}
	l.trials = slices.Clone(l.trials)
	for _, w := range writes {
		i := slices.IndexFunc(l.trials, func(have landTrial) bool { return have.ID == w.ID })
		if i < 0 {
			l.trials = append(l.trials, landTrial{TrialWrite: w})
			i = len(l.trials) - 1
		}
		l.trials[i].endsMs = 0
		numbers = append(numbers, int64(i+1))
	}
	return numbers, nil
}

// saved returns the index of a rollout's row; less than 0: it has none.
func (l *land) saved(id string) int {
	return savedIn(l.saves, id)
}

func savedIn(saves []Row, id string) int {
	return slices.IndexFunc(saves, func(r Row) bool { return r.ID == id })
}

func (l *land) SaveRollout(_ context.Context, row Row) error {
	if l.err != nil {
		return l.err
	}
	i := l.saved(row.ID)
	switch {
	case i < 0:
		l.saves = append(slices.Clip(l.saves), row)
	case l.saves[i].Saved < row.Saved:
		l.saves = slices.Clone(l.saves)
		l.saves[i] = row
	case l.saves[i] != row:
		return fmt.Errorf("%w: rollout %s has moved on", controlplane.ErrConflict, row.ID)
	}
	return nil
}

func (l *land) NewerRollout(_ context.Context, id string, saved int64) (string, error) {
	if i := l.saved(id); i >= 0 && l.saves[i].Saved > saved {
		return l.saves[i].State, l.err
	}
	return "", l.err
}

func (l *land) RolloutRecorded(_ context.Context, id string) (bool, error) {
	return l.saved(id) >= 0, l.err
}

func (l *land) Rollouts(context.Context, int) (traces []Trace, err error) {
	for _, row := range slices.Backward(l.saves) {
		traces = append(traces, Trace{Saved: row.Saved, Summary: Summary{ID: row.ID, By: row.By, StartedMs: row.StartedMs,
			Phase: row.Phase}})
	}
	return traces, l.err
}

func (l *land) TuningsOf(_ context.Context, id string, _ int) (of []tunings.RegionTuning, err error) {
	for i, w := range l.rows {
		if strings.HasPrefix(w.ID, id+"/") {
			of = append(of, tunings.RegionTuning{Region: w.Region, Version: int64(i + 1), Document: w.Document})
		}
	}
	return of, l.err
}

// inLand executes steps once each, in the time of the land.
type inLand struct {
	*land
	on Steps
}

func newInLand(l *land) inLand {
	return inLand{l, NewWork(l, 30*time.Second).On(landJournal{l})}
}

// landJournal is a journal whose clock is the land's.
type landJournal struct{ *land }

func (j landJournal) Do(name string, answer any, step func(context.Context) (any, error)) error {
	if name == controlplane.StepNow {
		*answer.(*int64) = j.now.UnixMilli()
		return j.err
	}
	return controlplane.Once(context.Background()).Do(name, answer, step)
}

var defaultDocument, document30 = controltest.Document(), controltest.Document("floor=0.3")

var bob = controlplane.By{Actor: "bob", Reason: "looked at it"}

func spec(stages ...plan.Stage) Spec {
	p := plan.DefaultPlan()
	p.Stages, p.BaselineMs = stages, 10_000
	return Spec{Tuning: document30, Plan: p}
}

// longBaseline returns a spec with a baseline of two minutes, the default, because ten seconds without an error are
// little evidence.
func longBaseline(s Spec) Spec {
	s.Plan.BaselineMs = 120_000
	return s
}

var (
	canary = plan.Stage{Regions: []string{"eu"}, BakeMs: 60_000}
	all    = plan.Stage{All: true, BakeMs: 60_000}
)

// order returns an action by an operator who has just read the status.
func order(r *Rollout, action Action, by controlplane.By) Order {
	return Order{Action: action, By: by, Stage: r.Stage + 1, Asked: max(r.Asked, 1), Evidence: r.Evidence()}
}

func begin(t testing.TB, l *land, s Spec) (*Rollout, inLand) {
	t.Helper()
	steps := newInLand(l)
	regions, err := steps.on.regions()
	if err != nil {
		t.Fatal(err)
	}
	r, err := New("r1", s, controltest.Ann, regions, l.now.UnixMilli())
	if err != nil {
		t.Fatal(err)
	}
	return r, steps
}

// play advances until nothing is due, or until is reached. Without until, it stops when the rollout waits for a person.
func play(t testing.TB, r *Rollout, steps inLand, until func() bool) {
	t.Helper()
	for range 10_000 {
		if until != nil && until() || until == nil && (r.Paused != nil || r.Phase == Awaiting) {
			return
		}
		wait := makeTransition(t, r, steps)
		if wait < 0 {
			return
		}
		steps.pass(wait)
	}
	t.Fatalf("no end: %+v", r)
}

// makeTransition makes the transition that is due, and returns the time until the next, or less than 0.
func makeTransition(t testing.TB, r *Rollout, steps inLand) time.Duration {
	t.Helper()
	wait, err := r.Advance(steps.on)
	if err != nil {
		t.Fatal(err)
	}
	r.Settle(wait)
	return wait
}

func wantFleet(t testing.TB, l *land, document string, regions ...string) {
	t.Helper()
	for _, region := range append(regions, "") {
		if _, got := l.newest(region); got != document {
			t.Errorf("region %q runs %s, want %s", region, got, document)
		}
	}
	wantNoTrial(t, l, append(regions, "")...)
}

func wantNoTrial(t interface{ Errorf(string, ...any) }, l *land, regions ...string) {
	for _, region := range regions {
		if number, left := l.trial(region); number != 0 {
			t.Errorf("region %q has trial %d for another %v", region, number, left)
		}
	}
}

// hashes caches hashes of documents, because many tests use the same few.
var hashes sync.Map

func hashed(document string) string {
	if h, known := hashes.Load(document); known {
		return h.(string)
	}
	h := tunings.HashOf(document)
	hashes.Store(document, h)
	return h
}
