package dataplane_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/store"
)

// The table has less room than there are keys, and each key is used a little at a time. No key passes its limit,
// however often its entry is evicted before it reaches half its limit. The node reports that its table is full.
//
//weir:unraced
func TestMoreKeysThanRoomKeepTheirLimits(t *testing.T) {
	const users, room, limit = 3 * fullCap, fullCap, 10
	estimates := func(c *dataplane.Config) {
		counts := memstore.NewCounts(memstore.CountsOptions{})
		counts.SetNamespaces(store.NamespaceRow{Workspace: "acme", Namespace: "api", Mode: "estimate"})
		c.Settings = counts
	}
	for name, change := range map[string][]func(*dataplane.Config){
		"alone":            {withoutOrigin},
		"alone, estimates": {withoutOrigin, estimates},
		"in a fleet":       nil,
		"origin away":      {func(c *dataplane.Config) { c.Origin.(*memstore.Origin).Faults.Fail(errDown) }},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			small := func(c *dataplane.Config) { c.Settings, c.EntriesMax = nil, room }
			n := w.node("eu", "a", append([]func(*dataplane.Config){small}, change...)...)
			passed := map[string]int{}
			for round := range 16 {
				for i := range users {
					id := fmt.Sprint("user", i)
					r := ask(id, 1, limit)
					r.Duration = time.Hour
					var d dataplane.Decision
					if round%2 == 0 {
						d = n.Allow(context.Background(), r)
					} else {
						d = n.AllowMany(context.Background(), []dataplane.Request{r}).Decisions[0]
					}
					if d.Allowed {
						passed[id]++
					}
				}
				if n.origin != nil && name == "in a fleet" {
					n.replay()
				}
				w.clock.advance(time.Second)
			}
			most, all := 0, 0
			for _, n := range passed {
				most, all = max(most, n), all+n
			}
			if most > limit {
				t.Errorf("a user passed %d times of %d an hour", most, limit)
			}
			if all < users*limit/2 {
				t.Errorf("%d passes of %d in all: the sketch denies too many", all, users*limit)
			}
			if !n.TableFull() {
				t.Error("the node does not say that its table is full")
			}
		})
	}
}

// The same holds with a flood of new identifiers between two requests of a caller, and for cost that is reserved in
// this process.
//
//weir:unraced
func TestAFloodBeginsNoKeyAnew(t *testing.T) {
	for _, reserves := range []bool{false, true} {
		w := newWorld(t)
		n := w.alone(func(c *dataplane.Config) { c.EntriesMax = fullCap })
		r := ask("me", 49, 100)
		r.Duration = time.Hour
		var accepted int64
		for round := range 10 {
			if reserves {
				if n.Reserve(t.Context(), dataplane.ReserveRequest{TTL: time.Hour, Requests: []dataplane.Request{r}}).Allowed {
					accepted += r.Cost
				}
			} else if n.Allow(t.Context(), r).Allowed {
				accepted += r.Cost
			}
			for i := range 5 * fullCap {
				other := ask(fmt.Sprint(round, "-", i), 1, 100)
				other.Duration = time.Hour
				n.Allow(t.Context(), other)
			}
		}
		if accepted > 100 {
			t.Errorf("reserved %v: %d were accepted of a limit of 100 an hour", reserves, accepted)
		}
	}
}
