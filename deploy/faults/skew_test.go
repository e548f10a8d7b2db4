package faults

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirhq/weir/shared/servers"
	"github.com/weirhq/weir/shared/window"
)

// Clocks two seconds off either way, within a region and between regions, over several
// ends of a window. Cells are numbered by the clock of whoever decides: so totals are
// exact, cell by cell, and nothing is counted elsewhere. And a key at its limit is given
// nothing anew when a window ends for one node and not yet for another: by its own clock
// no node lets more through than the limit, but for what is on its way between them.
//
// Before a key's first denial that is more: the node ahead has left the cell that the
// one behind still fills, and reads it again only once it is strict or stale.
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
	stop, stopLimited := l.start(t, f.regions...), f.press("limited", limit)
	stopWatch := f.watch()
	pause(t.Context(), soak(2*duration, time.Minute))
	over, early, allowed, alone := stopLimited()
	stop()
	stopWatch()
	if allowed == 0 {
		t.Error("nothing was allowed on the limited key")
	}
	most := int64(limit/6) + int64(100*f.machine.worst().Seconds()) + alone // 10 requests are 100 ms, a tick
	if over > most {
		t.Errorf("%d more than the limit of %d passed, by the clock of the node that decided", over, limit)
	}
	t.Logf("limited key: %d allowed by eu; at most %d above the limit of %d at any moment, %d before every node had denied once, %d unasked", allowed, over, limit, early, alone)
	f.settle("clocks 2 s off either way", recovery{}, allowance{})
	for _, r := range f.regions {
		r.countedNowhereElse()
	}
}

// press asks the nodes of the first region for one key, as fast as its limit is worth,
// and adds up by each node's own clock what its region let through. stop returns the
// most that ever passed the limit, the most before every node had denied once, what was
// allowed in all, and what of it by a node that could not ask in time, as on a machine that
// is busy.
func (f *fleet) press(identifier string, limit int64) (stop func() (over, early, allowed, alone int64)) {
	r := f.regions[0]
	ctx, cancel := context.WithCancel(f.t.Context())
	var running sync.WaitGroup
	var over, early, allowed, alone int64
	strict := make(map[*node]bool)
	running.Go(func() {
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for i := 0; ctx.Err() == nil; i++ {
			<-tick.C
			n := r.nodes[i%len(r.nodes)]
			d := r.ask(n, identifier, limit)
			if !d.Allowed {
				strict[n] = true
				continue
			}
			allowed++
			if d.Source.Degraded() {
				alone++
			}
			seq := d.ResetAt.UnixMilli()/r.ledger.duration.Milliseconds() - 1
			nowMs := max(n.now().UnixMilli(), window.Start(seq, r.ledger.duration.Milliseconds()))
			counts := r.ledger.snapshot()
			effective := window.Effective(counts[cell{identifier, seq}], counts[cell{identifier, seq - 1}], 0, nowMs, r.ledger.duration.Milliseconds())
			if beyond := effective - limit; len(strict) < len(r.nodes) {
				early = max(early, beyond)
			} else {
				over = max(over, beyond)
			}
		}
	})
	return func() (int64, int64, int64, int64) { cancel(); running.Wait(); return over, early, allowed, alone }
}

// countedNowhereElse: the region's Redis has a key for each cell of the ledger and no
// other.
func (r *region) countedNowhereElse() {
	t := r.fleet.t
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: r.redis.Addr()})
	defer func() { must(t, client.Close()) }()
	keys, err := client.DBSize(t.Context()).Result()
	must(t, err)
	if cells := int64(len(r.ledger.snapshot())); keys != cells {
		t.Errorf("%s: Redis has %d cells, %d were counted in", r.name, keys, cells)
	}
}
