package dataplane_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

func (n *node) key(identifier string) *dataplane.Handle {
	n.w.t.Helper()
	k, err := n.Handle("acme", "api", identifier, time.Minute)
	if err != nil {
		n.w.t.Fatal(err)
	}
	return k
}

// A handle decides like the plain call: mixed histories on a key agree with plain calls alone, over rollovers,
// evictions and changes of the overrides.
func TestAHandleDecidesAsThePlainCallDoes(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(t)
		w.flushes() // no loop runs here, so a decision must not wait for a flush
		plain, mixed := w.node("eu", "p"), w.node("us", "m")
		handle := mixed.key("k")
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			switch rapid.IntRange(0, 9).Draw(rt, "what") {
			case 0:
				w.clock.advance(time.Duration(rapid.IntRange(0, 200_000).Draw(rt, "ms")) * time.Millisecond)
			case 1:
				for _, n := range []*node{plain, mixed} {
					n.replay() // so that no unsent cost keeps an entry
					n.replay()
					n.Sweep()
				}
			case 2:
				w.counts.SetOverrides()
				if limit := rapid.Int64Range(0, 8).Draw(rt, "override"); limit < 6 {
					w.counts.SetOverrides(store.OverrideRow{Workspace: "acme", Namespace: "api", Pattern: "k", Limit: limit, DurationMs: 120_000 * (limit % 2)})
				}
				for _, n := range []*node{plain, mixed} {
					if err := n.LoadSettings(t.Context()); err != nil {
						rt.Fatal(err)
					}
				}
			default:
				cost, limit := rapid.Int64Range(1, 4).Draw(rt, "cost"), rapid.Int64Range(0, 12).Draw(rt, "limit")
				want := plain.take("k", cost, limit)
				var got dataplane.Decision
				if rapid.Bool().Draw(rt, "handle") {
					got = handle.Allow(t.Context(), limit, dataplane.Cost(cost))
				} else {
					got = mixed.take("k", cost, limit)
				}
				if got != want {
					rt.Fatalf("cost %d of %d: %+v, the plain call says %+v", cost, limit, got, want)
				}
			}
		}
	})
}

// A handle follows its key when the key is evicted and comes back.
func TestAHandleSurvivesEviction(t *testing.T) {
	w := newWorld(t)
	n := w.alone()
	handle := n.key("k")
	handle.Allow(t.Context(), 10, 4)
	w.clock.advance(10 * time.Minute)
	n.Sweep()
	if n.Entries() != 0 {
		t.Fatal("not swept")
	}
	wantAllowed(t, "after eviction", handle.Allow(t.Context(), 10, 3), true, 7)
	wantAllowed(t, "the plain call sees it", n.take("k", 1, 10), true, 6)
	wantAllowed(t, "and the handle the plain call's", handle.Allow(t.Context(), 10, 1), true, 5)
}

func TestAHandleRefusesBadInput(t *testing.T) {
	n := newWorld(t).alone()
	if _, err := n.Handle("", "api", "k", time.Minute); !errors.Is(err, dataplane.ErrInvalid) || !strings.Contains(err.Error(), "workspace is empty") {
		t.Errorf("%v", err)
	}
	k := n.key("k")
	for want, d := range map[string]dataplane.Decision{
		"limit is -1":                    k.Allow(t.Context(), -1, 1),
		"cost is -1":                     k.Allow(t.Context(), 1, -1),
		"cost is 9007199254740992 (0 to": k.Allow(t.Context(), 1, window.LimitMax+1),
	} {
		if !errors.Is(d.Err, dataplane.ErrInvalid) || !strings.Contains(d.Err.Error(), want) || d.Allowed {
			t.Errorf("want %q: %+v", want, d)
		}
	}
	if n.Entries() != 0 {
		t.Error("bad input left an entry")
	}
}
