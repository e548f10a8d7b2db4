package dataplane_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/store"
)

const year = 366 * 24 * time.Hour

// long returns a request in windows of a year.
func long(namespace, identifier string, limit int64) dataplane.Request {
	return dataplane.Request{Workspace: "acme", Namespace: namespace, Identifier: identifier, Limit: limit, Duration: year}
}

// flooded sends one request for each of many new keys of a namespace.
func (n *node) flooded(namespace string, keys int, of time.Duration) (allowed int) {
	n.w.t.Helper()
	for i := range keys {
		r := long(namespace, fmt.Sprint("flood-", i), 5)
		r.Duration = of
		if n.Allow(context.Background(), r).Allowed {
			allowed++
		}
	}
	n.replay()
	return allowed
}

// stored returns the number of the origin's cells of a namespace.
func (n *node) stored(namespace string) (cells int) {
	for c := range totals(n.origin) {
		if c.Key.Namespace == namespace {
			cells++
		}
	}
	return cells
}

func fewNewKeys(c *dataplane.Config) { c.NewKeysMax, c.RegionNodes = 10, 1 }

// A flood of identifiers in windows of a year creates few keys at the origin: 30 seconds' worth at once, and then as
// many as the bound allows. Each request is decided all the same, and the metric counts the keys that were held back.
func TestAFloodOfLongWindowsBeginsFewKeys(t *testing.T) {
	w := newWorld(t)
	n := w.node("eu", "a", fewNewKeys)
	if allowed := n.flooded("flood", 2000, year); allowed != 2000 {
		t.Errorf("%d of 2000 were allowed", allowed)
	}
	if got := n.stored("flood"); got != 300 {
		t.Errorf("the origin holds %d keys, want 300", got)
	}
	if got := n.HeldBack(); got != 1700 {
		t.Errorf("%d keys were held back, want 1700", got)
	}
	w.clock.advance(10 * time.Second)
	for i := range 2000 {
		n.Allow(context.Background(), long("flood", fmt.Sprint("later-", i), 5))
	}
	n.replay()
	if got := n.stored("flood"); got != 400 {
		t.Errorf("the origin holds %d keys ten seconds later, want 400", got)
	}
}

// A key that is held back counts at its node. When it is used again and there is room, it is sent with all of its
// cost. If the node needs room, it evicts the rest of the key before any other key.
func TestAKeyThatComesBackIsSent(t *testing.T) {
	w := newWorld(t)
	w.counts.SetNamespaces(store.NamespaceRow{Workspace: "acme", Namespace: "flood", NodeShare: "flush"}) // so that there is unsent cost
	n, other := w.node("eu", "a", fewNewKeys), w.node("eu", "b", fewNewKeys)
	n.flooded("flood", 300, year)
	for i := range 5 {
		if d := n.Allow(context.Background(), long("flood", "user", 5)); !d.Allowed || d.Remaining != int64(4-i) {
			t.Errorf("call %d: %+v", i, d)
		}
		n.replay()
	}
	if d := n.Allow(context.Background(), long("flood", "user", 5)); d.Allowed {
		t.Error("a key that is held back is not limited at its own node")
	}
	w.clock.advance(time.Second)
	n.Allow(context.Background(), long("flood", "user", 6))
	n.replay()
	asked := long("flood", "user", 6)
	asked.ZeroCost = true
	if d := other.Peek(context.Background(), asked); d.Current != 6 {
		t.Errorf("another node knows %v of 6", d.Current)
	}
}

// A flood in a namespace holds back no key of another namespace.
func TestAFloodHoldsBackItsOwnNamespace(t *testing.T) {
	w := newWorld(t)
	n := w.node("eu", "a", fewNewKeys)
	n.flooded("flood", 2000, year)
	n.flooded("victim", 100, year)
	if got := n.stored("victim"); got != 100 {
		t.Errorf("the origin holds %d of the victim's 100 keys", got)
	}
}

// Any number of namespaces stays within the bound: all of them together create eight times as many keys.
func TestManyNamespacesBeginFewKeys(t *testing.T) {
	w := newWorld(t)
	n := w.node("eu", "a", fewNewKeys)
	for i := range 100 {
		n.flooded(fmt.Sprint("flood-", i), 100, year)
	}
	if got := len(totals(n.origin)); got != 8*300 {
		t.Errorf("the origin holds %d keys, want %d", got, 8*300)
	}
}

