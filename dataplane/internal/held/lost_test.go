package held

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

var both = []keyCost{{"a", 100}, {"b", 50}}

// A replica was promoted that lacks one call about a reservation. The next turn states what that call has changed,
// also of a node without other calls, and once.
func TestWhatAReplicaLacksIsStatedAgain(t *testing.T) {
	for name, change := range map[string]func(t *testing.T, n *node){
		"a reservation":  func(t *testing.T, n *node) { n.reserves(t, "two", both...) },
		"a settlement":   func(t *testing.T, n *node) { n.changes(t, "one", Change{Spent: []int64{30, 70}, Settled: true}) },
		"an extension":   func(t *testing.T, n *node) { n.changes(t, "one", Change{TTL: 10 * time.Minute}) },
		"a cancellation": func(t *testing.T, n *node) { n.changes(t, "one", Change{Settled: true}) },
		"what was spent": func(t *testing.T, n *node) { n.changes(t, "one", Change{Spent: []int64{300, 0}}) },
	} {
		t.Run(name, func(t *testing.T) {
			places(t, func(t *testing.T, origin Origin, servers *memstore.Origin) {
				n := nodeOf(origin)
				n.reserves(t, "one", both...)
				drawEpochs(t, servers)
				state := servers.State()
				change(t, n)
				usedA, totalA := counts(t, origin, "a")
				usedB, totalB := counts(t, origin, "b")
				one, two := stored(t, origin, "one"), stored(t, origin, "two")
				servers.Rollback(state)
				n.sends(t)
				wantCounts(t, origin, "a", usedA, totalA)
				wantCounts(t, origin, "b", usedB, totalB)
				if got := [2]store.RecordAnswer{stored(t, origin, "one"), stored(t, origin, "two")}; !reflect.DeepEqual(
					without(got), without([2]store.RecordAnswer{one, two})) {
					t.Errorf("the records are %+v, want %+v and %+v", got, one, two)
				}
				n.holds.Store(0)
				n.notes.Store(0)
				n.sends(t)
				if n.notes.Load() > 0 || n.holds.Load() > 4 {
					t.Errorf("a turn later there are %d and %d calls more", n.holds.Load(), n.notes.Load())
				}
			})
		})
	}
}

// drawEpochs has an origin that has been in use: a group whose epoch a replica lacks is emptied, not rolled back.
func drawEpochs(t *testing.T, servers *memstore.Origin) {
	t.Helper()
	for shard := range servers.Shards() {
		key := keyIn(servers, shard)
		if _, err := servers.Read(t.Context(), []window.Cell{cellOf(key)}); err != nil {
			t.Fatal(err)
		}
	}
}

// without leaves out by how much an end is later that was stated again.
func without(records [2]store.RecordAnswer) [2]store.RecordAnswer {
	for i := range records {
		records[i].EndsMs /= 10_000
	}
	return records
}

// Any call finds out that a replica was promoted, and comes after what that lacks.
func TestACallFindsOutWhatAReplicaLacks(t *testing.T) {
	places(t, func(t *testing.T, origin Origin, servers *memstore.Origin) {
		n := nodeOf(origin)
		n.reserves(t, "zero", keyCost{"a", 1})
		state := servers.State()
		n.reserves(t, "one", keyCost{"a", 900})
		servers.Rollback(state)
		if ok, _, err := n.tries(t.Context(), "two", recordOf(keyCost{"a", 100})); ok || err != nil {
			t.Errorf("1001 of 1000 are reserved, %v", err)
		}
		wantCounts(t, origin, "a", 901, 901)
	})
}

