package dataplane

import (
	"context"
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// Own cost of a guest is settled before its origin has named it: no claim waits for it, no total that lacks it is a
// loss, and none that holds it is taken for others' cost.
func TestAGuestsOwnCostIsSettledUnnamed(t *testing.T) {
	e, slot := ledger(), slotOf(ledgerSeq)
	e.addLocked(slot, 7)
	e.settleUnnamed(ledgerSeq, 7)
	if _, way := e.prepareClaim(ledgerClaim(e, 10, 100), 1, 200, 0); way != wayClaim {
		t.Errorf("way %d: a claim waits for what nobody sends", way)
	}
	e = ledger()
	e.addLocked(slot, 7)
	e.settleUnnamed(ledgerSeq, 7)
	if grew, lost := e.absorbLocked(&counters{}, slot, 20, false); grew || lost {
		t.Errorf("a total without it: grew %v, lost %v", grew, lost)
	}
	e.arrived(&counters{}, ledgerSeq, 20+7+3)
	if got := wordCount(e.words[slot].Load()); got != 30 || e.book.unnamed(slot) != 0 {
		t.Errorf("%d counted of 27 and others' 3, of which %d are not named", got, e.book.unnamed(slot))
	}
	if _, lost := e.absorbLocked(&counters{}, slot, 29, false); !lost {
		t.Error("a total below the one that arrived is no loss")
	}
	e.arrived(&counters{}, ledgerSeq-2, 1000)
	if got := wordCount(e.words[slot].Load()); got != 30 {
		t.Errorf("%d counted by the answer to another cell", got)
	}
}

// guestLimiter is a limiter with an origin, and a guest of its in the current cell.
func guestLimiter(t *testing.T, change ...func(*Config)) (*Limiter, *entry) {
	t.Helper()
	now := time.UnixMilli(ledgerMs())
	cfg := Config{Region: "eu", NodeID: "a", Clock: func() time.Time { return now },
		Origin: memstore.NewOrigin(memstore.OriginOptions{Clock: func() time.Time { return now }})}
	for _, f := range change {
		f(&cfg)
	}
	l, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	key := window.Key{Workspace: "acme", Namespace: "api", Identifier: "k", Duration: time.Minute}
	id := l.table.ofKey(&key, nil)
	return l, l.table.newEntry(&id, &key, nil, ledgerSeq)
}

// The answer to a guest's cost tells of others', and a short one is a failure: what it leaves out is in the overflow.
func TestTheAnswerToAGuestsCostIsMerged(t *testing.T) {
	l, e := guestLimiter(t)
	slot, sh := slotOf(ledgerSeq), l.shards[0]
	l.cfg.Origin.Add(t.Context(), []store.Add{{Cell: e.cell(ledgerSeq), Cost: 4}}) // another node's
	e.addLocked(slot, 5)
	l.sendGuests(sh, []outgoing{{e, ledgerSeq, 5}})
	if got := wordCount(e.words[slot].Load()); got != 9 {
		t.Errorf("%d are counted of its own 5 and others' 4", got)
	}
	l.cfg.Origin = silent{l.cfg.Origin}
	e.addLocked(slot, 2)
	l.sendGuests(sh, []outgoing{{e, ledgerSeq, 2}})
	if got := l.table.overflow.count(&e.id, ledgerSeq, time.Minute.Milliseconds(), ledgerMs()); got != 2 {
		t.Errorf("the overflow has %d of the 2 that were not answered", got)
	}
}

// "The shard is there, whatever it thinks of some cells": one cost of guests that it refuses opens no breaker.
func TestAnOriginThatTakesSomeCostsOfGuestsIsThere(t *testing.T) {
	l, e := guestLimiter(t, func(c *Config) { c.Breaker = Breaker{CallsMin: 1, FailureRatio: 0.0001} })
	l.cfg.Origin = partial{l.cfg.Origin}
	e.addLocked(slotOf(ledgerSeq), 5)
	l.sendGuests(l.shards[0], []outgoing{{e, ledgerSeq, 2}, {e, ledgerSeq, 3}})
	if _, ok := l.shards[0].asks.Begin(); !ok {
		t.Error("the breaker is open")
	}
	if got := l.table.overflow.count(&e.id, ledgerSeq, time.Minute.Milliseconds(), ledgerMs()); got != 3 {
		t.Errorf("the overflow has %d, want the 3 that were refused", got)
	}
}

// partial takes the first cost only.
type partial struct{ store.Origin }

func (o partial) Add(ctx context.Context, adds []store.Add) []store.Added {
	return append(o.Origin.Add(ctx, adds[:1]), store.Added{Err: errShortAnswer})
}

// silent answers no Add.
type silent struct{ store.Origin }

func (silent) Add(context.Context, []store.Add) []store.Added { return nil }

// Credit of a guest pays for what a batch counts on it, once, and the rest is to be sent.
func TestCreditPaysForWhatABatchCountsOnAGuest(t *testing.T) {
	e, slot := ledger(), slotOf(ledgerSeq)
	e.creditClaim(ledgerSeq, 8)
	for _, c := range []struct{ cost, unpaid, credit int64 }{{5, 0, 3}, {7, 4, 0}, {1, 1, 0}} {
		word := e.words[slot].Load()
		made := e.guestWayLocked(slot, word, c.cost) == wayMade
		if e.addLocked(slot, c.cost); made != (c.unpaid == 0) {
			t.Errorf("cost %d needs a claim: %v", c.cost, !made)
		}
		if got := e.unpaid(ledgerSeq, c.cost); got != c.unpaid || e.book.credit(slot) != c.credit {
			t.Errorf("cost %d: %d is to be sent, %d is credit; want %+v", c.cost, got, e.book.credit(slot), c)
		}
		e.settleUnnamed(ledgerSeq, c.unpaid)
	}
	e.creditClaim(ledgerSeq, 3)
	if e.guestWayLocked(slot, e.words[slot].Load(), 3) != wayMade {
		t.Error("credit of 3 needs a claim for 3")
	}
	if got := e.unpaid(ledgerSeq-2, 3); got != 3 {
		t.Errorf("%d of 3 is to be sent of a cell that has made way", got)
	}
}

// What was claimed in a cell that has made way before the batch is decided is credit there.
func TestAClaimOfTheCellBeforeBecomesCredit(t *testing.T) {
	e := ledger()
	it := item{entry: e, claimed: claimed{ledgerSeq, 4}}
	e.rotate(ledgerSeq + 1)
	it.keepClaim(&claimant{v: verdict{seq: ledgerSeq + 1}, cost: 2})
	it.keepClaim(&claimant{v: verdict{seq: ledgerSeq + 1}, cost: 1})
	if got := e.book.credit(slotOf(ledgerSeq)); got != 4 || it.claimed != (claimed{ledgerSeq + 1, 3}) {
		t.Errorf("credit %d; claimed %+v", got, it.claimed)
	}
}

// What is spilled is in the overflow, is counted as dropped, and is settled; nothing leaves no trace.
func TestASpillIsInTheOverflow(t *testing.T) {
	l, e := guestLimiter(t)
	of := &l.table.groups[e.names.family.Value().group]
	l.spill(e, ledgerSeq, 0, ledgerMs())
	if until := of.spilledUntilMs.Load(); until != 0 {
		t.Errorf("nothing is in the overflow, and its namespace is looked up there until %d", until)
	}
	e.addLocked(slotOf(ledgerSeq), 5)
	l.spill(e, ledgerSeq, 5, ledgerMs())
	if got := l.table.overflow.count(&e.id, ledgerSeq, time.Minute.Milliseconds(), ledgerMs()); got != 5 {
		t.Errorf("the overflow has %d of 5", got)
	}
	if got := l.Health().DroppedCost; got != 5 {
		t.Errorf("%d are counted as dropped", got)
	}
	if got := e.unsentLocked(slotOf(ledgerSeq)); got != 0 {
		t.Errorf("%d are to be sent, which nobody does", got)
	}
}

// An entry that had to go is in the overflow with both of its cells and others' cost, unless the origin holds it: an
// exact key of a node with an origin.
func TestWhatHadToGoIsKept(t *testing.T) {
	for name, c := range map[string]struct {
		mode  window.Mode
		sends bool
		want  [2]int64 // of the cell before, and the current one
	}{
		"exact, with an origin":    {window.Exact, true, [2]int64{}},
		"exact, without":           {window.Exact, false, [2]int64{4, 9}},
		"estimate, with an origin": {window.Estimate, true, [2]int64{4, 9}},
		"estimate, without":        {window.Estimate, false, [2]int64{4, 9}},
	} {
		l, e := guestLimiter(t)
		e.addLocked(slotOf(ledgerSeq-1), 4)
		e.addLocked(slotOf(ledgerSeq), 7)
		e.foreign(slotOf(ledgerSeq)).Store(2)
		l.table.sends = c.sends
		l.table.keep(e, c.mode, ledgerMs())
		for i, want := range c.want {
			if got := l.table.overflow.count(&e.id, ledgerSeq-1+int64(i), time.Minute.Milliseconds(), ledgerMs()); got != want {
				t.Errorf("%s, cell %d: %d in the overflow, want %d", name, i, got, want)
			}
		}
	}
}

// An entry with nothing in a cell leaves nothing of it in the overflow.
func TestWhatHadNothingIsNotKept(t *testing.T) {
	l, e := guestLimiter(t)
	l.table.sends = false
	e.addLocked(slotOf(ledgerSeq-1), 4)
	l.table.keep(e, window.Exact, ledgerMs())
	over := window.ExpiresAt(ledgerSeq-1, time.Minute.Milliseconds()) + l.table.graceMs
	if got := l.table.groups[e.names.family.Value().group].spilledUntilMs.Load(); got != over {
		t.Errorf("its namespace is looked up in the overflow until %d, want %d", got, over)
	}
}

// A cell is in the overflow until its window is over, whatever its duration and whenever in a generation it is counted.
func TestTheOverflowHoldsACellUntilItsWindowIsOver(t *testing.T) {
	for span, longest := range overflowSpans {
		for _, part := range []int64{51, 67, 85, 99, 100} {
			d := longest.Milliseconds() * part / 100
			for turn := range int64(8) {
				var o overflow
				o.init(0)
				id := identity{7 << 40, 11 << 40}
				nowMs := longest.Milliseconds()*2*100 + longest.Milliseconds()*turn/2 - 1 // near ends of generations too
				sequence := window.Sequence(nowMs, d)
				o.add(&id, sequence, d, 3, nowMs)
				if got := o.count(&id, sequence, d, window.ExpiresAt(sequence, d)-1); got != 3 {
					t.Errorf("span %d, %d%% of it, turn %d: %d of 3 counted at the end of its window", span, part, turn, got)
				}
				if got := o.count(&id, sequence, d, nowMs+4*longest.Milliseconds()); got != 0 {
					t.Errorf("span %d, %d%% of it, turn %d: %d counted two generations later", span, part, turn, got)
				}
			}
		}
	}
}

// A charge keeps an entry for what it counts: one past its limit stays until its window is over, and one far below it
// makes room as any other.
func TestAChargeKeepsAnEntryForWhatItCounts(t *testing.T) {
	for cost, want := range map[int64]eviction{1: goneIdle, 60: stays, 1000: stays} {
		e, slot := ledger(), slotOf(ledgerSeq)
		e.charge(ledgerSeq, cost, 100)
		e.book.cells[slot].settled.Add(cost) // sent
		if got := e.evict(ledgerMs(), 0, 0, needRoom, true); got != want {
			t.Errorf("20 and %d charged, of 100: %d, want %d", cost, got, want)
		}
	}
}
