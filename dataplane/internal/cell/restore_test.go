package cell

import (
	"testing"

	"github.com/weirhq/weir/dataplane/internal/clock"
	"github.com/weirhq/weir/dataplane/store"
)

const (
	lostEpoch store.Epoch = 7
	newEpoch  store.Epoch = 8
)

// answeredEntry returns an entry that the origin has answered in an epoch: of its 20, 12 are this node's.
func answeredEntry(m *Counters) *Entry {
	e := bareEntry()
	e.counter.add(slotOf(ledgerSeq), 12)
	sent := loaded(e)
	e.Ledger().Confirm(m, &sent, &store.Total{Region: 20, Epoch: lostEpoch}, clock.SteadyStart)
	return e
}

// bareEntry returns an entry that has counted nothing.
func bareEntry() *Entry {
	e := ledgerEntry()
	slot := slotOf(ledgerSeq)
	e.counter.take(slot, 20)
	e.Ledger().reset(slot)
	return e
}

// loaded returns the cost of the current cell that goes to the origin; the zero value if there is none.
func loaded(e *Entry) store.Cost {
	return e.Ledger().Load(anyTime, false, true, ledgerMs(), 200).Costs[1]
}

func wantRestore(t *testing.T, what string, c store.Cost, epoch store.Epoch, restore, known, add int64) {
	t.Helper()
	if c.Epoch != epoch || c.Restore != restore || c.Known != known || c.Add != add {
		t.Errorf("%s: %+v, want restore %d, known %d, add %d in epoch %d", what, c, restore, known, add, epoch)
	}
}

// In a new epoch a node restores all cost that it has accepted, once: confirmed cost, cost on its way and unsent cost.
// Cost that it accepts later is added.
func TestANewEpochRestoresWhatWasAccepted(t *testing.T) {
	slot := slotOf(ledgerSeq)
	for name, c := range map[string]struct {
		before     func(e *Entry)
		own, known int64
	}{
		"confirmed":              {func(*Entry) {}, 12, 20},
		"and unsent":             {func(e *Entry) { e.counter.add(slot, 3) }, 15, 20},
		"and on its way":         {func(e *Entry) { e.counter.add(slot, 3); loaded(e) }, 15, 23},
		"on its way, and unsent": {func(e *Entry) { e.counter.add(slot, 3); loaded(e); e.counter.add(slot, 2) }, 17, 23},
	} {
		m := new(Counters)
		e := answeredEntry(m)
		c.before(e)
		if lost := e.Ledger().Absorb(m, ledgerSeq, &store.Total{Region: 1, Epoch: newEpoch}, clock.SteadyStart); lost != lostEpoch {
			t.Errorf("%s: epoch %d is lost, want %d", name, lost, lostEpoch)
		}
		e.counter.add(slot, 5)
		sent := loaded(e)
		wantRestore(t, name, sent, newEpoch, c.own, c.known, 5)
		e.Ledger().Confirm(m, &sent, &store.Total{Region: 40, Epoch: newEpoch}, clock.SteadyStart)
		if again := loaded(e); again != (store.Cost{}) {
			t.Errorf("%s: once more %+v", name, again)
		}
		e.counter.add(slot, 1)
		wantRestore(t, name+", afterwards", loaded(e), newEpoch, 0, 0, 1)
	}
}

// Cost that only other nodes had accepted is restored, too, and once: they may have died.
func TestANewEpochRestoresWhatOthersHadAccepted(t *testing.T) {
	m, e := new(Counters), bareEntry()
	e.Ledger().Absorb(m, ledgerSeq, &store.Total{Region: 20, Epoch: lostEpoch}, clock.SteadyStart)
	e.Ledger().Absorb(m, ledgerSeq, &store.Total{Epoch: newEpoch}, clock.SteadyStart)
	sent := loaded(e)
	wantRestore(t, "others", sent, newEpoch, 0, 20, 0)
	e.Ledger().Confirm(m, &sent, &store.Total{Region: 20, Epoch: newEpoch}, clock.SteadyStart)
	if again := loaded(e); again != (store.Cost{}) {
		t.Errorf("once more %+v", again)
	}
}

// Nearly every key's first cost is answered with the key's first epoch. Such a key must not allocate ledgerExtra.
func TestAFirstAnswerNeedsNoMemory(t *testing.T) {
	m, e := new(Counters), bareEntry()
	e.counter.add(slotOf(ledgerSeq), 4)
	sent := loaded(e)
	e.Ledger().Confirm(m, &sent, &store.Total{Region: 4, Epoch: newEpoch}, clock.SteadyStart)
	if e.Ledger().extra != nil {
		t.Errorf("%+v", e.Ledger().extra)
	}
}

