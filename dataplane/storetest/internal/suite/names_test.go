package suite

import (
	"testing"
	"time"

	"github.com/weirhq/weir/shared/window"
)

func TestALiveCellOutlastsTheTestsWheneverTheyBegin(t *testing.T) {
	check := func(at time.Time) {
		t.Helper()
		for _, c := range []struct{ least, most, step time.Duration }{
			{time.Hour, time.Hour + 20*time.Millisecond, time.Millisecond},
			{24 * time.Hour, 24*time.Hour + 200*time.Millisecond, time.Millisecond},
			{window.DurationMax, window.DurationMax - 3*time.Hour, -time.Hour},
		} {
			d := liveFrom(at, c.least, c.step)
			if left := leftAt(at, d); left < 30*time.Minute || d-left < time.Hour/28 {
				t.Fatalf("at %v a cell of %v lasts for another %v", at, d, left)
			}
			if least, most := min(c.least, c.most), max(c.least, c.most); d < least || d > most {
				t.Fatalf("at %v the duration from %v on is %v", at, c.least, d)
			}
		}
	}
	for at := Began; at.Before(Began.AddDate(50, 0, 0)); at = at.Add(11*time.Minute + 7*time.Millisecond) {
		check(at)
	}
	hour := time.Now().Truncate(time.Hour)
	for at := range time.Hour.Milliseconds() { // each instant of an hour
		check(hour.Add(time.Duration(at) * time.Millisecond))
	}
}
