package dataplane_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/shared/window"
)

// The shape counts the keys with accepted cost, and the keys past half their limits. It counts only windows long
// enough to be shared, and is measured again after half a minute.
func TestShapeOfCallers(t *testing.T) {
	l, err := dataplane.New(dataplane.Config{Region: "eu", NodeID: "eu-1", Settings: memstore.NewCounts(memstore.CountsOptions{})})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	spend := func(identifier string, cost int64, duration time.Duration) {
		t.Helper()
		d := l.AllowAt(context.Background(), now, dataplane.Request{Workspace: "w", Namespace: "n", Identifier: identifier, Limit: 10, Duration: duration, Cost: cost, ZeroCost: cost == 0})
		if d.Err != nil || !d.Allowed {
			t.Fatalf("%+v", d)
		}
	}
	for i := range 10 {
		spend(fmt.Sprint("cool", i), 1, time.Minute)
	}
	spend("hot", 6, time.Minute)
	spend("short", 6, time.Second) // below min_global_duration
	look := func(at time.Time) (keys, hot int64) {
		l.MeasureShape(at)
		h := l.Health()
		if h.SharedKeys != -1 {
			t.Error("what other regions use is not known")
		}
		return h.ActiveKeys, h.HotKeys
	}
	if keys, hot := look(now); keys != 11 || hot != 1 {
		t.Errorf("%d keys, %d hot", keys, hot)
	}
	spend("cool0", 8, time.Minute)
	if keys, hot := look(now.Add(time.Second)); keys != 11 || hot != 1 {
		t.Errorf("too soon to look again: %d keys, %d hot", keys, hot)
	}
	if _, hot := look(now.Add(30 * time.Second)); window.Sequence(now.UnixMilli(), 60_000) == window.Sequence(now.Add(30*time.Second).UnixMilli(), 60_000) && hot != 2 {
		t.Errorf("%d hot", hot)
	}
}