// Nothing is lost of what many callers were answered while replicas were promoted.
func TestManyCallersLoseNothingToReplicas(t *testing.T) {
	places(t, func(t *testing.T, origin Origin, servers *memstore.Origin) {
		drawEpochs(t, servers)
		nodes := []*node{nodeOf(origin), nodeOf(origin)}
		var callers sync.WaitGroup
		var mu sync.Mutex
		want := map[string]int64{"a": 0, "b": 0}
		for caller := range 8 {
			callers.Go(func() {
				for i := range 20 {
					n, id := nodes[(caller+i)%2], fmt.Sprint(caller, "-", i)
					r := recordOf(keyCost{"a", 1}, keyCost{"b", 2})
					r.Returned, r.EndsMs = false, r.MadeMs+600_000
					if ok, _, err := n.tries(t.Context(), id, r); !ok || err != nil {
						t.Errorf("%s: %v", id, err)
						return
					}
					spent := []int64{1, 2}
					if i%2 == 0 {
						spent = []int64{3, 0}
						n.changes(t, id, Change{Spent: spent, Settled: true})
					}
					mu.Lock()
					want["a"] += spent[0]
					want["b"] += spent[1]
					mu.Unlock()
					time.Sleep(time.Duration(caller+1) * 7 * time.Millisecond)
				}
			})
		}
		for range 5 {
			time.Sleep(50 * time.Millisecond)
			state := servers.State()
			time.Sleep(20 * time.Millisecond)
			servers.Rollback(state)
			for _, n := range nodes {
				_ = n.Send(t.Context())
			}
		}
		callers.Wait()
		for _, n := range nodes {
			n.sends(t)
		}
		for key, used := range want {
			if got, _ := counts(t, origin, key); got != used {
				t.Errorf("%s counts %d, want %d", key, got, used)
			}
		}
	})
}

// A server that is away while a replica of it is promoted is asked once it is back, however long that takes.
func TestAReplicaThatTakesLongIsAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		origin := memstore.NewOrigin(memstore.OriginOptions{})
		n := nodeOf(origin)
		n.reserves(t, "zero", keyCost{"a", 1})
		state := origin.State()
		n.reserves(t, "one", keyCost{"a", 100})
		n.before = func(*store.HoldCall) error { return errAway }
		for range 20 {
			time.Sleep(time.Second)
			if err := n.Send(t.Context()); err == nil {
				t.Fatal("nobody asked")
			}
		}
		origin.Rollback(state)
		n.before = nil
		n.sends(t)
		wantCounts(t, origin, "a", 101, 101)
	})
}

// wiped empties an origin, and restores totals as nodes do.
func wiped(t *testing.T, servers *memstore.Origin, keys ...string) {
	t.Helper()
	totals := servers.Totals()
	servers.Wipe()
	for i, key := range keys {
		cell := cellOf(key)
		reply, err := servers.Read(t.Context(), []window.Cell{cell})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := servers.Send(t.Context(), store.Chunk{Shard: servers.ShardOf(&cell.Key), Stream: uint64(i + 1),
			Number: 1, Costs: []store.Cost{{Cell: cell, Known: totals[cell].Region,
				Epoch: reply.Totals[0].Epoch}}}); err != nil {
			t.Fatal(err)
		}
	}
}

// An emptied origin has all reservations again once each node has stated them, in any order of the nodes.
func TestAnEmptiedOriginHasItsReservationsAgain(t *testing.T) {
	for _, first := range []int{0, 1} {
		places(t, func(t *testing.T, origin Origin, servers *memstore.Origin) {
			nodes := []*node{nodeOf(origin), nodeOf(origin)}
			nodes[0].reserves(t, "open", both...)
			nodes[0].reserves(t, "spent", both...)
			nodes[0].reserves(t, "settled", both...)
			nodes[1].changes(t, "spent", Change{Spent: []int64{30, 20}})
			nodes[1].changes(t, "settled", Change{Spent: []int64{40, 0}, Settled: true})
			wantCounts(t, origin, "a", 240, 300)
			wantCounts(t, origin, "b", 100, 150)
			wiped(t, servers, "a", "b")
			for i := range nodes {
				n := nodes[(i+first)%2]
				n.Lose()
				n.sends(t)
				n.sends(t)
			}
			for id, want := range map[string]store.RecordAnswer{"open": {Spent: []int64{0, 0}},
				"spent": {Spent: []int64{30, 20}}, "settled": {Spent: []int64{40, 0}, Settled: true}} {
				if got := stored(t, origin, id); !reflect.DeepEqual(got.Spent, want.Spent) || got.Settled != want.Settled {
					t.Errorf("%s is %+v", id, got)
				}
			}
			for key, between := range map[string][2]int64{"a": {240, 300}, "b": {100, 150}} {
				if used, total := counts(t, origin, key); used < between[0] || used > between[1] || total != between[1] {
					t.Errorf("%s counts %d for holds and %d for others, want %d", key, used, total, between)
				}
			}
		})
	}
}

