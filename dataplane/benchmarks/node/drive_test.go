package main

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// If a server stalls for a second at ten calls a second, ten calls are late, not a single call: their latencies count
// from the times at which they should have begun.
func TestOpenLoopCountsFromTheIntendedStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		stalling := func(context.Context) error {
			if n++; n == 1 {
				time.Sleep(time.Second)
			}
			return nil
		}
		latency, err := drive(t.Context(), []call{stalling}, 3*time.Second, 10)
		if err != nil {
			t.Fatal(err)
		}
		late := int64(0)
		for _, bar := range latency.Distribution() {
			if bar.From > 50_000 {
				late += bar.Count
			}
		}
		if latency.TotalCount() != 30 || late != 10 {
			t.Errorf("%d calls, %d of them late; want 30 and 10", latency.TotalCount(), late)
		}
	})
}

// A closed loop makes its next call when the last call was answered.
func TestClosedLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := func(context.Context) error { time.Sleep(100 * time.Millisecond); return nil }
		latency, err := drive(t.Context(), []call{slow, slow}, time.Second, 0)
		if err != nil || latency.TotalCount() != 20 || latency.Max() > 101_000 {
			t.Errorf("%d calls of at most %d µs, error %v; want 20 of 100,000", latency.TotalCount(), latency.Max(), err)
		}
	})
}
