package cell

import (
	"errors"
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane/internal/clock"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// forgottenEntry returns ledgerEntry, whose cell the origin may have forgotten.
func forgottenEntry() (e *Entry, slot int) {
	e = ledgerEntry()
	forget(e, ledgerMs()+2*time.Minute.Milliseconds())
	return e, slotOf(ledgerSeq)
}

func wantLedger(t *testing.T, e *Entry, count, unsent, credit int64) {
	t.Helper()
	l, slot := e.Ledger(), slotOf(ledgerSeq)
	if got := e.countIn(slot); got != count || l.unsentLocked(slot) != unsent || l.credit(slot) != credit {
		t.Errorf("counts %d, unsent %d, credit %d; want %d, %d and %d", got, l.unsentLocked(slot), l.credit(slot), count,
			unsent, credit)
	}
	if c := &l.cells[slot]; c.peers < 0 || c.peers > c.settled.Load() ||
		c.settled.Load() > e.counter.count(slot)-l.netted(slot) {
		t.Errorf("%d of peers, %d settled, %d in the word, %d netted", c.peers, c.settled.Load(), e.counter.count(slot),
			l.netted(slot))
	}
}

// Cost that is given back after the origin has forgotten it leaves the count, and all later cost is sent. If the origin
// has the cost nevertheless, its answer restores the count.
func TestForgottenCostGivesNoCredit(t *testing.T) {
	e, slot := forgottenEntry()
	if given := e.Ledger().GiveBack(ledgerSeq, 15); given != 15 {
		t.Errorf("%d given back", given)
	}
	wantLedger(t, e, 5, 0, 0)
	e.counter.add(slot, 7)
	e.Ledger().netLocked(slot)
	wantLedger(t, e, 12, 7, 0)
	e.Ledger().Absorb(new(Counters), ledgerSeq, &store.Total{Region: 20}, clock.SteadyStart)
	wantLedger(t, e, 27, 7, 0)
}

// Credit from before pays for nothing after the origin has forgotten the cell.
func TestCreditEndsWhenItsCostIsForgotten(t *testing.T) {
	e := ledgerEntry()
	e.Ledger().GiveBack(ledgerSeq, 15)
	forget(e, ledgerMs()+2*time.Minute.Milliseconds())
	wantLedger(t, e, 5, 0, 0)
	if got, _ := ledgerClaim(e, 10, 100).Prepare(false, 1, 200, clock.SteadyStart); got.AtMost != 100 {
		t.Errorf("a claim may bring the total to %d, want 100", got.AtMost)
	}
}

// A cell that had not expired by the latest time that the origin's clock showed is not forgotten.
func TestACellThatHadNotExpiredIsNotForgotten(t *testing.T) {
	e := ledgerEntry()
	e.Ledger().GiveBack(ledgerSeq, 15)
	forget(e, ledgerMs()+2*time.Minute.Milliseconds()-1)
	wantLedger(t, e, 5, 0, 15)
}

// Cost that was sent after the origin had forgotten the cell gives credit, once as much was given back as was
// forgotten.
func TestCostAfterAForgottenCellGivesCredit(t *testing.T) {
	e, slot := forgottenEntry()
	e.Ledger().cells[slot].settled.Add(e.counter.add(slot, 30))
	e.Ledger().GiveBack(ledgerSeq, 20)
	wantLedger(t, e, 30, 0, 0)
	e.Ledger().GiveBack(ledgerSeq, 25)
	wantLedger(t, e, 5, 0, 25)
}

// Cost on its way can still be refused, and is then unsent. Credit ends after that, by no more than what was named.
func TestCreditStaysWhileForgottenCostIsOnItsWay(t *testing.T) {
	for _, err := range []error{nil, errors.New("refused")} {
		e, slot := forgottenEntry()
		e.counter.add(slot, 10)
		cost, _ := e.Ledger().loadLocked(ledgerSeq, false)
		e.Ledger().GiveBack(ledgerSeq, 25)
		wantLedger(t, e, 5, 0, 25)
		e.Ledger().Confirm(new(Counters), &cost, &store.Total{Region: 10, Err: err}, clock.SteadyStart)
		if err == nil {
			wantLedger(t, e, 5, 0, 5)
		} else {
			wantLedger(t, e, 5, 10, 5)
		}
	}
}

// A new epoch of the origin has all cost restored, also cost that the origin forgot before.
func TestANewEpochRestoresForgottenCost(t *testing.T) {
	e, slot := forgottenEntry()
	e.Ledger().epochs[slot] = 7
	e.Ledger().GiveBack(ledgerSeq, 5)
	e.Ledger().Absorb(new(Counters), ledgerSeq, &store.Total{Epoch: 8}, clock.SteadyStart)
	if got := e.Ledger().extra.restore[slot]; got != (restoring{own: 15, known: 15}) {
		t.Errorf("%+v", got)
	}
	e.Ledger().GiveBack(ledgerSeq, 3)
	wantLedger(t, e, 12, 0, 3)
}

// An entry that was ahead of the clock is replaced. The replacement gives no credit for forgotten cost either.
func TestForgottenCostGivesNoCreditAfterTheClockWasPutRight(t *testing.T) {
	table, e, back := setBack(window.Exact)
	slot := slotOf(ledgerSeq)
	e.Ledger().cells[slot].settled.Add(e.counter.add(slot, 20))
	table.Forget(ledgerMs()+time.Hour.Milliseconds(), func(*Entry) bool { return true })
	back()
	fresh := replaced(t, table, e)
	fresh.Ledger().GiveBack(ledgerSeq, 15)
	wantLedger(t, fresh, 5, 0, 0)
}

// The cost of an untracked key is forgotten as well.
func TestForgottenCostOfAnUntrackedKeyGivesNoCredit(t *testing.T) {
	table, _, _ := setBack(window.Exact)
	key := window.Key{Workspace: "acme", Namespace: "api", Identifier: "untracked", Duration: time.Minute}
	id := table.IdentityOfKey(&key, nil)
	e, _ := table.AddUntracked(&id, &key, nil, false, table.Horizon(false), ledgerSeq)
	slot := slotOf(ledgerSeq)
	e.Ledger().cells[slot].settled.Add(e.counter.add(slot, 20))
	e.Ledger().GiveBack(ledgerSeq, 15)
	table.Forget(ledgerMs()+time.Hour.Milliseconds(), func(*Entry) bool { return true })
	if got := e.Ledger().Unpaid(ledgerSeq, 10); got != 10 {
		t.Errorf("credit paid for %d of 10", 10-got)
	}
}
