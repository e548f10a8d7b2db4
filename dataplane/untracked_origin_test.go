package dataplane_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/await"
)

func pair(cost int64) []dataplane.Request {
	return []dataplane.Request{ask("victim", cost, 10), ask("beside", 1, 1000)}
}

// A single is decided at the origin while a batch's cost on the same untracked key is in flight, and both are counted
// once.
func TestASingleBesideABatchOfItsUntrackedKey(t *testing.T) {
	w := newWorld(t)
	w.flushes() // in a namespace that waits, a batch would claim
	n := w.fullTable("api", func(c *dataplane.Config) { c.ReadTimeout = 200 * time.Millisecond })
	var single dataplane.Decision
	var once sync.Once
	w.origin("eu").Faults.Hook(func(op memstore.Op) error {
		if op == memstore.OpSend {
			once.Do(func() { single = n.take("victim", 1, 10) })
		}
		return nil
	})
	if b := n.AllowMany(t.Context(), pair(2)); !b.Allowed {
		t.Fatalf("%+v", b)
	}
	wantAllowed(t, "beside the batch", single, true, 7)
	if got := totals(w.origin("eu"))[w.cell("victim")]; got != 3 || single.Source != dataplane.SourceOrigin {
		t.Errorf("the origin has %d of 3; the single was decided by %v", got, single.Source)
	}
}

// If the origin refuses a batch's cost on untracked keys, the cost is in the overflow, and is counted as dropped.
func TestWhatTheOriginDoesNotTakeOfUntrackedKeysIsInTheOverflow(t *testing.T) {
	w := newWorld(t)
	w.flushes() // in a namespace that waits, a batch would claim
	n := w.fullTable("api")
	before := n.Health().DroppedCost
	w.origin("eu").Faults.Hook(func(op memstore.Op) error {
		if op == memstore.OpSend {
			return errDown
		}
		return nil
	})
	if b := n.AllowMany(t.Context(), pair(6)); !b.Allowed {
		t.Fatalf("%+v", b)
	}
	if got := n.Health().DroppedCost - before; got != 0 {
		t.Errorf("%d are counted as dropped, and will be sent again", got)
	}
	wantAllowed(t, "6 of 10 are in the overflow", n.take("victim", 5, 10), false, 4)
	wantAllowed(t, "the rest", n.take("victim", 4, 10), true, 0)
}

// The same holds while the breaker is open: no call is made.
func TestWhatABreakerKeepsBackOfUntrackedKeysIsInTheOverflow(t *testing.T) {
	w := newWorld(t)
	w.flushes() // in a namespace that waits, a batch would claim
	n := w.fullTable("api", func(c *dataplane.Config) {
		c.Breaker = dataplane.Breaker{CallsMin: 1, FailureRatio: 0.0001, OpenFor: time.Hour}
	})
	var open bool
	w.origin("eu").Faults.Hook(func(op memstore.Op) error {
		switch {
		case op == memstore.OpRead && open:
			return errDown
		case op == memstore.OpSend && !open:
			open = true
			n.take("another", 1, 10) // the read of this key fails
			if b := n.AllowMany(context.Background(), pair(3)); !b.Allowed {
				t.Errorf("%+v", b)
			}
		}
		return nil
	})
	if b := n.AllowMany(t.Context(), pair(6)); !b.Allowed {
		t.Fatalf("%+v", b)
	}
	if got := totals(w.origin("eu"))[w.cell("victim")]; got != 6 {
		t.Errorf("the origin has %d, want the 6 that were on their way", got)
	}
	wantAllowed(t, "3 of 10 are in the overflow", n.take("victim", 0, 10), true, 7)
}

// Cost that batches count on untracked keys during a call is sent to the origin in the next call, all together.
func TestCostsOfUntrackedKeysGoTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.flushes() // in a namespace that waits, a batch would claim
		n := w.fullTable("api")
		held := make(chan struct{})
		sends := 0
		w.origin("eu").Faults.Hook(func(op memstore.Op) error {
			if op == memstore.OpSend {
				if sends++; sends == 1 {
					<-held
				}
			}
			return nil
		})
		var batches sync.WaitGroup
		spend := func(identifier string) {
			batches.Go(func() {
				if b := n.AllowMany(t.Context(), []dataplane.Request{ask(identifier, 3, 10), ask(identifier+" too", 1, 10)}); !b.Allowed {
					t.Errorf("%s: %+v", identifier, b)
				}
			})
			synctest.Wait()
		}
		for _, identifier := range []string{"first", "k0", "k1", "k2", "k1"} {
			spend(identifier)
		}
		close(held)
		batches.Wait()
		if sends != 2 {
			t.Errorf("%d calls, want one for the first batch and one for all others", sends)
		}
		for identifier, want := range map[string]int64{"first": 3, "k0": 3, "k1": 6, "k2": 3} {
			if got := totals(w.origin("eu"))[w.cell(identifier)]; got != want {
				t.Errorf("the origin has %d of %s, want %d", got, identifier, want)
			}
		}
	})
}

