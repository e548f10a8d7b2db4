package held

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/dataplane/memstore"
)

// A reservation that was lost, and ends before it is stated again, holds up no other.
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

// A shard that is away keeps nothing from the others that have lost what they held.
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

// An outage of one shard keeps no caller from another that has lost calls.
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
		time.Sleep(time.Second)
		n.awayFrom(1)
		r := recordOf(keyCost{zero, 1})
		if ok, _, err := n.tries(t.Context(), id(0)+"more", r); groupOf(origin, id(0)+"more") == 0 && (!ok || err != nil) {
			t.Errorf("ok %v, %v", ok, err)
		}
		wantAtLeast(t, origin, zero, 101)
	})
}

func wantAtLeast(t *testing.T, origin Origin, key string, least int64) {
	t.Helper()
	if used, _ := counts(t, origin, key); used < least {
		t.Errorf("%s counts %d, want %d", key, used, least)
	}
}
