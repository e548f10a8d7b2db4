package memstore

import (
	"hash/fnv"
	"maps"
	"sync"
	"time"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// OriginOptions are all optional.
type OriginOptions struct {
	// Clock tells when cells expire; nil is time.Now.
	Clock func() time.Time

	// Grace is how long a cell stays after it has expired, 30 s unless set: nodes
	// whose clocks are behind may still ask for it.
	Grace time.Duration

	// Shards is how many there are, 1 unless set.
	Shards int
}

// Origin is a store.Origin in memory: one region's totals. Several limiters of a
// process that share one are a region.
type Origin struct {
	// Faults make it fail; see there. They hold for all shards: a call that concerns
	// several is a journey to each. See ShardFaults for one alone.
	Faults Faults

	clock       func() time.Time
	grace       time.Duration
	shardFaults []Faults // one for each shard

	mu      sync.Mutex
	totals  map[window.Cell]total
	sweepAt int // size of totals at which the expired ones are removed
	stats   OriginStats
}

var _ store.Origin = (*Origin)(nil)

type total struct {
	count       int64 // > 0, only grows while the cell lives
	forgottenMs int64 // Unix ms from which it is not there any more
}

// OriginStats count what was asked of an Origin since it was made.
type OriginStats struct {
	Reads, Adds, Claims, Raises int64 // round trips, one for each shard concerned, failed ones included

	// What arrived; for raises and claims, what they changed.
	CellsRead, CellsAdded, CellsClaimed, CellsRaised int64
}

// Calls is the number of round trips of any kind.
func (s OriginStats) Calls() int64 { return s.Reads + s.Adds + s.Claims + s.Raises }

const (
	defaultGrace = 30 * time.Second
	sweepMin     = 1024
)

// NewOrigin returns an empty one.
func NewOrigin(o OriginOptions) *Origin {
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if o.Grace <= 0 {
		o.Grace = defaultGrace
	}
	return &Origin{
		clock:       o.Clock,
		grace:       o.Grace,
		shardFaults: make([]Faults, max(1, o.Shards)),
		totals:      make(map[window.Cell]total),
		sweepAt:     sweepMin,
	}
}

// Wipe forgets everything, as a server does that restarts without its data.
func (o *Origin) Wipe() {
	o.mu.Lock()
	defer o.mu.Unlock()
	clear(o.totals)
}

// Stats is a snapshot.
func (o *Origin) Stats() OriginStats {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.stats
}

// Rows lists what is there, sorted by cell. Their Region is "".
func (o *Origin) Rows() []Row {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.sweepLocked(o.clock().UnixMilli())
	rows := make([]Row, 0, len(o.totals))
	for c, t := range o.totals {
		rows = append(rows, Row{Cell: c, Count: t.count, ExpiresAt: time.UnixMilli(t.forgottenMs)})
	}
	sortRows(rows)
	return rows
}

// Totals is what is there, by cell.
func (o *Origin) Totals() map[window.Cell]int64 { return sumRows(o.Rows()) }

func (o *Origin) aliveLocked(c window.Cell, nowMs int64) total {
	if t := o.totals[c]; t.forgottenMs > nowMs {
		return t
	}
	return total{}
}

func (o *Origin) putLocked(c window.Cell, count, nowMs int64) {
	t := total{count: count, forgottenMs: c.ExpiresAtMs() + (o.grace + jitter(c)).Milliseconds()}
	if t.forgottenMs <= nowMs {
		return // like a key whose expiry is set in the past
	}
	o.totals[c] = t
	if len(o.totals) >= o.sweepAt {
		o.sweepLocked(nowMs)
		o.sweepAt = max(sweepMin, 2*len(o.totals))
	}
}

func (o *Origin) sweepLocked(nowMs int64) {
	maps.DeleteFunc(o.totals, func(_ window.Cell, t total) bool { return t.forgottenMs <= nowMs })
}

// jitter spreads the ends of keys whose cells end together over a tenth of their
// duration, at most a minute; a key's own is always the same.
func jitter(c window.Cell) time.Duration {
	return time.Duration(hashNames(&c.Key) % uint64(min(c.Duration/10, time.Minute)+1))
}

func hashNames(key *window.Key) uint64 {
	h := fnv.New64a()
	for _, name := range []string{key.Workspace, key.Namespace, key.Identifier} {
		_, _ = h.Write([]byte(name)) // a hash's Write cannot fail
		_, _ = h.Write([]byte{0})
	}
	return h.Sum64()
}
