package memstore

import (
	"cmp"
	"slices"

	"github.com/weirhq/weir/shared/window"
)

// changes is an index of rows by when they last changed, oldest first. Entries that no
// longer stand for what their row says are skipped by readers and removed in passing.
type changes struct {
	sorted []change
	tidyAt int // length at which the stale entries are removed
}

type change struct {
	atMs   int64
	cell   window.Cell
	region string
}

// add puts a change in its place, which is near the end unless it was committed late.
func (c *changes) add(ch change, cells map[window.Cell]map[string]component) {
	c.sorted = slices.Insert(c.sorted, c.after(ch.atMs), ch)
	if len(c.sorted) < max(c.tidyAt, sweepMin) {
		return
	}
	c.sorted = slices.DeleteFunc(c.sorted, func(ch change) bool {
		row, ok := cells[ch.cell][ch.region]
		return !ok || row.updatedMs != ch.atMs
	})
	c.tidyAt = 2 * len(c.sorted)
}

// since are the changes at sinceMs and later.
func (c *changes) since(sinceMs int64) []change { return c.sorted[c.after(sinceMs-1):] }

// after is the place of the first change that is later than atMs.
func (c *changes) after(atMs int64) int {
	if n := len(c.sorted); n > 0 && c.sorted[n-1].atMs <= atMs {
		return n
	}
	place, _ := slices.BinarySearchFunc(c.sorted, atMs, func(ch change, atMs int64) int {
		if ch.atMs <= atMs {
			return -1
		}
		return cmp.Compare(ch.atMs, atMs)
	})
	return place
}

func (c *changes) forget() { *c = changes{} }
