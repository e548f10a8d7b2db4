package dataplane_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/tuning"
)

// Behaviours 11 to 14 and 21 to 23 of the exact mode: which calls read the origin, and which do not.

var errDown = errors.New("connection refused")

// The first denial sets strict-until = now + duration for the key without sequence; a later, smaller value never
// lowers it.
func TestDenialMakesTheKeyStrict(t *testing.T) {
	w := newWorld(t)
	n := w.node("eu", "a")
	key := w.cell("k").Key
	n.take("k", 10, 10)
	if got := n.StrictUntil(key); got != 0 {
		t.Fatalf("strict until %v before any denial", got)
	}
	w.clock.set(30 * time.Second)
	n.take("k", 1, 10)
	want := w.clock.elapsed() + time.Minute
	if got := n.StrictUntil(key); got != want {
		t.Fatalf("strict until %v, want now + duration, %v", got, want)
	}
	w.clock.set(10 * time.Second) // the clock steps back: an earlier deadline
	n.take("k", 1, 10)
	if got := n.StrictUntil(key); got != want {
		t.Errorf("an earlier deadline replaced a later one: %v, want %v", got, want)
	}
	w.clock.set(85 * time.Second) // the next cell
	if got := n.StrictUntil(key); got != want {
		t.Errorf("the rollover of the sequence changed the deadline to %v", got)
	}
}

// While a key is strict, cost that another node has sent to the origin counts in the next request that local state
// would allow.
func TestStrictModeSeesOthersAtOnce(t *testing.T) {
	w := newWorld(t)
	a, b := w.node("eu", "a"), w.node("eu", "b")
	a.take("k", 10, 10)
	a.take("k", 1, 10) // denied: strict until 60 s
	w.clock.set(58 * time.Second)
	a.take("k", 1, 10) // strict until 118 s
	w.clock.set(115 * time.Second)
	// Locally the previous cell has 10 with weight 1/12: there is room for 9.
	b.take("k", 1, 1000)
	b.take("k", 9, 1000)
	b.replay()
	d := a.take("k", 9, 10)
	if d.Allowed || d.Source != dataplane.SourceOrigin {
		t.Errorf("b's 10 were not seen: %+v", d)
	}
}

// A request that local state denies does no I/O, strict or not. 10,000 denied requests → 0 origin reads.
func TestDeniedRequestsReadNothing(t *testing.T) {
	w := newWorld(t)
	n := w.node("eu", "a")
	n.take("k", 10, 10)
	before := w.origin("eu").Stats().Calls()
	for range 10_000 {
		if d := n.take("k", 1, 10); d.Allowed || d.Source != dataplane.SourceLocal {
			t.Fatalf("%+v", d)
		}
	}
	w.clock.set(20 * time.Second) // the key is stale, and strict
	n.take("k", 1, 10)
	if got := w.origin("eu").Stats().Calls() - before; got != 0 {
		t.Errorf("%d calls to the origin for denied requests", got)
	}
}

// Denied requests change no counter: local, regional or global.
func TestDenialsChangeNothing(t *testing.T) {
	w := newWorld(t)
	n := w.node("eu", "a")
	n.take("k", 8, 10)
	n.replay()
	w.publish()
	before, rows, counted := n.Cell(w.cell("k")), w.counts.Rows(), totals(w.origin("eu"))
	for range 100 {
		if n.take("k", 3, 10).Allowed {
			t.Fatal("allowed")
		}
	}
	n.replay()
	w.publish()
	if after := n.Cell(w.cell("k")); after != before {
		t.Errorf("local: %+v, was %+v", after, before)
	}
	if got := totals(w.origin("eu")); got[w.cell("k")] != counted[w.cell("k")] || len(got) != len(counted) {
		t.Errorf("origin: %v, was %v", got, counted)
	}
	if got := w.counts.Rows(); len(got) != len(rows) || got[0] != rows[0] {
		t.Errorf("count store: %v, was %v", got, rows)
	}
}

// liveNode returns a node on real time, for tests in a synctest bubble.
func liveNode(t *testing.T, origin *memstore.Origin) *dataplane.Limiter {
	t.Helper()
	return liveNodeOf(t, origin, memstore.NewCounts(memstore.CountsOptions{}))
}