// By default, hundreds of thousands of new keys a minute, in windows of a minute, all reach the origin.
//
//weir:unraced
func TestHonestKeysOfAMinuteConverge(t *testing.T) {
	w := newWorld(t)
	n := w.node("eu", "a", func(c *dataplane.Config) { c.RegionNodes = 1 })
	keys := 300_000
	if testing.Short() {
		keys = 30_000
	}
	for from := 0; from < keys; from += 20_000 {
		for i := from; i < min(keys, from+20_000); i++ {
			n.Allow(context.Background(), dataplane.Request{Workspace: "acme", Namespace: "api", Identifier: fmt.Sprint(i),
				Limit: 10, Duration: time.Minute})
		}
		n.replay()
	}
	if got := n.stored("api"); got != keys {
		t.Errorf("the origin holds %d keys of %d; %d were held back", got, keys, n.HeldBack())
	}
}

// A key that the origin has in the previous window is not new: when a window begins, all keys of a fleet go on.
func TestKeysOfTheWindowBeforeAreNotNew(t *testing.T) {
	w := newWorld(t)
	n := w.node("eu", "a", fewNewKeys)
	n.flooded("api", 300, time.Hour)
	w.clock.advance(time.Hour)
	n.flooded("api", 300, time.Hour)
	held := n.HeldBack()
	if got := n.stored("api"); got != 600 || held != 0 {
		t.Errorf("the origin holds %d cells, want 600; %d were held back", got, held)
	}
}

// A claim of a new key is held back as unsent cost is: the namespace's outage policy decides.
func TestClaimsOfNewKeysAreHeldBack(t *testing.T) {
	w := newWorld(t)
	w.counts.SetNamespaces(store.NamespaceRow{Workspace: "acme", Namespace: "flood", NodeShare: "wait"})
	n := w.node("eu", "a", fewNewKeys)
	n.flooded("flood", 300, year)
	for i := range 100 {
		if d := n.Allow(context.Background(), long("flood", fmt.Sprint("claimed-", i), 1)); !d.Allowed {
			t.Errorf("%+v", d)
		}
		if d := n.Allow(context.Background(), long("flood", fmt.Sprint("claimed-", i), 1)); d.Allowed {
			t.Errorf("twice: %+v", d)
		}
	}
	n.replay()
	if got := n.stored("flood"); got != 300 {
		t.Errorf("the origin holds %d keys, want 300", got)
	}
}

// Batches, charges and keys without room in the table don't pass the bound either.
func TestNoWayAroundTheBoundOfNewKeys(t *testing.T) {
	for name, flood := range map[string]func(n *node){
		"batches": func(n *node) {
			for i := range 100 {
				var all []dataplane.Request
				for j := range 20 {
					all = append(all, long("flood", fmt.Sprint(i, "-", j), 5))
				}
				n.AllowMany(context.Background(), all)
			}
			n.replay()
		},
		"limits that are used up at once": func(n *node) {
			for i := range 2000 {
				n.Allow(context.Background(), long("flood", fmt.Sprint(i), 1))
				n.Allow(context.Background(), long("flood", fmt.Sprint(i), 1))
			}
			n.replay()
		},
		"charges": func(n *node) {
			for i := range 2000 {
				if _, err := n.Charge(long("flood", fmt.Sprint(i), 5)); err != nil {
					n.w.t.Fatal(err)
				}
			}
			n.replay()
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, entries := range []int{100_000, 64} {
				w := newWorld(t)
				n := w.node("eu", "a", fewNewKeys, func(c *dataplane.Config) { c.EntriesMax = entries })
				flood(n)
				if got := n.stored("flood"); got > 300 {
					t.Errorf("the origin holds %d keys, want 300 at most, with room for %d in the table", got, entries)
				}
			}
		})
	}
}

// A number out of bounds is an error that names the number.
func TestNewKeysMaxHasBounds(t *testing.T) {
	for _, n := range []int{-1, 1_000_001} {
		_, err := dataplane.New(dataplane.Config{NewKeysMax: n})
		if want := fmt.Sprintf("invalid: Config.NewKeysMax is %d (1 to 1000000, 0 for 2000)", n); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
