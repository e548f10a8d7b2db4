package window

import (
	"testing"
	"time"
)

// Keys of generation 0 keep exactly these bytes. A release that has modes and no generations leaves the others out,
// because it reads a mode that does not exist.
func TestStoredDurations(t *testing.T) {
	for stored, k := range map[int64]Key{
		60_000:                      {Duration: time.Minute},
		60_000 | 1<<40:              {Duration: time.Minute, Mode: Estimate},
		60_000 | 1<<48:              {Duration: time.Minute, Generation: 1},
		60_000 | 1<<40 | 32_767<<48: {Duration: time.Minute, Mode: Estimate, Generation: GenerationMax},
		31_622_400_000 | 32_767<<48: {Duration: DurationMax, Generation: GenerationMax},
	} {
		if got := StoredDuration(&k); got != stored {
			t.Errorf("%v is stored as %d, want %d", k, got, stored)
		}
		var back Key
		if !ReadStoredDuration(stored, &back) || back != k {
			t.Errorf("%d is read as %v, want %v", stored, back, k)
		}
		if mode := stored >> 40; k.Generation > 0 && mode < int64(Modes) {
			t.Errorf("%d is a row of mode %d to the release before", stored, mode)
		}
	}
	for _, stored := range []int64{-1, 60_000 | 2<<40, 60_000 | 255<<40, 31_622_400_001, 1 << 39} {
		var k Key
		if ReadStoredDuration(stored, &k) {
			t.Errorf("%d is read as %v", stored, k)
		}
	}
}

// A value that is read equals the value that was written; a value that cannot have been written is refused.
func FuzzReadStoredDuration(f *testing.F) {
	f.Add(int64(60_000))
	f.Add(int64(60_000 | 1<<40 | 7<<48))
	f.Fuzz(func(t *testing.T, stored int64) {
		var k Key
		if ok := ReadStoredDuration(stored, &k); ok && StoredDuration(&k) != stored {
			t.Errorf("%d is read as %v, which is written as %d", stored, k, StoredDuration(&k))
		}
	})
}

// "It depends on nothing but the duration": cells of a key in two modes and generations have the same class.
func TestExpiryClass(t *testing.T) {
	for duration, want := range map[time.Duration]int64{
		DurationMin: 0, 12 * time.Hour: 0, 12*time.Hour + time.Millisecond: 1, 24 * time.Hour: 1,
		31 * 24 * time.Hour: 1, 31*24*time.Hour + time.Millisecond: 2, DurationMax: 2,
	} {
		for _, k := range []Key{{Duration: duration}, {Duration: duration, Mode: Modes - 1, Generation: GenerationMax}} {
			if got := ExpiryClass(&k); got != want {
				t.Errorf("%v is of class %d, want %d", duration, got, want)
			}
		}
	}
}
