package hunt

import (
	"fmt"
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane/sim/hunt/internal/plan"
	"github.com/weirhq/weir/shared/tuning"
	"github.com/weirhq/weir/shared/window"
)

// kept returns a small fleet of two regions whose relays have peers. Node 0 of each region relays.
func kept(keys ...Key) Plan {
	t := tuning.Default()
	t.FeedInterval, t.Jitter = tuning.Duration(50*time.Millisecond), 0
	return Plan{Seed: 1, Fleet: Fleet{
		Nodes: []int{2, 2}, Relays: []int{1, 1}, Late: []int{0, 0}, Shards: 1, Keys: keys, Mode: window.Exact,
		OriginTrip: time.Millisecond, MySQLTrip: 10 * time.Millisecond, PeerTrip: 2 * time.Millisecond,
		Ahead: []time.Duration{0, 0}, Tuning: t,
	}}
}

func mustHold(t *testing.T, p Plan) Result {
	t.Helper()
	r, err := Play(p)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range r.Violations {
		t.Errorf("%s: %s", v.Invariant, v.What)
	}
	return r
}

// A node sends a batch's cost on untracked keys before it answers the batch. If the origin's reply is lost, the caller
// waits for the whole of ReadTimeout, and other regions may receive the cost first. That breaks no invariant.
func TestOtherRegionsMayKnowTheCostOfABatchBeforeItsCaller(t *testing.T) {
	const batches, items, trip = 12, 6, 10 * time.Millisecond // each batch has keys of its own
	var keys []Key
	for i := range batches * items {
		keys = append(keys, Key{Name: fmt.Sprint("k", i), Limit: 10, Duration: time.Hour})
	}
	p := kept(keys...)
	p.Fleet.Room, p.Fleet.OriginTrip = plan.RoomMin, trip
	for i := range batches { // half of the sends arrive, and no reply to them; the read is answered
		at := time.Duration(i) * 500 * time.Millisecond
		p.Steps = append(p.Steps,
			Step{At: at, Do: Bulk, Node: 1, Key: i * items, Count: items, Cost: 2},
			Step{At: at + trip/2, Do: Mute, Node: 1, Share: 1, After: trip})
	}
	mustHold(t, p)
}

// Where calls to an origin fail, the sketch of a full table may alone hold a batch's cost on untracked keys, even if
// the origin answered the read that the decision used. The origin need not hold that cost.
func TestAnOriginNeedNotHoldABatchsCostOnUntrackedKeysThatCouldNotBeSent(t *testing.T) {
	var keys []Key
	for i := range 8 {
		keys = append(keys, Key{Name: fmt.Sprint("k", i), Limit: 1000, Duration: time.Hour})
	}
	p := kept(keys...)
	p.Fleet.Room = plan.RoomMin
	p.Steps = []Step{{Do: Mute, Node: 1, Share: 0.3, After: 10 * time.Second}}
	for i := range 80 {
		p.Steps = append(p.Steps, Step{At: time.Duration(i) * 110 * time.Millisecond, Do: Bulk, Node: 1, Cost: 1, Count: 8})
	}
	mustHold(t, p)
}

// In an outage a node reserves by itself, some seconds after the request. The cost counts in the window of that later
// moment, which may not be the window of the request.
func TestAReservationOfAnOutageCountsInTheWindowOfItsAnswer(t *testing.T) {
	p := kept(Key{Name: "k0", Limit: 10, Duration: time.Hour})
	p.Fleet.Held = []Key{{Name: "h0", Limit: 10, Duration: 5 * time.Second}}
	p.Steps = []Step{
		{At: time.Second, Do: Cut, After: 8 * time.Second},
		{At: 4500 * time.Millisecond, Do: Hold, ID: 1, Costs: Costs{4}, After: 2 * time.Second},
	}
	mustHold(t, p)
}

