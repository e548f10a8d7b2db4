package memstore

import (
	"context"
	"fmt"

	"github.com/weirhq/weir/dataplane/store"
)

// touchesMax bounds how often rows that become visible late are stamped anew.
const touchesMax = 3

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

// write stamps rows when it begins, as a database does, and shows them when they are
// committed, which takes as long as SlowCommits says. Rows that took too long for an
// Import to be sure to see them are stamped anew, until they are shown in time: see
// package mysqlcounts, whose protocol this is. A caller who is gone meanwhile leaves
// them as they are; whoever publishes them again stamps them anew.
func (c *Counts) write(ctx context.Context, j journey, region string, counts []store.Count) error {
	for attempt := range 1 + touchesMax {
		stamped := c.clock()
		err := j.wait(ctx, j.commit())
		late := err != nil || c.clock().Sub(stamped) > c.overlap-c.overlap/5

		c.mu.Lock()
		c.stats.Statements++
		for _, row := range counts {
			c.raiseLocked(region, row, stamp{stamped.UnixMilli(), attempt > 0, late})
		}
		if attempt == 0 {
			c.stats.RowsPublished += int64(len(counts))
		} else {
			c.stats.RowsTouched += int64(len(counts))
		}
		c.mu.Unlock()
		if err != nil || !late {
			return err
		}
	}
	return nil
}

// stamp is what a statement writes into its rows beside their counts.
type stamp struct {
	atMs int64
	anew bool // whether the count grows or not
	late bool // see component
}

func (c *Counts) raiseLocked(region string, row store.Count, by stamp) {
	regions := c.cells[row.Cell]
	if regions == nil {
		regions = make(map[string]component, 1)
		c.cells[row.Cell] = regions
		if len(c.cells) >= c.sweepAt {
			c.sweepLocked()
			c.sweepAt = max(sweepMin, 2*len(c.cells))
		}
	}
	was, ok := regions[region]
	now := was
	grows := !ok || row.Count > was.count
	if grows {
		now.count, now.countedAtMs = row.Count, max(row.CountedAtMs, 0)
		c.stats.RowsGrown++
	}
	if !row.Quiet && (grows || by.anew || was.late || was.updatedMs == 0) {
		now.updatedMs, now.late = max(was.updatedMs, by.atMs), by.late
	}
	now.shared = was.shared || row.Shared
	if ok && now == was {
		return
	}
	c.stats.RowsWritten++
	regions[region] = now
	if now.updatedMs != was.updatedMs {
		c.changes.add(change{now.updatedMs, row.Cell, region}, c.cells)
	}
}

// storable holds rows to what a table would take.
func (c *Counts) storable(counts []store.Count, refuse func(store.Count) bool) error {
	for _, row := range counts {
		if err := storable(row, refuse); err != nil {
			c.count(func(s *CountsStats) { s.ChunksRefused++ })
			return err
		}
	}
	return nil
}

// wellFormed holds a caller to what Publish demands of it.
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

// storable holds a row to what a table's columns would take, and its cell to what a
// limiter would ever send.
func storable(row store.Count, refuse func(store.Count) bool) error {
	if err := row.Cell.Validate(); err != nil {
		return fmt.Errorf("%w: %w", store.ErrRefused, err)
	}
	if row.Count < 0 {
		return fmt.Errorf("%w: count of %v is %d", store.ErrRefused, row.Cell, row.Count)
	}
	if refuse != nil && refuse(row) {
		return fmt.Errorf("%w: %v", store.ErrRefused, row.Cell)
	}
	return nil
}
