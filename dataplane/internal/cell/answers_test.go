package cell

import (
	"errors"
	"testing"

	"github.com/weirhq/weir/dataplane/internal/clock"
	"github.com/weirhq/weir/dataplane/store"
)

// A total that holds a claim whose own answer is still on its way counts the claim once, and no cost of other nodes.
func TestATotalWithAClaimInItCountsTheClaimOnce(t *testing.T) {
	e := ledgerEntry() // 20 are at the origin
	c := ledgerClaim(e, 10, 100)
	if _, way := c.Prepare(false, 1, 200, clock.SteadyStart); way != WayClaim {
		t.Fatal(way)
	}
	for _, answer := range []func(total *store.Total){
		func(total *store.Total) { e.Ledger().Absorb(&Counters{}, ledgerSeq, total, clock.SteadyStart) },
		func(total *store.Total) { c.Merge(&Counters{}, total, clock.SteadyStart) },
	} {
		answer(&store.Total{Region: 30, Epoch: newEpoch, Added: true})
		if counted := e.LookAt(ledgerSeq).Counted; counted != 30 {
			t.Errorf("%d are counted, want the 20 and the claim's 10", counted)
		}
	}
}

// More cost of other regions leaves this node's credit unchanged, and the cost that the credit has paid for.
func TestForeignCostLeavesCreditAsItIs(t *testing.T) {
	slot, m := slotOf(ledgerSeq), new(Counters)
	e := ledgerEntry()
	e.Ledger().GiveBack(ledgerSeq, 15)
	e.Ledger().ApplyForeign(m, anyTime, ledgerSeq, ledgerSeq, 40)
	if l := e.LookAt(ledgerSeq); l.Foreign != 40 || l.Counted+l.Others != 45 {
		t.Errorf("%+v; want 40 foreign, and 45 that decisions see", l)
	}
	e.counter.add(slot, 10)
	e.Ledger().netLocked(slot)
	e.Ledger().ApplyForeign(m, anyTime, ledgerSeq, ledgerSeq, 50)
	if l := e.LookAt(ledgerSeq); l.Foreign != 50 || l.Counted+l.Others != 65 || l.Credit != 5 {
		t.Errorf("%+v; want 50 foreign, 65 that decisions see, and 5 of the credit", l)
	}
}

// An answer about the previous cell does not make the current cell fresher, and neither does an error.
func TestOnlyTheCurrentCellsAnswerMakesItFresh(t *testing.T) {
	const later = clock.SteadyStart + 1000
	e := ledgerEntry()
	e.rotate(anyTime, ledgerSeq+1)
	e.Reads().markRefreshed(clock.SteadyStart)
	e.Ledger().Absorb(&Counters{}, ledgerSeq, &store.Total{Region: 20}, later)
	e.Ledger().Absorb(&Counters{}, ledgerSeq+1, &store.Total{Err: errors.New("refused")}, later)
	if got := e.Reads().RefreshedAt(); got != clock.SteadyStart {
		t.Errorf("heard at %d", got-clock.SteadyStart)
	}
	e.Ledger().Absorb(&Counters{}, ledgerSeq+1, &store.Total{}, later)
	if got := e.Reads().RefreshedAt(); got != later {
		t.Errorf("heard at %d, want %d", got-clock.SteadyStart, later-clock.SteadyStart)
	}
}

// A cost that the origin refuses for itself is unsent again, and goes with the next chunk.
func TestARefusedCostIsSentAgain(t *testing.T) {
	m := new(Counters)
	e := answeredEntry(m)
	e.counter.add(slotOf(ledgerSeq), 4)
	sent := loaded(e)
	refused := &store.Total{Epoch: lostEpoch, Err: errors.New("cannot be written")}
	if again, _, _ := e.Ledger().Confirm(m, &sent, refused, clock.SteadyStart); !again || e.Ledger().Unsent() != 4 {
		t.Errorf("to be sent again: %v; %d unsent, want 4", again, e.Ledger().Unsent())
	}
	wantRestore(t, "again", loaded(e), lostEpoch, 0, 0, 4)
}

// A refused cost whose cell the entry no longer holds can't be sent again: it is gone. A cost that the origin took is
// not.
func TestARefusedCostOfACellThatMadeWayIsGone(t *testing.T) {
	for _, c := range []struct {
		cells, want int64
		err         error
	}{{1, 0, errors.New("cannot be written")}, {2, 4, errors.New("cannot be written")}, {2, 0, nil}} {
		m := new(Counters)
		e := answeredEntry(m)
		e.counter.add(slotOf(ledgerSeq), 4)
		sent := loaded(e)
		e.rotate(anyTime, ledgerSeq+c.cells)
		if _, gone, _ := e.Ledger().Confirm(m, &sent, &store.Total{Err: c.err}, clock.SteadyStart); gone != c.want {
			t.Errorf("%d cells later, refused by %v: %d are gone, want %d", c.cells, c.err, gone, c.want)
		}
	}
}

