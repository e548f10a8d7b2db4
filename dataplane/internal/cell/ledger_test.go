package cell

import (
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane/internal/clock"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

const ledgerSeq = int64(1000)

// ledgerEntry returns an entry of a fleet's node with a limit of 100 a minute, of which 20 are counted and sent.
func ledgerEntry() *Entry {
	var h Hasher
	h.Init()
	key := window.Key{Workspace: "acme", Namespace: "api", Identifier: "k", Duration: time.Minute}
	id := h.IdentityOfKey(&key, nil)
	e := newEntry(&id, h.NamesOf(&key, nil), ledgerSeq, true, false)
	e.Ledger().cells[slotOf(ledgerSeq)].settled.Add(e.counter.add(slotOf(ledgerSeq), 20))
	return e
}

func ledgerMs() int64 { return window.Start(ledgerSeq, time.Minute.Milliseconds()) }

func ledgerClaim(e *Entry, cost, limit int64) *Claim {
	return &Claim{Entry: e, Verdict: Verdict{Sequence: ledgerSeq, AtMs: ledgerMs()}, limit: limit, Cost: cost}
}

// The total that a claim can reach is the limit less other regions' cost, which the origin's total does not hold.
// Credit, and the cost that it paid for, are in the total but are not spent.
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

// The room for other nodes' shares is taken from the rest that the totals leave, in which credit counts as spent.
func TestCreditTakesNoRoomFromOthers(t *testing.T) {
	e := ledgerEntry()
	e.Ledger().GiveBack(ledgerSeq, 20)
	c := ledgerClaim(e, 10, 100)
	c.spares = true
	if got, _ := c.Prepare(false, 5, 200, clock.SteadyStart); got.AtMost != 120-4*8 {
		t.Errorf("at most %d; of the 80 that are left each of four others has a share of 8", got.AtMost)
	}
}

// A caller that stops waiting for its claim keeps the cost: it is counted once, before the answer and after, and sent
// if the claim was not added. Cost that the caller gives back meanwhile then becomes credit, or leaves the count.
func TestACallerKeepsWhatItsClaimHasCounted(t *testing.T) {
	for name, c := range map[string]struct {
		added                 bool
		back                  int64
		known, unsent, credit int64
	}{
		"added":                {true, 0, 30, 0, 0},
		"added, given back":    {true, 4, 26, 0, 4},
		"refused":              {false, 0, 30, 10, 0},
		"refused, given back":  {false, 4, 26, 6, 0},
		"added, all is back":   {true, 10, 20, 0, 10},
		"refused, all is back": {false, 10, 20, 0, 0},
		"added, more is back":  {true, 12, 18, 0, 12},
	} {
		e, slot := ledgerEntry(), slotOf(ledgerSeq)
		claim := ledgerClaim(e, 10, 100)
		claim.keeps = true
		if _, way := claim.Prepare(false, 1, 200, clock.SteadyStart); way != WayClaim || claim.Leave() != WayKept {
			t.Fatalf("%s: way %d", name, way)
		}
		if known := e.countIn(slot); known != 30 || e.Ledger().unsentLocked(slot) != 0 || claim.Verdict.Current != 20 {
			t.Errorf("%s: %d are known, %d unsent, %+v", name, known, e.Ledger().unsentLocked(slot), claim.Verdict)
		}
		if given := e.Ledger().GiveBack(ledgerSeq, c.back); given != c.back {
			t.Errorf("%s: %d given back, want %d", name, given, c.back)
		}
		total := store.Total{Region: 20, Epoch: newEpoch, Added: c.added}
		if c.added {
			total.Region += 10
		}
		if _, unsent, gone := claim.Merge(&Counters{}, &total, clock.SteadyStart); unsent != c.unsent || gone != 0 {
			t.Errorf("%s: unsent %d, gone %d", name, unsent, gone)
		}
		known, unsent, credit := e.countIn(slot), e.Ledger().unsentLocked(slot), e.Ledger().credit(slot)
		if known != c.known || unsent != c.unsent || credit != c.credit || e.Ledger().claiming(slot) != 0 {
			t.Errorf("%s: %d are known, %d unsent, credit %d, want %+v", name, known, unsent, credit, c)
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

// A read of a cell that made way meanwhile does not refresh the cell that is current now.
func TestALateReadMakesNoCellFresh(t *testing.T) {
	e := ledgerEntry()
	e.rotate(anyTime, ledgerSeq+1)
	e.Reads().Hydrate(&Counters{}, nil, ledgerSeq-1, []store.Total{{}, {Region: 20}}, clock.SteadyStart)
	if got := e.Reads().RefreshedAt(); got != 0 {
		t.Errorf("heard at %d", got)
	}
	e.Reads().Hydrate(&Counters{}, nil, ledgerSeq, []store.Total{{Region: 20}, {}}, clock.SteadyStart)
	if got := e.Reads().RefreshedAt(); got != clock.SteadyStart {
		t.Errorf("heard at %d of the current cell", got)
	}
}

// A read that ends after its cells leaves the read of the next cells alone: decisions join that read, and begin no
// other.
func TestALateReadEndsNoLaterRead(t *testing.T) {
	e := ledgerEntry()
	join := func() *Flight { return e.Reads().Join(clock.SteadyStart, NewFlight) }
	early := join()
	e.rotate(anyTime, ledgerSeq+1)
	late := join()
	if late == early {
		t.Fatal("a decision in the next cell waits for the read of the cells before")
	}
	e.Reads().Hydrate(&Counters{}, early, ledgerSeq-1, []store.Total{{}, {Region: 20}}, clock.SteadyStart)
	if got := join(); got != late {
		t.Error("a decision begins another read of the same cells")
	}
	e.Reads().Hydrate(&Counters{}, late, ledgerSeq, []store.Total{{Region: 20}, {}}, clock.SteadyStart)
	if got := join(); got == late {
		t.Error("a read that has ended is joined")
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

// A request as far back as clocks may be apart still finds an entry that is over by this node's clock.
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
	e := table.newEntry(&id, &key, nil, false, ledgerSeq)
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

// The limit that a claim was counted against is recorded, because it decides whether a count is near its limit.
func TestAClaimNotesItsLimit(t *testing.T) {
	e := ledgerEntry()
	c := ledgerClaim(e, 10, 100)
	c.Prepare(false, 1, 200, clock.SteadyStart)
	c.Merge(&Counters{}, &store.Total{Region: 30, Added: true}, clock.SteadyStart)
	if got := e.minLimits.get(slotOf(ledgerSeq)); got > 128 || c.Way != WayMade {
		t.Errorf("limit %d noted, way %d", got, c.Way)
	}
}

// A claim is refused for the room of others only where its total fits the limit without that, and has cost of others.
func TestARefusedClaimIsOverShareOnlyWhereItWouldFit(t *testing.T) {
	for total, want := range map[int64]Way{20: WayReply, 21: WayOverShare, 90: WayOverShare, 91: WayReply} {
		for _, leaves := range []bool{true, false} {
			if total == 20 && !leaves {
				want = WayOverShare // no claim is made again that left no room
			}
			e := ledgerEntry()
			c := ledgerClaim(e, 10, 100)
			c.spares = leaves
			c.Prepare(false, 5, 200, clock.SteadyStart)
			c.Merge(&Counters{}, &store.Total{Region: total}, clock.SteadyStart)
			if c.Way != want {
				t.Errorf("total %d, leaves room %v: way %d, want %d", total, leaves, c.Way, want)
			}
		}
	}
}

// A total that is answered while a claim is on its way may hold the claim's cost. So the total must not confirm an
// untracked key's cost that the origin lacks: with the claim's own answer that cost would seem to be lost.
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

// No claim is decided by a total that lacks cost its node has accepted: unsent cost goes first.
func TestAClaimWaitsForWhatIsUnsent(t *testing.T) {
	e := ledgerEntry()
	e.counter.add(slotOf(ledgerSeq), 1)
	if _, way := ledgerClaim(e, 10, 100).Prepare(false, 1, 200, clock.SteadyStart); way != WayReply {
		t.Errorf("way %d", way)
	}
}

// Cost that carries over from the previous cell leaves no room for a claim.
func TestAClaimLeavesOutWhatIsCarriedOver(t *testing.T) {
	e := ledgerEntry()
	e.addOthers(slotOf(ledgerSeq-1), 30)
	if got, way := ledgerClaim(e, 10, 100).Prepare(false, 1, 200, clock.SteadyStart); way != WayClaim || got.AtMost != 70 {
		t.Errorf("way %d, at most %d; want 70, as all 30 of the cell before still weigh", way, got.AtMost)
	}
}

// A claim belongs to the epoch that its cell was last answered in. A claim that was added in an epoch that is lost by
// the time of its answer is restored, and counts once on its node.
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
	if is := e.LookAt(ledgerSeq); is.Counted != 30 || is.Unsent != 0 {
		t.Errorf("%+v, want 30 counted", is)
	}
	wantRestore(t, "answered late", loaded(e), newEpoch, 12+10, 20, 0)
}

// A claim is on its way until its answer arrives, and its cost becomes credit if the caller has left.
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

// A caller that left before its claim was sent claims nothing, and keeps nothing.
func TestACallerWhoHasLeftClaimsNothing(t *testing.T) {
	e := ledgerEntry()
	c := ledgerClaim(e, 10, 100)
	c.keeps = true
	c.Leave()
	if _, way := c.Prepare(false, 1, 200, clock.SteadyStart); way == WayClaim || e.LookAt(ledgerSeq).Credit != 0 {
		t.Errorf("way %d, %+v", way, e.LookAt(ledgerSeq))
	}
}

// Cost that the caller of a claim without an answer has kept is accepted cost, and is restored with the rest when its
// epoch is lost. The claim's answer then changes nothing.
func TestWhatACallerHasKeptIsRestored(t *testing.T) {
	for _, added := range []bool{true, false} {
		m, slot := new(Counters), slotOf(ledgerSeq)
		e := answeredEntry(m)
		before := e.Ledger().ownLocked(slot)
		c := ledgerClaim(e, 10, 1000)
		c.keeps = true
		if _, way := c.Prepare(false, 1, 200, clock.SteadyStart); way != WayClaim || c.Lose() != 10 || c.Way != WayKept {
			t.Fatalf("way %d, then %d", way, c.Way)
		}
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

// The caller of an untracked key keeps nothing: cost that it accepts without the origin is in the overflow, and a claim
// that was added after all becomes credit.
func TestTheCallerOfAnUntrackedKeyKeepsNothing(t *testing.T) {
	e := ledgerEntry()
	e.flags.Or(flagUntracked)
	c := ledgerClaim(e, 10, 100)
	c.keeps = true
	c.Prepare(false, 1, 200, clock.SteadyStart)
	if kept := c.Lose(); kept != 0 || c.Way != WayBroken {
		t.Errorf("kept %d, way %d", kept, c.Way)
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

// Unsent cost past a step lacks a sync, also once its cell has ended. A key that is held back waits for its next
// request.
func TestUnsentCostLacksASync(t *testing.T) {
	e := ledgerEntry() // 20 are at the origin
	e.Estimates().begin()
	e.lowerMinLimit(slotOf(ledgerSeq), 100)
	want := func(when string, want bool) {
		t.Helper()
		if got := e.Estimates().LacksSync(0); got != want {
			t.Errorf("%s: %v", when, got)
		}
	}
	want("all is sent", false)
	e.counter.add(slotOf(ledgerSeq), 1)
	want("less than a step is unsent", false)
	e.counter.add(slotOf(ledgerSeq), 1)
	want("a step is unsent", true)
	e.rotate(anyTime, ledgerSeq+1)
	want("a step is unsent in the previous cell", true)
	e.flags.Or(flagHeldBack)
	want("the key is held back", false)
	e.flags.And(^uint32(flagHeldBack))
	e.rotate(anyTime, ledgerSeq+2)
	want("the cell has expired", false)
}

// The cost in the window at a time counts by the cells of that time, although the entry is still in an earlier cell.
func TestTheWindowOfALaterCell(t *testing.T) {
	e := ledgerEntry()
	for halves, want := range []int64{20, 20, 20, 10, 0, 0, 0} {
		if got, _ := e.InWindow(ledgerMs() + int64(halves)*30_000); got != want {
			t.Errorf("%d in the window after %d half minutes, want %d", got, halves, want)
		}
	}
}