// Reservations that had used the same room one after another leave no room that single requests have used.
func TestWhatIsRestoredLeavesNoRoomThatIsUsed(t *testing.T) {
	places(t, func(t *testing.T, origin Origin, servers *memstore.Origin) {
		n, cell := nodeOf(origin), cellOf("a")
		reply, err := servers.Read(t.Context(), []window.Cell{cell})
		if err == nil {
			_, err = servers.Send(t.Context(), store.Chunk{Shard: servers.ShardOf(&cell.Key), Stream: 9, Number: 1,
				Costs: []store.Cost{{Cell: cell, Add: 50, Epoch: reply.Totals[0].Epoch}}})
		}
		if err != nil {
			t.Fatal(err)
		}
		n.reserves(t, "one", keyCost{"a", 100})
		n.changes(t, "one", Change{Settled: true})
		n.reserves(t, "two", keyCost{"a", 100})
		wantCounts(t, origin, "a", 150, 150)
		wiped(t, servers, "a")
		n.Lose()
		n.sends(t)
		wantCounts(t, origin, "a", 150, 150)
	})
}

// An emptied origin gets an older version first, and that is changed before the node sends its own that knows more:
// what was stated as spent, and the end, hold all the same.
func TestWhatWasSaidOutlivesAnOlderVersion(t *testing.T) {
	for _, settled := range []bool{false, true} {
		places(t, func(t *testing.T, origin Origin, servers *memstore.Origin) {
			a, b := nodeOf(origin), nodeOf(origin)
			a.reserves(t, "one", keyCost{"a", 100})
			b.changes(t, "one", Change{Spent: []int64{30}, Settled: settled})
			servers.Wipe()
			a.Lose()
			a.sends(t)
			a.changes(t, "one", Change{TTL: 2 * time.Minute})
			b.Lose()
			b.sends(t)
			if got := stored(t, origin, "one"); got.Spent[0] != 30 || got.Settled != settled ||
				got.EndsMs < time.Now().Add(time.Minute).UnixMilli() {
				t.Errorf("%+v; want 30 spent, settled %v", got, settled)
			}
		})
	}
}

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

// loseOnce loses the answer of the first call that is of a kind.
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

// The maker of a reservation got no answer. Its node ends it with the next turn.
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

// Another node has found the reservation of a maker that got no answer: it goes on, and any node settles it.
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

// A settlement whose first answer was lost is no late one.
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

// What follows for the holds is stated in the next turn if it got through to none of them, or if its answers were lost.
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

