package memstore

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/shared/heartbeat"
	"github.com/weirhq/weir/shared/window"
)

// CountsOptions are all optional.
type CountsOptions struct {
	// Clock tells when expired rows are removed; nil is time.Now.
	Clock func() time.Time

	// Keep is how long a row stays after its cell has expired, 10 min unless set.
	Keep time.Duration
}

// Counts is a dataplane.CountStore in memory: the counts of all regions, beside
// what operators set (SetTuning, SetNamespaces, SetOverrides) and nodes report
// (Beats).
type Counts struct {
	// Faults make it fail; see there.
	Faults Faults

	clock  func() time.Time
	keepMs int64

	mu      sync.Mutex
	cells   map[window.Cell]map[string]int64 // cell → region → count, which only grows
	sweepAt int                              // size of cells at which the expired ones are removed
	stats   CountsStats

	tunings    map[string]tuningRow // by region, "" the fleet: its newest version
	namespaces []dataplane.NamespaceRow
	overrides  []dataplane.OverrideRow
	beats      map[string]heartbeat.Beat // by node
}

var _ dataplane.CountStore = (*Counts)(nil)

// CountsStats count what was asked of a Counts since it was made.
type CountsStats struct {
	Publishes, Imports, SettingsReads, Heartbeats int64 // calls, failed ones included

	RowsPublished int64 // rows of publications that were accepted
	RowsGrown     int64 // those among them that changed something
	CellsImported int64 // cells that were yielded
	ChunksRefused int64 // publications that failed with dataplane.ErrRefused
}

const defaultKeep = 10 * time.Minute

// NewCounts returns an empty one.
func NewCounts(o CountsOptions) *Counts {
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if o.Keep <= 0 {
		o.Keep = defaultKeep
	}
	return &Counts{
		clock:   o.Clock,
		keepMs:  o.Keep.Milliseconds(),
		cells:   make(map[window.Cell]map[string]int64),
		sweepAt: sweepMin,
		tunings: make(map[string]tuningRow),
		beats:   make(map[string]heartbeat.Beat),
	}
}

// Publish implements dataplane.CountStore.
func (c *Counts) Publish(ctx context.Context, region string, counts []dataplane.Count) error {
	c.count(func(s *CountsStats) { s.Publishes++ })
	if err := wellFormed(counts); err != nil {
		return opError(OpPublish, err)
	}
	return c.Faults.roundTrip(ctx, OpPublish, func(j journey) error {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, row := range counts {
			if err := storable(row, j.refuse); err != nil {
				c.stats.ChunksRefused++
				return err
			}
		}
		for _, row := range counts {
			c.raiseLocked(region, row)
		}
		c.stats.RowsPublished += int64(len(counts))
		return nil
	})
}

func (c *Counts) raiseLocked(region string, row dataplane.Count) {
	regions := c.cells[row.Cell]
	if regions == nil {
		regions = make(map[string]int64, 1)
		c.cells[row.Cell] = regions
		if len(c.cells) >= c.sweepAt {
			c.sweepLocked()
			c.sweepAt = max(sweepMin, 2*len(c.cells))
		}
	}
	stored, ok := regions[region]
	if !ok || row.Count > stored {
		regions[region] = row.Count
		c.stats.RowsGrown++
	}
}

// wellFormed holds a caller to what Publish demands of it.
func wellFormed(counts []dataplane.Count) error {
	if len(counts) > dataplane.PublishRowsMax {
		return fmt.Errorf("%d rows, more than %d", len(counts), dataplane.PublishRowsMax)
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
func storable(row dataplane.Count, refuse func(dataplane.Count) bool) error {
	if err := row.Cell.Validate(); err != nil {
		return fmt.Errorf("%w: %w", dataplane.ErrRefused, err)
	}
	if row.Count < 0 {
		return fmt.Errorf("%w: count of %v is %d", dataplane.ErrRefused, row.Cell, row.Count)
	}
	if refuse != nil && refuse(row) {
		return fmt.Errorf("%w: %v", dataplane.ErrRefused, row.Cell)
	}
	return nil
}

// Import implements dataplane.CountStore. It yields what was there when it began,
// and holds no lock meanwhile.
func (c *Counts) Import(ctx context.Context, region string, nowMs int64, yield func(dataplane.Imported)) error {
	c.count(func(s *CountsStats) { s.Imports++ })
	var found []dataplane.Imported
	err := c.Faults.roundTrip(ctx, OpImport, func(journey) error {
		found = c.seenFrom(region, nowMs)
		return nil
	})
	if err != nil {
		return err
	}
	yielded := 0
	defer func() { c.count(func(s *CountsStats) { s.CellsImported += int64(yielded) }) }()
	for _, cell := range found {
		if err := ctx.Err(); err != nil {
			return opError(OpImport, fmt.Errorf("after %d of %d cells: %w", yielded, len(found), err))
		}
		yield(cell)
		yielded++
	}
	return nil
}

func (c *Counts) seenFrom(region string, nowMs int64) []dataplane.Imported {
	c.mu.Lock()
	defer c.mu.Unlock()
	found := make([]dataplane.Imported, 0, len(c.cells))
	for cell, regions := range c.cells {
		if cell.ExpiresAtMs() <= nowMs {
			continue
		}
		i := dataplane.Imported{Cell: cell}
		for r, n := range regions {
			if r == region {
				i.Own = n
			} else {
				i.Foreign += n
			}
		}
		found = append(found, i)
	}
	return found
}

// Wipe forgets all counts, as a restored backup does; settings and beats stay.
func (c *Counts) Wipe() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.cells)
}

// Stats is a snapshot.
func (c *Counts) Stats() CountsStats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stats
}

// Rows lists all components, sorted by cell and region; also those that have expired
// and are not removed yet.
func (c *Counts) Rows() []Row {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sweepLocked()
	var rows []Row
	for cell, regions := range c.cells {
		for region, n := range regions {
			rows = append(rows, Row{Region: region, Cell: cell, Count: n, ExpiresAt: time.UnixMilli(cell.ExpiresAtMs())})
		}
	}
	sortRows(rows)
	return rows
}

// Totals is the sum of all regions' components, by cell.
func (c *Counts) Totals() map[window.Cell]int64 { return sumRows(c.Rows()) }

func (c *Counts) sweepLocked() {
	keptMs := c.clock().UnixMilli() - c.keepMs
	maps.DeleteFunc(c.cells, func(cell window.Cell, _ map[string]int64) bool { return cell.ExpiresAtMs() <= keptMs })
}

func (c *Counts) count(change func(*CountsStats)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(&c.stats)
}
