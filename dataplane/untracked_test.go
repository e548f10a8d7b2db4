package dataplane_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/internal/queue"
	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/await"
)

const fullCap = 1000

// fullTable returns a node whose table is full of other keys, each at its limit: none of them is idle.
func (w *world) fullTable(namespace string, change ...func(*dataplane.Config)) *node {
	w.t.Helper()
	small := func(c *dataplane.Config) { c.EntriesMax = fullCap }
	n := w.node("eu", "a", append([]func(*dataplane.Config){small}, change...)...)
	n.pin(namespace, 0, 2*fullCap)
	return n
}

// pin sends requests for keys of a namespace until each is at its limit.
func (n *node) pin(namespace string, from, until int) {
	for i := from; i < until; i++ {
		r := ask(fmt.Sprint("pinned", i), 1, 1)
		r.Namespace = namespace
		n.Allow(context.Background(), r)
	}
}

func withoutOrigin(c *dataplane.Config) { c.Origin = nil }

// tries returns how many of 50 requests with a limit of 10 pass: one by one, by a handle, or in batches with a
// request for another key.
var tries = map[string]func(n *node, identifier string) (passed int64){
	"singles": func(n *node, identifier string) (passed int64) {
		for range 50 {
			if n.take(identifier, 1, 10).Allowed {
				passed++
			}
		}
		return passed
	},
	"a handle": func(n *node, identifier string) (passed int64) {
		k := n.handle(identifier)
		for range 50 {
			if k.Allow(context.Background(), 10, 1).Allowed {
				passed++
			}
		}
		return passed
	},
	"batches": func(n *node, identifier string) (passed int64) {
		for i := range 50 {
			if n.AllowMany(context.Background(), []dataplane.Request{ask(identifier, 1, 10), ask(fmt.Sprint(identifier, i), 1, 1000)}).Allowed {
				passed++
			}
		}
		return passed
	},
	"batches of one key": func(n *node, identifier string) (passed int64) {
		for range 25 {
			if n.AllowMany(context.Background(), []dataplane.Request{ask(identifier, 1, 10), ask(identifier, 1, 10)}).Allowed {
				passed += 2
			}
		}
		return passed
	},
}

// No namespace uses more than its share of a full table while others need it. A flood of keys at their limits leaves
// a key of another namespace its limit, and no more than that, with and without an origin.
//
//weir:unraced
func TestAFloodOfPinnedKeysLeavesOthersTheirLimit(t *testing.T) {
	for where, change := range map[string][]func(*dataplane.Config){"with an origin": nil, "alone": {withoutOrigin}} {
		for how, try := range tries {
			for _, sent := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s, %s, sent %v", where, how, sent), func(t *testing.T) {
					w := newWorld(t)
					n := w.fullTable("flood", change...)
					if sent && change == nil {
						n.replay()
						n.pin("flood", 2*fullCap, 3*fullCap) // the flood goes on
					}
					most := int64(10)
					if change != nil {
						most = 12 // its own namespace may drop it once, after its first request
					}
					if passed := try(n, "victim"); passed < 10 || passed > most {
						t.Errorf("%d of 50 passed, want 10", passed)
					}
					if got := n.Entries(); got > fullCap {
						t.Errorf("%d entries", got)
					}
				})
			}
		}
	}
}

// In the namespace of the flood itself, a key finds no room, but is judged: by the origin's count, or by a sketch
// that may overestimate it, and never underestimates it.
//
//weir:unraced
func TestAKeyWithoutRoomIsJudged(t *testing.T) {
	for where, c := range map[string]struct {
		change []func(*dataplane.Config)
		exact  bool
	}{"with an origin": {nil, true}, "alone": {[]func(*dataplane.Config){withoutOrigin}, false}} {
		for how, try := range tries {
			t.Run(where+", "+how, func(t *testing.T) {
				w := newWorld(t)
				n := w.fullTable("api", c.change...)
				passed := try(n, "victim")
				if passed > 10 || c.exact && passed != 10 {
					t.Errorf("%d of 50 passed, want 10", passed)
				}
				if c.exact {
					if got := totals(w.origin("eu"))[w.cell("victim")]; got != 10 {
						t.Errorf("the origin has %d", got)
					}
				}
			})
		}
	}
}

