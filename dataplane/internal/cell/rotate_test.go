package cell

import (
	"testing"

	"github.com/weirhq/weir/dataplane/internal/clock"
	"github.com/weirhq/weir/dataplane/store"
)

// A request that has read the count of a cell before that was closed cannot add to it after.
func TestAClosedCellTakesNoCount(t *testing.T) {
	slot := slotOf(ledgerSeq)
	e := ledgerEntry()
	word := e.counter.word(slot)
	e.rotate(anyTime, ledgerSeq+1)
	if e.counter.swap(slot, word, word+1) {
		t.Error("a cost was counted in it")
	}
}

// An answer about a cell that was closed meanwhile is merged all the same, because the cell counts towards the next
// cell's limit.
func TestALateAnswerCountsInTheCellBefore(t *testing.T) {
	e := ledgerEntry()
	e.rotate(anyTime, ledgerSeq+1)
	e.Ledger().Absorb(&Counters{}, ledgerSeq, &store.Total{Region: 30, Foreign: 7}, clock.SteadyStart)
	if l := e.LookAt(ledgerSeq); l.Counted != 30 || l.Foreign != 7 {
		t.Errorf("%+v, want 30 and 7", l)
	}
	if l := e.LookAt(ledgerSeq + 1); l.Counted+l.Others != 0 {
		t.Errorf("%+v in the current cell", l)
	}
}

// A cell begins with nothing of the cell that had its slot before.
func TestACellBeginsWithNothing(t *testing.T) {
	m, slot := new(Counters), slotOf(ledgerSeq)
	e := answeredEntry(m) // of 20, 12 are its own
	e.flags.Or(flagWaits)
	e.Ledger().ApplyForeign(m, anyTime, ledgerSeq, ledgerSeq, 40)
	e.Ledger().GiveBack(ledgerSeq, 2)
	e.lowerMinLimit(slot, 9)
	e.Ledger().Renew(lostEpoch, newEpoch)
	e.counter.add(slot, 3)
	loaded(e)
	ledgerClaim(e, 10, 1000).Prepare(false, 1, 200, clock.SteadyStart)
	e.Ledger().extra.first[slot] = true
	for seq := ledgerSeq + 1; seq <= ledgerSeq+2; seq++ {
		e.rotate(anyTime, seq)
	}
	if l := e.LookAt(ledgerSeq + 2); l != (CellLook{Held: true}) || e.Ledger().unconfirmedLocked(slot, e.counter.word(slot)) != 0 {
		t.Errorf("it begins with %+v", l)
	}
	if e.Ledger().isFirst(slot) {
		t.Error("its cost is taken for the first that was sent")
	}
	e.Ledger().Renew(newEpoch, 9)
	e.counter.add(slot, 5)
	if c, _ := e.Ledger().loadLocked(ledgerSeq+2, true); c != (store.Cost{Cell: e.Cell(ledgerSeq + 2), Add: 5}) {
		t.Errorf("%+v is sent, want 5 in no epoch and against no limit", c)
	}
	if got := e.Ledger().ownLocked(slot); got != 5 {
		t.Errorf("%d are its own, want 5", got)
	}
}

// If cells were left out, the cell before the current cell is empty too.
func TestACellThatWasLeftOutIsEmpty(t *testing.T) {
	e := ledgerEntry()
	e.rotate(anyTime, ledgerSeq+3)
	if l := e.LookAt(ledgerSeq + 2); l != (CellLook{Held: true}) {
		t.Errorf("it holds %+v", l)
	}
}

// An entry that has left the table gives nothing back, and takes no answer.
func TestAnEvictedEntryGivesNothingBack(t *testing.T) {
	e := ledgerEntry()
	if gone := e.evict(anyTime, ledgerMs()+3*e.DurationMs(), clock.SteadyStart, 0, needNone); gone != goneExpired {
		t.Fatal(gone)
	}
	if given := e.Ledger().GiveBack(ledgerSeq, 5); given != 0 {
		t.Errorf("%d are given back", given)
	}
}

// An earlier end of strictness never replaces a later end.
func TestStrictnessOnlyGrows(t *testing.T) {
	e := ledgerEntry()
	e.Reads().BeStrict(clock.SteadyStart + 100)
	if e.Reads().BeStrict(clock.SteadyStart+50) || !e.Reads().IsStrict(clock.SteadyStart+99) || e.Reads().IsStrict(clock.SteadyStart+100) {
		t.Error("an earlier end has replaced a later one")
	}
}
