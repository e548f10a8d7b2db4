package dataplane_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// Behaviours 15 to 18 of the exact mode, and the properties that they depend on.

// A (1 of 10) and B (9 of 10, cost 5) are in one batch: A's own verdict is allowed, B's is denied; A stays 1, B stays
// 9.
func TestBatchIsAllOrNothing(t *testing.T) {
	w := newWorld(t)
	n := w.node("eu", "a")
	n.take("A", 1, 10)
	n.take("B", 9, 10)
	b := n.AllowMany(t.Context(), []dataplane.Request{ask("A", 1, 10), ask("B", 5, 10)})
	if b.Allowed || b.Err != nil || len(b.Decisions) != 2 {
		t.Fatalf("%+v", b)
	}
	// A failing batch leaves every remaining as before.
	wantAllowed(t, "A's own verdict", b.Decisions[0], true, 9)
	wantAllowed(t, "B's own verdict", b.Decisions[1], false, 1)
	if a, b := n.Cell(w.cell("A")), n.Cell(w.cell("B")); a.Count != 1 || b.Count != 9 {
		t.Errorf("A %+v, B %+v", a, b)
	}
	// Only the failing items enter strict mode.
	if n.StrictUntil(w.cell("A").Key) != 0 || n.StrictUntil(w.cell("B").Key) == 0 {
		t.Error("strict mode of A or B")
	}
	b = n.AllowMany(t.Context(), []dataplane.Request{ask("A", 1, 10), ask("B", 1, 10)})
	if !b.Allowed {
		t.Fatalf("%+v", b)
	}
	wantAllowed(t, "A", b.Decisions[0], true, 8)
	wantAllowed(t, "B", b.Decisions[1], true, 0)
}

// Every item's result is returned, in order. The input slice is not changed.
// Duplicate keys add up.
func TestDuplicateKeysAddUp(t *testing.T) {
	w := newWorld(t)
	n := w.alone()
	in := []dataplane.Request{ask("k", 4, 10), ask("other", 1, 10), ask("k", 4, 10), ask("k", 4, 10), ask("k", 0, 10)}
	before := slices.Clone(in)
	b := n.AllowMany(t.Context(), in)
	if b.Allowed || !reflect.DeepEqual(in, before) {
		t.Fatalf("%+v, input %v", b, in)
	}
	for i, allowed := range []bool{true, true, true, false, false} {
		if b.Decisions[i].Allowed != allowed {
			t.Errorf("item %d: %+v", i, b.Decisions[i])
		}
		if b.Decisions[i].Remaining != 10 {
			t.Errorf("item %d: remaining %d after a batch that failed", i, b.Decisions[i].Remaining)
		}
	}
	b = n.AllowMany(t.Context(), []dataplane.Request{ask("k", 4, 10), ask("k", 6, 10), ask("k", 0, 10)})
	if !b.Allowed {
		t.Fatalf("%+v", b)
	}
	for i, remaining := range []int64{6, 0, 0} {
		wantAllowed(t, "item", b.Decisions[i], true, remaining)
	}
}

// A batch reads the origin once: both cells of each key, in the order in which the items first name the keys.
func TestABatchReadsItsKeysOnceInTheOrderOfItsItems(t *testing.T) {
	w := newWorld(t)
	origin := &recordingOrigin{Origin: w.origin("eu")}
	n := w.node("eu", "a", func(c *dataplane.Config) { c.Origin = origin })
	n.AllowMany(t.Context(), []dataplane.Request{ask("k3", 3, 20), ask("k2", 4, 40), ask("k0", 3, 20), ask("k1", 3, 20), ask("k3", 3, 20)})
	var want []window.Cell
	for _, identifier := range []string{"k3", "k2", "k0", "k1"} {
		cell := w.cell(identifier)
		before := cell
		before.Sequence--
		want = append(want, before, cell)
	}
	if len(origin.reads) != 1 || !slices.Equal(origin.reads[0], want) {
		t.Errorf("the origin was asked for %v, want one read of %v", origin.reads, want)
	}
}

