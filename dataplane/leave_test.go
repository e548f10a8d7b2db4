package dataplane_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/memstore"
)

// An embedder's node leaves the fleet at once when it stops, not only when its last heartbeat is too old.
func TestAStoppedLimiterLeavesTheFleet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		counts := memstore.NewCounts(memstore.CountsOptions{})
		a, b := started(t, "eu", "a", nil, counts), started(t, "eu", "b", nil, counts)
		time.Sleep(20 * time.Second)
		if n := a.Nodes(); n != 2 {
			t.Fatalf("a reckons with %d nodes, want 2", n)
		}
		if err := b.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second) // until the settings are read again, but less than store.NodeLiveFor
		if n := a.Nodes(); n != 1 {
			t.Errorf("a reckons with %d nodes after b has stopped, want 1", n)
		}
	})
}

// Calls that Stop interrupts are no errors: neither the figures of the last heartbeat nor the traces report them.
func TestBeingStoppedIsNoProblem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		counts := memstore.NewCounts(memstore.CountsOptions{})
		problems := make(chan error, 100)
		l, err := dataplane.New(dataplane.Config{Region: "eu", NodeID: "a", Settings: counts,
			TraceBackground: func(ctx context.Context, _ string) (context.Context, func(error)) {
				return ctx, func(err error) {
					if err != nil {
						problems <- err
					}
				}
			}})
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Second)
		counts.Faults.Delay(800 * time.Millisecond) // so that some calls are in flight
		time.Sleep(5200 * time.Millisecond)
		if err := l.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		close(problems)
		for err := range problems {
			t.Errorf("a turn ended with %v", err)
		}
		h := counts.Heartbeats()[0].Health
		if h.SettingsProblem != "" || h.SettingsErrors != 0 {
			t.Errorf("the last heartbeat tells of %q, and %d errors", h.SettingsProblem, h.SettingsErrors)
		}
	})
}
