package cell

import (
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane/internal/clock"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

const ledgerSeq = int64(1000)

// ledgerEntry is an entry of a fleet's node with a limit of 100 a minute, of which 20 are counted and sent.
func ledgerEntry() *Entry {
	var h Hasher
	h.Init()
	key := window.Key{Workspace: "acme", Namespace: "api", Identifier: "k", Duration: time.Minute}
	id := h.IdentityOfKey(&key, nil)
	e := newEntry(&id, h.NamesOf(&key, nil), ledgerSeq, true)
	e.Ledger().cells[slotOf(ledgerSeq)].settled.Add(e.counter.add(slotOf(ledgerSeq), 20))
	return e
}

func ledgerMs() int64 { return window.Start(ledgerSeq, time.Minute.Milliseconds()) }

func ledgerClaim(e *Entry, cost, limit int64) *Claim {
	return &Claim{Entry: e, Verdict: Verdict{Sequence: ledgerSeq, AtMs: ledgerMs()}, limit: limit, Cost: cost}
}

// The total that a claim may reach is the limit without what the origin's total does not hold: other
// regions' cost. Credit and what it has paid for are in the total, and not spent.
func TestAClaimLeavesOutWhatItsTotalDoesNotHold(t *testing.T) {
	slot := slotOf(ledgerSeq)
	for name, c := range map[string]struct {
		before func(e *Entry)
		atMost int64
	}{
		"nothing else":        {func(*Entry) {}, 100},
		"other regions' cost": {func(e *Entry) { e.addOthers(slot, 40) }, 60},
		"credit":              {func(e *Entry) { e.Ledger().GiveBack(ledgerSeq, 15) }, 115},
		"credit that has paid": {func(e *Entry) {
			e.Ledger().GiveBack(ledgerSeq, 15)
			e.counter.add(slot, 15)
			e.Ledger().netLocked(slot)
		}, 100},
	} {
		e := ledgerEntry()
		c.before(e)
		if got, way := ledgerClaim(e, 10, 100).Prepare(false, 1, 200, clock.SteadyStart); way != WayClaim || got.AtMost != c.atMost {
			t.Errorf("%s: way %d, at most %d; want %d", name, way, got.AtMost, c.atMost)
		}
	}
}

// Room for the shares of others is of what the totals leave, in which credit counts as spent.
func TestCreditTakesNoRoomFromOthers(t *testing.T) {
	e := ledgerEntry()
	e.Ledger().GiveBack(ledgerSeq, 20)
	c := ledgerClaim(e, 10, 100)
	c.spares = true
	if got, _ := c.Prepare(false, 5, 200, clock.SteadyStart); got.AtMost != 120-4*8 {
		t.Errorf("at most %d; of the 80 that are left each of four others has a share of 8", got.AtMost)
	}
}

// A claim whose caller left with its cost as credit takes back that credit and no other when it
// fails; what the credit has paid for is unsent then.
func TestAFailedClaimTakesBackWhatItLent(t *testing.T) {
	for spent, want := range map[int64]struct{ credit, unsent int64 }{0: {5, 0}, 5: {0, 0}, 12: {0, 7}, 15: {0, 10}} {
		slot := slotOf(ledgerSeq)
		e := ledgerEntry()
		e.Ledger().GiveBack(ledgerSeq, 5)
		c := ledgerClaim(e, 10, 100)
		c.lends = true
		if _, way := c.Prepare(false, 1, 200, clock.SteadyStart); way != WayClaim || c.Leave() {
			t.Fatal("it is on its way")
		}
		e.counter.add(slot, spent) // by the policy
		e.Ledger().netLocked(slot)
		c.End(WayBroken)
		if known := e.countIn(slot); known != 15+spent {
			t.Errorf("%d spent: %d are known, want the 15 before and these", spent, known)
		}
		if e.Ledger().credit(slot) != want.credit || e.Ledger().unsentLocked(slot) != want.unsent {
			t.Errorf("%d spent: credit %d, unsent %d; want %+v", spent, e.Ledger().credit(slot), e.Ledger().unsentLocked(slot), want)
		}
	}
}

// However often callers leave, a cell lends no more than the word has room for.
func TestWhatACellLendsIsBounded(t *testing.T) {
	slot := slotOf(ledgerSeq)
	e := ledgerEntry()
	for range 40 {
		c := ledgerClaim(e, window.LimitMax-20, window.LimitMax)
		c.lends = true
		if _, way := c.Prepare(false, 1, 200, clock.SteadyStart); way != WayClaim {
			t.Fatalf("way %d", way)
		}
		c.Leave()
		c.End(WayBroken)
		if known := e.countIn(slot); known != 20 || e.Ledger().credit(slot)+e.Ledger().netted(slot) > creditMax {
			t.Fatalf("%d are known, want 20; credit %d, netted %d", known, e.Ledger().credit(slot), e.Ledger().netted(slot))
		}
	}
}

// A claim of a cell that is over is no claim, though the entry still has the cell.
func TestAClaimOfACellThatIsOverIsJudgedAgain(t *testing.T) {
	e := ledgerEntry()
	c := ledgerClaim(e, 10, 100)
	e.rotate(anyTime, ledgerSeq+1)
	if _, way := c.Prepare(false, 1, 200, clock.SteadyStart); way != WayReply || c.committed {
		t.Errorf("way %d, committed %v", way, c.committed)
	}
}

// A read of a cell that made way meanwhile says nothing about the one that is current now.
func TestALateReadMakesNoCellFresh(t *testing.T) {
	e := ledgerEntry()
	e.rotate(anyTime, ledgerSeq+1)
	e.Reads().Hydrate(&Counters{}, ledgerSeq-1, []store.Total{{}, {Region: 20}}, clock.SteadyStart)
	if got := e.Reads().RefreshedAt(); got != 0 {
		t.Errorf("heard at %d", got)
	}
	e.Reads().Hydrate(&Counters{}, ledgerSeq, []store.Total{{Region: 20}, {}}, clock.SteadyStart)
	if got := e.Reads().RefreshedAt(); got != clock.SteadyStart {
		t.Errorf("heard at %d of the current cell", got)
	}
}

// A namespace that needs its share takes no entry with counts that the origin does not hold.
func TestAShareTakesNothingThatTheOriginLacks(t *testing.T) {
	slot := slotOf(ledgerSeq)
	for name, c := range map[string]struct {
		with func(e *Entry)
		want eviction
	}{
		"held by the origin":                 {func(*Entry) {}, goneShare},
		"and strict":                         {func(e *Entry) { e.Reads().BeStrict(clock.SteadyStart + 1000) }, goneShare},
		"counted in other regions":           {func(e *Entry) { e.addOthers(slot, 1) }, goneShare},
		"to be restored":                     {func(e *Entry) { e.flags.Or(flagRestore << slot) }, stays},
		"unsent":                             {func(e *Entry) { e.counter.add(slot, 1) }, stays},
		"to be restored, of the cell before": {func(e *Entry) { e.flags.Or(flagRestore << previousSlot(slot)) }, stays},
	} {
		e := ledgerEntry()
		c.with(e)
		if got := e.evict(anyTime, ledgerMs(), clock.SteadyStart, 0, needShare); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

// A request as far back as clocks may be apart still finds what is over by this one.
func TestAnEntryOutlivesItsWindowByTheSkewOfClocks(t *testing.T) {
	over := window.ExpiresAt(ledgerSeq, time.Minute.Milliseconds())
	if got := ledgerEntry().evict(anyTime, over+999, clock.SteadyStart, 1000, needNone); got != stays {
		t.Errorf("evicted %d ms after its window, with clocks 1000 ms apart", 999)
	}
	if got := ledgerEntry().evict(anyTime, over+1000, clock.SteadyStart, 1000, needNone); got != goneExpired {
		t.Errorf("%d after that", got)
	}
}

// A key that had to go has no entry while either of its cells in the overflow matters, to a request
// as far back as clocks may be apart too, nor while a clock that was set back shows the cell before them.
func TestAKeyInTheOverflowHasNoEntryUntilThatIsOver(t *testing.T) {
	const graceMs = int64(1000)
	now, wall := clock.SteadyStart, clock.New(time.Now)
	wall.SetSteady(func() clock.Steady { return now })
	table := NewTable(100, graceMs, wall, false)
	key := window.Key{Workspace: "acme", Namespace: "api", Identifier: "k", Duration: time.Minute}
	id := table.IdentityOfKey(&key, nil)
	e := table.newEntry(&id, &key, nil, ledgerSeq)
	of := &table.groups[e.names.family.Value().group]
	table.Spill(e, ledgerSeq, 7)
	over := clock.SteadyStart + clock.Steady(2*time.Minute.Milliseconds()+graceMs)
	for at, want := range map[clock.Steady]bool{clock.SteadyStart: true, over - 1: true, over: false} {
		now = at
		if got := table.spilled(of, &id, &key, ledgerSeq); got != want {
			t.Errorf("%d ms before it is over: spilled %v", over-at, got)
		}
	}
	now = clock.SteadyStart
	for by, want := range map[int64]bool{-2: false, -1: true, 0: true, 1: true, 2: false} {
		if got := table.spilled(of, &id, &key, ledgerSeq+by); got != want {
			t.Errorf("%d cells from one in the overflow: spilled %v", by, got)
		}
	}
}

// Generations come back empty, however many were left out, and a clock that steps back empties none.
func TestTheOverflowsGenerations(t *testing.T) {
	const long = int64(2 * 60_000) // a generation of cells of a minute
	for turns, want := range map[int64][2]int64{0: {1, 2}, 1: {0, 2}, 2: {}, 3: {}, 4: {}, -1: {1, 2}, -2: {1, 2}, -3: {1, 2}} {
		var o overflow
		o.init(0)
		first, second := Identity{1 << 40, 2 << 40}, Identity{3 << 40, 5 << 40}
		o.add(&first, 1, 60_000, 1, clock.Steady(10*long))
		o.add(&second, 1, 60_000, 2, clock.Steady(11*long))
		o.count(&first, 1, 60_000, clock.Steady((11+turns)*long))
		at := (11 + max(0, turns)) * long
		if a, b := o.count(&first, 1, 60_000, clock.Steady(at)), o.count(&second, 1, 60_000, clock.Steady(at)); a != want[0] || b != want[1] {
			t.Errorf("%d generations on: %d and %d, want %v", turns, a, b, want)
		}
	}
}

// The limit that a claim was counted against is noted: what counts as near it depends on that.
func TestAClaimNotesItsLimit(t *testing.T) {
	e := ledgerEntry()
	c := ledgerClaim(e, 10, 100)
	c.Prepare(false, 1, 200, clock.SteadyStart)
	c.Merge(&Counters{}, &store.Total{Region: 30, Added: true}, clock.SteadyStart)
	if got := e.minLimits.get(slotOf(ledgerSeq)); got > 128 || c.Way != WayMade {
		t.Errorf("limit %d noted, way %d", got, c.Way)
	}
}

// A claim is refused for the room of others only where its total fits the limit without that.
func TestARefusedClaimIsOverShareOnlyWhereItWouldFit(t *testing.T) {
	for total, want := range map[int64]Way{20: WayOverShare, 90: WayOverShare, 91: WayReply} {
		e := ledgerEntry()
		c := ledgerClaim(e, 10, 100)
		c.Prepare(false, 1, 200, clock.SteadyStart)
		c.Merge(&Counters{}, &store.Total{Region: total}, clock.SteadyStart)
		if c.Way != want {
			t.Errorf("total %d: way %d, want %d", total, c.Way, want)
		}
	}
}

// A total that is answered while a claim is on its way may hold the claim's cost. What the origin does not have of a
// untracked key's cost is not taken to be in it: with the claim's own answer it would seem to be lost.
func TestATotalWithAClaimInItConfirmsNothingElse(t *testing.T) {
	slot := slotOf(ledgerSeq)
	e := ledgerEntry() // 20 are at the origin
	e.counter.add(slot, 1)
	e.Ledger().SettleUnnamed(ledgerSeq, 1) // and 1 is in the overflow
	c := ledgerClaim(e, 1, 100)
	if _, way := c.Prepare(false, 1, 200, clock.SteadyStart); way != WayClaim {
		t.Fatal(way)
	}
	e.Ledger().Absorb(&Counters{}, ledgerSeq, &store.Total{Region: 21}, 0)
	c.Merge(&Counters{}, &store.Total{Region: 21, Added: true}, clock.SteadyStart)
	if named := e.LookAt(ledgerSeq).Named; named != 21 {
		t.Errorf("the origin is known to have %d, want 21", named)
	}
}

// No claim is decided by a total that lacks what its node has accepted: what is unsent goes first.
func TestAClaimWaitsForWhatIsUnsent(t *testing.T) {
	e := ledgerEntry()
	e.counter.add(slotOf(ledgerSeq), 1)
	if _, way := ledgerClaim(e, 10, 100).Prepare(false, 1, 200, clock.SteadyStart); way != WayReply {
		t.Errorf("way %d", way)
	}
}

// What the cell before carries over is no room for a claim.
func TestAClaimLeavesOutWhatIsCarriedOver(t *testing.T) {
	e := ledgerEntry()
	e.addOthers(slotOf(ledgerSeq-1), 30)
	if got, way := ledgerClaim(e, 10, 100).Prepare(false, 1, 200, clock.SteadyStart); way != WayClaim || got.AtMost != 70 {
		t.Errorf("way %d, at most %d; want 70, as all 30 of the cell before still weigh", way, got.AtMost)
	}
}

// A claim belongs to the epoch that its cell was last answered in. One that was added in an epoch that is lost by the
// time of its answer is unsent, and restored with the rest.
func TestAClaimBelongsToItsCellsEpoch(t *testing.T) {
	m := new(Counters)
	e := answeredEntry(m)
	c := ledgerClaim(e, 10, 100)
	got, way := c.Prepare(false, 1, 200, clock.SteadyStart)
	if way != WayClaim || got.Epoch != lostEpoch {
		t.Fatalf("way %d, epoch %d", way, got.Epoch)
	}
	e.Ledger().Absorb(m, ledgerSeq, &store.Total{Epoch: newEpoch}, clock.SteadyStart)
	c.Merge(m, &store.Total{Region: 30, Epoch: 0, Added: true}, clock.SteadyStart)
	if unsent := e.LookAt(ledgerSeq).Unsent; unsent != 10 {
		t.Errorf("%d are unsent, want the claim's 10", unsent)
	}
}

// A claim is on its way until its answer, and what it was for a caller who has left is credit.
func TestAClaimEndsWithItsAnswer(t *testing.T) {
	e := ledgerEntry()
	c := ledgerClaim(e, 10, 100)
	c.Prepare(false, 1, 200, clock.SteadyStart)
	if !e.Flags().Claiming() {
		t.Error("it is not on its way")
	}
	c.Leave()
	c.Merge(&Counters{}, &store.Total{Region: 30, Epoch: newEpoch, Added: true}, clock.SteadyStart)
	if l := e.LookAt(ledgerSeq); e.Flags().Claiming() || l.Claiming != 0 || l.Credit != 10 || l.Counted+l.Others != 20 {
		t.Errorf("on its way: %v; %+v, want a credit of 10, and 20 that decisions see", e.Flags().Claiming(), l)
	}
}

// A caller who has left before its claim went claims nothing.
func TestACallerWhoHasLeftClaimsNothing(t *testing.T) {
	e := ledgerEntry()
	c := ledgerClaim(e, 10, 100)
	c.Leave()
	if _, way := c.Prepare(false, 1, 200, clock.SteadyStart); way == WayClaim {
		t.Error("the claim is on its way")
	}
}

// What a claim without an answer has lent is accepted cost, and restored with the rest when its epoch is lost. Its
// answer changes nothing any more.
func TestWhatALostClaimHasLentIsRestored(t *testing.T) {
	for _, added := range []bool{true, false} {
		m, slot := new(Counters), slotOf(ledgerSeq)
		e := answeredEntry(m)
		before := e.Ledger().ownLocked(slot)
		c := ledgerClaim(e, 10, 1000)
		c.lends = true
		if _, way := c.Prepare(false, 1, 200, clock.SteadyStart); way != WayClaim || !c.Lose() {
			t.Fatalf("way %d", way)
		}
		e.counter.add(slot, 10) // by the policy
		e.Ledger().netLocked(slot)
		e.Ledger().Absorb(m, ledgerSeq, &store.Total{Epoch: newEpoch}, clock.SteadyStart)
		if got := loaded(e); got.Restore != before+10 || got.Add != 0 {
			t.Errorf("%+v: want %d restored", got, before+10)
		}
		c.Merge(m, &store.Total{Added: added}, clock.SteadyStart)
		if l := e.LookAt(ledgerSeq); l.Unsent != 0 || l.Claiming != 0 || l.Credit != 0 {
			t.Errorf("added %v: %+v", added, l)
		}
	}
}

// An untracked key is lent nothing: what it accepts without the origin is in the overflow, and a claim that was added
// after all is credit.
func TestAnUntrackedKeyIsLentNothing(t *testing.T) {
	e := ledgerEntry()
	e.flags.Or(flagUntracked)
	c := ledgerClaim(e, 10, 100)
	c.lends = true
	c.Prepare(false, 1, 200, clock.SteadyStart)
	if c.Lose() || e.LookAt(ledgerSeq).Credit != 0 {
		t.Error("it has credit")
	}
	c.Merge(&Counters{}, &store.Total{Region: 30, Added: true}, clock.SteadyStart)
	if l := e.LookAt(ledgerSeq); l.Credit != 10 || c.Way != WayBroken {
		t.Errorf("way %d, %+v; want a credit of 10", c.Way, l)
	}
}

// anyTime is a horizon that hides none of the cells of these tests.
var anyTime = &Horizon{wall: clock.New(nil)}

// then is the horizon at the start of the ledger's cell.
var then = &Horizon{wall: clock.New(func() time.Time { return time.UnixMilli(ledgerMs()) })}
