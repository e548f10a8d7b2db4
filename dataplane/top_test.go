package dataplane_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/heartbeat"
	"github.com/weirhq/weir/shared/tuning"
)

// top queries keys, as "identifier count" each.
func (n *node) top(q dataplane.TopQuery) (got []string) {
	n.w.t.Helper()
	if q.Limit == 0 {
		q.Limit = dataplane.TopKeysMax
	}
	for _, k := range n.topKeys(q).Keys {
		got = append(got, fmt.Sprint(k.Identifier, " ", k.Count))
	}
	return got
}

// topKeys retries until the limiter has rested from the previous walk.
func (n *node) topKeys(q dataplane.TopQuery) dataplane.TopKeys {
	n.w.t.Helper()
	for deadline := time.Now().Add(time.Minute); ; {
		keys, err := n.TopKeys(q)
		if errors.Is(err, dataplane.ErrTopBusy) && time.Now().Before(deadline) {
			runtime.Gosched()
			continue
		}
		if err != nil {
			n.w.t.Fatal(err)
		}
		return keys
	}
}

func wantTop(t testing.TB, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

// "A walk over the table finds the hot keys by their counts": by the cost in the window that ends now, in the
// requested namespace, the largest first.
func TestHotKeysHaveMostCostInTheirWindows(t *testing.T) {
	w := newWorld(t)
	n := w.alone()
	for i, identifier := range []string{"a", "b", "c", "d"} {
		n.take(identifier, int64(10*(i+1)), 100)
	}
	n.take("peeked at", 0, 100)
	other := ask("elsewhere", 90, 100)
	other.Namespace = "other"
	n.Allow(t.Context(), other)

	wantTop(t, "all", n.top(dataplane.TopQuery{}), "elsewhere 90", "d 40", "c 30", "b 20", "a 10")
	wantTop(t, "two", n.top(dataplane.TopQuery{Limit: 2}), "elsewhere 90", "d 40")
	wantTop(t, "one namespace", n.top(dataplane.TopQuery{Workspace: "acme", Namespace: "api", Limit: 3}), "d 40", "c 30", "b 20")
	wantTop(t, "no workspace", n.top(dataplane.TopQuery{Workspace: "nobody"}))

	w.clock.set(75 * time.Second)
	n.take("a", 25, 100)
	wantTop(t, "a quarter into the next window", n.top(dataplane.TopQuery{Namespace: "api"}), "a 32", "d 30", "c 22", "b 15")
	w.clock.set(2 * time.Minute)
	wantTop(t, "after two windows", n.top(dataplane.TopQuery{}), "a 25")
}

// Count is for all regions, Regional is this region's part of it, and Limit is the lowest limit that was applied.
func TestHotKeysKnowOtherRegions(t *testing.T) {
	w := newWorld(t)
	w.tune(func(s *tuning.Tuning) { s.Floor, s.Step = 0, 0 })
	eu, us := w.node("eu", "a"), w.node("us", "b")
	eu.take("k", 7, 100)
	us.take("k", 5, 100)
	us.take("k", 0, 80)
	eu.replay() // below a tenth of its limit, cost is published if other regions use the key
	us.replay()
	eu.w.publish()
	got := eu.topKeys(dataplane.TopQuery{Limit: 1})
	want := dataplane.TopKey{Workspace: "acme", Namespace: "api", Identifier: "k", Duration: time.Minute, Limit: 100, Count: 12, Regional: 7}
	if len(got.Keys) != 1 || got.Keys[0] != want || !got.At.Equal(epoch) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// With an override in force, Limit is the override's, for hot and for denied keys, although the requests' own limit
// applied before the override. An override with another window leaves Limit unchanged.
func TestTopKeysHaveTheLimitInForce(t *testing.T) {
	w := newWorld(t)
	w.tune(func(s *tuning.Tuning) { s.Floor, s.Step = 0, 0 })
	n := w.node("eu", "a")
	n.take("k", 5, 10)
	n.take("k", 6, 10)
	limits := func(want int64) {
		t.Helper()
		for by, name := range map[dataplane.TopBy]string{dataplane.TopHot: "hot", dataplane.TopDenied: "denied"} {
			if got := n.topKeys(dataplane.TopQuery{By: by, Limit: 1}).Keys; len(got) != 1 || got[0].Limit != want {
				t.Errorf("%s: %+v, want the limit %d", name, got, want)
			}
		}
	}
	limits(10)
	override := store.OverrideRow{Workspace: "acme", Namespace: "api", Pattern: "k*", Limit: 3000}
	w.counts.SetOverrides(override)
	n.loadSettings()
	limits(3000)
	override.DurationMs = time.Hour.Milliseconds()
	w.counts.SetOverrides(override)
	n.loadSettings()
	limits(10)
}

// Denials of all kinds are counted, each exactly while there are few: of keys that are full, blocked or cannot pass,
// in batches, in the estimate mode and in shadow mode.
func TestDeniedKeysAreThoseMostDenied(t *testing.T) {
	w := newWorld(t)
	n := w.node("eu", "a")
	n.take("full", 10, 10)
	for range 5 {
		n.take("full", 1, 10)
	}
	for range 4 {
		n.take("blocked", 1, 0)
	}
	for range 3 {
		n.AllowMany(t.Context(), []dataplane.Request{ask("fine", 1, 10), ask("batched", 11, 10)})
	}
	w.clock.advance(time.Second) // the strict key needs no read
	n.take("allowed", 1, 10)
	wantTop(t, "denied", n.top(dataplane.TopQuery{By: dataplane.TopDenied}), "full 5", "blocked 4", "batched 3")

	for name, set := range map[string]store.NamespaceRow{
		"estimate": {Workspace: "acme", Namespace: "api", Mode: "estimate"},
		"shadow":   {Workspace: "acme", Namespace: "api", Shadow: true},
	} {
		w := newWorld(t)
		w.counts.SetNamespaces(set)
		n := w.node("eu", "a")
		n.take("full", 1, 10)
		for range 3 {
			n.take("full", 10, 10)
		}
		n.AllowMany(t.Context(), []dataplane.Request{ask("full", 10, 10)})
		wantTop(t, name, n.top(dataplane.TopQuery{By: dataplane.TopDenied}), "full 4")
	}
}

// A denial by an outage policy is independent of its key: the key is not among the denied keys, and the counts of
// other denied keys are unchanged.
func TestDenialsByAnOutagePolicyCountForNoKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, origin := inOutage(t, "closed")
		origin.Faults.Fail(errDown)
		for range 3 {
			l.Allow(t.Context(), ask("refused", 1, 10))
			l.AllowMany(t.Context(), []dataplane.Request{ask("refused", 1, 10), ask("beside", 1, 10)})
		}
		for range 2 {
			l.Allow(t.Context(), ask("over", 11, 10))
		}
		l.AllowMany(t.Context(), []dataplane.Request{ask("over", 11, 10), ask("refused", 1, 10)})
		got, err := l.TopKeys(dataplane.TopQuery{By: dataplane.TopDenied, Limit: 10})
		if err != nil || len(got.Keys) != 1 || got.Keys[0].Identifier != "over" || got.Keys[0].Count != 3 {
			t.Errorf("%+v, %v", got, err)
		}
	})
}

