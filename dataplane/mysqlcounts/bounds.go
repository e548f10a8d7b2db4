package mysqlcounts

import (
	"fmt"
	"math"

	"github.com/weirhq/weir/shared/window"
)

// Widths of columns that no other package has a name for.
const (
	nodeIDBytesMax = 64
	buildBytesMax  = 64
)

// countMax bounds what is published and what is believed of the database: the
// arithmetic of package window is exact below 2^62, which is 512 regions at the
// largest limit. A sum beyond the range of the column's type is cut off at 2^63 - 1 by
// the database, or turns negative, so it does not pass for a count.
const countMax = 1<<62 - 1

func checkCount(n int64) error {
	if n < 0 || n > countMax {
		return fmt.Errorf("count is %d (0 to %d)", n, int64(countMax))
	}
	return nil
}

// checkCell also keeps (sequence + 2) * duration within int64.
func checkCell(c window.Cell) error {
	if err := c.Validate(); err != nil {
		return err
	}
	const least = -2 // expires at 0
	if most := math.MaxInt64/c.DurationMs() - 2; c.Sequence < least || c.Sequence > most {
		return fmt.Errorf("%w: sequence is %d (%d to %d)", window.ErrInvalid, c.Sequence, least, most)
	}
	return nil
}