// A key has counts of two cells. If its node's clock is set back, the key returns to a cell whose predecessor the node
// no longer holds. The node counts nothing for that predecessor until it reads it again. That breaks no invariant.
func TestANodeWhoseClockIsSetBackMayKnowLessOfAnEarlierCell(t *testing.T) {
	p := kept(Key{Name: "k0", Limit: 10, Duration: 2 * time.Second})
	p.Fleet.OriginTrip = 200 * time.Microsecond
	p.Steps = []Step{
		{At: 5061 * time.Millisecond, Do: Ask, Key: 0, Cost: 10},
		{At: 8403 * time.Millisecond, Do: Ask, Region: 1, Cost: 3},
		{At: 9142 * time.Millisecond, Do: Ask, Region: 1, Cost: 1},
		{At: 9286 * time.Millisecond, Do: Ask, Region: 1, Cost: 3},
		{At: 9362 * time.Millisecond, Do: Ask, Region: 1, Cost: 1},
		{At: 9437 * time.Millisecond, Do: Clock, Region: 1, Delay: -2115 * time.Millisecond},
		{At: 9499 * time.Millisecond, Do: Ask, Region: 1, Cost: 3},
	}
	mustHold(t, p)
}

// A call about a reservation may begin before the call that requests it, and take longer. It is about all of its keys.
func TestACallThatOvertakesItsReservationIsAboutAllOfItsKeys(t *testing.T) {
	p := kept(Key{Name: "k0", Limit: 10, Duration: time.Hour})
	p.Fleet.Held = []Key{{Name: "h0", Limit: 100, Duration: time.Minute}, {Name: "h1", Limit: 100, Duration: time.Minute}}
	p.Steps = []Step{{Do: Slow, Node: 1, Delay: 100 * time.Millisecond, After: 20 * time.Second}}
	for i := range 20 { // most of the calls at the slow node begin first, and arrive last
		at := time.Second + time.Duration(i)*500*time.Millisecond
		p.Steps = append(p.Steps,
			Step{At: at, Do: SpendHold, Node: 1, ID: i, Costs: Costs{1, 1}},
			Step{At: at + time.Millisecond, Do: Hold, ID: i, Costs: Costs{2, 2}, After: 2 * time.Second, Returned: true})
	}
	mustHold(t, p)
}

// For 20 ms after a refusal a node refuses new reservations by itself. A request that was granted at another node, and
// is repeated within that time at this node, still gets its reservation.
func TestARetryAtANodeThatHasJustRefusedHasItsReservation(t *testing.T) {
	p := kept(Key{Name: "k0", Limit: 10, Duration: time.Hour})
	p.Fleet.Held = []Key{{Name: "h0", Limit: 100, Duration: time.Minute}}
	p.Steps = []Step{
		{At: time.Second, Do: Hold, Node: 1, ID: 1, Costs: Costs{100}, After: 5 * time.Second},
		{At: 1100 * time.Millisecond, Do: Hold, ID: 2, Costs: Costs{25}, After: 5 * time.Second},
		{At: 1115 * time.Millisecond, Do: Hold, ID: 1, Costs: Costs{100}, After: 5 * time.Second},
	}
	mustHold(t, p)
}

// A node's first send on a key gets no answer, and the origin is emptied. Before the node sends the same chunk again it
// reads the key, and so learns how much another node has accepted since. The origin refuses the chunk as of an earlier
// epoch. The node then restores its own cost, and not the other node's, which the origin has.
func TestANodeThatHasReadTheNewEpochRestoresItsOwnCostAlone(t *testing.T) {
	p := kept(Key{Name: "k0", Limit: 1000, Duration: time.Hour})
	p.Steps = []Step{
		{At: time.Second, Do: Mute, Node: 1, Share: 1, After: 900 * time.Millisecond},
		{At: 1010 * time.Millisecond, Do: Hurry, Node: 1, Cost: 1, After: 5 * time.Millisecond},
		{At: 1500 * time.Millisecond, Do: Wipe},
		{At: 1510 * time.Millisecond, Do: Ask, Cost: 567},
		{At: 1850 * time.Millisecond, Do: RefuseCalls, Calls: Sends, After: 1500 * time.Millisecond},
		{At: 2500 * time.Millisecond, Do: Ask, Node: 1, Cost: 1},
	}
	mustHold(t, p)
}

