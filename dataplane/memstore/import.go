package memstore

import (
	"context"
	"fmt"

	"github.com/weirhq/weir/dataplane/store"
)

// Import implements store.CountStore. It yields the counts at its beginning, and holds no lock meanwhile.
func (c *Counts) Import(ctx context.Context, nowMs int64, yield func(region string, n store.Count)) error {
	c.count(func(s *CountsStats) { s.Imports++; s.Statements++ })
	var found []Row
	err := c.Faults.roundTrip(ctx, OpImport, func(journey) error {
		found = c.alive(nowMs)
		return nil
	})
	if err != nil {
		return err
	}
	for i, row := range found {
		if err := ctx.Err(); err != nil {
			return opError(OpImport, fmt.Errorf("after %d of %d counts: %w", i, len(found), err))
		}
		yield(row.Region, store.Count{Cell: row.Cell, Count: row.Count})
	}
	return nil
}

// alive reads every row, as the real query does, including expired rows.
func (c *Counts) alive(nowMs int64) (found []Row) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for cell, regions := range c.cells {
		c.stats.RowsRead += int64(len(regions))
		if cell.ExpiresAtMs() <= nowMs {
			continue
		}
		for region, n := range regions {
			if grewMs := n.grewMs + nowMs - c.clock().UnixMilli(); !store.Ahead(&cell, grewMs) {
				found = append(found, Row{Region: region, Cell: cell, Count: n.count})
			}
		}
	}
	return found
}
