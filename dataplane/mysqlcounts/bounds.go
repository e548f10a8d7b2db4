package mysqlcounts

import (
	"fmt"

	"github.com/weirhq/weir/dataplane/store"
)

// Widths of columns that have no name in another package.
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