// A settlement that is not yet stated to the holds is not forgotten when an older answer comes in, or when the ID is
// asked for again.
func TestAnOlderAnswerForgetsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := nodeOf(memstore.NewOrigin(memstore.OriginOptions{}))
		open := recordOf(both...)
		settled := (&Change{Spent: []int64{7, 8}, TTL: hour, Settled: true}).apply(open, open.MadeMs)
		keep := func(r *Record, unsaid bool, at int64) *kept {
			return n.keep(&kept{id: "one", record: r, numbers: map[int]number{0: {n: at}}, unsaid: unsaid})
		}
		keep(settled, true, 5).lost = lostAll
		k := keep(open, false, 4)
		if r := k.record; !r.Settled || r.Items[0].Spent != 7 || r.EndsMs != settled.EndsMs {
			t.Errorf("%+v", r)
		}
		if !k.unsaid || k.lost != lostAll || !n.tells[k] || k.numbers[0].n != 5 || len(n.kept) != 1 || len(n.tells) != 1 {
			t.Errorf("%+v", k)
		}
		if n.room.bytes != open.bytes() {
			t.Errorf("%d bytes, want %d", n.room.bytes, open.bytes())
		}
	})
}

// A call that comes more than a minute after the end changes nothing, also at the node that made the reservation.
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

// numbered is a group's state by its answers.
type numbered struct {
	*node
	of  int
	key window.Key
}

func (n *numbered) answers(numbers ...int64) {
	for _, number := range numbers {
		n.answered(n.of, &n.key, &store.HoldReply{Epoch: 1, Number: number})
	}
}

// keeps keeps reservations that were answered with numbers.
func (n *numbered) keeps(numbers ...number) (all []*kept) {
	for _, is := range numbers {
		all = append(all, n.keep(&kept{record: recordOf(both...), numbers: map[int]number{n.of: is}}))
	}
	return all
}

func (n *numbered) lostAre(t *testing.T, all []*kept, want ...bool) {
	t.Helper()
	for i, k := range all {
		if got := k.lost == lostLatest && n.tells[k]; got != want[i] {
			t.Errorf("reservation %d is lost: %v, want %v", i, got, want[i])
		}
	}
}

// Answers come in any order. A number that comes twice shows that the calls from that on were lost.
func TestANumberThatComesTwiceShowsALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &numbered{node: nodeOf(memstore.NewOrigin(memstore.OriginOptions{}))}
		n.answers(1, 3, 2, 5, 4)
		all := n.keeps(number{n: 1}, number{n: 2}, number{n: 3}, number{n: 4}, number{n: 5})
		n.lostAre(t, all, false, false, false, false, false)
		if _, after := n.marks(0); after.Number != 5 {
			t.Errorf("after is %+v", after)
		}
		n.answers(4)
		n.lostAre(t, all, false, false, false, true, true)
		if _, after := n.marks(0); after.Number != 4 {
			t.Errorf("after is %+v", after)
		}
		n.answers(3)
		n.lostAre(t, all, false, false, true, true, true)
	})
}

// A loss is found out also for a reservation whose answer came in just before, and is kept just after.
func TestAnAnswerThatIsOvertakenByALossIsStatedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &numbered{node: nodeOf(memstore.NewOrigin(memstore.OriginOptions{}))}
		n.answers(1, 2, 3)
		n.answered(0, &n.key, &store.HoldReply{Epoch: 1, Behind: true, Have: 1})
		n.lostAre(t, n.keeps(number{n: 3}), true)
		again := n.answered(0, &n.key, &store.HoldReply{Epoch: 1, Number: 2})
		next := n.answered(0, &n.key, &store.HoldReply{Epoch: 1, Number: 3})
		n.lostAre(t, n.keeps(again, number{n: 2}, next), false, true, false)
	})
}

// An origin forgets a stream that makes no calls for long, and counts from 1 again: nothing was lost.
func TestAStreamThatWasForgottenHasLostNothing(t *testing.T) {
	places(t, func(t *testing.T, origin Origin, _ *memstore.Origin) {
		n := nodeOf(origin)
		r := recordOf(both...)
		r.EndsMs += 3_600_000
		if ok, _, err := n.tries(t.Context(), "one", r); !ok || err != nil {
			t.Fatal(ok, err)
		}
		for range 180 {
			n.sends(t)
		}
		n.reserves(t, "two", both...)
		for k := range n.tells {
			t.Errorf("%q is to be stated again", k.id)
		}
	})
}