// In the estimate mode a new node decides before it has its origin's clock. Once it has the clock, it moves the cost to
// the cell that the clock shows.
func TestANewNodesFirstCostCountsInTheCellOfItsOriginsClock(t *testing.T) {
	p := kept(Key{Name: "k0", Limit: 1000, Duration: 2 * time.Second})
	p.Fleet.Mode, p.Fleet.Ahead = window.Estimate, []time.Duration{-1730 * time.Millisecond, 0}
	for i := range 40 { // some of them begin a window by the node's clock and not by its origin's
		at := time.Duration(i) * 1500 * time.Millisecond
		p.Steps = append(p.Steps,
			Step{At: at, Do: Kill, Node: 1, After: 100 * time.Millisecond},
			Step{At: at + 115*time.Millisecond, Do: Ask, Node: 1, Cost: 500})
	}
	mustHold(t, p)
}

// Cost that a node reserves by itself in an outage counts like other cost: beyond the most that was ever held at once.
func TestAReservationOfAnOutageCountsOnTopOfWhatWasHeld(t *testing.T) {
	p := kept(Key{Name: "k0", Limit: 1000, Duration: time.Hour})
	p.Fleet.Nodes, p.Fleet.Relays, p.Fleet.Late, p.Fleet.Ahead = []int{1}, []int{1}, []int{0}, []time.Duration{0}
	p.Fleet.Held = []Key{{Name: "h0", Limit: 1000, Duration: time.Hour}}
	p.Steps = []Step{
		{At: 200 * time.Millisecond, Do: Hold, ID: 1, Costs: Costs{500}, After: 2 * time.Second},
		{At: 700 * time.Millisecond, Do: CancelHold, ID: 1, Costs: Costs{500}, After: 2 * time.Second},
		{At: 900 * time.Millisecond, Do: RefuseCalls, Calls: "reservations", After: 9 * time.Second},
	}
	for i := range 6 {
		p.Steps = append(p.Steps, Step{At: time.Second + time.Duration(i)*time.Second, Do: Hold, ID: 2 + i, Costs: Costs{50},
			Returned: true, After: 3 * time.Second})
	}
	mustHold(t, p)
}

// A node sends nothing of a cost that its credit pays for: the origin has that cost already. So the node of a closed
// namespace only notices by the chunk without costs that it sends each second that its origin refuses to count. Until
// then it grants cost within its own counts, and so do other nodes.
func TestANodeThatPaysFromCreditNoticesRefusedSendsWithinASecond(t *testing.T) {
	p := kept(Key{Name: "k0", Limit: 10, Duration: 2 * time.Second}, Key{Name: "k1", Limit: 10, Duration: time.Hour})
	p.Fleet.Strict, p.Fleet.Begin = true, 1400*time.Millisecond // a window of k0 begins 1.6 s after the first step
	p.Steps = []Step{
		{At: time.Second, Do: Ask, Cost: 10},
		{At: time.Second, Do: Ask, Node: 1, Key: 1, Cost: 1},
		{At: 1200 * time.Millisecond, Do: Refund, Cost: 10},
		{At: 1250 * time.Millisecond, Do: RefuseCalls, Calls: Sends, After: 5 * time.Second},
		{At: 1300 * time.Millisecond, Do: Ask, Cost: 10},
		{At: 1450 * time.Millisecond, Do: Refund, Cost: 10},
		{At: 1950 * time.Millisecond, Do: Ask, Node: 1, Cost: 1},
		{At: 1970 * time.Millisecond, Do: Ask, Cost: 10},
	}
	mustHold(t, p)
}

// A node decides on a reservation by itself some seconds after the request, maybe in the next window. If it is stopped
// meanwhile, its caller has no answer, but the cost still counts there.
func TestAStoppedNodeSendsWhatItReservedByItselfInALaterWindow(t *testing.T) {
	p := kept(Key{Name: "k0", Limit: 1000, Duration: time.Hour})
	p.Fleet.Held = []Key{{Name: "h0", Limit: 10, Duration: 5 * time.Second}}
	p.Steps = []Step{
		{At: 1500 * time.Millisecond, Do: Cut, Region: 1, Node: 1, After: 6200 * time.Millisecond},
		{At: 3200 * time.Millisecond, Do: Hold, Region: 1, Node: 1, ID: 1, Costs: Costs{2}, After: 3 * time.Second},
		{At: 3250 * time.Millisecond, Do: Stop, Region: 1, Node: 1, After: 2 * time.Second},
	}
	mustHold(t, p)
}