// A key that was evicted keeps its count: it is denied when it is used again, by the origin or by the overflow, in
// its window and in the next window while the count has weight.
//
//weir:unraced
func TestAKeyThatHadToGoIsNotWashedClean(t *testing.T) {
	for where, change := range map[string][]func(*dataplane.Config){"with an origin": nil, "alone": {withoutOrigin}} {
		t.Run(where, func(t *testing.T) {
			w := newWorld(t)
			n := w.fullTable("flood", change...)
			if change == nil {
				n.replay()
			}
			n.pin("api", 0, fullCap) // which needs its share
			if change == nil {
				n.replay()
			}
			n.pin("api", 0, fullCap)
			if got := n.Evicted("share"); got < fullCap/4 {
				t.Fatalf("%d keys had to go: nothing is proved", got)
			}
			for _, when := range []string{"in its window", "in the next"} {
				for i := range fullCap {
					r := ask(fmt.Sprint("pinned", i), 1, 1)
					if r.Namespace = "flood"; n.Allow(t.Context(), r).Allowed {
						t.Fatalf("%s: key %d passes again", when, i)
					}
				}
				w.clock.set(time.Minute)
			}
		})
	}
}

// A namespace below its share keeps its entries: also keys far from their limits, which can evict each other.
func TestAFloodLeavesTheEntriesOfOthers(t *testing.T) {
	w := newWorld(t)
	n := w.alone(func(c *dataplane.Config) { c.EntriesMax = fullCap })
	for i := range 20 {
		n.take(fmt.Sprint("few", i), 4, 10)
	}
	for i := range 20 * fullCap {
		r := ask(fmt.Sprint("one-shot", i), 1, 1000)
		r.Namespace = "flood"
		if d := n.Allow(t.Context(), r); !d.Allowed || d.Remaining < 990 {
			t.Fatalf("one-shot %d: %+v", i, d)
		}
	}
	for i := range 20 {
		wantAllowed(t, "one of few", n.take(fmt.Sprint("few", i), 1, 10), true, 5)
	}
}

// Concurrent requests for a key share its counts, and so do batches: none passes the limit.
func TestUntrackedKeysAreExactTogether(t *testing.T) {
	for where, change := range map[string][]func(*dataplane.Config){"with an origin": nil, "alone": {withoutOrigin}} {
		t.Run(where, func(t *testing.T) {
			w := newWorld(t)
			n := w.fullTable("api", change...)
			var passed atomic.Int64
			together(8, func(worker int) {
				for i := range 50 {
					if (i+worker)%2 == 0 {
						if n.Allow(context.Background(), ask("victim", 1, 100)).Allowed {
							passed.Add(1)
						}
					} else if n.AllowMany(context.Background(), []dataplane.Request{ask("victim", 1, 100), ask("victim", 2, 100)}).Allowed {
						passed.Add(3)
					}
				}
			})
			most := int64(100)
			if got := passed.Load(); got > most || got < most/2 {
				t.Errorf("cost %d passed of a limit of %d", got, most)
			}
			if total := totals(w.origin("eu"))[w.cell("victim")]; change == nil && total != passed.Load() {
				t.Errorf("the origin has %d of %d", total, passed.Load())
			}
			if got := n.UntrackedKeys(); got != 0 {
				t.Errorf("%d untracked keys stayed", got)
			}
		})
	}
}

// Nodes of a region whose tables are full share their counts at the origin.
func TestUntrackedKeysOfTwoNodesShareTheirLimit(t *testing.T) {
	w := newWorld(t)
	one := w.fullTable("api")
	other := w.node("eu", "b", func(c *dataplane.Config) { c.Settings, c.EntriesMax = nil, fullCap })
	other.pin("api", 4*fullCap, 6*fullCap)
	passed := 0
	for range 50 {
		for _, n := range []*node{one, other} {
			if n.take("victim", 1, 10).Allowed {
				passed++
			}
		}
	}
	if passed != 10 {
		t.Errorf("%d passed, want 10", passed)
	}
}

