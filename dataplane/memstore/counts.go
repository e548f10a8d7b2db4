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
	// Clock returns the current time, by which expired rows are removed; nil is time.Now.
	Clock func() time.Time

	// Keep is how long a row stays after its cell has expired, 10 min unless set.
	Keep time.Duration
}

// Counts is a store.CountStore and store.Settings in memory: the counts of all regions, operators' settings (SetTuning,
// SetNamespaces, SetOverrides, SetResets) and nodes' heartbeats (Heartbeats).
type Counts struct {
	// Faults make it fail; see there.
	Faults Faults

	clock  func() time.Time
	keepMs int64

	mu      sync.Mutex
	cells   map[window.Cell]map[string]component // by cell and region; counts only grow
	sweepAt int                                  // size of cells at which expired cells are removed
	stats   CountsStats

	version    int64                // of all that operators set
	tunings    map[string]tuningRow // by region, "" the fleet: its newest version
	trials     map[string]Trial     // by region, "" the fleet
	namespaces []store.NamespaceRow
	overrides  []store.OverrideRow
	resets     []store.ResetRow
	beats      map[string]heartbeat.Heartbeat // by node
	seen       map[string]time.Time           // by node: when its beat came
}

// component is a region's part of a cell's count.
type component struct {
	count  int64
	grewMs int64 // Unix ms by the store's clock when it last grew
}

var (
	_ store.CountStore = (*Counts)(nil)
	_ store.Settings   = (*Counts)(nil)
)

const defaultKeep = 10 * time.Minute

// NewCounts returns an empty Counts.
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
		cells:   make(map[window.Cell]map[string]component),
		sweepAt: sweepMin,
		version: 1,
		trials:  make(map[string]Trial), tunings: make(map[string]tuningRow),
		beats: make(map[string]heartbeat.Heartbeat),
		seen:  make(map[string]time.Time),
	}
}

// Wipe forgets all counts, as a restored backup does; settings and beats stay.
func (c *Counts) Wipe() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.cells)
}

func (c *Counts) sweepLocked() {
	keptMs := c.clock().UnixMilli() - c.keepMs
	maps.DeleteFunc(c.cells, func(cell window.Cell, _ map[string]component) bool { return cell.ExpiresAtMs() <= keptMs })
}
