package held

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/store"
)

// If the maker of a reservation got no answer, its node ends the reservation in the next turn.
func TestAReservationWithoutAnAnswerIsWithdrawn(t *testing.T) {
	places(t, func(t *testing.T, origin Origin, _ *memstore.Origin) {
		n := nodeOf(origin)
		n.loseOnce(makes)
		if ok, _, err := n.tries(t.Context(), "one", recordOf(both...)); ok || !errors.As(err, new(Away)) {
			t.Fatal(ok, err)
		}
		if n.Len() != 0 {
			t.Errorf("%d are open", n.Len())
		}
		n.sends(t)
		for _, c := range both {
			if used, _ := counts(t, origin, c.key); used != 0 {
				t.Errorf("%s counts %d", c.key, used)
			}
		}
		if got := stored(t, origin, "one"); got.Text != "" && !got.Settled {
			t.Errorf("%+v", got)
		}
	})
}

// If another node has found the reservation of a maker that got no answer, the reservation goes on, and any node can
// settle it.
func TestAReservationWithoutAnAnswerThatWasFoundGoesOn(t *testing.T) {
	places(t, func(t *testing.T, origin Origin, _ *memstore.Origin) {
		n, other := nodeOf(origin), nodeOf(origin)
		n.loseOnce(makes)
		r := recordOf(both...)
		if ok, _, err := n.tries(t.Context(), "one", r); ok || err == nil {
			t.Fatal(ok, err)
		}
		other.reserves(t, "one", both...)
		n.sends(t)
		for _, c := range both {
			wantCounts(t, origin, c.key, c.cost, c.cost)
		}
		if n.Len() != 1 || other.Len() != 1 {
			t.Errorf("%d and %d are open", n.Len(), other.Len())
		}
		n.changes(t, "one", Change{Spent: []int64{7, 8}, Settled: true})
		wantCounts(t, origin, "a", 7, 100)
		wantCounts(t, origin, "b", 8, 50)
	})
}

// A node finds a reservation of a maker that got no answer, and a replica of the record's shard is promoted that does
// not know this. The node notices, although the holds' shard has lost nothing, and the reservation goes on.
func TestANodeNoticesThatAReplicaDoesNotKnowWhatItFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		servers := memstore.NewOrigin(memstore.OriginOptions{Shards: 2})
		n, other := nodeOf(servers), nodeOf(servers)
		drawEpochs(t, servers)
		cost := keyCost{keyOut(servers, groupOf(servers, "one")), 100}
		n.loseOnce(makes)
		if ok, _, err := n.tries(t.Context(), "one", recordOf(cost)); ok || err == nil {
			t.Fatal(ok, err)
		}
		state := servers.State()
		other.reserves(t, "one", cost)
		servers.RollbackShard(groupOf(servers, "one"), state)
		other.sends(t)
		n.sends(t)
		wantCounts(t, servers, cost.key, 100, 100)
		if got := stored(t, servers, "one"); got.Text == "" || got.Settled {
			t.Errorf("%+v", got)
		}
	})
}

// A replica is promoted that lacks a reservation without an answer. Its maker withdraws it, but another node has found
// it before, and states it again.
func TestAWithdrawalDoesNotEndWhatAnotherNodeRestores(t *testing.T) {
	places(t, func(t *testing.T, origin Origin, servers *memstore.Origin) {
		n, other := nodeOf(origin), nodeOf(origin)
		drawEpochs(t, servers)
		state := servers.State()
		n.loseOnce(makes)
		if ok, _, err := n.tries(t.Context(), "one", recordOf(both...)); ok || err == nil {
			t.Fatal(ok, err)
		}
		other.reserves(t, "one", both...)
		servers.Rollback(state)
		n.sends(t)
		other.sends(t)
		wantCounts(t, origin, "a", 100, 100)
		wantCounts(t, origin, "b", 50, 50)
	})
}

// loseOnce loses the answer of the first call for which is returns true.
func (n *node) loseOnce(is func(c *store.HoldCall) bool) {
	n.after = func(c *store.HoldCall) error {
		if !is(c) {
			return nil
		}
		n.after = nil
		return errAway
	}
}

func makes(c *store.HoldCall) bool {
	return c.Record != nil && c.Record.Text != "" && !c.Record.Withdraw
}

// Send withdraws a reservation without an answer as it was requested, even if its judge changes the record later.
func TestAWithdrawnRecordIsACopy(t *testing.T) {
	n := nodeOf(memstore.NewOrigin(memstore.OriginOptions{}))
	r := recordOf(both...)
	n.withdraw("lost", r)
	for i := range r.Items {
		r.Items[i].Shadow = true
	}
	kept := n.book.kept[r.MadeBy].record
	for i := range kept.Items {
		if kept == r || kept.Items[i].Shadow {
			t.Errorf("item %d was changed with the request's record", i)
		}
	}
}

// A retry took the place of a reservation that was never stored. When the first is withdrawn, the node keeps the
// second, so in an outage a repeated request still gets its reservation.
func TestAWithdrawalLeavesTheReservationOfARetryKnown(t *testing.T) {
	places(t, func(t *testing.T, origin Origin, _ *memstore.Origin) {
		n := nodeOf(origin)
		n.before = func(c *store.HoldCall) error {
			if makes(c) {
				return errAway
			}
			return nil
		}
		if ok, _, err := n.tries(t.Context(), "one", recordOf(both...)); ok || !errors.As(err, new(Away)) {
			t.Fatal(ok, err)
		}
		n.before = nil
		n.reserves(t, "one", both...)
		for _, then := range []string{"withdrawn", "stated again"} {
			n.sends(t)
			n.before = func(*store.HoldCall) error { return errAway }
			if ok, asked, err := n.tries(t.Context(), "one", recordOf(both...)); !ok || asked || err != nil {
				t.Errorf("%s: %v, asked %v, %v", then, ok, asked, err)
			}
			n.before = nil
			n.Lose()
		}
	})
}

// A node that has settled a reservation does not make it a second time in an outage: it refuses a late retry as the
// origin does.
func TestASettledReservationIsKnownInAnOutage(t *testing.T) {
	places(t, func(t *testing.T, origin Origin, _ *memstore.Origin) {
		n := nodeOf(origin)
		n.reserves(t, "one", both...)
		n.changes(t, "one", Change{Spent: []int64{100, 50}, Settled: true})
		for range 2 {
			if ok, _, err := n.tries(t.Context(), "one", recordOf(both...)); ok || !errors.Is(err, ErrOver) {
				t.Errorf("reserved again: %v, %v", ok, err)
			}
			if ok, _, err := n.tries(t.Context(), "one", recordOf(keyCost{"a", 1})); ok || !errors.Is(err, ErrUsed) {
				t.Errorf("another with the ID: %v, %v", ok, err)
			}
			n.before = func(*store.HoldCall) error { return errAway }
		}
	})
}

// A repeated request at the node that made the reservation holds nothing before the origin has answered that the record
// is gone. So nothing is left to take back if the next call gets no answer.
func TestARepeatedRequestHoldsNothingTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := nodeOf(memstore.NewOrigin(memstore.OriginOptions{Shards: 8}))
		n.reserves(t, "one", both...)
		n.before = func(c *store.HoldCall) error {
			if len(c.Holds) > 0 && c.Holds[0].As == store.HoldNew {
				t.Errorf("the node asks for %+v", c.Holds)
			}
			return nil
		}
		n.reserves(t, "one", both...)
	})
}
