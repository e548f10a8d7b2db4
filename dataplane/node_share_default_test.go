package dataplane_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/store"
)

// The default of a namespace's node share is to wait, also if the setting is missing. A node that does not understand
// the setting uses the default: a limit is then exceeded by no more than with the setting left out.
func TestTheDefaultNodeShareIsToWait(t *testing.T) {
	override := store.OverrideRow{Workspace: "acme", Namespace: "api", Pattern: "k*", Limit: 10}
	for name, set := range map[string]func(*memstore.Counts){
		"nothing is set": func(*memstore.Counts) {},
		"another namespace is set": func(c *memstore.Counts) {
			c.SetNamespaces(store.NamespaceRow{Workspace: "acme", Namespace: "web", NodeShare: "flush"})
		},
		"an override alone is set": func(c *memstore.Counts) { c.SetOverrides(override) },
		"a row leaves the node share out": func(c *memstore.Counts) {
			c.SetNamespaces(store.NamespaceRow{Workspace: "acme", Namespace: "api", Outage: "closed"})
		},
		"a row has another word": func(c *memstore.Counts) {
			c.SetNamespaces(store.NamespaceRow{Workspace: "acme", Namespace: "api", NodeShare: "shove"})
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			n := w.node("eu", "a")
			set(w.counts)
			if err := n.LoadSettings(t.Context()); (err != nil) != (name == "a row has another word") {
				t.Fatal(err)
			}
			for _, identifier := range []string{"k", "other"} {
				if x := n.explain(ask(identifier, 1, 99)); x.NodeShare != "wait" {
					t.Errorf("%s: node share is %s", identifier, x.NodeShare)
				}
			}
		})
	}
}

// By default a burst on several nodes passes once, and exactly once if the limit has room for at most two costs a
// node.
func TestABurstPassesOnceByDefault(t *testing.T) {
	for _, limit := range []int64{10, 100, 10_000} {
		synctest.Test(t, func(t *testing.T) {
			origin := memstore.NewOrigin(memstore.OriginOptions{})
			origin.Faults.Delay(time.Millisecond)
			nodes := region(t, 5, origin, store.NamespaceRow{}, func(c *dataplane.Config) { c.Settings = nil })
			defer stopAll(nodes)
			var admitted atomic.Int64
			together(5*64, func(i int) {
				for range limit/64 + 1 {
					if nodes[i%5].Allow(t.Context(), ask("k", 1, limit)).Allowed {
						admitted.Add(1)
					}
				}
			})
			if got := admitted.Load(); got < limit || got > limit+limit/10 || limit == 10 && got != limit {
				t.Errorf("%d of a limit of %d admitted", got, limit)
			}
		})
	}
}

// "No decision waits longer than ReadTimeout", by default too. With a slow Redis, a decision waits for ReadTimeout
// and then follows the outage policy, and while the key rests it does not wait at all. With a Redis that is down, no
// decision waits.
func TestTheDefaultWaitsNoLongerThanReadTimeout(t *testing.T) {
	const readTimeout = 50 * time.Millisecond
	for policy, want := range map[string]dataplane.Source{
		"local": dataplane.SourceDegraded, "open": dataplane.SourceDegradedOpen, "closed": dataplane.SourceDegradedClosed,
	} {
		for name, fault := range map[string]struct {
			begin func(*memstore.Faults)
			waits time.Duration // in total
		}{
			"slow": {func(f *memstore.Faults) { f.Delay(time.Second) }, readTimeout},
			"gone": {func(f *memstore.Faults) { f.Fail(errDown) }, 0},
		} {
			t.Run(policy+"/"+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					origin := memstore.NewOrigin(memstore.OriginOptions{})
					nodes := region(t, 5, origin, store.NamespaceRow{Outage: policy}, tick(t, 10*time.Second))
					defer stopAll(nodes)
					n := nodes[0]
					n.Allow(t.Context(), ask("k", 0, 10)) // reads the key, so it is neither cold nor stale
					fault.begin(&origin.Faults)
					for i, waits := range []time.Duration{fault.waits, 0, 0, 0} {
						began := time.Now()
						d := n.Allow(t.Context(), ask("k", 1, 10))
						if took := time.Since(began); took != waits || d.Source != want || d.Allowed != (policy != "closed") {
							t.Errorf("decision %d: %+v after %v, want %v", i, d, took, waits)
						}
						began = time.Now()
						b := n.AllowMany(t.Context(), []dataplane.Request{ask("k", 1, 10)})
						if took := time.Since(began); took != 0 || b.Allowed != (policy != "closed") || b.Decisions[0].Source != want {
							t.Errorf("batch %d: %+v after %v", i, b, took)
						}
					}
					origin.Faults.Fail(nil)
					origin.Faults.Delay(0)
				})
			})
		}
	}
}

// A node without an origin has no other node to wait for: it decides every request by itself at once.
func TestANodeWithoutAnOriginNeverWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := dataplane.New(dataplane.Config{RegionNodes: 5})
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		for i := range 10 {
			if d := l.Allow(t.Context(), ask("k", 1, 10)); !d.Allowed || d.Source != dataplane.SourceLocal {
				t.Errorf("single %d: %+v", i, d)
			}
			b := l.AllowMany(t.Context(), []dataplane.Request{ask("b", 1, 10), ask("c", 1, 10)})
			if !b.Allowed || b.Decisions[0].Source != dataplane.SourceLocal {
				t.Errorf("batch %d: %+v", i, b)
			}
		}
		if d := l.Allow(t.Context(), ask("k", 1, 10)); d.Allowed || d.Source != dataplane.SourceLocal {
			t.Errorf("past the limit: %+v", d)
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("decisions waited for %v", took)
		}
	})
}