// A batch waits for its cost on untracked keys no longer than for anything else, ReadTimeout in total, also if
// another batch's call is before it. Its keys stay untracked keys until the cost is at the origin: it counts for
// requests that come meanwhile.
func TestABatchWaitsForItsUntrackedKeysNoLongerThanForAnything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.flushes() // in a namespace that waits, a batch would claim
		const timeout = 50 * time.Millisecond
		n := w.fullTable("api", func(c *dataplane.Config) { c.ReadTimeout = timeout })
		held := make(chan struct{})
		w.origin("eu").Faults.Hook(func(op memstore.Op) error {
			if op == memstore.OpSend {
				<-held
			}
			return nil
		})
		for _, cost := range []int64{3, 2} {
			began := time.Now()
			if b := n.AllowMany(t.Context(), pair(cost)); !b.Allowed {
				t.Errorf("%+v", b)
			}
			if waited := time.Since(began); waited > timeout {
				t.Errorf("a batch has waited for %v, at most %v is allowed", waited, timeout)
			}
		}
		wantAllowed(t, "5 of 10 are on their way", n.take("victim", 6, 10), false, 5)
		close(held)
		synctest.Wait()
		w.origin("eu").Faults.Hook(nil)
		if got := totals(w.origin("eu"))[w.cell("victim")]; got != 5 {
			t.Errorf("the origin has %d, want 5", got)
		}
		if err := n.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A tick of replay that sends a batch's costs on untracked keys again leaves new costs to another goroutine.
// Otherwise other keys' costs would not be sent as long as batches go on.
func TestReplaySendsNoUntrackedKeysOfBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.flushes() // in a namespace that waits, a batch would claim
		n := w.fullTable("api")
		n.replay()
		var batches sync.WaitGroup
		again, held, sends := make(chan struct{}), make(chan struct{}), 0
		w.origin("eu").Faults.Hook(func(op memstore.Op) error {
			if op != memstore.OpSend {
				return nil
			}
			switch sends++; sends {
			case 1:
				return errDown
			case 2: // the first batch's, sent again
				<-again
			case 3:
				<-held
			}
			return nil
		})
		n.AllowMany(t.Context(), pair(1))
		replayed := make(chan struct{})
		go func() {
			_ = n.ReplayOnce(t.Context())
			close(replayed)
		}()
		synctest.Wait()
		batches.Go(func() { n.AllowMany(t.Context(), pair(1)) })
		synctest.Wait()
		close(again)
		synctest.Wait()
		select {
		case <-replayed:
		default:
			t.Error("replay waits for the costs of a batch that has come up meanwhile")
		}
		close(held)
		batches.Wait()
		<-replayed
		if got := totals(w.origin("eu"))[w.cell("victim")]; got != 2 || sends != 3 {
			t.Errorf("the origin has %d of 2 after %d calls", got, sends)
		}
	})
}

// If an origin accepts no cost on untracked keys, the breaker of the calls that decisions wait for opens.
func TestFailingAddsOfUntrackedKeysOpenTheBreaker(t *testing.T) {
	w := newWorld(t)
	w.flushes() // in a namespace that waits, a batch would claim
	n := w.fullTable("api", func(c *dataplane.Config) {
		c.Breaker = dataplane.Breaker{CallsMin: 1, FailureRatio: 0.0001, OpenFor: time.Hour}
	})
	w.origin("eu").Faults.Hook(func(op memstore.Op) error {
		if op == memstore.OpSend {
			return errDown
		}
		return nil
	})
	n.AllowMany(t.Context(), pair(1))
	if got := gather(t, n.Limiter)[`weir_origin_breaker_state{calls="asks",shard="0"}`]; got == 0 {
		t.Error("every add fails, and the breaker is closed")
	}
}

// waitsAlone returns a node of a region of five, in a namespace that waits; the others send nothing.
func (w *world) waitsAlone(change ...func(*dataplane.Config)) *node {
	w.counts.SetNamespaces(store.NamespaceRow{Workspace: "acme", Namespace: "api", NodeShare: "wait"})
	return w.node("eu", "a", append(change, func(c *dataplane.Config) { c.RegionNodes = 5 })...)
}

// A claim whose answer shows a loss heals the origin as a send does.
func TestAClaimHealsTheOrigin(t *testing.T) {
	w := newWorld(t)
	n := w.waitsAlone()
	for range 6 {
		n.take("k", 1, 10)
	}
	w.origin("eu").Wipe()
	n.take("k", 1, 10)
	n.AwaitCalls()
	n.replay()
	n.replay()
	if got := totals(w.origin("eu"))[w.cell("k")]; got != 7 {
		t.Errorf("the origin has %d of 7", got)
	}
}

// Callers who leave before a call has included their claims leave nothing behind, however long the previous call
// takes.
func TestCallersWhoLeaveLeaveNoClaims(t *testing.T) {
	w := newWorld(t)
	n := w.waitsAlone()
	n.take("k", 0, 10)
	arrived, let := make(chan struct{}), make(chan struct{})
	var once sync.Once
	w.origin("eu").Faults.Hook(func(op memstore.Op) error {
		if op == memstore.OpClaim {
			once.Do(func() { close(arrived); <-let })
		}
		return nil
	})
	var first sync.WaitGroup
	first.Go(func() { n.Allow(context.Background(), ask("k", 1, 10)) })
	<-arrived
	gone, leave := context.WithCancel(t.Context())
	var waiting sync.WaitGroup
	const callers = 20
	for range callers {
		waiting.Go(func() { n.Allow(gone, ask("k", 1, 10)) })
	}
	await.True(t, "all wait for the next call", func() bool { return n.Claimants() == callers })
	leave()
	waiting.Wait()
	if got := n.Claimants(); got != 0 {
		t.Errorf("%d claims of callers who have left wait", got)
	}
	close(let)
	first.Wait()
}