// While a reservation of 6 is in flight, a send contains nothing of it; after the commit the row is 6. Replay must
// not send anything for the reservation either.
func TestReservationsAreNeverPublished(t *testing.T) {
	w := newWorld(t)
	n := w.node("eu", "a")
	reservation := n.HoldOne(ask("k", 6, 10))
	if !reservation.Allowed() {
		t.Fatal("denied")
	}
	n.replay()
	w.publish()
	if rows, counted := w.counts.Rows(), totals(w.origin("eu")); len(rows) != 0 || counted[w.cell("k")] != 0 {
		t.Fatalf("a reservation was published: %v, %v", rows, counted)
	}
	reservation.Keep()
	n.replay()
	w.publish()
	if got := w.published("eu", w.cell("k")); got != 6 {
		t.Errorf("row is %d after commit", got)
	}
	if got := totals(w.origin("eu"))[w.cell("k")]; got != 6 {
		t.Errorf("origin has %d after commit", got)
	}
}

// A reservation must not be visible to a send in any interleaving: the count that a send reads never exceeds the
// permanently accepted cost.
func TestSendsNeverSeeReservations(t *testing.T) {
	w := newWorld(t)
	n := w.node("eu", "a")
	n.take("k", 5, 1000)
	cell := w.cell("k")
	var stop atomic.Bool
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for !stop.Load() {
				n.HoldOne(ask("k", 3, 1000)).Undo()
			}
		})
	}
	reads := 2_000_000
	if raced || testing.Short() {
		reads = 100_000
	}
	for range reads {
		if got := n.Accepted(cell); got != 5 {
			t.Errorf("a send reads %d, 5 were accepted", got)
			break
		}
	}
	stop.Store(true)
	wg.Wait()
	if s := n.Cell(cell); s.Count != 5 {
		t.Errorf("left behind: %+v", s)
	}
}

// Singles and batches on the same keys are exact together.
func TestSinglesAndBatchesAreExactTogether(t *testing.T) {
	const limit = 500
	w := newWorld(t)
	n := w.alone()
	keys := []string{"a", "b", "c"}
	var accepted [3]atomic.Int64
	together(8, func(worker int) {
		rnd := rand.New(rand.NewPCG(uint64(worker), 7))
		for range 2000 {
			if rnd.IntN(2) == 0 {
				i := rnd.IntN(3)
				if n.Allow(t.Context(), ask(keys[i], 1, limit)).Allowed {
					accepted[i].Add(1)
				}
				continue
			}
			i, j := rnd.IntN(3), rnd.IntN(3)
			if n.AllowMany(t.Context(), []dataplane.Request{ask(keys[i], 2, limit), ask(keys[j], 1, limit)}).Allowed {
				accepted[i].Add(2)
				accepted[j].Add(1)
			}
		}
	})
	for i, key := range keys {
		s := n.Cell(w.cell(key))
		if s.Count != accepted[i].Load() || s.Count > limit {
			t.Errorf("%s: %+v, callers were told %d of %d", key, s, accepted[i].Load(), limit)
		}
	}
}

// Duplicates also add up on a key for which a full table has no room.
func TestDuplicatesOfAnUntrackedKeyAddUp(t *testing.T) {
	n := newWorld(t).alone(func(c *dataplane.Config) { c.EntriesMax = 1 })
	n.take("k", 10, 10) // at its limit, so it stays
	b := n.AllowMany(t.Context(), []dataplane.Request{ask("other", 6, 10), ask("other", 5, 10)})
	if b.Allowed || !b.Decisions[0].Allowed || b.Decisions[1].Allowed {
		t.Errorf("%+v", b)
	}
	b = n.AllowMany(t.Context(), []dataplane.Request{ask("other", 6, 10), ask("other", 4, 10)})
	if !b.Allowed || b.Decisions[1].Remaining != 0 {
		t.Errorf("%+v", b)
	}
}

