package held

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

var both = []keyCost{{"a", 100}, {"b", 50}}

// A replica was promoted that lacks a call about a reservation. The next turn states once what that call has changed,
// even at a node without other calls.
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

// drawEpochs makes the origin draw its epochs, as if it had been in use. A group whose epoch a replica lacks counts as
// emptied, not as rolled back.
func drawEpochs(t *testing.T, servers *memstore.Origin) {
	t.Helper()
	for shard := range servers.Shards() {
		key := keyIn(servers, shard)
		if _, err := servers.Read(t.Context(), []window.Cell{cellOf(key)}); err != nil {
			t.Fatal(err)
		}
	}
}

// without removes the extra time by which an end is later after it was stated again.
func without(records [2]store.RecordAnswer) [2]store.RecordAnswer {
	for i := range records {
		records[i].EndsMs /= 10_000
	}
	return records
}

// Any call finds out that a replica was promoted, and its own effect comes after the lost reservations are stated
// again.
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

// Although replicas are promoted, no answered call of many callers is lost.
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

// If a server is away while its replica is promoted, its groups are checked once it is back, however long that takes.
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
	for _, key := range keys {
		restoreTotal(t, servers, key, totals[cellOf(key)].Region)
	}
}

// restoreTotal restores the total of a key as nodes do.
func restoreTotal(t *testing.T, servers *memstore.Origin, key string, total int64) {
	t.Helper()
	cell := cellOf(key)
	reply, err := servers.Read(t.Context(), []window.Cell{cell})
	if err == nil {
		_, err = servers.Send(t.Context(), store.Chunk{Shard: servers.ShardOf(&cell.Key), Stream: rand.Uint64() | 1,
			Number: 1, Costs: []store.Cost{{Cell: cell, Known: total, Epoch: reply.Totals[0].Epoch}}})
	}
	if err != nil {
		t.Fatal(err)
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

// A statement that was not acknowledged can be the first to reach an emptied origin, before the node has noticed the
// loss. It adds nothing to the totals that nodes restore.
func TestAStatementThatComesFirstToAnEmptiedOriginRestores(t *testing.T) {
	places(t, func(t *testing.T, origin Origin, servers *memstore.Origin) {
		n := nodeOf(origin)
		n.reserves(t, "one", keyCost{"a", 100})
		n.book.mu.Lock()
		for _, k := range n.book.kept {
			k.unstated, n.book.pending[k] = true, true
		}
		n.book.mu.Unlock()
		totals := servers.Totals()[cellOf("a")].Region
		servers.Wipe()
		if err := n.stateAll(t.Context(), n.book.due(n.NowMs()), make(map[int]bool)); err != nil {
			t.Fatal(err)
		}
		n.Lose()
		n.sends(t)
		restoreTotal(t, servers, "a", totals)
		n.changes(t, "one", Change{Spent: []int64{30}, Settled: true})
		wantCounts(t, origin, "a", 30, 100)
	})
}

// After an origin was emptied, one node has restored a reservation's record, but not its holds yet. A node that has
// never had the reservation changes it, and so states its holds first. The reservation still counts once, because it is
// in the totals that nodes restore.
func TestAChangeBetweenARecordAndItsHoldsCountsOnce(t *testing.T) {
	places(t, func(t *testing.T, origin Origin, servers *memstore.Origin) {
		maker, other := nodeOf(origin), nodeOf(origin)
		maker.reserves(t, "one", both...)
		other.reserves(t, "another", keyCost{"a", 1}) // so it has called the origin before
		a, b := servers.Totals()[cellOf("a")].Region, servers.Totals()[cellOf("b")].Region
		servers.Wipe()
		maker.Lose()
		if err := maker.stateRecord(t.Context(), maker.book.ids["one"], true); err != nil {
			t.Fatal(err)
		}
		other.changes(t, "one", Change{Spent: []int64{30, 20}})
		maker.sends(t)
		other.Lose()
		other.sends(t)
		restoreTotal(t, servers, "a", a)
		restoreTotal(t, servers, "b", b)
		maker.changes(t, "one", Change{Settled: true})
		wantCounts(t, origin, "a", 31, a)
		wantCounts(t, origin, "b", 20, b)
	})
}

// The first call to reach an origin that was emptied makes a reservation. The node has learned the epoch before, so the
// call must not state it: once a replica is promoted that lacks the call, no total has the reservation.
func TestAReservationThatComesFirstToAnEmptiedOriginIsMadeInItsEpoch(t *testing.T) {
	places(t, func(t *testing.T, origin Origin, servers *memstore.Origin) {
		n, other := nodeOf(origin), nodeOf(origin)
		n.reserves(t, "zero", both...)
		wiped(t, servers, "a", "b")
		drawEpochs(t, servers)
		state := servers.State()
		n.reserves(t, "one", both...)
		other.changes(t, "one", Change{TTL: 2 * time.Minute})
		for range 2 {
			n.sends(t)
			other.sends(t)
			wantCounts(t, origin, "a", 200, 200)
			wantCounts(t, origin, "b", 100, 100)
			servers.Rollback(state)
		}
	})
}

// A repeated call can reach an origin that was emptied after the first call. No total has its reservation either.
func TestARepeatedCallToAnEmptiedOriginIsMadeInItsEpoch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		servers := memstore.NewOrigin(memstore.OriginOptions{})
		n := nodeOf(servers)
		n.reserves(t, "zero", both...)
		var state memstore.OriginState
		n.before = func(c *store.HoldCall) error {
			if !makes(c) {
				return nil
			}
			n.before = nil
			wiped(t, servers, "a", "b")
			state = servers.State()
			return nil
		}
		n.reserves(t, "one", both...)
		for range 2 {
			n.sends(t)
			wantCounts(t, servers, "a", 200, 200)
			wantCounts(t, servers, "b", 100, 100)
			servers.Rollback(state)
		}
	})
}