// A network repeats the call that makes a reservation. Another node settles the reservation before the repeated call
// arrives, so the caller is answered that the reservation is over, and its cost counts.
func TestAReservationThatIsOverBeforeItsCallerIsAnsweredCounts(t *testing.T) {
	p := kept(Key{Name: "k0", Limit: 1000, Duration: time.Hour})
	p.Fleet.Nodes, p.Fleet.Relays, p.Fleet.Late, p.Fleet.Ahead = []int{2}, []int{1}, []int{0}, []time.Duration{0}
	p.Fleet.Held = []Key{{Name: "h0", Limit: 100, Duration: time.Hour}}
	p.Steps = []Step{
		{At: time.Second, Do: Repeat, Node: 1, Share: 1, Delay: 20 * time.Millisecond, After: 5 * time.Second},
		{At: 2 * time.Second, Do: Hold, Node: 1, ID: 1, Costs: Costs{1}, Returned: true, After: 4 * time.Second},
		{At: 2019 * time.Millisecond, Do: SettleHold, ID: 1, Costs: Costs{1}},
	}
	mustHold(t, p)
}

// A reservation that a node makes by itself, in an outage, counts on top of the most that its cell has ever held: only
// other holds may use returned cost. Relays publish both to other regions.
func TestOtherRegionsMayKnowAReservationOfAnOutageOnTopOfWhatWasGivenBack(t *testing.T) {
	p := kept(Key{Name: "k0", Limit: 10, Duration: time.Hour})
	p.Fleet.Held = []Key{{Name: "h0", Limit: 100, Duration: time.Hour}}
	p.Steps = []Step{
		{At: 500 * time.Millisecond, Do: Hold, ID: 1, Costs: Costs{50}, After: 5 * time.Second, Returned: true},
		{At: 600 * time.Millisecond, Do: CancelHold, ID: 1},
		{At: time.Second, Do: Cut, After: 2 * time.Second},
		{At: 1500 * time.Millisecond, Do: Hold, ID: 2, Costs: Costs{26}, After: 2 * time.Second, Returned: true},
	}
	mustHold(t, p)
}

// A node without an answer so far uses its own clock. If its own clock shows the same time as its origin's, and is
// moved before the first answer, the node then moves its cost to another cell.
func TestANodeWhoseClockIsMovedBeforeItsFirstAnswerMovesItsCost(t *testing.T) {
	p := kept(Key{Name: "k0", Limit: 100, Duration: 5 * time.Second})
	p.Fleet.Nodes, p.Fleet.Mode = []int{1, 1}, window.Estimate
	p.Steps = []Step{
		{At: time.Second, Do: Kill, After: 500 * time.Millisecond},
		{At: 1510 * time.Millisecond, Do: Cut, After: 6 * time.Second},
		{At: 1520 * time.Millisecond, Do: RefuseCalls, Calls: Sends, After: 8 * time.Second},
		{At: 3 * time.Second, Do: Ask, Key: 0, Cost: 100},
		{At: 5 * time.Second, Do: Clock, Delay: -825 * time.Millisecond},
	}
	mustHold(t, p)
}

// An origin's clock is ahead for a while, and the origin forgets a cell in which cost was accepted and given back. The
// node's credit of that cost pays for nothing afterwards: the origin is sent all cost that the node then accepts.
func TestCreditForCostThatAnOriginForgotPaysForNothing(t *testing.T) {
	p := kept(Key{Name: "k0", Limit: 1000, Duration: time.Minute})
	p.Steps = []Step{
		{At: 7 * time.Second, Do: Reserve, Cost: 697, Actual: 1, After: 2 * time.Second},
		{At: 9500 * time.Millisecond, Do: Ask, Cost: 1000}, // a key that was denied outlives the sweeps of that while
		{At: 11 * time.Second, Do: SetClock, Delay: 24 * time.Hour, After: 3828 * time.Millisecond},
	}
	mustHold(t, p)
}
