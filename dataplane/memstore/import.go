package memstore

import (
	"context"
	"fmt"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// Import implements store.CountStore. It yields what was there when it began,
// and holds no lock meanwhile.
func (c *Counts) Import(ctx context.Context, region string, nowMs int64, after store.Cursor, yield func(store.Imported)) (store.Cursor, error) {
	c.count(func(s *CountsStats) { s.Imports++; s.Statements += 2 }) // the clock, the rows
	var found []store.Imported
	var next store.Cursor
	err := c.Faults.roundTrip(ctx, OpImport, func(journey) error {
		c.mu.Lock()
		defer c.mu.Unlock()
		next = c.nowLocked()
		if sinceMs, full := c.sinceLocked(after); full {
			c.stats.FullImports++
			found = c.aliveLocked(region, nowMs)
		} else {
			found = c.changedLocked(region, nowMs, sinceMs)
		}
		return nil
	})
	if err != nil {
		return after, err
	}
	yielded := 0
	defer func() { c.count(func(s *CountsStats) { s.CellsImported += int64(yielded) }) }()
	for _, cell := range found {
		if err := ctx.Err(); err != nil {
			return after, opError(OpImport, fmt.Errorf("after %d of %d cells: %w", yielded, len(found), err))
		}
		yield(cell)
		yielded++
	}
	return next, nil
}

// nowLocked is a cursor for what is visible now. Zero would be before everything.
func (c *Counts) nowLocked() store.Cursor {
	return store.Cursor(max(c.clock().UnixMilli(), 1))
}

// sinceLocked is the stamp from which a read that continues at after begins. A clock
// that has gone back stamps what is new as old: then everything must be read.
func (c *Counts) sinceLocked(after store.Cursor) (sinceMs int64, full bool) {
	return int64(after) - c.overlap.Milliseconds(), after <= 0 || c.nowLocked() < after
}

// aliveLocked reads every row, as the real query does: the expired ones too.
func (c *Counts) aliveLocked(region string, nowMs int64) []store.Imported {
	found := make([]store.Imported, 0, len(c.cells))
	for cell, regions := range c.cells {
		c.stats.RowsRead += int64(len(regions))
		if cell.ExpiresAtMs() > nowMs {
			found = append(found, seenFrom(region, cell, regions))
		}
	}
	return found
}

// changedLocked reads the index of changes, and then the rows of the cells found there.
func (c *Counts) changedLocked(region string, nowMs, sinceMs int64) []store.Imported {
	var found []store.Imported
	taken := make(map[window.Cell]struct{})
	for _, ch := range c.changes.since(sinceMs) {
		regions := c.cells[ch.cell]
		if row, ok := regions[ch.region]; !ok || row.updatedMs != ch.atMs {
			continue // has changed again since, or is gone: no entry of an index
		}
		c.stats.RowsRead++
		if _, ok := taken[ch.cell]; ok || ch.region == region && !c.ownRows {
			continue
		}
		taken[ch.cell] = struct{}{}
		c.stats.RowsRead += int64(len(regions))
		if ch.cell.ExpiresAtMs() > nowMs {
			found = append(found, seenFrom(region, ch.cell, regions))
		}
	}
	return found
}

func seenFrom(region string, cell window.Cell, regions map[string]component) store.Imported {
	i := store.Imported{Cell: cell}
	for r, n := range regions {
		if r == region {
			i.Own = n.count
			continue
		}
		i.Foreign += n.count
		if i.NewestRegion == "" || n.countedAtMs > i.NewestAtMs || n.countedAtMs == i.NewestAtMs && r > i.NewestRegion {
			i.NewestRegion, i.NewestAtMs = r, n.countedAtMs
		}
	}
	return i
}
