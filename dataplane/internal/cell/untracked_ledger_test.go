package cell

import (
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane/internal/clock"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// Own cost of an untracked key is settled before its origin has named it: no claim waits for it, and no total that
// holds it is taken for others' cost.
func TestAnUntrackedKeysOwnCostIsSettledUnnamed(t *testing.T) {
	e, slot := ledgerEntry(), slotOf(ledgerSeq)
	e.counter.add(slot, 7)
	e.Ledger().SettleUnnamed(ledgerSeq, 7)
	if _, way := ledgerClaim(e, 10, 100).Prepare(false, 1, 200, 0); way != WayClaim {
		t.Errorf("way %d: a claim waits for what nobody sends", way)
	}
	e = ledgerEntry()
	e.counter.add(slot, 7)
	e.Ledger().SettleUnnamed(ledgerSeq, 7)
	e.Ledger().Absorb(&Counters{}, ledgerSeq, &store.Total{Region: 20}, 0)
	if got := e.counter.count(slot); got != 27 {
		t.Errorf("%d counted after a total without it, want 27", got)
	}
	e.Ledger().Absorb(&Counters{}, ledgerSeq, &store.Total{Region: 20 + 7 + 3}, 0)
	if got := e.counter.count(slot); got != 30 || e.Ledger().unnamed(slot) != 0 {
		t.Errorf("%d counted of 27 and others' 3, of which %d are not named", got, e.Ledger().unnamed(slot))
	}
	e.Ledger().Absorb(&Counters{}, ledgerSeq-2, &store.Total{Region: 1000}, 0)
	if got := e.counter.count(slot); got != 30 {
		t.Errorf("%d counted by the answer to another cell", got)
	}
}

// Credit of an untracked key pays for cost that a batch counts on it, once, and the rest must be sent.
func TestCreditPaysForWhatABatchCountsOnAnUntrackedKey(t *testing.T) {
	e, slot := ledgerEntry(), slotOf(ledgerSeq)
	e.flags.Or(flagUntracked)
	e.Ledger().Return(ledgerSeq, 8)
	for _, c := range []struct{ cost, unpaid, credit int64 }{{5, 0, 3}, {7, 4, 0}, {1, 1, 0}} {
		word := e.counter.word(slot)
		made := e.NodeShare().untrackedWayLocked(slot, word, c.cost) == WayMade
		if e.counter.add(slot, c.cost); made != (c.unpaid == 0) {
			t.Errorf("cost %d needs a claim: %v", c.cost, !made)
		}
		if got := e.Ledger().Unpaid(ledgerSeq, c.cost); got != c.unpaid || e.Ledger().credit(slot) != c.credit {
			t.Errorf("cost %d: %d is to be sent, %d is credit; want %+v", c.cost, got, e.Ledger().credit(slot), c)
		}
		e.Ledger().SettleUnnamed(ledgerSeq, c.unpaid)
	}
	e.Ledger().Return(ledgerSeq, 3)
	if e.NodeShare().untrackedWayLocked(slot, e.counter.word(slot), 3) != WayMade {
		t.Error("credit of 3 needs a claim for 3")
	}
	if got := e.Ledger().Unpaid(ledgerSeq-2, 3); got != 3 {
		t.Errorf("%d of 3 is to be sent of a cell that has made way", got)
	}
}

// untrackedTable returns a table, of a node with an origin or without, and an entry that is not in it.
func untrackedTable(fleet bool) (*Table, *Entry) {
	t := NewTable(100, 1000, clock.New(nil), fleet)
	key := window.Key{Workspace: "acme", Namespace: "api", Identifier: "k", Duration: time.Minute}
	id := t.IdentityOfKey(&key, nil)
	return t, t.newEntry(&id, &key, nil, false, ledgerSeq)
}

// A key is untracked or has an entry, never both: one would lack the cost on its way from the other, and two requests
// at the same moment would be judged by two counts.
func TestAKeyIsUntrackedOrHasAnEntry(t *testing.T) {
	table := NewTable(100, 1000, clock.New(nil), true)
	key := window.Key{Workspace: "acme", Namespace: "api", Identifier: "k", Duration: time.Minute}
	id := table.IdentityOfKey(&key, nil)
	temporary, met := table.AddUntracked(&id, &key, nil, false, then, ledgerSeq)
	if met != Untracked {
		t.Fatalf("a key that the table does not hold is %v", met)
	}
	if _, met := table.Add(&id, &key, nil, false, then, ledgerSeq, ledgerMs()); met != Untracked || table.Get(&id) != nil {
		t.Errorf("the table takes an untracked key in: %v", met)
	}
	if again, met := table.AddUntracked(&id, &key, nil, false, then, ledgerSeq); again != temporary || met != Untracked {
		t.Errorf("an untracked key is another one the next time: %v", met)
	}
	table.UntrackedKeys.Release(&id)
	table.UntrackedKeys.Release(&id)
	e, met := table.Add(&id, &key, nil, false, then, ledgerSeq, ledgerMs())
	if met != Created || table.Get(&id) != e {
		t.Errorf("the table does not take in a key that was an untracked key: %v", met)
	}
	if held, met := table.AddUntracked(&id, &key, nil, false, then, ledgerSeq); held != e || met != Known || table.UntrackedKeys.Present.Load() != 0 {
		t.Errorf("a key that the table holds becomes an untracked key: %v", met)
	}
}

// An entry that had to go is in the overflow with both of its cells and others' cost, unless the origin holds it: an
// exact key of a node with an origin.
func TestWhatHadToGoIsKept(t *testing.T) {
	for name, c := range map[string]struct {
		mode  window.Mode
		fleet bool
		want  [2]int64 // of the previous cell, and of the current cell
	}{
		"exact, with an origin":    {window.Exact, true, [2]int64{}},
		"exact, without":           {window.Exact, false, [2]int64{4, 9}},
		"estimate, with an origin": {window.Estimate, true, [2]int64{4, 9}},
		"estimate, without":        {window.Estimate, false, [2]int64{4, 9}},
	} {
		table, e := untrackedTable(c.fleet)
		e.counter.add(slotOf(ledgerSeq-1), 4)
		e.counter.add(slotOf(ledgerSeq), 7)
		e.addOthers(slotOf(ledgerSeq), 2)
		table.keep(e, c.mode)
		for i, want := range c.want {
			if got := table.overflow.count(&e.id, ledgerSeq-1+int64(i), time.Minute.Milliseconds(), table.now()); got != want {
				t.Errorf("%s, cell %d: %d in the overflow, want %d", name, i, got, want)
			}
		}
	}
}

// An entry without cost in a cell adds none to the overflow.
func TestWhatHadNothingIsNotKept(t *testing.T) {
	table, e := untrackedTable(false)
	e.counter.add(slotOf(ledgerSeq-1), 4)
	table.keep(e, window.Exact)
	if got := table.overflow.count(&e.id, ledgerSeq-1, time.Minute.Milliseconds(), table.now()); got != 4 {
		t.Errorf("%d are kept of the 4 of the cell before", got)
	}
	if got := table.overflow.count(&e.id, ledgerSeq, time.Minute.Milliseconds(), table.now()); got != 0 {
		t.Errorf("%d are kept of a cell with nothing", got)
	}
}

// A cell is in the overflow until its window is over, whatever its duration and at whatever point of a generation it is
// counted.
func TestTheOverflowHoldsACellUntilItsWindowIsOver(t *testing.T) {
	for span, longest := range overflowSpans {
		for _, part := range []int64{51, 67, 85, 99, 100} {
			d := longest.Milliseconds() * part / 100
			for turn := range int64(8) {
				var o overflow
				o.init(0)
				id := Identity{7 << 40, 11 << 40}
				// near ends of generations too
				nowMs := longest.Milliseconds()*2*100 + longest.Milliseconds()*turn/2 - 1
				sequence := window.Sequence(nowMs, d)
				o.add(&id, sequence, d, 3, clock.Steady(nowMs))
				if got := o.count(&id, sequence, d, clock.Steady(window.ExpiresAt(sequence, d)-1)); got != 3 {
					t.Errorf("span %d, %d%% of it, turn %d: %d of 3 counted at the end of its window", span, part, turn, got)
				}
				if got := o.count(&id, sequence, d, clock.Steady(nowMs+4*longest.Milliseconds())); got != 0 {
					t.Errorf("span %d, %d%% of it, turn %d: %d counted two generations later", span, part, turn, got)
				}
			}
		}
	}
}

// A charge keeps an entry because of its counts: an entry past its limit stays until its window is over, and an entry
// far below its limit makes room as any other.
func TestAChargeKeepsAnEntryForWhatItCounts(t *testing.T) {
	for cost, want := range map[int64]eviction{1: goneIdle, 60: stays, 1000: stays} {
		e, slot := ledgerEntry(), slotOf(ledgerSeq)
		e.Charge(ledgerSeq, cost, 100)
		e.Ledger().cells[slot].settled.Add(cost) // sent
		if got := e.evict(anyTime, ledgerMs(), 0, 0, needRoom); got != want {
			t.Errorf("20 and %d charged, of 100: %d, want %d", cost, got, want)
		}
	}
}
