package dataplane_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// closedFor makes a limiter of one region whose namespace denies in an outage, and a request that wants a large part of
// its limit, so that the origin decides about it.
func closedFor(t *testing.T, nodes int) (*dataplane.Limiter, *memstore.Origin, dataplane.Request) {
	t.Helper()
	counts := memstore.NewCounts(memstore.CountsOptions{})
	counts.SetNamespaces(store.NamespaceRow{Workspace: "acme", Namespace: "login", Outage: "closed"})
	origin := memstore.NewOrigin(memstore.OriginOptions{})
	l, err := dataplane.New(dataplane.Config{Region: "eu", Settings: counts, Origin: origin, RegionNodes: nodes})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.RefreshSettings(t.Context()); err != nil {
		t.Fatal(err)
	}
	return l, origin, dataplane.Request{Workspace: "acme", Namespace: "login", Identifier: "u", Limit: 3, Duration: 24 * time.Hour}
}

// A node without requests has no open breaker after an outage, and decides with the origin again.
func TestBreakersCloseAfterAnOutageWithoutRequests(t *testing.T) {
	for _, nodes := range []int{1, 2} {
		synctest.Test(t, func(t *testing.T) {
			l, origin, r := closedFor(t, nodes)
			if err := l.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			l.Allow(t.Context(), r)
			time.Sleep(time.Second)
			origin.Faults.Fail(errors.New("refused"))
			time.Sleep(15 * time.Second)
			if l.Health().BreakersOpen == 0 {
				t.Error("no breaker opens")
			}
			origin.Faults.Fail(nil)
			time.Sleep(10 * time.Second)
			if n := l.Health().BreakersOpen; n != 0 {
				t.Errorf("%d breakers are open 10 s after the outage", n)
			}
			if d := l.Allow(t.Context(), r); d.Source.Degraded() || !d.Allowed {
				t.Errorf("%+v", d)
			}
			if err := l.Stop(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// A half-open breaker lets calls through: the first request after OpenFor is decided by the origin that answers again.
func TestTheFirstRequestAfterAnOutageIsDecidedByTheOrigin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, origin, r := closedFor(t, 1) // not started: only requests make calls
		l.Allow(t.Context(), r)
		origin.Faults.Fail(errors.New("refused"))
		for range 100 {
			l.Allow(t.Context(), r)
			time.Sleep(100 * time.Millisecond)
		}
		origin.Faults.Fail(nil)
		time.Sleep(10 * time.Second)
		for i := range 2 {
			if d := l.Allow(t.Context(), r); d.Source.Degraded() || !d.Allowed {
				t.Errorf("request %d: %+v", i, d)
			}
		}
	})
}

// byWorkspace is an origin of two shards that puts no trial key into the second.
type byWorkspace struct{ *memstore.Origin }

func (o byWorkspace) ShardOf(key *window.Key) int {
	if key.Workspace == "acme" {
		return 1
	}
	return 0
}

// An origin may choose the shard by the workspace. Then no key of the node's own is in some shards, and the limiter
// neither searches for ever nor stays without the origin.
func TestAnOriginThatShardsByWorkspaceIsCalledAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		origin := memstore.NewOrigin(memstore.OriginOptions{Shards: 2})
		l, err := dataplane.New(dataplane.Config{Region: "eu", Origin: byWorkspace{origin}, RegionNodes: 1})
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		r := dataplane.Request{Workspace: "acme", Namespace: "login", Identifier: "u", Limit: 3, Duration: 24 * time.Hour}
		l.Allow(t.Context(), r)
		time.Sleep(time.Second)
		origin.Faults.Fail(errors.New("refused"))
		time.Sleep(15 * time.Second)
		origin.Faults.Fail(nil)
		time.Sleep(10 * time.Second)
		if d := l.Allow(t.Context(), r); d.Source.Degraded() || !d.Allowed {
			t.Errorf("%+v", d)
		}
		if err := l.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
