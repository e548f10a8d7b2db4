package dataplane_test

import (
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/store"
)

// Limit 1 per hour, one accepted at 0:59:59: at 1:00:00.4 → allowed (carry 0); a second request → denied, retry after
// ≤ 1 h.
func TestTheLastOfAnHourDoesNotBlockTheNext(t *testing.T) {
	w := newWorld(t)
	n := w.alone()
	r := dataplane.Request{Workspace: "acme", Namespace: "api", Identifier: "k", Limit: 1, Duration: time.Hour, Cost: 1}
	w.clock.set(time.Hour - time.Second)
	wantAllowed(t, "at 0:59:59", n.Allow(t.Context(), r), true, 0)
	w.clock.set(time.Hour + 400*time.Millisecond)
	wantAllowed(t, "at 1:00:00.4", n.Allow(t.Context(), r), true, 0)
	d := n.Allow(t.Context(), r)
	wantAllowed(t, "once more", d, false, 0)
	if want := time.Hour - 399*time.Millisecond; d.RetryAfter != want {
		t.Errorf("retry after %v, want %v", d.RetryAfter, want)
	}
}

// A caller with limit 1 per minute that sends a request every second for an hour gets 60 accepted. With limit 5 per
// minute it gets 300 ± 1. Both hold for singles, batches, a handle, claims at the origin, and in the estimate mode.
func TestAPersistentCallerGetsASmallLimitInFull(t *testing.T) {
	type asker func(r dataplane.Request) bool
	ways := map[string]func(t *testing.T, w *world) asker{
		"singles": func(t *testing.T, w *world) asker {
			n := w.alone()
			return func(r dataplane.Request) bool { return n.Allow(t.Context(), r).Allowed }
		},
		"batches": func(t *testing.T, w *world) asker {
			n := w.alone()
			return func(r dataplane.Request) bool {
				return n.AllowMany(t.Context(), []dataplane.Request{r}).Allowed
			}
		},
		"a handle": func(t *testing.T, w *world) asker {
			n := w.alone()
			handle, err := n.Handle("acme", "api", "k", time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			return func(r dataplane.Request) bool {
				return handle.Allow(t.Context(), r.Limit, dataplane.Cost(r.Cost)).Allowed
			}
		},
		"claims": func(t *testing.T, w *world) asker {
			w.counts.SetNamespaces(store.NamespaceRow{Workspace: "acme", Namespace: "api", NodeShare: "wait"})
			n := w.node("eu", "a", func(c *dataplane.Config) { c.RegionNodes = 5 })
			return func(r dataplane.Request) bool { return n.Allow(t.Context(), r).Allowed }
		},
		"estimates": func(t *testing.T, w *world) asker {
			w.estimates("")
			n := w.node("eu", "a", func(c *dataplane.Config) { c.Settings = w.counts })
			return func(r dataplane.Request) bool { return n.Allow(t.Context(), r).Allowed }
		},
	}
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			for limit, want := range map[int64]int64{1: 60, 5: 300} {
				w := newWorld(t)
				allow, accepted := way(t, w), int64(0)
				for second := range 3600 {
					w.clock.set(time.Duration(second) * time.Second)
					if allow(dataplane.Request{Workspace: "acme", Namespace: "api", Identifier: "k", Limit: limit, Duration: time.Minute, Cost: 1}) {
						accepted++
					}
				}
				if accepted < want-1 || accepted > want {
					t.Errorf("limit %d a minute: %d accepted of one a second for an hour, want %d", limit, accepted, want)
				}
			}
		})
	}
}