func liveNodeOf(t *testing.T, origin *memstore.Origin, settings *memstore.Counts) *dataplane.Limiter {
	t.Helper()
	l, err := dataplane.New(dataplane.Config{Region: "eu", Origin: origin, Settings: settings})
	if err == nil {
		err = l.LoadSettings(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// together runs f n times concurrently.
func together(n int, f func(i int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { f(i) })
	}
	wg.Wait()
}

// Cold key, 32 concurrent callers → one read; no caller decides on 0 first. A decision that waits for its share makes
// a claim after the read, behind at most one call with other claims: all three fit ReadTimeout.
func TestColdKeyIsReadOnce(t *testing.T) {
	for nodeShare, delay := range map[string]time.Duration{"flush": 20 * time.Millisecond, "wait": 15 * time.Millisecond} {
		t.Run(nodeShare, func(t *testing.T) { coldKeyIsReadOnce(t, nodeShare, delay) })
	}
}

func coldKeyIsReadOnce(t *testing.T, nodeShare string, delay time.Duration) {
	synctest.Test(t, func(t *testing.T) {
		origin := memstore.NewOrigin(memstore.OriginOptions{})
		peer := liveNode(t, origin)
		peer.Allow(t.Context(), ask("k", 8, 10))
		if err := peer.ReplayOnce(t.Context()); err != nil {
			t.Fatal(err)
		}
		origin.Faults.Delay(delay)
		before := origin.Stats().Gets
		n := liveNodeOf(t, origin, settingsOf("", nodeShare))
		var mu sync.Mutex
		allowed := 0
		together(32, func(int) {
			d := n.Allow(t.Context(), ask("k", 1, 10))
			mu.Lock()
			defer mu.Unlock()
			if d.Allowed {
				allowed++
			}
			if d.Allowed && d.Source != dataplane.SourceOrigin {
				t.Errorf("decided on 0 first: %+v", d)
			}
		})
		if reads := origin.Stats().Gets - before; reads != 1 {
			t.Errorf("%d reads for 32 callers", reads)
		}
		if allowed != 2 {
			t.Errorf("%d of the 2 that were left were allowed", allowed)
		}
	})
}

// Warm entry: no read before fresh_for, one at fresh_for, 32 callers → one read.
func TestWarmKeyIsReadWhenItIsStale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		origin := memstore.NewOrigin(memstore.OriginOptions{})
		n := liveNode(t, origin)
		n.Allow(t.Context(), ask("k", 1, 1000))
		reads := func() int64 { return origin.Stats().Gets }
		before := reads()
		time.Sleep(5*time.Second - time.Millisecond)
		if d := n.Allow(t.Context(), ask("k", 1, 1000)); d.Source != dataplane.SourceLocal || reads() != before {
			t.Errorf("read before fresh_for: %+v", d)
		}
		origin.Faults.Delay(time.Millisecond)
		time.Sleep(time.Millisecond)
		together(32, func(int) {
			if d := n.Allow(t.Context(), ask("k", 1, 1000)); d.Source != dataplane.SourceOrigin {
				t.Errorf("did not wait: %+v", d)
			}
		})
		if got := reads() - before; got != 1 {
			t.Errorf("%d reads at fresh_for", got)
		}
	})
}

// A failed cold read: decide locally; next try only after a pause (300 ms); then the origin's value is adopted. A
// failed warm read keeps the value.
func TestFailedReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		origin := memstore.NewOrigin(memstore.OriginOptions{})
		peer := liveNode(t, origin)
		peer.Allow(t.Context(), ask("k", 8, 10))
		if err := peer.ReplayOnce(t.Context()); err != nil {
			t.Fatal(err)
		}
		n := liveNode(t, origin)
		origin.Faults.Fail(errDown)
		before := origin.Stats().Gets
		d := n.Allow(t.Context(), ask("k", 1, 10))
		wantAllowed(t, "cold read failed", d, true, 9)
		if d.Source != dataplane.SourceDegraded {
			t.Errorf("source %v", d.Source)
		}
		time.Sleep(299 * time.Millisecond)
		if d := n.Allow(t.Context(), ask("k", 1, 10)); d.Source != dataplane.SourceDegraded {
			t.Errorf("source %v while resting", d.Source)
		}
		if got := origin.Stats().Gets - before; got != 1 {
			t.Errorf("%d reads within the pause", got)
		}
		origin.Faults.Fail(nil)
		time.Sleep(time.Millisecond)
		d = n.Allow(t.Context(), ask("k", 1, 10)) // 8 at the origin, 2 unsent here
		wantAllowed(t, "the origin's value is adopted", d, false, 0)

		time.Sleep(2 * time.Minute)
		n.Allow(t.Context(), ask("k", 4, 10))
		time.Sleep(10 * time.Second)
		origin.Faults.Fail(errDown)
		d = n.Allow(t.Context(), ask("k", 1, 10))
		wantAllowed(t, "a failed warm read keeps the value", d, true, 5)
	})
}

