package dataplane_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/relay"
	"github.com/weirhq/weir/dataplane/store"
)

// A limiter with an origin and no Settings uses the settings that the relay stores at the origin, and its heartbeats
// reach the fleet's store the same way.
func TestSettingsComeByTheOrigin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		origin, counts := memstore.NewOrigin(memstore.OriginOptions{}), memstore.NewCounts(memstore.CountsOptions{})
		carry, err := relay.New(relay.Config{Region: "eu", Holder: "relay", Origin: origin.Client(), Settings: counts, Counts: counts,
			Feed: memstore.NewFeed(memstore.FeedOptions{})})
		if err != nil {
			t.Fatal(err)
		}
		l := startedOver(t, origin)
		counts.SetOverrides(store.OverrideRow{Workspace: "acme", Namespace: "api", Pattern: "x", Limit: 7})
		time.Sleep(30 * time.Second) // the relay has not started
		if h := l.Health(); h.SettingsErrors > 0 || h.SettingsProblem != "" {
			t.Errorf("without a relay: %+v", h)
		}
		wantAllowed(t, "without a relay", l.Allow(t.Context(), ask("x", 1, 10)), true, 9)

		if err := carry.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(15 * time.Second)
		wantAllowed(t, "with it", l.Allow(t.Context(), ask("x", 1, 10)), true, 5)
		if beats := counts.Heartbeats(); len(beats) != 1 || beats[0].NodeID == "" || beats[0].Region != "eu" {
			t.Errorf("heartbeats %+v", beats)
		}

		counts.Faults.Fail(errors.New("down"))
		time.Sleep(time.Minute)
		wantAllowed(t, "with the store down", l.Allow(t.Context(), ask("x", 1, 10)), true, 6) // another window
		counts.Faults.Fail(nil)
		if err := errors.Join(l.Stop(context.Background()), carry.Stop(context.Background())); err != nil {
			t.Error(err)
		}
		if beats := counts.Heartbeats(); len(beats) != 1 || !beats[0].Stopped {
			t.Errorf("the last heartbeat is %+v", beats)
		}
	})
}

func startedOver(t *testing.T, origin store.Origin) *dataplane.Limiter {
	t.Helper()
	l, err := dataplane.New(dataplane.Config{Region: "eu", Origin: origin})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return l
}
