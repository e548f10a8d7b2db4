package slots

import (
	"testing"
	"time"
)

// A node leaves its free slots to others only if the origin has none for them.
func TestANodeYieldsNothingWhileTheOriginHasSlots(t *testing.T) {
	for limit, yields := range map[int64]bool{2: true, 3: true, 4: false} {
		e := &entry{shard: &shard{}, held: 2, others: 1, limit: limit, starved: true}
		e.busy = 1
		if got := e.yields(time.Hour); got != yields {
			t.Errorf("a node with 2 slots yields beside another with 1 of %d: %v", limit, got)
		}
	}
}

// A key is forgotten for room only if neither the node nor the origin has slots of it, no request waits, and no call is
// under way.
func TestWhatKeepsAKey(t *testing.T) {
	for name, change := range map[string]func(e *entry){
		"a lease":                           func(e *entry) { e.busy = 1 },
		"a request that waits":              func(e *entry) { e.waiters.len = 1 },
		"a call":                            func(e *entry) { e.inFlight = true },
		"a spare slot":                      func(e *entry) { e.held = 1 },
		"slots that the origin may know of": func(e *entry) { e.told = true },
	} {
		e := &entry{shard: &shard{asks: newSchedule()}}
		if !e.idle() {
			t.Fatal("a key of which nothing is known is kept")
		}
		if change(e); e.idle() {
			t.Errorf("a key with %s is forgotten", name)
		}
	}
}