// A cost that was sent without an epoch, and is refused because it belongs to an earlier epoch, becomes cost to
// restore: other nodes may have received it in answers.
func TestARefusedFirstCostIsRestored(t *testing.T) {
	m := new(Counters)
	e := bareEntry()
	e.counter.add(slotOf(ledgerSeq), 4)
	sent := loaded(e)
	wantRestore(t, "the first", sent, 0, 0, 0, 4)
	if back, _, _ := e.Ledger().Confirm(m, &sent, &store.Total{Epoch: newEpoch, Err: store.ErrEpoch}, clock.SteadyStart); !back {
		t.Error("nothing is to be sent again")
	}
	again := loaded(e)
	if again.Epoch != newEpoch || again.Restore != 4 || again.Add != 0 {
		t.Errorf("%+v, want restore 4 in epoch %d", again, newEpoch)
	}
}

// An answer to another call may bring the new epoch before the first cost is refused. The region's cost in that answer
// is at the origin already, and so is a claim that was added: only the refused cost is restored. Cost that was accepted
// afterwards is added.
func TestARefusedFirstCostRestoresNothingThatTheNewEpochHas(t *testing.T) {
	m, slot := new(Counters), slotOf(ledgerSeq)
	e := bareEntry()
	c := preparedClaim(t, e)
	e.counter.add(slot, 4)
	sent := loaded(e)
	e.Ledger().Absorb(m, ledgerSeq, &store.Total{Region: 567, Epoch: newEpoch}, clock.SteadyStart)
	c.Merge(m, &store.Total{Region: 577, Epoch: newEpoch, Added: true}, clock.SteadyStart)
	e.counter.add(slot, 3)
	if back, _, _ := e.Ledger().Confirm(m, &sent, &store.Total{Epoch: newEpoch, Err: store.ErrEpoch}, clock.SteadyStart); !back {
		t.Error("nothing is to be sent again")
	}
	again := loaded(e)
	wantRestore(t, "refused", again, newEpoch, 4, 0, 3)
	e.Ledger().Confirm(m, &again, &store.Total{Region: 584, Epoch: newEpoch}, clock.SteadyStart)
	if got := e.LookAt(ledgerSeq).Counted; got != 584 || e.Ledger().Unsent() != 0 {
		t.Errorf("%d are counted and %d unsent, want 567 of others, and 17 here", got, e.Ledger().Unsent())
	}
}

// preparedClaim returns a claim of 10 that is on its way.
func preparedClaim(t *testing.T, e *Entry) *Claim {
	t.Helper()
	c := ledgerClaim(e, 10, 1000)
	if _, way := c.Prepare(false, 1, 200, clock.SteadyStart); way != WayClaim {
		t.Fatal(way)
	}
	return c
}

// A first cost that was sent without an epoch belongs to the epoch of its own answer, whichever epochs other answers
// have brought while it was on its way: it is not restored, and cost that followed it is.
func TestAFirstCostBelongsToTheEpochOfItsAnswer(t *testing.T) {
	slot := slotOf(ledgerSeq)
	for name, others := range map[string][]store.Epoch{
		"the lost one was heard of": {lostEpoch}, "both were": {lostEpoch, newEpoch}, "the new one was": {newEpoch},
	} {
		for added, restored := range map[bool]int64{true: 0, false: 4} {
			m, e := new(Counters), bareEntry()
			e.counter.add(slot, 4)
			sent := loaded(e)
			wantRestore(t, name, sent, 0, 0, 0, 4)
			e.counter.add(slot, 3)
			for _, epoch := range others {
				e.Ledger().Absorb(m, ledgerSeq, &store.Total{Epoch: epoch}, clock.SteadyStart)
			}
			if others[0] == lostEpoch {
				restored += 3
			}
			answer, region := &store.Total{Region: 4, Epoch: newEpoch}, int64(7)
			if !added {
				answer = &store.Total{Epoch: newEpoch, Err: store.ErrEpoch}
			}
			e.Ledger().Confirm(m, &sent, answer, clock.SteadyStart)
			again := loaded(e)
			if again.Epoch != newEpoch || again.Restore != restored {
				t.Errorf("%s, added %v: %+v, want %d restored in epoch %d", name, added, again, restored, newEpoch)
			}
			if !added {
				answer.Region = 0
			}
			if sum := answer.Region + again.Add + max(again.Restore, again.Known); sum != region {
				t.Errorf("%s, added %v: the origin has %d, want the %d that were accepted", name, added, sum, region)
			}
			e.Ledger().Confirm(m, &again, &store.Total{Region: region, Epoch: newEpoch}, clock.SteadyStart)
			if l := e.LookAt(ledgerSeq); l.Counted != region || l.Unsent != 0 || l.Restores {
				t.Errorf("%s, added %v: afterwards %+v, want %d counted", name, added, l, region)
			}
		}
	}
}

