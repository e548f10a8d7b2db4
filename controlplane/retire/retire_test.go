package retire

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/fleet"
	"github.com/weirhq/weir/controlplane/internal/controltest"
	"github.com/weirhq/weir/shared/heartbeat"
)

// townTable is a table of town.
type townTable struct {
	expired, live int64
	mark          TableMark
	renamedBy     bool // by the retirement; lets the walk check that nothing else is dropped
}

// town is a database and a fleet in memory, and a clock.
type town struct {
	nowMs   int64
	tables  map[string]*townTable
	fence   int64
	problem string // of the fleet's health
	err     error  // every effect fails

	lostAnswers bool // effects happen, but their answers are lost
	drops       int

	controlplane.JobStates // of a ledger
}

func newTown() *town {
	return &town{nowMs: 1_700_000_000_000, tables: map[string]*townTable{Blocklist: {mark: TableMark{NextKey: 1}}}}
}

func (w *town) write(rows int64) {
	t := w.tables[Blocklist]
	t.live += rows
	t.mark.NextKey += rows
	t.mark.LastKey = t.mark.NextKey - 1
}

func (w *town) expire() {
	for _, t := range w.tables {
		t.expired, t.live = t.expired+t.live, 0
	}
}

var townMetrics = controlplane.NewMetrics()

// on returns the effects of a retirement in the town.
func (w *town) on() Steps { return NewWork(w, time.Minute, 0, townMetrics).On(w, nil) }

// Do executes a step once. A look reads the town's figures and health.
func (w *town) Do(name string, answer any, step func(context.Context) (any, error)) error {
	err := controlplane.Once(context.Background()).Do(name, answer, step)
	if look, is := answer.(*Look); is {
		look.Health = Health{Regions: 2, Nodes: 4, Problem: w.problem}
	}
	return err
}

// look returns a look at a retirement's tables.
func (w *town) look(r *Retirement) Look {
	look, _ := w.on().Look(r)
	return look
}

// begins returns the look before the retirement begins.
func (w *town) begins() Look {
	return w.look(&Retirement{Table: Blocklist, Dated: DatedName(Blocklist, w.nowMs)})
}

func (w *town) TableFigures(_ context.Context, name string) (*TableFigures, error) {
	return w.figures(name), w.err
}

func (w *town) FleetNodes(context.Context, int) (now time.Time, nodes []fleet.Row, err error) {
	return time.UnixMilli(w.nowMs), nil, w.err
}

func (w *town) Now(context.Context) (time.Time, error) { return time.UnixMilli(w.nowMs), nil }

func (w *town) figures(name string) *TableFigures {
	t := w.tables[name]
	if t == nil {
		return nil
	}
	return &TableFigures{Rows: t.expired + t.live, Mark: t.mark}
}

func (w *town) answer() error {
	if w.lostAnswers {
		return errors.New("the answer was lost")
	}
	return nil
}

func (w *town) DeleteExpiredBlocklist(_ context.Context, _ time.Time, rows int) (int64, error) {
	if w.err != nil {
		return 0, w.err
	}
	t := w.tables[Blocklist]
	n := min(int64(rows), t.expired)
	t.expired -= n
	return n, w.answer()
}

func (w *town) fenced(fence int64) error {
	if w.err != nil {
		return w.err
	}
	if fence < w.fence {
		return fmt.Errorf("%w: was given up", controlplane.ErrConflict)
	}
	w.fence = fence
	return nil
}

func (w *town) RenameTable(_ context.Context, table, from, to string, fence int64) (names TableNames, err error) {
	if err := w.fenced(fence); err != nil {
		return names, err
	}
	if w.tables[from] != nil && w.tables[to] == nil {
		w.tables[to] = w.tables[from]
		w.tables[to].renamedBy = to != table
		delete(w.tables, from)
	}
	dated := to
	if to == table {
		dated = from
	}
	return TableNames{Table: w.tables[table] != nil, Dated: w.tables[dated] != nil}, w.answer()
}

