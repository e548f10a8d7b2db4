package faults

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/weirhq/weir/shared/servers"
	"github.com/weirhq/weir/shared/window"
)

// The clocks of a region's nodes are four seconds apart, over several ends of a window of six. Nodes number cells by
// their origin's clock, so totals are exact, cell by cell, nothing is counted elsewhere, and a key's limit holds as
// it does with true clocks: no more passes than its nodes accept between two words with the origin.
func TestSoakSkewedClocks(t *testing.T) {
	t.Parallel()
	servers.TurnSQL(t, testSoakSkewedClocks)
}

func testSoakSkewedClocks(t *testing.T) {
	t.Parallel()
	const duration, limit = 6 * time.Second, 60
	skews := map[string][]time.Duration{"eu": {2 * time.Second, -2 * time.Second}, "us": {-2 * time.Second, 0}}
	f := newFleet(t, plan{skew: func(region string, node int) time.Duration { return skews[region][node-1] }})
	for _, r := range f.regions {
		r.ledger.duration = duration
	}
	l := load{perSecond: 200, keys: 50}
	l.touch(f.regions...) // each node has an answer, and so its origin's time
	stop, stopLimited := l.start(t, f.regions...), f.press("limited", limit)
	stopWatch := f.watch()
	pause(t.Context(), soak(2*duration, time.Minute))
	p := stopLimited()
	stop()
	stopWatch()
	if p.allowed < limit {
		t.Errorf("%d of the limit of %d were allowed", p.allowed, limit)
	}
	// With cells of different numbers, nodes let 39 more requests pass. The number that pass between two exchanges with
	// the origin depends on the machine; in virtual time it is one: TestNodesWithWrongClocksAgree of package sim.
	const apart = 39
	if p.over > apart/2+p.alone {
		t.Errorf("%d more than the limit of %d passed, %d of all without an answer in time", p.over, limit, p.alone)
	}
	t.Logf("limited key: %d allowed by eu, at most %d above the limit of %d at any moment (%s), %d unasked",
		p.allowed, p.over, limit, p.worst, p.alone)
	f.settle("clocks 2 s off either way", recovery{}, allowance{})
	for _, r := range f.regions {
		r.countedNowhereElse()
	}
}

// pressed is the result for a key that is requested faster than its limit allows.
type pressed struct {
	over    int64 // largest excess above the limit
	allowed int64
	worst   string // time of that excess
	alone   int64  // part of allowed: decided by a node whose origin did not answer in time, as on a busy machine
}

// press requests a key from the nodes of the first region, ten times as fast as its limit allows, and sums up the
// allowed requests.
func (f *fleet) press(identifier string, limit int64) (stop func() pressed) {
	r := f.regions[0]
	ctx, cancel := context.WithCancel(f.t.Context())
	var running sync.WaitGroup
	var p pressed
	running.Go(func() {
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		began := time.Now()
		wall := began.Round(0)
		for i := 0; ctx.Err() == nil; i++ {
			<-tick.C
			d := r.ask(r.nodes[i%len(r.nodes)], identifier, limit)
			if !d.Allowed {
				continue
			}
			p.allowed++
			if d.Source.Degraded() {
				p.alone++
			}
			if over := r.effective(identifier, d.ResetAt) - limit; over > p.over {
				p.over, p.worst = over, r.moment(identifier, d.ResetAt)
				p.worst += fmt.Sprintf(", wall clock %v off the steady one since the start",
					(time.Now().Round(0).Sub(wall) - time.Since(began)).Round(time.Millisecond))
			}
		}
	})
	return func() pressed { cancel(); running.Wait(); return p }
}

// effective returns the cost that callers of the region were granted in the window that ends now, or at the start of
// the cell that ends at resetAt.
func (r *region) effective(identifier string, resetAt time.Time) int64 {
	durationMs := r.ledger.duration.Milliseconds()
	seq := resetAt.UnixMilli()/durationMs - 1
	nowMs := max(time.Now().UnixMilli(), window.Start(seq, durationMs))
	counts := r.ledger.snapshot()
	return window.Effective(counts[cell{identifier, seq}], counts[cell{identifier, seq - 1}], 0, nowMs, durationMs)
}

// moment describes the parts of effective.
func (r *region) moment(identifier string, resetAt time.Time) string {
	durationMs := r.ledger.duration.Milliseconds()
	seq := resetAt.UnixMilli()/durationMs - 1
	counts := r.ledger.snapshot()
	return fmt.Sprintf("%d ms into cell %d: %d there, %d in the one before",
		time.Now().UnixMilli()-window.Start(seq, durationMs), seq, counts[cell{identifier, seq}], counts[cell{identifier, seq - 1}])
}

// countedNowhereElse checks that the region's Redis has exactly the counts of the ledger in the ledger's cells, and no
// other cells.
func (r *region) countedNowhereElse() {
	t := r.fleet.t
	t.Helper()
	want, held := r.ledger.snapshot(), make(totals)
	for cursor := uint64(0); ; {
		cells, next, err := r.truth.Scan(t.Context(), 0, cursor, 1000)
		must(t, err)
		for _, c := range cells {
			held[cell{c.Cell.Identifier, c.Cell.Sequence}] = c.Total
		}
		if cursor = next; cursor == 0 {
			break
		}
	}
	if lost, over := drift(want, held); lost > 0 || over > 0 {
		t.Errorf("%s: Redis has %d cells of %d, lacks %d and has %d beyond it", r.name, len(held), len(want), lost, over)
	}
}
