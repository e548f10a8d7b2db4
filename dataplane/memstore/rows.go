package memstore

import (
	"cmp"
	"slices"
	"time"

	"github.com/weirhq/weir/shared/window"
)

// Row is one stored count, for tests and tools.
type Row struct {
	Region    string // whose component it is; "" in an Origin
	Cell      window.Cell
	Count     int64
	ExpiresAt time.Time // when it is forgotten (Origin), or ends to count (Counts)
}

func sortRows(rows []Row) {
	slices.SortFunc(rows, func(a, b Row) int {
		return cmp.Or(a.Cell.Compare(b.Cell), cmp.Compare(a.Region, b.Region))
	})
}

// sumRows adds up the components of each cell.
func sumRows(rows []Row) map[window.Cell]int64 {
	sums := make(map[window.Cell]int64, len(rows))
	for _, r := range rows {
		sums[r.Cell] += r.Count
	}
	return sums
}
