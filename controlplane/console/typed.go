package console

import (
	"fmt"
	"math"
	"time"

	"github.com/weirhq/weir/shared/strict"
)

// Numbers and durations of forms are read as settings are, by package strict: +5, 010, 1_000 and 0x10 are errors.
// Bounds are the API's to say, and so are the words of an error, which name the form's field.

func typedInt(text string) (int64, error) { return strict.Int("", text, math.MinInt64, math.MaxInt64) }

func typedInt32(text string) (int32, error) {
	n, err := strict.Int("", text, math.MinInt32, math.MaxInt32)
	return int32(n), err
}

func typedFloat(text string) (float64, error) {
	return strict.Float("", text, -math.MaxFloat64, math.MaxFloat64)
}

// typedMs reads a duration of whole milliseconds. A part of a millisecond would be cut off, and 0 often means a default.
func typedMs(text string) (int64, error) {
	d, err := strict.Duration("", text, math.MinInt64, math.MaxInt64)
	if err == nil && d%time.Millisecond != 0 {
		err = fmt.Errorf("%v has a part of a millisecond", d)
	}
	return d.Milliseconds(), err
}