// Cost that other nodes have accepted is no part of a first cost on its way: it is restored.
func TestAFirstCostLeavesOutWhatOthersHaveAccepted(t *testing.T) {
	m, e := new(Counters), bareEntry()
	e.Ledger().Absorb(m, ledgerSeq, &store.Total{Region: 9}, clock.SteadyStart) // of an epoch that is lost
	e.counter.add(slotOf(ledgerSeq), 4)
	sent := loaded(e)
	e.Ledger().Absorb(m, ledgerSeq, &store.Total{Epoch: lostEpoch}, clock.SteadyStart)
	e.Ledger().Absorb(m, ledgerSeq, &store.Total{Epoch: newEpoch}, clock.SteadyStart)
	e.Ledger().Confirm(m, &sent, &store.Total{Epoch: newEpoch, Err: store.ErrEpoch}, clock.SteadyStart)
	wantRestore(t, "refused", loaded(e), newEpoch, 4, 9, 0)
}

// So does a claim, whether or not its caller has left.
func TestAClaimWithoutAnEpochBelongsToThatOfItsAnswer(t *testing.T) {
	for name, others := range map[string][]store.Epoch{
		"none was heard of": nil, "the lost one was": {lostEpoch}, "both were": {lostEpoch, newEpoch},
	} {
		for _, left := range []bool{false, true} {
			m, e := new(Counters), bareEntry()
			c := preparedClaim(t, e)
			if c.keeps = true; left {
				c.Lose()
			}
			for _, epoch := range others {
				e.Ledger().Absorb(m, ledgerSeq, &store.Total{Epoch: epoch}, clock.SteadyStart)
			}
			c.Merge(m, &store.Total{Region: 10, Epoch: newEpoch, Added: true}, clock.SteadyStart)
			if again := loaded(e); again != (store.Cost{}) {
				t.Errorf("%s, left %v: %+v is sent again", name, left, again)
			}
			if l := e.LookAt(ledgerSeq); l.Counted != 10 || l.Named != 10 {
				t.Errorf("%s, left %v: %+v, want 10 counted", name, left, l)
			}
		}
	}
}

// If a first cost is refused while a claim is on its way, the claim stays on its way: it is in the new epoch.
func TestARefusedFirstCostLeavesClaimsOnTheirWay(t *testing.T) {
	m := new(Counters)
	e := bareEntry()
	c := preparedClaim(t, e)
	e.counter.add(slotOf(ledgerSeq), 4)
	sent := loaded(e)
	e.Ledger().Absorb(m, ledgerSeq, &store.Total{Region: 20, Epoch: newEpoch}, clock.SteadyStart)
	c.Lose()
	e.Ledger().Confirm(m, &sent, &store.Total{Epoch: newEpoch, Err: store.ErrEpoch}, clock.SteadyStart)
	if !e.Ledger().Claiming(ledgerSeq) {
		t.Error("the claim is taken for lost")
	}
	wantRestore(t, "refused", loaded(e), newEpoch, 4, 0, 0)
}

// The answer to a claim that a lost epoch had may come while the rest is on its way to the new epoch: the claim's cost
// is restored after that, also where the cell has had no epoch.
func TestAClaimOfALostEpochIsRestoredAfterTheRest(t *testing.T) {
	m := new(Counters)
	e := answeredEntry(m)
	c := preparedClaim(t, e)
	e.Ledger().Absorb(m, ledgerSeq, &store.Total{Epoch: newEpoch}, clock.SteadyStart)
	sent := loaded(e)
	wantRestore(t, "the rest", sent, newEpoch, 12, 20, 0)
	c.Merge(m, &store.Total{Region: 30, Added: true}, clock.SteadyStart)
	if back, _, _ := e.Ledger().Confirm(m, &sent, &store.Total{Region: 20, Epoch: newEpoch}, clock.SteadyStart); !back {
		t.Error("nothing is left to be restored")
	}
	wantRestore(t, "the claim", loaded(e), newEpoch, 10, 0, 0)

	e = bareEntry()
	preparedClaim(t, e).Merge(m, &store.Total{Region: 10, Added: true}, clock.SteadyStart)
	e.counter.add(slotOf(ledgerSeq), 3)
	sent = loaded(e)
	wantRestore(t, "without an epoch", sent, 0, 10, 0, 3)
	e.Ledger().Absorb(m, ledgerSeq, &store.Total{Epoch: lostEpoch}, clock.SteadyStart)
	e.Ledger().Absorb(m, ledgerSeq, &store.Total{Epoch: newEpoch}, clock.SteadyStart)
	if got := e.Ledger().unconfirmedLocked(slotOf(ledgerSeq), e.counter.word(slotOf(ledgerSeq))); got != 13 {
		t.Errorf("%d are unconfirmed, want 13", got)
	}
	e.Ledger().Confirm(m, &sent, &store.Total{Epoch: newEpoch, Err: store.ErrEpoch}, clock.SteadyStart)
	wantRestore(t, "refused", loaded(e), newEpoch, 13, 10, 0)
}

