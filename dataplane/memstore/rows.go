package memstore

import (
	"cmp"
	"slices"

	"github.com/weirhq/weir/shared/window"
)

// Row is a stored count of a Counts, for tests and tools.
type Row struct {
	Region string // whose component it is
	Cell   window.Cell
	Count  int64
}

// Rows lists all components, sorted by cell and region, including expired rows that are not removed yet.
func (c *Counts) Rows() []Row {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sweepLocked()
	var rows []Row
	for cell, regions := range c.cells {
		for region, n := range regions {
			rows = append(rows, Row{Region: region, Cell: cell, Count: n.count})
		}
	}
	slices.SortFunc(rows, func(a, b Row) int {
		return cmp.Or(a.Cell.Compare(b.Cell), cmp.Compare(a.Region, b.Region))
	})
	return rows
}

// Totals returns the sum of all regions' components, by cell.
func (c *Counts) Totals() map[window.Cell]int64 {
	sums := make(map[window.Cell]int64)
	for _, r := range c.Rows() {
		sums[r.Cell] += r.Count
	}
	return sums
}
