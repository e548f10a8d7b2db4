package mysqlcounts

import (
	"time"

	"github.com/weirhq/weir/shared/window"
)

// The mode of a key is kept in the bits of duration_ms above all durations: 366 days
// are less than 2^35 ms. So keys of two modes differ in the primary key, sort as
// window.Cell.Compare has it, and need no column that the release before does not know:
// its nodes leave rows of other modes out, as those of a duration beyond their bounds.
const modeShift = 40

func storedDuration(k *window.Key) int64 { return k.DurationMs() | int64(k.Mode)<<modeShift }

// keyDuration is the inverse; ok is false for what no data plane can have written.
func keyDuration(stored int64) (d time.Duration, mode window.Mode, ok bool) {
	durationMs, n := stored&(1<<modeShift-1), stored>>modeShift
	if n < 0 || n >= int64(window.Modes) || durationMs > window.DurationMax.Milliseconds() {
		return 0, 0, false
	}
	return time.Duration(durationMs) * time.Millisecond, window.Mode(n), true
}
