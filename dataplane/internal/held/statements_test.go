package held

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/store"
)

// A settlement whose first answer was lost is not late.
func TestASettlementIsStatedTwice(t *testing.T) {
	places(t, func(t *testing.T, origin Origin, _ *memstore.Origin) {
		n := nodeOf(origin)
		call := n.Call
		n.Call = func(ctx context.Context, shard int, what What, items int,
			f func(context.Context) (store.Reply, error)) error {
			if call(ctx, shard, what, items, f) == nil {
				return nil
			}
			return call(ctx, shard, what, items, f)
		}
		n.loseOnce(makes)
		n.reserves(t, "one", both...)
		n.loseOnce(func(c *store.HoldCall) bool { return c.Record != nil && c.Record.Settled })
		n.changes(t, "one", Change{Spent: []int64{7, 8}, Settled: true})
		wantCounts(t, origin, "a", 7, 100)
		wantCounts(t, origin, "b", 8, 50)
		if _, late, err := n.Change(t.Context(), "one", Change{Settled: true}); !late || err != nil {
			t.Errorf("settled again: late %v, %v", late, err)
		}
	})
}

// The statements about the holds are repeated in the next turn if none reached the origin, or if their answers were
// lost.
func TestAStatementAboutHoldsIsRepeated(t *testing.T) {
	about := func(c *store.HoldCall) bool { return c.Record == nil && len(c.Holds) > 0 }
	for _, applied := range []bool{false, true} {
		places(t, func(t *testing.T, origin Origin, _ *memstore.Origin) {
			n := nodeOf(origin)
			n.reserves(t, "one", both...)
			fail := func(c *store.HoldCall) error {
				if about(c) {
					return errAway
				}
				return nil
			}
			if applied {
				n.after = fail
			} else {
				n.before = fail
			}
			n.changes(t, "one", Change{Spent: []int64{7, 8}, Settled: true})
			n.before, n.after = nil, nil
			n.sends(t)
			wantCounts(t, origin, "a", 7, 100)
			wantCounts(t, origin, "b", 8, 50)
		})
	}
}

// A statement whose answers were lost changes nothing once the origin has forgotten the hold that it ended.
func TestAStatementOfLongAgoCountsNothing(t *testing.T) {
	places(t, func(t *testing.T, origin Origin, _ *memstore.Origin) {
		n := nodeOf(origin)
		r := recordOf(both...)
		r.EndsMs += 3_600_000
		if ok, _, err := n.tries(t.Context(), "one", r); !ok || err != nil {
			t.Fatal(ok, err)
		}
		n.after = func(c *store.HoldCall) error {
			if c.Record == nil && len(c.Holds) > 0 {
				return errAway
			}
			return nil
		}
		n.changes(t, "one", Change{Spent: []int64{7, 8}, Settled: true})
		n.after, n.before = nil, func(*store.HoldCall) error { return errAway }
		for range 90 {
			time.Sleep(time.Second)
			_ = n.Send(t.Context())
			counts(t, origin, "a")
		}
		n.before = nil
		n.sends(t)
		wantCounts(t, origin, "a", 7, 100)
	})
}

// A settlement whose holds are not stated yet is not forgotten when an older answer arrives, or when the ID is
// requested again.
func TestAnOlderAnswerForgetsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := nodeOf(memstore.NewOrigin(memstore.OriginOptions{}))
		open := recordOf(both...)
		settled := (&Change{Spent: []int64{7, 8}, TTL: hour, Settled: true}).apply(open, open.MadeMs)
		keep := func(r *Record, unstated bool, at int64) *kept {
			return n.book.keep(&kept{id: "one", record: r, numbers: numbers{{0, number{n: at}}}, unstated: unstated}, n.NowMs())
		}
		keep(settled, true, 5).lost = true
		k := keep(open, false, 4)
		if r := k.record; !r.Settled || r.Items[0].Spent != 7 || r.EndsMs != settled.EndsMs {
			t.Errorf("%+v", r)
		}
		if !k.unstated || !k.lost || !n.book.pending[k] || k.numbers.of(0).n != 5 || len(n.book.kept) != 1 ||
			len(n.book.pending) != 1 {
			t.Errorf("%+v", k)
		}
		if n.book.room.bytes.Used() != open.size() {
			t.Errorf("%d bytes, want %d", n.book.room.bytes.Used(), open.size())
		}
	})
}

// A call that comes more than a minute after the end changes nothing, even at the node that made the reservation.
func TestARepeatedSettlementAMinuteLaterChangesNothing(t *testing.T) {
	places(t, func(t *testing.T, origin Origin, _ *memstore.Origin) {
		maker, other := nodeOf(origin), nodeOf(origin)
		r := recordOf(both...)
		r.EndsMs += 600_000
		if ok, _, err := maker.tries(t.Context(), "one", r); !ok || err != nil {
			t.Fatal(ok, err)
		}
		settle := Change{Spent: []int64{7, 8}, Settled: true}
		other.changes(t, "one", settle)
		for range 90 {
			maker.sends(t)
			other.sends(t)
		}
		if _, late, err := maker.Change(t.Context(), "one", settle); !late && !errors.Is(err, ErrNone) {
			t.Errorf("late %v, %v", late, err)
		}
		wantCounts(t, origin, "a", 7, 100)
	})
}

// The holds of a reservation in several groups count for other holds from the beginning. They are in the totals once
// the node has stated them: in the next turn, if the first statement got no answer.
func TestTotalsHaveAReservationOfSeveralGroupsOnceItIsStated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		origin := memstore.NewOrigin(memstore.OriginOptions{Shards: 2})
		n := nodeOf(origin)
		n.before = func(c *store.HoldCall) error {
			if c.Record == nil && len(c.Holds) > 0 && c.Holds[0].As != store.HoldNew {
				return errAway
			}
			return nil
		}
		a, b := keyIn(origin, 0), keyIn(origin, 1)
		n.reserves(t, "one", keyCost{a, 50}, keyCost{b, 1})
		wantCounts(t, origin, a, 50, 0)
		wantCounts(t, origin, b, 1, 0)
		n.before = nil
		n.sends(t)
		wantCounts(t, origin, a, 50, 50)
		wantCounts(t, origin, b, 1, 1)
	})
}
