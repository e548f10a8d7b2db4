package retire

import (
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/internal/controltest"
)

// A table is never dropped without both approvals, an abort always restores, and rows that have not expired are never
// deleted. The test is a random walk of steps, failures, lost answers, attempts that were given up and arrive late,
// writes, new tables with the old name, and operators.
func TestRetirementWalk(t *testing.T) {
	outcomes := map[Phase]int{}
	rapid.Check(t, func(t *rapid.T) {
		w := newTown()
		spec := quickly()
		spec.Quorum = controlplane.Quorum{Approvers: 2, ApprovalTTLMs: 60_000}
		r, err := New(Blocklist, spec, controltest.Ann, w.begins(), w.nowMs)
		if err != nil {
			t.Fatal(err)
		}
		walk := &walker{T: t, town: w, r: r, renames: map[string]int64{}, drops: map[string]int64{},
			counted: map[Order]bool{}}
		for range rapid.IntRange(1, 120).Draw(t, "moves") {
			walk.move()
			walk.check()
		}
		walk.finish()
		outcomes[r.Phase]++
	})
	t.Logf("outcomes: %v", outcomes)
	if len(outcomes) != 2 {
		t.Errorf("nothing was proven: %v", outcomes)
	}
}

type walker struct {
	*rapid.T
	town *town
	r    *Retirement

	renames, drops map[string]int64 // the approvers and the time, since the table last had its name
	counted        map[Order]bool
	shown          []Order  // approvals of earlier evidence, which arrive late or again
	late           []func() // attempts that were given up, and may still arrive
	ended          *Retirement
}

func (w *walker) move() {
	switch rapid.IntRange(0, 15).Draw(w.T, "move") {
	default:
		for range 4 {
			w.step()
			w.check()
		}
	case 0:
		if w.town.tables[Blocklist] != nil && rapid.IntRange(0, 3).Draw(w.T, "write") == 0 {
			w.town.write(1)
		}
	case 1:
		w.town.expire()
	case 2:
		w.town.problem = rapid.SampledFrom([]string{"", "", "", "eu-1 has not flushed"}).Draw(w.T, "health")
	case 3, 4:
		w.approve((*Retirement).ApproveRename, w.renames)
	case 5, 6:
		w.approve((*Retirement).ApproveDrop, w.drops)
	case 7:
		if rapid.IntRange(0, 4).Draw(w.T, "abort") == 0 {
			_, _ = w.r.Abort(controltest.Ann, w.town.nowMs)
		}
	case 8:
		if len(w.late) > 0 { // an attempt that was given up arrives now
			w.late[0]()
			w.late = w.late[1:]
		}
	case 9:
		if w.town.tables[Blocklist] == nil && rapid.IntRange(0, 5).Draw(w.T, "anew") == 0 {
			w.town.tables[Blocklist] = &townTable{live: 1, mark: TableMark{NextKey: 1}}
		}
	case 10, 11:
		w.town.nowMs += 50_000
	}
}

// approve sends an approval by one of two people, of the present or earlier evidence.
func (w *walker) approve(how func(*Retirement, Order, Look, int64) (time.Duration, error),
	taken map[string]int64) {
	o := w.r.shows(rapid.SampledFrom([]controlplane.By{controltest.Ann, bob}).Draw(w.T, "who"))
	if len(w.shown) > 0 && rapid.IntRange(0, 3).Draw(w.T, "late") == 0 {
		o = rapid.SampledFrom(w.shown).Draw(w.T, "which")
	}
	w.shown = append(w.shown, o)
	before, asked := w.r.Phase, slices.Clone(w.r.Approvals)
	wait, err := how(w.r, o, w.town.look(w.r), w.town.nowMs)
	if err != nil {
		return
	}
	w.r.Settle(w.town.nowMs, wait)
	if slices.ContainsFunc(asked, func(a controlplane.Approval) bool { return a.Actor == o.Actor }) {
		w.Fatalf("%s approves twice: %v", o.Actor, asked)
	}
	if w.counted[o] {
		w.Fatalf("%+v counts twice", o)
	}
	w.counted[o], taken[o.Actor] = true, w.town.nowMs
	if w.r.Phase == before {
		return
	}
	for _, by := range []controlplane.By{controltest.Ann, bob} {
		if at, approved := taken[by.Actor]; !approved || w.town.nowMs-at >= w.r.Spec.TTL().Milliseconds() {
			w.Fatalf("%s after %s, without an approval by %s", w.r.Phase, before, by.Actor)
		}
	}
}