// "Requests of the last minute or two."
func TestDenialsAreForgotten(t *testing.T) {
	w := newWorld(t)
	n := w.alone()
	denied := func(at time.Duration, want ...string) {
		t.Helper()
		w.clock.set(at)
		wantTop(t, at.String(), n.top(dataplane.TopQuery{By: dataplane.TopDenied, Namespace: "api"}), want...)
	}
	denied(0)
	n.take("a", 2, 1)
	n.take("a", 2, 1)
	denied(59*time.Second, "a 2")
	denied(60*time.Second, "a 2")
	n.take("b", 2, 1)
	n.take("a", 2, 1)
	denied(119*time.Second, "a 3", "b 1")
	denied(120*time.Second, "a 1", "b 1")
	denied(180 * time.Second)
	n.take("c", 2, 1)
	denied(10*time.Minute, []string{}...)
}

// A flood is sampled: the sum is complete, and the distribution over keys is about right, also if callers take turns.
func TestAFloodOfDenialsIsSampled(t *testing.T) {
	w := newWorld(t)
	n := w.alone()
	const rounds = 20_000
	for i := range rounds {
		n.take("often", 2, 1)
		n.take("often", 2, 1)
		n.take("seldom", 2, 1)
		n.take(fmt.Sprint("once", i), 2, 1)
	}
	got, err := n.TopKeys(dataplane.TopQuery{By: dataplane.TopDenied, Limit: 2})
	if err != nil || len(got.Keys) != 2 || got.Keys[0].Identifier != "often" || got.Keys[1].Identifier != "seldom" {
		t.Fatalf("%+v, %v", got, err)
	}
	for i, want := range []int64{2 * rounds, rounds} {
		if k := got.Keys[i]; k.Count+k.More < want*8/10 || k.Count > want*12/10 {
			t.Errorf("%s: %d to %d, of %d", k.Identifier, k.Count, k.Count+k.More, want)
		}
	}
}

