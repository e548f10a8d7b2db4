package mysqlcounts

import (
	"fmt"
	"math"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// Widths of columns that no other package has a name for.
const (
	nodeIDBytesMax = 64
	buildBytesMax  = 64
)

func checkRegion(name string) error {
	if len(name) < 1 || len(name) > store.RegionBytesMax {
		return fmt.Errorf("region is %d bytes long (1 to %d)", len(name), store.RegionBytesMax)
	}
	return nil
}

func checkCount(n int64) error {
	if n < 0 || n > store.CountMax {
		return fmt.Errorf("count is %d (0 to %d)", n, int64(store.CountMax))
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
