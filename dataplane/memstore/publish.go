package memstore

import (
	"context"
	"fmt"

	"github.com/weirhq/weir/dataplane/store"
)

// Publish implements store.CountStore.
func (c *Counts) Publish(ctx context.Context, region string, counts []store.Count) error {
	c.count(func(s *CountsStats) { s.Publishes++ })
	if err := wellFormed(counts); err != nil {
		return opError(OpPublish, err)
	}
	return c.Faults.roundTrip(ctx, OpPublish, func(j journey) error {
		if err := c.storable(counts, j.refuse); err != nil {
			return err
		}
		return c.write(ctx, j, region, counts)
	})
}

// write shows rows when they are committed, after the delay of SlowCommits. If the caller leaves meanwhile, the rows
// are shown later all the same.
func (c *Counts) write(ctx context.Context, j journey, region string, counts []store.Count) error {
	err := j.wait(ctx, j.commit())
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stats.Statements++
	c.stats.RowsPublished += int64(len(counts))
	for _, row := range counts {
		c.raiseLocked(region, row)
	}
	return err
}

func (c *Counts) raiseLocked(region string, row store.Count) {
	regions := c.cells[row.Cell]
	if regions == nil {
		regions = make(map[string]component, 1)
		c.cells[row.Cell] = regions
		if len(c.cells) >= c.sweepAt {
			c.sweepLocked()
			c.sweepAt = max(sweepMin, 2*len(c.cells))
		}
	}
	if was, ok := regions[region]; !ok || row.Count > was.count {
		regions[region] = component{row.Count, c.clock().UnixMilli()}
		c.stats.RowsWritten++
	}
}

// storable checks rows against the limits of a table.
func (c *Counts) storable(counts []store.Count, refuse func(store.Count) bool) error {
	for _, row := range counts {
		if err := storable(row, refuse); err != nil {
			c.count(func(s *CountsStats) { s.ChunksRefused++ })
			return err
		}
	}
	return nil
}

// wellFormed checks that a call meets the contract of Publish.
func wellFormed(counts []store.Count) error {
	if len(counts) > store.PublishRowsMax {
		return fmt.Errorf("%d rows, more than %d", len(counts), store.PublishRowsMax)
	}
	for i := 1; i < len(counts); i++ {
		switch order := counts[i-1].Cell.Compare(counts[i].Cell); {
		case order == 0:
			return fmt.Errorf("row %d repeats cell %v", i, counts[i].Cell)
		case order > 0:
			return fmt.Errorf("row %d, cell %v, is out of order", i, counts[i].Cell)
		}
	}
	return nil
}

// storable checks a row against the limits of a table's columns, and its cell against the cells that a limiter can
// send.
func storable(row store.Count, refuse func(store.Count) bool) error {
	if err := row.Cell.Validate(); err != nil {
		return fmt.Errorf("%w: %w", store.ErrRefused, err)
	}
	if row.Count < 0 || row.Count > store.CountMax {
		return fmt.Errorf("%w: count of %v is %d", store.ErrRefused, row.Cell, row.Count)
	}
	if refuse != nil && refuse(row) {
		return fmt.Errorf("%w: %v", store.ErrRefused, row.Cell)
	}
	return nil
}
