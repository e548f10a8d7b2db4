package cell

import (
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane/internal/clock"
	"github.com/weirhq/weir/dataplane/internal/level"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// setBack returns a table of a fleet's node whose clock shows the cell ledgerSeq+1, with an entry of that cell, and a
// function that sets the clock back to the cell before.
func setBack(mode window.Mode) (table *Table, e *Entry, back func()) {
	nowMs := ledgerMs() + time.Minute.Milliseconds()
	table = NewTable(100, 1000, clock.New(func() time.Time { return time.UnixMilli(nowMs) }), true)
	key := window.Key{Workspace: "acme", Namespace: "api", Identifier: "k", Duration: time.Minute, Mode: mode}
	id := table.IdentityOfKey(&key, nil)
	e, _ = table.Add(&id, &key, nil, false, table.Horizon(false), ledgerSeq+1, nowMs)
	return table, e, func() { nowMs = ledgerMs() + 10_000 }
}

// replaced returns the entry by which SetRight replaces e.
func replaced(t *testing.T, table *Table, e *Entry) *Entry {
	t.Helper()
	if _, ok := table.SetRight(e); !ok {
		t.Fatal("the entry is not ahead of the clock")
	}
	fresh := table.Get(e.Identity())
	if fresh == e || fresh.counter.sequence() != ledgerSeq {
		t.Fatalf("the entry is in cell %d, want another entry in cell %d", fresh.counter.sequence(), ledgerSeq)
	}
	return fresh
}

// Cost that credit has paid for is never sent. After a correction of the clock it still isn't, and all cost that is
// accepted from then on is sent in full.
func TestAClockPutRightSendsAllThatIsAcceptedFromThenOn(t *testing.T) {
	table, e, back := setBack(window.Exact)
	slot := slotOf(ledgerSeq)
	e.Ledger().cells[slot].settled.Add(e.counter.add(slot, 20))
	e.Ledger().GiveBack(ledgerSeq, 8)
	e.counter.add(slot, 8)
	e.Ledger().netLocked(slot)
	back()
	fresh := replaced(t, table, e)
	if got := fresh.Ledger().unsentLocked(slot); got != 0 {
		t.Errorf("%d of what was paid for is to be sent", got)
	}
	fresh.counter.add(slot, 5)
	if got := fresh.Ledger().unsentLocked(slot); got != 5 {
		t.Errorf("%d of 5 is to be sent", got)
	}
}

// Two cells whose counts have stopped growing fit into a single cell after a correction of the clock.
func TestAClockPutRightCarriesNoMoreThanACellHolds(t *testing.T) {
	table, e, back := setBack(window.Exact)
	e.counter.advance(ledgerSeq + 3) // neither cell is the cell that the clock will show
	for slot := range 2 {
		e.counter.put(slot, liveWord(ledgerSeq+2+int64(slot), mergedMax))
	}
	back()
	if l := replaced(t, table, e).LookAt(ledgerSeq); l.Others != mergedMax {
		t.Errorf("others are %d, want %d", l.Others, int64(mergedMax))
	}
}

// No queue takes the entry of a key without room, also after a correction of the clock: its cost would be sent by the
// queue and by the calls for keys without room, and so count twice.
func TestAnUntrackedKeyPutRightGoesIntoNoQueue(t *testing.T) {
	nowMs := ledgerMs() + 10*time.Minute.Milliseconds()
	table := NewTable(100, 1000, clock.New(func() time.Time { return time.UnixMilli(nowMs) }), true)
	key := window.Key{Workspace: "acme", Namespace: "api", Identifier: "k", Duration: time.Minute}
	id := table.IdentityOfKey(&key, nil)
	untracked, _ := table.AddUntracked(&id, &key, nil, false, table.Horizon(false), ledgerSeq+10)
	nowMs = ledgerMs()
	fresh := table.FindUntracked(&id)
	if fresh == untracked || fresh.counter.sequence() != ledgerSeq {
		t.Fatalf("the untracked key is in cell %d, want another one in cell %d", fresh.counter.sequence(), ledgerSeq)
	}
	if fresh.Ledger().Enqueue() {
		t.Error("a queue takes it")
	}
}

// The metrics of tiers count an entry once, in its tier. A correction of the clock begins with the lowest tier.
func TestAClockPutRightCountsAKeyInOneTier(t *testing.T) {
	table, e, back := setBack(window.Estimate)
	e.Estimates().MoveTier(level.Hot)
	table.Tiers.Move(level.Idle, level.Hot)
	back()
	replaced(t, table, e)
	for tier := range table.Tiers.Keys {
		want := int64(0)
		if level.Tier(tier) == level.Idle {
			want = 1
		}
		if got := table.Tiers.Keys[tier].Load(); got != want {
			t.Errorf("tier %d has %d keys, want %d", tier, got, want)
		}
	}
}

// A sync before the correction of a clock shows nothing of the time after the previous cell's end: that cell is read
// again, since other nodes may have counted in it.
func TestAClockPutRightHasThePreviousCellReadAgain(t *testing.T) {
	table, e, back := setBack(window.Estimate)
	k, h, now := new(Rules), table.Horizon(false), clock.SteadyStart
	e.Estimates().Want(100, now)
	x := e.Estimates().BeginSync(h, ledgerMs()+90_000, now, k, 200, true)
	e.Ledger().Absorb(&Counters{}, ledgerSeq+1, &store.Total{Region: 30}, now)
	e.Estimates().EndSync(h, &x, ledgerMs()+90_000, now, k)
	back()
	fresh := replaced(t, table, e)
	fresh.Estimates().Want(100, now+1)
	if x := fresh.Estimates().BeginSync(h, ledgerMs()+20_000, now+1, k, 200, true); !x.Read[0] {
		t.Error("the cell before is not read")
	}
}

// A clock that reaches an entry's cell, or passes it, before the entry is replaced leaves the entry as it is.
func TestAClockThatCatchesUpReplacesNothing(t *testing.T) {
	table, e, back := setBack(window.Exact)
	e.counter.add(slotOf(ledgerSeq+1), 20)
	back()
	nowMs := table.wall.ReadMs()
	table.wall.Follow(2 * time.Minute) // to the cell after the entry's
	table.Sweep(nowMs)
	if got := table.Get(e.Identity()); got != e || got.LookAt(ledgerSeq+1).Counted != 20 {
		t.Errorf("another entry has its place: %v", got != e)
	}
}

// A charge of a cell that lies ahead, since the clock was set back, counts in the current cell.
func TestAChargeOfACellThatLiesAheadCountsInTheCurrentCell(t *testing.T) {
	e := ledgerEntry()
	if charged, alive := e.Charge(ledgerSeq+3, 5, 100); charged != 5 || !alive || e.LookAt(ledgerSeq).Counted != 25 {
		t.Errorf("%d are charged to a living entry: %v; %+v", charged, alive, e.LookAt(ledgerSeq))
	}
}
