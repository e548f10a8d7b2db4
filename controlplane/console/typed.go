package console

import (
	"fmt"
	"math"
	"time"

	"github.com/weirhq/weir/shared/strict"
)

// Forms read numbers and durations with package strict, as settings are read: +5, 010, 1_000 and 0x10 are errors. The
// API checks the bounds. Callers replace the text of an error with a text that names the form's field.

func typedInt(text string) (int64, error) { return strict.Int("", text, math.MinInt64, math.MaxInt64) }

func typedInt32(text string) (int32, error) {
	n, err := strict.Int("", text, math.MinInt32, math.MaxInt32)
	return int32(n), err
}

func typedFloat(text string) (float64, error) {
	return strict.Float("", text, -math.MaxFloat64, math.MaxFloat64)
}

// typedMs reads a duration of whole milliseconds. A fraction of a millisecond is an error, because
// cutting it off could give 0, which often means a default.
func typedMs(text string) (int64, error) {
	d, err := strict.Duration("", text, math.MinInt64, math.MaxInt64)
	if err == nil && d%time.Millisecond != 0 {
		err = fmt.Errorf("%v is not a whole number of milliseconds", d)
	}
	return d.Milliseconds(), err
}