// A reservation is changed while its node states its lost record again. The change finds it, although the statement has
// not arrived.
func TestAChangeWhileALostRecordIsOnItsWayFindsIt(t *testing.T) {
	places(t, func(t *testing.T, origin Origin, servers *memstore.Origin) {
		n := nodeOf(origin)
		n.reserves(t, "one", both...)
		wiped(t, servers, "a", "b")
		n.Lose()
		first := new(atomic.Bool)
		n.before = func(c *store.HoldCall) error {
			if c.Record != nil && c.Record.Restored && first.CompareAndSwap(false, true) {
				time.Sleep(time.Second)
			}
			return nil
		}
		var turn sync.WaitGroup
		turn.Go(func() {
			time.Sleep(time.Second) // so that the turn first learns the new epoch
			if err := n.Send(t.Context()); err != nil {
				t.Error(err)
			}
		})
		defer turn.Wait()
		time.Sleep(1500 * time.Millisecond)
		n.changes(t, "one", Change{Spent: []int64{30, 20}, Settled: true})
		turn.Wait()
		wantCounts(t, origin, "a", 30, 100)
		wantCounts(t, origin, "b", 20, 50)
	})
}

// If an origin is emptied again and again, a request ends without an answer, and holds nothing.
func TestAnOriginThatIsEmptiedEachTimeAnswersNoRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		servers := memstore.NewOrigin(memstore.OriginOptions{})
		n := nodeOf(servers)
		n.reserves(t, "zero", keyCost{"a", 1})
		tries := 0
		n.before = func(c *store.HoldCall) error {
			if makes(c) {
				tries++
				servers.Wipe()
			}
			return nil
		}
		if ok, _, err := n.tries(t.Context(), "one", recordOf(both...)); ok || !errors.Is(err, errEmptied) ||
			!errors.As(err, new(Away)) || tries != triesMax {
			t.Errorf("ok %v after %d tries, %v", ok, tries, err)
		}
		n.before = nil
		n.sends(t)
		wantCounts(t, servers, "a", 1, 0)
		wantCounts(t, servers, "b", 0, 0)
	})
}

// A node learns an epoch by a call of its own only for a reservation in a single group, and only once.
func TestANodeLearnsAnEpochOnce(t *testing.T) {
	places(t, func(t *testing.T, origin Origin, _ *memstore.Origin) {
		n, learned := nodeOf(origin), 0
		n.before = func(c *store.HoldCall) error {
			if c.Record == nil && len(c.Holds) == 0 {
				learned++
			}
			return nil
		}
		want := 0
		for i := range 3 {
			id := fmt.Sprint(i)
			if key := keyIn(origin, groupOf(origin, id)); i == 0 {
				n.reserves(t, id, keyCost{key, 1})
				want = 1
			} else {
				n.reserves(t, id, keyCost{key, 1}, keyCost{keyOut(origin, groupOf(origin, id)), 1})
			}
			if learned != want {
				t.Errorf("%d calls have learned an epoch after request %d, want %d", learned, i, want)
			}
			if n.notes.Load() > 0 {
				t.Errorf("request %d has stated its record once more", i)
			}
		}
	})
}

// If several reservations have used the same room in turn, restoring them must not free room that single requests have
// used.
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

// An emptied origin first gets an older version, which is then changed before the node sends its newer version. The
// newer spent cost and end hold all the same.
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

// While a caller states lost reservations again, other calls to the group wait, even calls that have just begun. So
// nothing is granted while a hold is not stated yet, and each reservation is stated once.
func TestCallersWaitForWhatAReplicaLacks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		servers := memstore.NewOrigin(memstore.OriginOptions{})
		n := nodeOf(servers)
		drawEpochs(t, servers)
		n.reserves(t, "zero", keyCost{"b", 1})
		state := servers.State()
		n.reserves(t, "lost", keyCost{"a", 600})
		servers.Rollback(state)
		var stated atomic.Int64
		n.before = func(c *store.HoldCall) error {
			if c.Record != nil && c.Record.Restored {
				stated.Add(1)
				time.Sleep(time.Second)
			} else if c.Record != nil {
				time.Sleep(time.Millisecond) // all calls begin before the first is answered
			}
			return nil
		}
		want := func(id string, within time.Duration, wantOK bool, fails error) {
			ctx, cancel := context.WithTimeout(t.Context(), within)
			defer cancel()
			if ok, _, err := n.tries(ctx, id, recordOf(keyCost{"a", 600})); ok != wantOK || !errors.Is(err, fails) {
				t.Errorf("%s: ok %v, %v", id, ok, err)
			}
		}
		var callers sync.WaitGroup
		for i := range 3 {
			callers.Go(func() { want(fmt.Sprint("at once ", i), hour, false, nil) })
		}
		time.Sleep(500 * time.Millisecond)
		callers.Go(func() { want("later", hour, false, nil) })
		want("impatient", 100*time.Millisecond, false, context.DeadlineExceeded)
		callers.Wait()
		if got := stated.Load(); got != 1 {
			t.Errorf("it was stated %d times", got)
		}
		wantCounts(t, servers, "a", 600, 600)
	})
}