// Walks, denials and reports can run concurrently; no denial is counted twice.
func TestTopKeysAmidTraffic(t *testing.T) {
	w := newWorld(t)
	n := w.node("eu", "a")
	const each = 3000
	var callers sync.WaitGroup
	for c := range 4 {
		callers.Go(func() {
			for i := range each {
				n.Allow(context.Background(), ask(fmt.Sprint("k", i%50), 1, 1000))
				n.Allow(context.Background(), ask(fmt.Sprint("denied", (c+i)%5), 2, 1))
			}
		})
	}
	done := make(chan struct{})
	go func() { callers.Wait(); close(done) }()
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
		}
		for _, by := range []dataplane.TopBy{dataplane.TopHot, dataplane.TopDenied} {
			if _, err := n.TopKeys(dataplane.TopQuery{By: by, Limit: 10}); err != nil && !errors.Is(err, dataplane.ErrTopBusy) {
				t.Fatal(err)
			}
		}
	}
	got, err := n.TopKeys(dataplane.TopQuery{By: dataplane.TopDenied, Limit: 10})
	sum := int64(0)
	for _, k := range got.Keys {
		sum += k.Count
	}
	if err != nil || len(got.Keys) != 5 || sum > 4*each {
		t.Errorf("%d denials of %d keys were sampled, of %d; %v", sum, len(got.Keys), 4*each, err)
	}
}

func TestTopKeysNamesWhatIsWrong(t *testing.T) {
	n := newWorld(t).alone()
	for _, q := range []dataplane.TopQuery{{}, {Limit: -1}, {Limit: dataplane.TopKeysMax + 1}, {Limit: 1, By: 2}} {
		if _, err := n.TopKeys(q); !errors.Is(err, dataplane.ErrInvalid) || !strings.Contains(err.Error(), " is ") {
			t.Errorf("%+v: %v", q, err)
		}
	}
}

// Heartbeats report keys every 15 s; in between, the last report applies.
func TestHeartbeatsTellOfKeys(t *testing.T) {
	w := newWorld(t)
	n := w.node("eu", "a")
	beat := func() (top heartbeat.Top) {
		t.Helper()
		if err := n.Heartbeat(t.Context()); err != nil {
			t.Fatal(err)
		}
		top, err := heartbeat.ReadTop([]byte(w.counts.Heartbeats()[0].Top))
		if err != nil {
			t.Fatal(err)
		}
		return top
	}
	for i := range 30 {
		n.take(fmt.Sprint("k", i), int64(i+1), 50)
	}
	n.take("\xff", 60, 50)
	top := beat()
	if len(top.Hot) != heartbeat.TopKeysMax || string(top.Hot[0].Identifier) != "k29" || top.Hot[0].Count != 30 || top.Hot[0].Limit != 50 {
		t.Errorf("hot: %+v", top.Hot)
	}
	if len(top.Denied) != 1 || string(top.Denied[0].Identifier) != "\xff" || top.Denied[0].Count != 1 {
		t.Errorf("denied: %+v", top.Denied)
	}
	n.take("k29", 20, 50)
	w.clock.advance(14 * time.Second)
	if top := beat(); top.Hot[0].Count != 30 {
		t.Errorf("after 14 s: %+v", top.Hot[0])
	}
	w.clock.advance(time.Second)
	if top := beat(); top.Hot[0].Count != 50 || top.AtMs != epoch.Add(15*time.Second).UnixMilli() {
		t.Errorf("after 15 s: %+v", top.Hot[0])
	}
}

// A heartbeat reports refused leases separately from denied keys, because operators raise different limits for them.
func TestHeartbeatsHaveRefusedLeasesApartFromDeniedKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		n := w.node("eu", "a")
		n.take("k", 60, 50)
		if _, d := n.Acquire(t.Context(), jobs(0)); d.Allowed || d.Err != nil {
			t.Fatalf("%+v", d)
		}
		if err := n.Heartbeat(t.Context()); err != nil {
			t.Fatal(err)
		}
		top, err := heartbeat.ReadTop([]byte(w.counts.Heartbeats()[0].Top))
		if err != nil {
			t.Fatal(err)
		}
		if len(top.Denied) != 1 || string(top.Denied[0].Identifier) != "k" {
			t.Errorf("denied: %+v", top.Denied)
		}
		if len(top.Refused) != 1 || string(top.Refused[0].Identifier) != "export" {
			t.Errorf("refused: %+v", top.Refused)
		}
	})
}
