package cell

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane/internal/clock"
	"github.com/weirhq/weir/shared/window"
)

// "Of a cell it answers at least what was added", as long as a decision can depend on it, however
// full it is and however the clock moves on; "and is gone when its generation is used again".
func TestTheOverflowNeverUnderCounts(t *testing.T) {
	for seed := range uint64(30) {
		r := rand.New(rand.NewPCG(seed, 7))
		var o overflow
		o.init(0)
		type cell struct {
			id         Identity
			sequence   int64
			durationMs int64
		}
		durations := []time.Duration{time.Second, time.Minute, 90 * time.Second, time.Hour, 25 * time.Hour, window.DurationMax}
		ids := make([]Identity, 3000)
		for i := range ids {
			ids[i] = Identity{r.Uint64(), r.Uint64()}
		}
		added := map[cell]int64{}
		nowMs := epochMs
		for range 20_000 {
			d := durations[r.IntN(len(durations))].Milliseconds()
			c := cell{ids[r.IntN(len(ids))], window.Sequence(nowMs, d), d}
			cost := 1 + r.Int64N(100)
			o.add(&c.id, c.sequence, d, cost, clock.Steady(nowMs))
			added[c] += cost
			if r.IntN(50) == 0 {
				nowMs += r.Int64N(durations[r.IntN(3)].Milliseconds())
			}
		}
		for c, want := range added {
			if got := o.count(&c.id, c.sequence, c.durationMs, clock.Steady(nowMs)); got < want && window.ExpiresAt(c.sequence, c.durationMs) > nowMs {
				t.Fatalf("seed %d: %d of %d counted for %+v", seed, got, want, c)
			}
		}
		nowMs += 4 * time.Minute.Milliseconds()
		one := Identity{1, 2}
		if got := o.count(&one, 0, 60_000, clock.Steady(nowMs)); got != 0 {
			t.Errorf("seed %d: %d left of windows that are over", seed, got)
		}
	}
}

const epochMs = int64(1_735_000_080_000)

// "A sketch of fixed size", whatever is added: counts stop where merges do.
func TestTheOverflowIsBounded(t *testing.T) {
	var o overflow
	o.init(1 << 30)
	one := Identity{3, 4}
	for range 3 {
		o.add(&one, 1, 60_000, mergedMax, clock.Steady(epochMs))
	}
	if got := o.count(&one, 1, 60_000, clock.Steady(epochMs)); got != mergedMax {
		t.Errorf("%d counted, want it to stop at %d", got, int64(mergedMax))
	}
	if got := len(o.spans[0].generations[0]); got != overflowRows*overflowWidthMax {
		t.Errorf("%d places", got)
	}
	if o.spans[1].used.Load() {
		t.Error("durations that nothing is counted of take memory")
	}
}