// step makes a transition on a copy, as durable state does: after an error the copy is discarded.
func (w *walker) step() {
	if !w.r.UnderWay() {
		return
	}
	phase, fence, table, dated := w.r.Phase, w.r.Fence, w.r.Table, w.r.Dated
	before := *w.r
	fate := rapid.IntRange(0, 9).Draw(w.T, "fate")
	if fate == 0 {
		w.town.err = errors.New("MySQL does not answer")
	}
	w.town.lostAnswers = fate == 1
	wait, err := w.r.Advance(w.town.on(), w.town.nowMs)
	w.town.err, w.town.lostAnswers = nil, false
	if err != nil {
		*w.r = before
	} else {
		w.town.nowMs += max(0, wait).Milliseconds()
	}
	w.r.Settle(w.town.nowMs, wait)
	if fate > 2 {
		return
	}
	switch phase { // the same transition again, later
	case Renaming:
		w.late = append(w.late, func() { _, _ = w.town.on().rename(table, table, dated, fence) })
	case Dropping:
		w.late = append(w.late, func() { _, _ = w.town.on().drop(table, dated, fence) })
	case Restoring:
		w.late = append(w.late, func() { _, _ = w.town.on().rename(table, dated, table, fence) })
	}
}

func (w *walker) check() {
	town, r := w.town, w.r
	if town.drops > 0 && (len(w.renames) < 2 || len(w.drops) < 2) {
		w.Fatalf("dropped with approvals by %v and %v", w.renames, w.drops)
	}
	if town.drops > 1 {
		w.Fatal("dropped twice")
	}
	if r.Phase == Aborted && town.drops == 0 && town.tables[Blocklist] == nil {
		w.Fatalf("aborted, and the name is gone: %s, %v", r.Why, town.tables)
	}
	if r.Phase == Aborted && town.drops > 0 || r.Phase == Dropped && town.drops == 0 {
		w.Fatalf("%s after %d drops", r.Phase, town.drops)
	}
	if r.Phase == Observing {
		clear(w.renames)
		clear(w.drops)
	}
	if w.ended != nil && r.Phase != w.ended.Phase {
		w.Fatalf("%s, then %s", w.ended.Phase, r.Phase)
	}
	if !r.UnderWay() {
		ended := *r
		w.ended = &ended
	}
	for name, table := range town.tables {
		if name != Blocklist && !table.renamedBy {
			w.Fatal("a table that nobody renamed")
		}
	}
}

// finish brings the retirement to its end, and lets all late attempts arrive: they change nothing.
func (w *walker) finish() {
	w.town.problem = ""
	through := rapid.Bool().Draw(w.T, "see it through")
	for range 200 {
		if !through {
			break
		}
		w.town.nowMs += 5000
		w.town.expire()
		w.approve((*Retirement).ApproveRename, w.renames)
		w.approve((*Retirement).ApproveDrop, w.drops)
		w.step()
		w.check()
	}
	if _, err := w.r.Abort(controltest.Ann, w.town.nowMs); err != nil && w.r.UnderWay() && w.r.Next != Aborted {
		w.Fatal(err)
	}
	for range 10 {
		w.step()
		w.check()
	}
	for range 100 {
		if w.r.UnderWay() {
			w.step()
		}
	}
	if w.r.UnderWay() {
		w.Fatalf("it does not end: %s %s", w.r.Phase, w.r.Waiting)
	}
	before := maps.Clone(w.town.tables)
	for _, come := range w.late {
		come()
	}
	if !maps.Equal(before, w.town.tables) {
		w.Fatalf("an attempt that was given up changed %v to %v", before, w.town.tables)
	}
	w.check()
}
