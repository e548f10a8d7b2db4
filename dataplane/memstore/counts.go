package memstore

import (
	"maps"
	"sync"
	"time"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/heartbeat"
	"github.com/weirhq/weir/shared/window"
)

// CountsOptions are all optional.
type CountsOptions struct {
	// Clock tells when expired rows are removed; nil is time.Now.
	Clock func() time.Time

	// Keep is how long a row stays after its cell has expired, 10 min unless set.
	Keep time.Duration

	// Overlap is how far before its cursor an Import begins to read, 500 ms unless
	// set. What takes nearly as long to become visible is stamped anew.
	Overlap time.Duration

	// OwnRows makes Import tell also of cells in which nothing but the region's own
	// component was raised.
	OwnRows bool
}

// Counts is a store.CountStore in memory: the counts of all regions, beside
// what operators set (SetTuning, SetNamespaces, SetOverrides, SetResets) and nodes report
// (Beats).
type Counts struct {
	// Faults make it fail; see there.
	Faults Faults

	clock   func() time.Time
	keepMs  int64
	overlap time.Duration
	ownRows bool

	mu      sync.Mutex
	cells   map[window.Cell]map[string]component // by cell and region
	changes changes
	sweepAt int // size of cells at which the expired ones are removed
	stats   CountsStats
	digests map[nodeName]storedDigest

	tunings    map[string]tuningRow // by region, "" the fleet: its newest version
	namespaces []store.NamespaceRow
	overrides  []store.OverrideRow
	resets     []store.ResetRow
	beats      map[string]heartbeat.Beat // by node
	seen       map[string]time.Time      // by node: when its beat came
}

var _ store.CountStore = (*Counts)(nil)

// component is one region's row of a cell. Its count only grows.
type component struct {
	count, countedAtMs int64
	shared             bool
	updatedMs          int64 // when count last grew, or the row was stamped anew; 0 if only ever quietly
	late               bool  // became visible so long after updatedMs that an Import may have missed it
}

const (
	defaultKeep    = 10 * time.Minute
	defaultOverlap = 500 * time.Millisecond
)

// NewCounts returns an empty one.
func NewCounts(o CountsOptions) *Counts {
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if o.Keep <= 0 {
		o.Keep = defaultKeep
	}
	if o.Overlap <= 0 {
		o.Overlap = defaultOverlap
	}
	return &Counts{
		clock:   o.Clock,
		keepMs:  o.Keep.Milliseconds(),
		overlap: o.Overlap,
		ownRows: o.OwnRows,
		cells:   make(map[window.Cell]map[string]component),
		digests: make(map[nodeName]storedDigest),
		sweepAt: sweepMin,
		tunings: make(map[string]tuningRow),
		beats:   make(map[string]heartbeat.Beat),
		seen:    make(map[string]time.Time),
	}
}

// Wipe forgets all counts, as a restored backup does; settings and beats stay.
func (c *Counts) Wipe() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.cells)
	c.changes.forget()
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
			rows = append(rows, Row{Region: region, Cell: cell, Count: n.count, ExpiresAt: time.UnixMilli(cell.ExpiresAtMs())})
		}
	}
	sortRows(rows)
	return rows
}

// Totals is the sum of all regions' components, by cell.
func (c *Counts) Totals() map[window.Cell]int64 { return sumRows(c.Rows()) }

func (c *Counts) sweepLocked() {
	keptMs := c.clock().UnixMilli() - c.keepMs
	maps.DeleteFunc(c.cells, func(cell window.Cell, _ map[string]component) bool { return cell.ExpiresAtMs() <= keptMs })
}