// If the origin does not answer, the namespace's policy decides about a key without room as about any other key.
// Local counts are in the overflow.
func TestUntrackedKeysInAnOutage(t *testing.T) {
	for policy, want := range map[string]int64{"local": 10, "open": 50, "closed": 0} {
		t.Run(policy, func(t *testing.T) {
			w := newWorld(t)
			w.counts.SetNamespaces(store.NamespaceRow{Workspace: "acme", Namespace: "api", Outage: policy})
			n := w.fullTable("api")
			n.replay() // all held cost is confirmed, and all keys are at their limits
			w.origin("eu").Faults.Fail(errDown)
			if passed := tries["singles"](n, "victim"); passed > want || want == 50 && passed != 50 || want > 0 && passed == 0 {
				t.Errorf("%d of 50 passed, want %d", passed, want)
			}
		})
	}
}

// The estimate mode reads no origin, whatever the room: the overflow judges.
//
//weir:unraced
func TestEstimatesWithoutRoomAreJudged(t *testing.T) {
	for _, settings := range []string{"", posthog} {
		for how, try := range tries {
			t.Run(fmt.Sprintf("%q, %s", settings, how), func(t *testing.T) {
				w := newWorld(t)
				w.estimates(settings)
				n := w.node("eu", "a", func(c *dataplane.Config) { c.EntriesMax = fullCap })
				for range 2 {
					n.pin("api", 0, 2*fullCap)
				}
				before := w.origin("eu").Stats().Calls()
				if passed := try(n, "victim"); passed > 10 {
					t.Errorf("%d of 50 passed of a limit of 10", passed)
				}
				if got := w.origin("eu").Stats().Calls() - before; got != 0 {
					t.Errorf("%d calls to the origin", got)
				}
			})
		}
	}
}

// While the highest number of read calls is in flight, further reads wait, and go together in the next call.
func TestReadsOfUntrackedKeysGoTogether(t *testing.T) {
	w := newWorld(t)
	n := w.fullTable("api")
	let := make(chan struct{})
	var reads atomic.Int64
	w.origin("eu").Faults.Hook(func(op memstore.Op) error {
		if op == memstore.OpRead && reads.Add(1) <= queue.ReadCallsMax {
			<-let
		}
		return nil
	})
	var running sync.WaitGroup
	defer running.Wait()
	decide := func(identifier string) {
		running.Go(func() { n.Allow(context.Background(), ask(identifier, 1, 10)) })
	}
	for i := range int64(queue.ReadCallsMax) {
		decide(fmt.Sprint("first", i))
		await.True(t, "a call reads it", func() bool { return reads.Load() == i+1 })
	}
	const others = queue.ReadKeysMax
	for i := range others {
		decide(fmt.Sprint("other", i))
	}
	await.True(t, "all wait for a read", func() bool { return n.WaitingReads() == others })
	close(let)
	running.Wait()
	if got := reads.Load(); got != queue.ReadCallsMax+1 {
		t.Errorf("%d calls read, want %d for the first keys and one for the %d others", got, queue.ReadCallsMax, others)
	}
}

// "One more is not enough: they would push each other out for ever." Two namespaces that need the same table reach a
// stable state.
func TestNamespacesWithEqualSharesComeToRest(t *testing.T) {
	const half = 100
	w := newWorld(t)
	n := w.node("eu", "a", func(c *dataplane.Config) { c.Settings, c.EntriesMax = nil, 2*half-1 })
	turns := func() int64 {
		before := n.Evicted("share")
		for range 20 {
			for i := range half {
				n.pin("one", i, i+1)
				n.replay()
				n.pin("two", i, i+1)
				n.replay()
			}
		}
		return n.Evicted("share") - before
	}
	turns()
	if got := turns(); got > 2 {
		t.Errorf("%d keys were pushed out by two namespaces that have half of a table each", got)
	}
}