func (w *town) DropTable(_ context.Context, table, dated string, fence int64) (did TableDrop, err error) {
	if err := w.fenced(fence); err != nil {
		return did, err
	}
	t := w.tables[dated]
	if t != nil {
		did.Rows = t.expired + t.live
	}
	if t != nil && did.Rows == 0 && w.tables[table] == nil {
		delete(w.tables, dated)
		w.drops++
	}
	did.Table, did.Dated = w.tables[table] != nil, w.tables[dated] != nil
	return did, w.answer()
}

var bob = controlplane.By{Actor: "bob", Reason: "looked at it"}

// shows returns an approval by an operator who has just read the status.
func (r *Retirement) shows(by controlplane.By) Order {
	return Order{By: by, Evidence: r.EvidenceHash()}
}

// quickly returns a spec in whole seconds.
func quickly() Spec {
	return Spec{QuietMs: 10_000, SoakMs: 100_000, HealthWithinMs: 5000, BatchRows: 10}
}

func (w *town) retire(t *testing.T) *Retirement {
	t.Helper()
	r, err := New(Blocklist, quickly(), controltest.Ann, w.begins(), w.nowMs)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// play makes steps, with the waits that they return, until the phase is over or most steps are made.
func (w *town) play(t *testing.T, r *Retirement, most int) {
	t.Helper()
	for phase := r.Phase; r.Phase == phase && most > 0; most-- {
		w.step(t, r)
	}
}

func (w *town) step(t *testing.T, r *Retirement) {
	t.Helper()
	wait, err := r.Advance(w.on(), w.nowMs)
	if err != nil {
		t.Fatal(err)
	}
	r.Settle(w.nowMs, wait)
	w.nowMs += max(0, wait).Milliseconds()
}

// until plays from phase to phase, with the approvals that are needed, until a phase begins.
func (w *town) until(t *testing.T, r *Retirement, phase Phase) {
	t.Helper()
	for steps := 0; r.Phase != phase; steps++ {
		var err error
		switch {
		case steps > 1000:
			t.Fatalf("%s is not reached: %s %s %s", phase, r.Phase, r.Waiting, r.Why)
		case r.Phase == Awaiting:
			_, err = r.ApproveRename(r.shows(bob), w.look(r), w.nowMs)
		case r.Phase == AwaitingFinal:
			_, err = r.ApproveDrop(r.shows(bob), w.look(r), w.nowMs)
		default:
			w.step(t, r)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// The phases of an uneventful retirement, and the event that ends each.
func TestRetirementHappyPath(t *testing.T) {
	w := newTown()
	w.write(25)
	r := w.retire(t)
	began := w.nowMs
	if w.play(t, r, 100); r.Phase != Draining || w.nowMs-began < 10_000 || w.nowMs-began > 11_000 {
		t.Fatalf("%s after %d ms", r.Phase, w.nowMs-began)
	}
	if w.play(t, r, 50); r.Phase != Draining || r.RowsDeleted != 0 || r.Waiting != "25 rows are left; each is deleted once it has been expired for --cleanup-grace" || w.tables[Blocklist].live != 25 {
		t.Fatalf("%s: %d rows deleted, %q", r.Phase, r.RowsDeleted, r.Waiting)
	}
	w.expire()
	if w.play(t, r, 50); r.Phase != Awaiting || r.RowsDeleted != 25 || w.tables[Blocklist].expired != 0 {
		t.Fatalf("%s: %d rows deleted", r.Phase, r.RowsDeleted)
	}
	w.nowMs += 1_000_000
	if w.play(t, r, 50); r.Phase != Awaiting || r.Evidence.AtMs < began+1_000_000 {
		t.Fatalf("%s", r.Phase)
	}
	if _, err := r.ApproveDrop(r.shows(bob), w.look(r), w.nowMs); !errors.Is(err, controlplane.ErrConflict) {
		t.Errorf("the drop before the rename: %v", err)
	}
	if _, err := r.ApproveRename(r.shows(bob), w.look(r), w.nowMs); err != nil {
		t.Fatal(err)
	}
	if w.play(t, r, 1); r.Phase != Renamed || w.tables[Blocklist] != nil || w.tables[r.Dated] == nil {
		t.Fatalf("%s, %v", r.Phase, w.tables)
	}
	if _, err := r.ApproveDrop(r.shows(bob), w.look(r), w.nowMs); !errors.Is(err, controlplane.ErrConflict) {
		t.Errorf("the drop during the soak: %v", err)
	}
	renamed := w.nowMs
	if w.play(t, r, 1000); r.Phase != AwaitingFinal || w.nowMs-renamed < 100_000 {
		t.Fatalf("%s after %d ms", r.Phase, w.nowMs-renamed)
	}
	if w.play(t, r, 50); r.Phase != AwaitingFinal || w.drops != 0 {
		t.Fatalf("%s, %d drops", r.Phase, w.drops)
	}
	if _, err := r.ApproveRename(r.shows(bob), w.look(r), w.nowMs); !errors.Is(err, controlplane.ErrConflict) || r.Phase != AwaitingFinal {
		t.Errorf("the first approval once more: %v", err)
	}
	if _, err := r.ApproveDrop(r.shows(bob), w.look(r), w.nowMs); err != nil {
		t.Fatal(err)
	}
	if w.play(t, r, 1); r.Phase != Dropped || w.drops != 1 || len(w.tables) != 0 || r.EndedMs != w.nowMs {
		t.Fatalf("%s, %v", r.Phase, w.tables)
	}
	var what []string
	for _, e := range r.Events {
		what = append(what, e.Actor+" "+e.What)
	}
	want := "ann start, weir-control draining, weir-control awaiting_approval, bob approve rename, weir-control renamed, weir-control awaiting_final_approval, bob approve drop, weir-control dropped"
	if got := strings.Join(what, ", "); got != want {
		t.Errorf("history %s\nwant    %s", got, want)
	}
}

// Events in each phase, and the phase that each leads to.
func TestRetirementTransitions(t *testing.T) {
	write := func(w *town, _ *Retirement) { w.write(1) }
	abort := func(w *town, r *Retirement) { _, _ = r.Abort(controltest.Ann, w.nowMs) }
	anew := func(w *town, _ *Retirement) { w.tables[Blocklist] = &townTable{mark: TableMark{NextKey: 1}} }
	rowInside := func(w *town, r *Retirement) { w.tables[r.Dated].live++ }
	for _, tc := range []struct {
		in    Phase
		what  string
		do    func(*town, *Retirement)
		to    Phase
		says  string   // in Why or Waiting
		after []string // the tables that exist
	}{
		{Observing, "a write", write, Observing, "a row was written", []string{"old"}},
		{Observing, "counts fail", func(w *town, _ *Retirement) { w.problem = "eu-1 has not flushed" }, Observing, "eu-1 has not flushed", []string{"old"}},
		{Observing, "the table is gone", func(w *town, _ *Retirement) { clear(w.tables) }, Observing, "there is no table", nil},
		{Observing, "abort", abort, Aborted, "aborted by ann", []string{"old"}},
		{Draining, "a write", write, Observing, "a row was written while draining", []string{"old"}},
		{Draining, "abort", abort, Aborted, "aborted by ann", []string{"old"}},
		{Awaiting, "a write", write, Observing, "a row was written", []string{"old"}},
		{Awaiting, "counts fail", func(w *town, _ *Retirement) { w.problem = "no node" }, Awaiting, "no node", []string{"old"}},
		{Awaiting, "abort", abort, Aborted, "aborted by ann", []string{"old"}},
		{Renaming, "a write", write, Observing, "a row was written before the rename", []string{"old"}},
		{Renaming, "a rename that was not noted", func(w *town, r *Retirement) {
			_, _ = w.on().rename(r.Table, r.Table, r.Dated, r.Fence)
		}, Renamed, "", []string{"dated"}},
		{Renaming, "such a one, and the name made anew", func(w *town, r *Retirement) {
			_, _ = w.on().rename(r.Table, r.Table, r.Dated, r.Fence)
			anew(w, r)
		}, Aborted, "was left as it is", []string{"old", "dated"}},
		{Renaming, "abort", abort, Aborted, "aborted by ann", []string{"old"}},
		{Renamed, "a row from before the rename", rowInside, Observing, "a row is in it", []string{"old"}},
		{Renamed, "the name made anew", anew, Renamed, "a new table ratelimit_blocklist was created", []string{"old", "dated"}},
		{Renamed, "renamed back by hand", func(w *town, r *Retirement) {
			w.tables[Blocklist] = w.tables[r.Dated]
			delete(w.tables, r.Dated)
		}, Observing, "another process gave the table", []string{"old"}},
		{Renamed, "abort", abort, Aborted, "aborted by ann", []string{"old"}},
		{Renamed, "the name made anew, and abort", func(w *town, r *Retirement) { anew(w, r); abort(w, r) }, Aborted, "was left as it is", []string{"old", "dated"}},
		{AwaitingFinal, "a row", rowInside, Observing, "a row is in it", []string{"old"}},
		{AwaitingFinal, "the name made anew", anew, Renamed, "a new table", []string{"old", "dated"}},
		{AwaitingFinal, "abort", abort, Aborted, "aborted by ann", []string{"old"}},
		{AwaitingFinal, "dropped by hand", func(w *town, _ *Retirement) { clear(w.tables) }, Renamed, "any more: abort", nil},
		{AwaitingFinal, "dropped by hand, and abort", func(w *town, r *Retirement) { clear(w.tables); abort(w, r) }, Aborted, "is there any more", nil},
		{Dropping, "nothing", func(*town, *Retirement) {}, Dropped, "", nil},
		{Dropping, "a row", rowInside, Observing, "a row is in it", []string{"old"}},
		{Dropping, "the name made anew", anew, Aborted, "was left as it is", []string{"old", "dated"}},
		{Dropping, "abort before the drop", abort, Aborted, "aborted by ann", []string{"old"}},
		{Dropping, "abort after the drop", func(w *town, r *Retirement) {
			_, _ = w.on().drop(r.Table, r.Dated, r.Fence)
			abort(w, r)
		}, Dropped, "aborted by ann", nil},
	} {
		w := newTown()
		r := w.retire(t)
		if tc.in == Draining {
			w.write(1)
		}
		w.until(t, r, tc.in)
		tc.do(w, r)
		said := r.Why + r.Waiting
		for range 3 {
			if r.UnderWay() && r.Phase != tc.to || r.Phase == tc.in && r.UnderWay() {
				w.step(t, r)
				said += " " + r.Why + r.Waiting
			}
		}
		var names []string
		for name, short := range map[string]string{Blocklist: "old", r.Dated: "dated"} {
			if w.tables[name] != nil {
				names = append(names, short)
			}
		}
		if r.Phase != tc.to || !strings.Contains(said, tc.says) || len(names) != len(tc.after) || len(names) == 1 && names[0] != tc.after[0] {
			t.Errorf("%s, %s: %s (%s) with %v, want %s with %v", tc.in, tc.what, r.Phase, said, names, tc.to, tc.after)
		}
		if r.Phase == Observing && (r.Rename != nil || r.Drop != nil) {
			t.Errorf("%s, %s: an approval outlives what it was given for", tc.in, tc.what)
		}
	}
}

// "The evidence is the same that was shown and still holds in look", for both approvals.
func TestApprovalsLookForThemselves(t *testing.T) {
	for _, tc := range []struct {
		in      Phase
		approve func(*Retirement, Order, Look, int64) (time.Duration, error)
	}{
		{Awaiting, (*Retirement).ApproveRename},
		{AwaitingFinal, (*Retirement).ApproveDrop},
	} {
		at := func() (*town, *Retirement) {
			w := newTown()
			r := w.retire(t)
			w.until(t, r, tc.in)
			return w, r
		}
		w, r := at()
		if _, err := tc.approve(r, r.shows(controlplane.By{Actor: "ann"}), w.look(r), w.nowMs); !errors.Is(err, controlplane.ErrInvalid) || r.Phase != tc.in {
			t.Errorf("%s without a reason: %s, %v", tc.in, r.Phase, err)
		}
		w.problem = "us-1 in us has not imported for 3m"
		if _, err := tc.approve(r, r.shows(controltest.Ann), w.look(r), w.nowMs); !errors.Is(err, controlplane.ErrConflict) || !strings.Contains(err.Error(), w.problem) || r.Phase != tc.in {
			t.Errorf("%s while counts fail: %s, %v", tc.in, r.Phase, err)
		}
		w, r = at()
		for _, table := range w.tables {
			table.mark.NextKey++ // a row was inserted and deleted
		}
		if _, err := tc.approve(r, r.shows(controltest.Ann), w.look(r), w.nowMs); !errors.Is(err, controlplane.ErrConflict) || !strings.Contains(err.Error(), "does not hold any more") {
			t.Errorf("%s after a write: %v", tc.in, err)
		}
		w.until(t, r, Observing)
		if r.Rename != nil || w.tables[Blocklist] == nil {
			t.Errorf("%s after a write: %+v, %v", tc.in, r.Rename, w.tables)
		}
	}
}

// Observing lasts until there was no write and counts were healthy for the whole time.
func TestObservingBeginsAnew(t *testing.T) {
	for what, upset := range map[string]func(*town){
		"a write":     func(w *town) { w.write(1); w.expire() },
		"counts fail": func(w *town) { w.problem = "x" },
	} {
		w := newTown()
		r := w.retire(t)
		for w.nowMs < r.StartedMs+9000 {
			w.step(t, r)
		}
		upset(w)
		w.step(t, r)
		w.problem = ""
		upsetMs := w.nowMs
		if w.play(t, r, 100); r.Phase != Draining || w.nowMs-upsetMs < 9_000 {
			t.Errorf("%s: %s after %d ms", what, r.Phase, w.nowMs-upsetMs)
		}
	}
}

func TestRetirementRefusals(t *testing.T) {
	w := newTown()
	look := w.look(&Retirement{Table: Blocklist, Dated: "none"})
	change := func(f func(*Spec)) Spec {
		s := DefaultSpec()
		f(&s)
		return s
	}
	for says, tc := range map[string]struct {
		table string
		spec  Spec
		by    controlplane.By
		look  Look
	}{
		`table is "ratelimit_window_counts" (ratelimit_blocklist)`: {"ratelimit_window_counts", DefaultSpec(), controltest.Ann, look},
		"reason is empty":                         {Blocklist, DefaultSpec(), controlplane.By{Actor: "ann"}, look},
		"quiet_ms is 99 (100 to 7776000000)":      {Blocklist, change(func(s *Spec) { s.QuietMs = 99 }), controltest.Ann, look},
		"soak_ms is -1 (100 to":                   {Blocklist, change(func(s *Spec) { s.SoakMs = -1 }), controltest.Ann, look},
		"health_within_ms is 0 (1000 to 3600000)": {Blocklist, change(func(s *Spec) { s.HealthWithinMs = 0 }), controltest.Ann, look},
		"batch_rows is 50001 (1 to 50000)":        {Blocklist, change(func(s *Spec) { s.BatchRows = 50_001 }), controltest.Ann, look},
		"there is no table ratelimit_blocklist":   {Blocklist, DefaultSpec(), controltest.Ann, Look{}},
		"_retired_20231114_221320 exists already": {Blocklist, DefaultSpec(), controltest.Ann, Look{Table: look.Table, Dated: look.Table}},
	} {
		if _, err := New(tc.table, tc.spec, tc.by, tc.look, w.nowMs); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %q", err, says)
		}
	}
	r := w.retire(t)
	r.Version++
	if err := r.Check(); !errors.Is(err, controlplane.ErrConflict) {
		t.Errorf("a newer build's: %v", err)
	}
}

// A timer of an earlier epoch is stale, and a timer that is late for long is lost.
func TestRetirementTimers(t *testing.T) {
	w := newTown()
	r := w.retire(t)
	r.Settle(w.nowMs, 5*time.Second)
	if !r.Takes(1) || r.Takes(0) || r.TimerMs != w.nowMs+5000 {
		t.Errorf("epoch %d, due %d", r.Epoch, r.TimerMs)
	}
	if r.Overdue(w.nowMs+6000, time.Second) || !r.Overdue(w.nowMs+6001, time.Second) {
		t.Error("overdue at another time")
	}
	_, _ = r.Abort(controltest.Ann, w.nowMs)
	if r.Takes(1) || r.Overdue(w.nowMs+1e9, 0) {
		t.Error("one that is over waits for a timer")
	}
	if _, err := r.Abort(controltest.Ann, w.nowMs); !errors.Is(err, controlplane.ErrConflict) {
		t.Errorf("abort again: %v", err)
	}
	if none := (&Retirement{}); none.UnderWay() || none.Overdue(1e15, 0) {
		t.Error("there is none")
	}
}

// JudgeCounts requires a live node and a relay in every region with a recent heartbeat. The relay must have published
// and read changes within withinMs before its last heartbeat.
func TestJudgeCounts(t *testing.T) {
	node := func(region string, live bool, inStep int64, held ...int) fleet.Node {
		n := fleet.Node{Live: live}
		n.NodeID, n.Region, n.SentAtMs = region+"-1", region, 100_000
		n.Health = heartbeat.Health{Relay: &heartbeat.Relay{Shards: 1, Held: held, InStepAtMs: inStep}}
		return n
	}
	good := node("eu", true, 99_000, 0)
	for problem, fleet := range map[string]fleet.Fleet{
		"": {Nodes: []fleet.Node{good, node("eu", true, 0), node("us", true, 95_000, 0)}},
		"us-1 in us has sent or read no changes for 5.001s": {Nodes: []fleet.Node{good, node("us", true, 94_999, 0)}},
		"us-1 in us has sent and read no changes yet":       {Nodes: []fleet.Node{good, node("us", true, 0, 0)}},
		"region us has no live node":                        {Nodes: []fleet.Node{good, node("us", false, 99_000, 0)}},
		"no node of region us relays shard 0":               {Nodes: []fleet.Node{good, node("us", true, 0), node("us", false, 99_000, 0)}},
		"no node of region us has a relay":                  {Nodes: []fleet.Node{good, {Live: true, Heartbeat: heartbeat.Heartbeat{Region: "us"}}}},
		"no node sends heartbeats":                          {},
		"there are more than 10000 nodes":                   {Nodes: []fleet.Node{good}, Truncated: true},
	} {
		if h := JudgeCounts(fleet, 5000); h.Problem != problem && (problem == "" || !strings.HasPrefix(h.Problem, problem)) {
			t.Errorf("%q, want %q", h.Problem, problem)
		}
	}
	if h := JudgeCounts(fleet.Fleet{Nodes: []fleet.Node{good, node("eu", false, 0), node("us", true, 99_000, 0)}}, 5000); h != (Health{Regions: 2, Nodes: 2}) {
		t.Errorf("%+v", h)
	}
}
