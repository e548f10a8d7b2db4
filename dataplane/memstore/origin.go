package memstore

import (
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/shared/window"
)

// OriginOptions are all optional.
type OriginOptions struct {
	// Clock tells when cells expire; nil is time.Now.
	Clock func() time.Time

	// Grace is how long a cell stays after it has expired, 30 s unless set: nodes
	// whose clocks are behind may still ask for it.
	Grace time.Duration
}

// Origin is a dataplane.Origin in memory: one region's totals. Several limiters of a
// process that share one are a region.
type Origin struct {
	// Faults make it fail; see there.
	Faults Faults

	clock func() time.Time
	grace time.Duration

	mu      sync.Mutex
	totals  map[window.Cell]total
	sweepAt int // size of totals at which the expired ones are removed
	stats   OriginStats
}

var _ dataplane.Origin = (*Origin)(nil)

type total struct {
	count       int64 // > 0, only grows while the cell lives
	forgottenMs int64 // Unix ms from which it is not there any more
}

// OriginStats count what was asked of an Origin since it was made.
type OriginStats struct {
	Reads, Adds, Raises                int64 // calls, one round trip each, failed ones included
	CellsRead, CellsAdded, CellsRaised int64 // what arrived; for raises, what they changed
}

// Calls is the number of round trips of any kind.
func (s OriginStats) Calls() int64 { return s.Reads + s.Adds + s.Raises }

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
	return &Origin{clock: o.Clock, grace: o.Grace, totals: make(map[window.Cell]total), sweepAt: sweepMin}
}

// Read implements dataplane.Origin.
func (o *Origin) Read(ctx context.Context, cells []window.Cell) ([]int64, error) {
	o.count(func(s *OriginStats) { s.Reads++ })
	totals := make([]int64, len(cells))
	err := o.Faults.roundTrip(ctx, OpRead, func(journey) error {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.stats.CellsRead += int64(len(cells))
		nowMs := o.clock().UnixMilli()
		for i, c := range cells {
			totals[i] = o.aliveLocked(c, nowMs).count
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return totals, nil
}

// Add implements dataplane.Origin.
func (o *Origin) Add(ctx context.Context, adds []dataplane.Add) []dataplane.Added {
	o.count(func(s *OriginStats) { s.Adds++ })
	j, err := o.Faults.depart(ctx, OpAdd)
	if err != nil {
		return slices.Repeat([]dataplane.Added{{Err: err}}, len(adds))
	}
	lost := j.travel(ctx)
	added := o.add(adds)
	if lost == nil {
		lost = j.comeBack(ctx)
	}
	if lost != nil {
		return slices.Repeat([]dataplane.Added{{Err: fmt.Errorf("%w: %w", dataplane.ErrMaybeApplied, lost)}}, len(adds))
	}
	return added
}

func (o *Origin) add(adds []dataplane.Add) []dataplane.Added {
	o.mu.Lock()
	defer o.mu.Unlock()
	added := make([]dataplane.Added, len(adds))
	nowMs := o.clock().UnixMilli()
	for i, a := range adds {
		count := o.aliveLocked(a.Cell, nowMs).count
		switch {
		case a.Cost <= 0:
			added[i].Err = opError(OpAdd, fmt.Errorf("cost of %v is %d, want > 0", a.Cell, a.Cost))
		case a.Cost > math.MaxInt64-count:
			added[i].Err = opError(OpAdd, fmt.Errorf("total of %v would overflow", a.Cell))
		default:
			o.stats.CellsAdded++
			o.putLocked(a.Cell, count+a.Cost, nowMs)
			added[i].Total = count + a.Cost
		}
	}
	return added
}

// Raise implements dataplane.Origin.
func (o *Origin) Raise(ctx context.Context, totals []dataplane.Add) error {
	o.count(func(s *OriginStats) { s.Raises++ })
	return o.Faults.roundTrip(ctx, OpRaise, func(journey) error {
		o.mu.Lock()
		defer o.mu.Unlock()
		nowMs := o.clock().UnixMilli()
		for _, t := range totals {
			if t.Cost > o.aliveLocked(t.Cell, nowMs).count {
				o.stats.CellsRaised++
				o.putLocked(t.Cell, t.Cost, nowMs)
			}
		}
		return nil
	})
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

func (o *Origin) count(change func(*OriginStats)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	change(&o.stats)
}

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
	h := fnv.New64a()
	for _, name := range []string{c.Workspace, c.Namespace, c.Identifier} {
		_, _ = h.Write([]byte(name)) // a hash's Write cannot fail
		_, _ = h.Write([]byte{0})
	}
	return time.Duration(h.Sum64() % uint64(min(c.Duration/10, time.Minute)+1))
}
