package reallog

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

var start = time.Unix(1_700_000_000, 0)

// A log agrees with the sum of all cost that was accepted less than a window ago.
func TestALogHoldsWhatWasAcceptedInAWindow(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		const window = time.Second
		var log Log
		var all []entry
		now := start
		for range 200 {
			now = now.Add(time.Duration(rapid.Int64Range(0, 50).Draw(r, "ms")) * time.Millisecond)
			began := now.Add(-time.Duration(rapid.Int64Range(0, 20).Draw(r, "call, ms")) * time.Millisecond)
			cost := rapid.Int64Range(1, 5).Draw(r, "cost")
			all = append(all, entry{began, cost})
			want := int64(0)
			for _, e := range all {
				if e.began.After(now.Add(-window)) {
					want += e.cost
				}
			}
			if got := log.Accept(began, now, cost, window); got != want {
				r.Fatalf("%d, want %d", got, want)
			}
		}
	})
}

// However much is accepted, a log has at most EntriesMax entries, and never reports more than a window holds.
func TestALogIsBounded(t *testing.T) {
	const window = time.Second
	var log Log
	for i := range 50_000 {
		now := start.Add(time.Duration(i) * 20 * time.Microsecond) // 50,000 in a window
		got := log.Accept(now, now, 1, window)
		if holds := int64(i + 1); got > holds || got < holds*9/10 {
			t.Fatalf("%d of %d", got, holds)
		}
		if len(log.entries) > EntriesMax {
			t.Fatalf("%d entries", len(log.entries))
		}
	}
	for i := range 50_000 {
		now := start.Add(time.Second + time.Duration(i)*20*time.Microsecond)
		if got := log.Accept(now, now, 1, window); got > 50_000 || got < 47_500 {
			t.Fatalf("%d of 50,000", got)
		}
	}
}

func TestALogForgetsWhatHasLeftTheWindow(t *testing.T) {
	var log Log
	log.Accept(start, start, 3, time.Second)
	if got := log.Within(start.Add(time.Second-1), time.Second); got != 3 {
		t.Errorf("%d just before the end", got)
	}
	if got := log.Within(start.Add(time.Second), time.Second); got != 0 {
		t.Errorf("%d at the end", got)
	}
}