// A key has a single read in flight, with a short deadline (default 50 ms, and never past the caller's ctx).
func TestReadsNeverOutlastTheirDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		origin := memstore.NewOrigin(memstore.OriginOptions{})
		origin.Faults.Delay(time.Hour)
		n := liveNode(t, origin)
		start := time.Now()
		d := n.Allow(t.Context(), ask("k", 1, 10))
		if took := time.Since(start); took != 50*time.Millisecond || !d.Allowed || d.Source != dataplane.SourceDegraded {
			t.Errorf("black hole: %v, %+v", took, d)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 7*time.Millisecond)
		defer cancel()
		start = time.Now()
		if d := n.Allow(ctx, ask("other", 1, 10)); time.Since(start) != 7*time.Millisecond || !d.Allowed {
			t.Errorf("caller's deadline: %v, %+v", time.Since(start), d)
		}
		n.AwaitCalls()
	})
}

// A caller that gives up does not end the read of other callers.
func TestOneCallersCancellationIsItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		origin := memstore.NewOrigin(memstore.OriginOptions{})
		origin.Faults.Delay(30 * time.Millisecond)
		n := liveNode(t, origin)
		hasty, cancel := context.WithCancel(t.Context())
		go n.Allow(hasty, ask("k", 1, 10))
		synctest.Wait()
		cancel()
		if d := n.Allow(t.Context(), ask("k", 1, 10)); d.Source != dataplane.SourceOrigin {
			t.Errorf("%+v", d)
		}
	})
}

// B accepts 1 of 100; 0.6 s later A accepts 99; 250 ms later B gets a request of 99 → denied: if a tick sends
// accepted cost, a cost of more than its share of the remaining limit, on a key that was last read more than two
// ticks ago, reads the origin first. It does so even before heartbeats have reported the other node.
func TestALargeCostAsksFirst(t *testing.T) {
	single := func(n *node, cost int64) dataplane.Decision { return n.take("k", cost, 100) }
	batch := func(n *node, cost int64) dataplane.Decision {
		b := n.AllowMany(context.Background(), []dataplane.Request{ask("k", cost-1, 100), ask("k", 1, 100)})
		return b.Decisions[1]
	}
	for name, c := range map[string]struct {
		nodes int
		take  func(n *node, cost int64) dataplane.Decision
	}{
		"single": {2, single}, "batch": {2, batch},
		"single, no heartbeats yet": {0, single}, "batch, no heartbeats yet": {0, batch},
	} {
		w := newWorld(t)
		w.flushes()
		nodes := func(config *dataplane.Config) { config.RegionNodes = c.nodes }
		a, b := w.node("eu", "a", nodes), w.node("eu", "b", nodes)
		b.take("k", 1, 100)
		b.replay()
		w.clock.advance(600 * time.Millisecond)
		if d := c.take(a, 99); !d.Allowed {
			t.Fatalf("%s: 99 of the 99 that are left: %+v", name, d)
		}
		a.replay()
		w.clock.advance(250 * time.Millisecond)
		if d := c.take(b, 99); d.Allowed {
			t.Errorf("%s: 99 more: %+v", name, d)
		}
	}
}