// Batches lock their keys in a fixed order, however the requests are ordered, so that no deadlock can occur.
func TestBatchesHoldTheirKeysInOneOrder(t *testing.T) {
	n := newWorld(t).alone()
	for _, keys := range []int{2, 10, 100, 1000} {
		var requests []dataplane.Request
		for i := range keys {
			requests = append(requests, ask(fmt.Sprint("k", i), 1, 10))
		}
		want := n.HoldOrder(requests)
		if len(want) != keys {
			t.Fatalf("a batch of %d keys holds %d", keys, len(want))
		}
		slices.Reverse(requests)
		if got := n.HoldOrder(append(requests, requests[0])); !slices.Equal(got, want) {
			t.Errorf("%d keys the other way round, and one twice: %v, want %v", keys, got, want)
		}
	}
}

// If a key leaves the table while a batch is decided, the batch must unlock the keys that it had locked before. Then
// it is decided with the key's new entry, and no request waits for it.
func TestABatchLetsGoOfItsKeysWhenOneOfThemIsEvicted(t *testing.T) {
	w := newWorld(t)
	n := w.node("eu", "a")
	order := n.HoldOrder([]dataplane.Request{ask("A", 1, 10), ask("B", 1, 10)})
	held, evicted := order[0], order[1]
	n.take(evicted, 0, 10)
	var once sync.Once
	w.origin("eu").Faults.Hook(func(op memstore.Op) error {
		if op == memstore.OpRead { // of the locked key
			once.Do(func() { n.MakeRoom(); n.MakeRoom() }) // no request of the other key comes between the two
		}
		return nil
	})
	done := make(chan dataplane.Batch, 1)
	go func() {
		b := n.AllowMany(t.Context(), []dataplane.Request{ask(held, 1, 10), ask(evicted, 1, 10)})
		n.Allow(t.Context(), ask(held, 1, 10))
		done <- b
	}()
	select {
	case b := <-done:
		if !b.Allowed || n.Evicted("idle") == 0 {
			t.Errorf("%+v; %d keys were evicted", b, n.Evicted("idle"))
		}
	case <-time.After(time.Minute):
		t.Fatal("the key is held for good")
	}
	if got, other := n.Cell(w.cell(held)), n.Cell(w.cell(evicted)); got.Count != 2 || other.Count != 1 {
		t.Errorf("%+v, %+v", got, other)
	}
}

// A denied batch counts none of its items, so none of them is an allowed decision. Otherwise a caller at its limit
// could hide its denials: other requests in its batches would lower the share of denied requests.
func TestADeniedBatchAllowsNothing(t *testing.T) {
	for name, prepare := range map[string]func(*node){
		"exact": func(*node) {},
		"estimate": func(n *node) {
			n.w.counts.SetNamespaces(store.NamespaceRow{Workspace: "acme", Namespace: "api", Mode: "estimate"})
		},
		"candidate": func(n *node) { n.override(store.OverrideRow{Pattern: "*", Limit: 10, Candidate: 5}) },
	} {
		t.Run(name, func(t *testing.T) {
			n := newWorld(t).node("eu", "a")
			prepare(n)
			if err := n.LoadSettings(t.Context()); err != nil {
				t.Fatal(err)
			}
			n.AllowMany(t.Context(), []dataplane.Request{ask("full", 10, 10), ask("other", 1, 10)})
			count := func() (of [4]float64) {
				for series, v := range gather(t, n.Limiter) {
					for i, outcome := range []string{"allowed", "denied", "shadowed", "batch_denied"} {
						if strings.HasPrefix(series, fmt.Sprintf("weir_decisions_total{outcome=%q", outcome)) {
							of[i] += v
						}
					}
				}
				return of
			}
			before := count()
			b := n.AllowMany(t.Context(), []dataplane.Request{ask("full", 1, 10), ask("other", 1, 10), ask("third", 1, 10)})
			if b.Allowed || !b.Decisions[1].Allowed {
				t.Fatalf("%+v", b)
			}
			after := count()
			for i := range after {
				after[i] -= before[i]
			}
			if want := [4]float64{0, 1, 0, 2}; after != want {
				t.Errorf("allowed, denied, shadowed and batch_denied grew by %v, want %v", after, want)
			}
			top, err := n.TopKeys(dataplane.TopQuery{By: dataplane.TopDenied, Limit: 10})
			if err != nil || len(top.Keys) != 1 || top.Keys[0].Identifier != "full" {
				t.Errorf("denied keys: %+v, %v", top.Keys, err)
			}
		})
	}
}
