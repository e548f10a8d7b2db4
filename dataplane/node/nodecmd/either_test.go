package nodecmd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/heartbeat"
)

// Settings come from the origin, "and MySQL if the origin fails, has no settings, or has old settings".
func TestSettingsComeFromTheOriginOrTheStore(t *testing.T) {
	down := errors.New("down")
	for name, c := range map[string]struct {
		sent             bool          // to the origin
		age              time.Duration // age of the settings
		origin, settings error         // errors of each
		want             int64         // version: 1 is the origin's, 2 the store's
		says             string        // the error
	}{
		"the origin's":                      {sent: true, age: 15 * time.Second, want: 1},
		"old ones at the origin":            {sent: true, age: 16 * time.Second, want: 2},
		"old ones, and the store is down":   {sent: true, age: time.Hour, settings: down, want: 1},
		"none at the origin":                {want: 2},
		"none, and the store is down":       {settings: down, says: "settings: down"},
		"the origin is down":                {sent: true, origin: errors.New("gone"), want: 2},
		"both are down":                     {sent: true, origin: errors.New("gone"), settings: down, says: "gone"},
		"the store is down, and not needed": {sent: true, settings: down, want: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e, origin, counts := newEither()
				if c.sent {
					origin.SetSettings(store.SettingsRows{TuningVersion: 1})
				}
				counts.SetTuning("", 2, []byte("{}"))
				time.Sleep(c.age)
				origin.Faults.Fail(c.origin)
				counts.Faults.Fail(c.settings)
				rows, err := e.Settings(t.Context(), "eu")
				if rows.TuningVersion != c.want || (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
					t.Errorf("version %d, %v; want %d, %q", rows.TuningVersion, err, c.want, c.says)
				}
				if errors.Is(err, store.ErrNoSettings) {
					t.Errorf("%v hides that the store is down", err)
				}
			})
		})
	}
}

func newEither() (*either, *memstore.Origin, *memstore.Counts) {
	origin, counts := memstore.NewOrigin(memstore.OriginOptions{}), memstore.NewCounts(memstore.CountsOptions{})
	return &either{origin: origin, store: counts, interval: func() time.Duration { return 5 * time.Second }}, origin, counts
}

// A Redis that hangs leaves time for MySQL.
func TestAnOriginThatHangsLeavesTimeForTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, origin, counts := newEither()
		counts.SetTuning("", 2, []byte("{}"))
		origin.Faults.Delay(time.Hour)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if rows, err := e.Settings(ctx, "eu"); err != nil || rows.TuningVersion != 2 {
			t.Errorf("version %d, %v", rows.TuningVersion, err)
		}
		if err := e.Heartbeat(ctx, heartbeat.Heartbeat{NodeID: "a", Region: "eu"}); err != nil || len(counts.Heartbeats()) != 1 {
			t.Errorf("%d heartbeats are stored, %v", len(counts.Heartbeats()), err)
		}
	})
}

func TestHeartbeatsGoToTheOriginOrTheStore(t *testing.T) {
	down := errors.New("down")
	for _, c := range []struct {
		relayed       bool
		origin, store error
		kept, stored  int
		failed        bool
	}{
		{true, nil, nil, 1, 0, false}, {true, nil, down, 1, 0, false}, {true, down, nil, 0, 1, false}, {true, down, down, 0, 0, true},
		{false, nil, nil, 0, 1, false}, {false, nil, down, 1, 0, false}, {false, down, nil, 0, 1, false}, {false, down, down, 0, 0, true},
	} {
		t.Run(fmt.Sprint(c.relayed, c.origin, c.store), func(t *testing.T) {
			e, origin, counts := newEither()
			if c.relayed {
				origin.SetSettings(store.SettingsRows{TuningVersion: 1})
			}
			if _, err := e.Settings(t.Context(), "eu"); err != nil {
				t.Fatal(err)
			}
			origin.Faults.Fail(c.origin)
			counts.Faults.Fail(c.store)
			err := e.Heartbeat(t.Context(), heartbeat.Heartbeat{NodeID: "a", Region: "eu"})
			origin.Faults.Fail(nil)
			kept, keptErr := origin.Heartbeats(t.Context(), 0, 9)
			if keptErr != nil {
				t.Fatal(keptErr)
			}
			if len(kept) != c.kept || len(counts.Heartbeats()) != c.stored || (err != nil) != c.failed {
				t.Errorf("%d at the origin, %d stored, %v", len(kept), len(counts.Heartbeats()), err)
			}
		})
	}
}