// At most one read per two ticks and key; a key far from its limit never waits.
func TestALargeCostAsksOnceInTwoTicks(t *testing.T) {
	w := newWorld(t)
	w.flushes()
	n := w.node("eu", "a", func(c *dataplane.Config) { c.RegionNodes = 2 })
	reads := func(cost int64) int64 {
		before := w.origin("eu").Stats().Gets
		n.take("k", cost, 100)
		return w.origin("eu").Stats().Gets - before
	}
	if got := reads(1); got != 1 {
		t.Fatalf("%d reads of a cold key", got)
	}
	w.clock.advance(201 * time.Millisecond)
	if got := reads(24); got != 0 {
		t.Errorf("%d reads for a cost within a share of 99", got)
	}
	if got := reads(20); got != 1 {
		t.Errorf("%d reads for a cost past a share of 75", got)
	}
	w.clock.advance(200 * time.Millisecond)
	if got := reads(20); got != 0 {
		t.Errorf("%d reads within two ticks of the last", got)
	}
	w.clock.advance(time.Millisecond)
	if got := reads(36); got != 0 {
		t.Errorf("%d reads for what is known to be denied", got)
	}
}

// A cell counts in full when it has just ended. Near the limit a node reads once what others have added to it since its
// last answer, which is a moment old.
func TestNearTheLimitTheEndOfACellIsReadOnce(t *testing.T) {
	ways := map[string]func(n *node, cost int64) dataplane.Decision{
		"single": func(n *node, cost int64) dataplane.Decision { return n.take("k", cost, 100) },
		"batch": func(n *node, cost int64) dataplane.Decision {
			return n.AllowMany(n.w.t.Context(), []dataplane.Request{ask("k", cost, 100)}).Decisions[0]
		},
	}
	for name, take := range ways {
		for _, window := range []store.Window{store.WindowCells, store.WindowPrecise} {
			for _, share := range []string{"wait", "flush"} {
				w := newWorld(t)
				w.counts.SetNamespaces(store.NamespaceRow{Workspace: "acme", Namespace: "api", NodeShare: share, Window: window})
				nodes := func(config *dataplane.Config) { config.RegionNodes = 4 }
				a, b := w.node("eu", "a", nodes), w.node("eu", "b", nodes)
				w.clock.set(time.Minute - 20*time.Millisecond)
				admitted := int64(0)
				spend := func(n *node, cost int64, times int) {
					for range times {
						if take(n, cost).Allowed {
							admitted += cost
						}
						n.replay()
					}
				}
				spend(a, 10, 5)
				spend(b, 9, 5)
				w.clock.set(time.Minute)
				before := w.origin("eu").Stats().Gets
				spend(a, 2, 2)
				reads := w.origin("eu").Stats().Gets - before
				if spend(a, 10, 2); reads != 1 || admitted != 99 {
					t.Errorf("%s, %s, %s: %d reads, want one; %d of 100 are admitted", name, window, share, reads, admitted)
				}
			}
		}
	}
}

// A key is near its limit by the cost that counts at the time of the request, although its entry is still in an earlier
// cell: the first request in a cell can come late, or some cells later.
func TestCostThatHasLeftTheWindowIsNotRead(t *testing.T) {
	for at, want := range map[time.Duration]int64{66 * time.Second: 1, 114 * time.Second: 0, 150 * time.Second: 0,
		200 * time.Second: 0} {
		w := newWorld(t)
		w.tune(func(set *tuning.Tuning) { set.FreshFor = tuning.Duration(10 * time.Minute) })
		w.flushes()
		n := w.node("eu", "a", func(config *dataplane.Config) { config.RegionNodes = 4 })
		n.take("k", 60, 100)
		n.replay()
		w.clock.set(at)
		before := w.origin("eu").Stats().Gets
		n.take("k", 1, 100)
		if reads := w.origin("eu").Stats().Gets - before; reads != want {
			t.Errorf("%d reads after %v, want %d", reads, at, want)
		}
	}
}

// "A single node has no other node to read from": it reads for no cost, however large.
func TestANodeAloneDoesNotClaimALargeCost(t *testing.T) {
	w := newWorld(t)
	w.flushes() // no loop runs here, so a decision must not wait for a flush
	n := w.node("eu", "a", func(c *dataplane.Config) { c.RegionNodes = 1 })
	n.take("k", 1, 100)
	w.clock.advance(time.Second)
	before := w.origin("eu").Stats().Gets
	wantAllowed(t, "all that is left", n.take("k", 99, 100), true, 0)
	if got := w.origin("eu").Stats().Gets - before; got != 0 {
		t.Errorf("%d reads", got)
	}
}
