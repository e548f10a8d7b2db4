package held

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/store"
)

// A lost reservation that ends before it is stated again delays no other.
func TestALostReservationThatEndsHoldsUpNoOther(t *testing.T) {
	places(t, func(t *testing.T, origin Origin, servers *memstore.Origin) {
		n := nodeOf(origin)
		for i := range 8 {
			r := recordOf(both...)
			if i > 0 {
				r.EndsMs = r.MadeMs + 500
			}
			if ok, _, err := n.tries(t.Context(), fmt.Sprint(i), r); !ok || err != nil {
				t.Fatal(ok, err)
			}
		}
		servers.Wipe()
		n.Lose()
		n.sends(t)
		n.sends(t)
		wantCounts(t, origin, "a", 100, 0)
	})
}

// While a shard is away, lost reservations of other shards are stated again.
func TestAShardThatIsAwayHoldsUpNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		origin := memstore.NewOrigin(memstore.OriginOptions{Shards: 2})
		n := nodeOf(origin)
		keys := []string{keyIn(origin, 0), keyIn(origin, 1)}
		inShard, across := [2]int64{}, int64(0)
		for i := range 100 {
			id := fmt.Sprint(i)
			if i%10 == 0 {
				n.reserves(t, id, keyCost{keys[0], 1}, keyCost{keys[1], 1})
				across++
				continue
			}
			of := groupOf(origin, id)
			n.reserves(t, id, keyCost{keys[of], 1})
			inShard[of]++
		}
		origin.Wipe()
		n.Lose()
		n.awayFrom(1)
		if err := n.Send(t.Context()); !errors.Is(err, errAway) {
			t.Errorf("a shard was away: %v", err)
		}
		if used, _ := counts(t, origin, keys[0]); used < inShard[0] {
			t.Errorf("shard 0 has %d of %d", used, inShard[0])
		}
		n.before = nil
		n.sends(t)
		for shard, key := range keys {
			wantCounts(t, origin, key, inShard[shard]+across, 0)
		}
	})
}

// An outage of a shard does not delay calls to another shard that has lost calls.
func TestAnOutageKeepsNoCallerFromAnotherShardThatHasLostCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		origin := memstore.NewOrigin(memstore.OriginOptions{Shards: 2})
		n := nodeOf(origin)
		id := func(of int) (id string) {
			for i := 0; groupOf(origin, id) != of || id == ""; i++ {
				id = fmt.Sprint("id", of, i)
			}
			return id
		}
		zero, one := keyIn(origin, 0), keyIn(origin, 1)
		n.reserves(t, "zero", keyCost{zero, 1}, keyCost{one, 1})
		state := origin.State()
		n.reserves(t, id(0), keyCost{zero, 100})
		n.reserves(t, id(1), keyCost{one, 100})
		origin.Rollback(state)
		lost := n.book.ids[id(1)] // as another call has shown before the outage
		lost.lost, n.book.pending[lost] = true, true
		time.Sleep(time.Second)
		n.awayFrom(1)
		r := recordOf(keyCost{zero, 1})
		if ok, _, err := n.tries(t.Context(), id(0)+"more", r); groupOf(origin, id(0)+"more") == 0 && (!ok || err != nil) {
			t.Errorf("ok %v, %v", ok, err)
		}
		wantAtLeast(t, origin, zero, 101)
	})
}

// If a lost reservation can't be stated again, or a part of it, a later turn states all of it.
func TestAFailedStatementIsMadeAgain(t *testing.T) {
	for _, noticed := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			origin := memstore.NewOrigin(memstore.OriginOptions{Shards: 2})
			n := nodeOf(origin)
			of := groupOf(origin, "one")
			here, there := keyIn(origin, of), keyOut(origin, of)
			n.reserves(t, "one", keyCost{here, 100}, keyCost{there, 50})
			k := n.book.ids["one"]
			k.unstated, n.book.pending[k] = true, true
			wiped(t, origin, here, there)
			if n.awayFrom(1 - of); noticed { // otherwise the node notices the loss while it makes the statement
				n.awayFrom(of)
				n.Lose()
			}
			if err := n.stateAll(t.Context(), n.book.due(n.NowMs()), make(map[int]bool)); !errors.Is(err, errAway) {
				t.Errorf("a shard was away: %v", err)
			}
			n.before = nil
			if err := n.stateAll(t.Context(), n.book.due(n.NowMs()), make(map[int]bool)); err != nil {
				t.Error(err)
			}
			wantCounts(t, origin, here, 100, 100)
			wantCounts(t, origin, there, 50, 50)
			if got := stored(t, origin, "one"); got.Text == "" {
				t.Error("the record is lost")
			}
		})
	}
}

// A node finds a reservation whose maker is gone, but gets no answer about its holds. If their shard is emptied then,
// the node has no number of that shard which shows the loss, but sees it once the shard answers.
func TestAHoldThatWasLostBeforeTheFirstAnswerIsRestored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		origin := memstore.NewOrigin(memstore.OriginOptions{Shards: 2})
		n := nodeOf(origin)
		key := keyOut(origin, groupOf(origin, "one"))
		nodeOf(origin).reserves(t, "one", keyCost{key, 100})
		n.before = func(c *store.HoldCall) error {
			if len(c.Holds) > 0 && c.Holds[0].As == store.HoldState && c.Holds[0].TTL > 0 {
				return errAway
			}
			return nil
		}
		if _, _, err := n.tries(t.Context(), "one", recordOf(keyCost{key, 100})); err != nil {
			t.Fatal(err)
		}
		origin.WipeShard(1 - groupOf(origin, "one"))
		n.before = nil
		n.sends(t)
		n.sends(t)
		restoreTotal(t, origin, key, 100)
		n.changes(t, "one", Change{Spent: []int64{30}, Settled: true})
		wantCounts(t, origin, key, 30, 100) // without the hold, the total alone would count 100
	})
}

func wantAtLeast(t *testing.T, origin Origin, key string, least int64) {
	t.Helper()
	if used, _ := counts(t, origin, key); used < least {
		t.Errorf("%s counts %d, want %d", key, used, least)
	}
}