// Renew begins the new epoch of cells in the lost epoch, and of no other cells.
func TestRenewConcernsTheLostEpoch(t *testing.T) {
	m := new(Counters)
	e := answeredEntry(m)
	if e.Ledger().Renew(newEpoch, 9) {
		t.Error("it was never in that epoch")
	}
	if !e.Ledger().Renew(lostEpoch, newEpoch) {
		t.Fatal("nothing to restore")
	}
	wantRestore(t, "renewed", loaded(e), newEpoch, 12, 20, 0)
	if e.Ledger().Renew(lostEpoch, newEpoch) {
		t.Error("what is on its way is to be restored once more")
	}
	if fresh := bareEntry(); fresh.Ledger().Renew(lostEpoch, newEpoch) {
		t.Error("an entry without an answer has something to restore")
	}
}

// An entry that has something to restore stays, and counts it as unsent.
func TestWhatIsToBeRestoredIsUnsent(t *testing.T) {
	e := answeredEntry(new(Counters))
	if got := e.Ledger().Unsent(); got != 0 {
		t.Errorf("%d unsent before", got)
	}
	e.Ledger().Renew(lostEpoch, newEpoch)
	if got := e.Ledger().Unsent(); got != 12 || !Flags(e.flags.Load()).Restores() {
		t.Errorf("%d unsent, want the 12 to be restored", got)
	}
	loaded(e)
	e.counter.add(slotOf(ledgerSeq), 3)
	if got := e.Ledger().Unsent(); got != 3 {
		t.Errorf("%d unsent while the 12 are on their way, want 3", got)
	}
}

// An untracked key restores nothing: it is gone before it could.
func TestAnUntrackedKeyRestoresNothing(t *testing.T) {
	e := answeredEntry(new(Counters))
	e.flags.Or(flagUntracked)
	if e.Ledger().Renew(lostEpoch, newEpoch); e.Ledger().Unsent() != 0 || loaded(e) != (store.Cost{}) {
		t.Errorf("%d unsent", e.Ledger().Unsent())
	}
}

// An expired cell gives up the cost that it would have restored, so the entry need not stay for it.
func TestAnExpiredCellRestoresNothing(t *testing.T) {
	e := answeredEntry(new(Counters))
	if !e.Ledger().Renew(lostEpoch, newEpoch) {
		t.Fatal("nothing to restore")
	}
	late := ledgerMs() + 2*e.DurationMs()
	if l := e.Ledger().Load(anyTime, false, true, late, 200); l.Sends[1] {
		t.Errorf("%+v is sent of an expired cell", l.Costs[1])
	}
	if e.Ledger().Unsent() != 0 || Flags(e.flags.Load()).Restores() {
		t.Errorf("%d are still to be restored", e.Ledger().Unsent())
	}
	if gone := e.evict(anyTime, late, clock.SteadyStart, 0, needNone); gone != goneExpired {
		t.Errorf("the entry stays: %v", gone)
	}
}

// The answer to a cost that was on its way when its cell was given up ends the send, and restores nothing, although the
// entry has moved on to the next cell meanwhile.
func TestTheAnswerToWhatWasGivenUpRestoresNothing(t *testing.T) {
	m := new(Counters)
	e := answeredEntry(m)
	e.Ledger().Renew(lostEpoch, newEpoch)
	sent := loaded(e)
	e.Ledger().Load(anyTime, false, true, ledgerMs()+2*e.DurationMs(), 200)
	e.rotate(anyTime, ledgerSeq+1) // by a request whose time is a little late
	if back, _, _ := e.Ledger().Confirm(m, &sent, &store.Total{Region: 20, Epoch: newEpoch}, clock.SteadyStart); back || e.Ledger().Unsent() != 0 {
		t.Errorf("to be sent again: %v; %d unsent", back, e.Ledger().Unsent())
	}
}
