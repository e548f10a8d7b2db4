package limits

import (
	"testing"
	"time"

	"github.com/weirhq/weir/shared/window"
)

// Resets of an identifier differ from each other for longer than they can matter, and each is later than the reset
// before, whatever the clock does.
func TestResetsFollowOneAnother(t *testing.T) {
	now := time.UnixMilli(1_735_000_000_000)
	first := Reset{}.next(now, time.Hour)
	if first.SetAt != now || first.ExpiresAt != now.Add(2*time.Hour) {
		t.Errorf("the first: %+v", first)
	}
	seen, last := map[int64]bool{first.Generation: true}, first
	for range int(window.GenerationMax)/strideMax - 1 {
		next := last.next(now, time.Second) // the clock stands still
		if g := next.Generation; seen[g] || g < 1 || g > int64(window.GenerationMax) {
			t.Fatalf("generation %d after %d, of %d", g, last.Generation, len(seen))
		}
		if !next.SetAt.After(last.SetAt) || next.ExpiresAt.Before(last.ExpiresAt) {
			t.Fatalf("%+v after %+v", next, last)
		}
		seen[next.Generation], last = true, next
	}
	if next := last.next(now.Add(-time.Hour), time.Hour); next.SetAt != last.SetAt.Add(time.Millisecond) {
		t.Errorf("after a step back: %v, the last one at %v", next.SetAt, last.SetAt)
	}
}

// If a database is restored to the state before a reset, the next reset rarely repeats the lost generation: 1 time in
// 64, or 1 time in 32,767 if the lost reset was the identifier's first.
func TestARestoreRepeatsNoReset(t *testing.T) {
	now := time.UnixMilli(1_735_000_000_000)
	for name, backup := range map[string]Reset{"of none": {}, "of one": Reset{}.next(now, time.Hour)} {
		equal := 0
		for range 1000 {
			lost, again := backup.next(now.Add(time.Minute), time.Hour), backup.next(now.Add(time.Hour), time.Hour)
			if lost.Generation == again.Generation {
				equal++
			}
		}
		if equal > 50 {
			t.Errorf("%s: %d of 1,000 are the lost one's", name, equal)
		}
	}
}