// A total that rises names that much of an untracked key's cost, and no more.
func TestATotalNamesAsMuchOfAnUntrackedKeysCostAsItHolds(t *testing.T) {
	e := ledgerEntry() // 20 are at the origin
	e.counter.add(slotOf(ledgerSeq), 3)
	e.Ledger().SettleUnnamed(ledgerSeq, 3)
	for _, step := range []struct{ total, named int64 }{{20, 20}, {21, 21}, {20, 21}, {23, 23}, {24, 24}} {
		e.Ledger().Absorb(&Counters{}, ledgerSeq, &store.Total{Region: step.total}, clock.SteadyStart)
		if named := e.LookAt(ledgerSeq).Named; named != step.named {
			t.Errorf("a total of %d: %d are named, want %d", step.total, named, step.named)
		}
	}
}

// A key that was refused for the room of other nodes is granted all that is left after a quiet time. After other nodes'
// cost arrives, claims leave room again.
func TestAKeyLeavesRoomAgainOnceOthersAreHeard(t *testing.T) {
	const quietMs, nodes = 200, 5
	e := ledgerEntry() // 20 are at the origin
	claim := func(now clock.Steady) (*Claim, int64) {
		c := ledgerClaim(e, 10, 100)
		c.spares = true
		call, way := c.Prepare(false, nodes, quietMs, now)
		if way != WayClaim {
			t.Fatal(way)
		}
		return c, call.AtMost
	}
	c, _ := claim(clock.SteadyStart)
	c.Merge(&Counters{}, &store.Total{Region: 21}, clock.SteadyStart)
	if c.Way != WayOverShare {
		t.Fatal(c.Way)
	}
	c, atMost := claim(clock.SteadyStart + quietMs)
	if atMost != 100 {
		t.Errorf("at most %d after a quiet time, want all", atMost)
	}
	c.End(WayBroken)
	e.Ledger().Absorb(&Counters{}, ledgerSeq, &store.Total{Region: 22}, clock.SteadyStart+quietMs)
	if _, atMost = claim(clock.SteadyStart + quietMs); atMost != 100-4*7 {
		t.Errorf("at most %d, as others are heard; of the 79 that are left each of four others has a share of 7", atMost)
	}
}

// The previous cell is read once more, after the region's other nodes have had time to send their cost of it.
func TestAClosedCellIsReadAgainAfterItsGrace(t *testing.T) {
	const graceMs = 200
	e := ledgerEntry()
	e.rotate(anyTime, ledgerSeq+1)
	closedMs := ledgerMs() + e.DurationMs()
	for _, step := range []struct {
		atMs  int64
		stale bool
	}{{0, false}, {graceMs - 1, false}, {graceMs, true}, {graceMs + 1, false}} {
		if l := e.Ledger().Load(anyTime, false, true, closedMs+step.atMs, graceMs); l.Stale != step.stale {
			t.Errorf("%d ms after its end: read again %v, want %v", step.atMs, l.Stale, step.stale)
		}
	}
}

// An entry that was evicted while a chunk had its cost is looked at once more, and reads nothing.
func TestAnEvictedEntryIsNotReadAgain(t *testing.T) {
	e := ledgerEntry()
	e.rotate(anyTime, ledgerSeq+1)
	slot := slotOf(e.counter.sequence())
	if e.endLocked(slot, e.counter.word(slot), goneIdle) == stays {
		t.Fatal("the entry stays")
	}
	if l := e.Ledger().Load(anyTime, false, true, ledgerMs()+2*e.DurationMs(), 200); l.Stale {
		t.Error("the closed cell of an entry that is gone is read again")
	}
}

// A cost that is judged by a share of its limit is counted against the whole limit, which is the limit that other nodes
// receive.
func TestACostWithinItsShareIsCountedAgainstTheLimit(t *testing.T) {
	e := bareEntry()
	v := Verdict{Against: 100}
	if !e.Judge(&v, anyTime, ledgerMs(), e.DurationMs(), 9, 1, true) || !v.Allowed {
		t.Fatalf("%+v", v)
	}
	if sent := loaded(e); sent.Add != 1 || sent.Limit != 100 {
		t.Errorf("%+v is sent, want 1 against 100", sent)
	}
}
