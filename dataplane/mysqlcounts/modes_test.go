package mysqlcounts

import (
	"testing"
	"time"

	"github.com/weirhq/weir/shared/window"
)

// "Generation 0 keys keep exactly today's bytes", and a release that knows modes and no
// generations leaves the others out: to it they are of a mode that there is not.
func TestStoredDurations(t *testing.T) {
	for stored, k := range map[int64]window.Key{
		60_000:                      {Duration: time.Minute},
		60_000 | 1<<40:              {Duration: time.Minute, Mode: window.Estimate},
		60_000 | 1<<48:              {Duration: time.Minute, Generation: 1},
		60_000 | 1<<40 | 32_767<<48: {Duration: time.Minute, Mode: window.Estimate, Generation: window.GenerationMax},
		31_622_400_000 | 32_767<<48: {Duration: window.DurationMax, Generation: window.GenerationMax},
	} {
		if got := storedDuration(&k); got != stored {
			t.Errorf("%v is stored as %d, want %d", k, got, stored)
		}
		var back window.Key
		if !keyDuration(stored, &back) || back != k {
			t.Errorf("%d is read as %v, want %v", stored, back, k)
		}
		if mode := stored >> 40; k.Generation > 0 && mode < int64(window.Modes) {
			t.Errorf("%d is a row of mode %d to the release before", stored, mode)
		}
	}
	for _, stored := range []int64{-1, 60_000 | 2<<40, 60_000 | 255<<40, 31_622_400_001, 1 << 39} {
		var k window.Key
		if keyDuration(stored, &k) {
			t.Errorf("%d is read as %v", stored, k)
		}
	}
}
