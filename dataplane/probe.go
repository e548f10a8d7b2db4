package dataplane

import (
	"context"
	"math"
	"slices"
	"sync"
	"time"
)

// Decision latency, for heartbeats. Timing every decision would cost as much as deciding,
// so a probe decides on its own account, a few times each turn.
//
// What it sees is what every decision on this machine waits for: processors that are
// taken, collections of garbage, a clock that is slow to read. What it does not see:
// reads of the origin, decisions that wait for their share, processors that meet on one
// hot key, a table too large for the caches. For those there is weir_decision_seconds,
// which samples the real ones.

const (
	probeEvery   = 500 * time.Millisecond
	probeTurn    = 20  // timed decisions a turn
	probeSamples = 400 // newest that the percentile is taken of
)

// probe decides on a limiter of its own, without origin and count store: nothing of it
// leaves the process, is counted in metrics, or takes room in the table.
type probe struct {
	limiter *Limiter

	mu    sync.Mutex
	taken []time.Duration // a ring of at most probeSamples
	next  int
}

func newProbe(clock func() time.Time) (*probe, error) {
	own, err := New(Config{Clock: clock, EntriesMax: 1})
	return &probe{limiter: own}, err
}

// turn times a few decisions, after one that wakes the caches up.
func (p *probe) turn(ctx context.Context) {
	r := Request{Workspace: "weir", Namespace: "probe", Identifier: "probe", Limit: math.MaxInt32, Duration: time.Minute, Cost: 1}
	p.limiter.Allow(ctx, r)
	for range probeTurn {
		began := time.Now()
		p.limiter.Allow(ctx, r)
		p.add(time.Since(began))
	}
}

func (p *probe) add(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.taken) < probeSamples {
		p.taken = append(p.taken, d)
		return
	}
	p.taken[p.next] = d
	p.next = (p.next + 1) % probeSamples
}

// p99Us is the 99th percentile in µs; 0 before there are enough samples for one.
func (p *probe) p99Us() float64 {
	p.mu.Lock()
	sorted := slices.Clone(p.taken)
	p.mu.Unlock()
	if len(sorted) < probeSamples/4 {
		return 0
	}
	slices.Sort(sorted)
	return float64(sorted[len(sorted)*99/100]) / float64(time.Microsecond)
}
