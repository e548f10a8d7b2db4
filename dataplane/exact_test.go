package dataplane_test

import (
	"math/big"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/shared/window"
)

// dumb is a limiter that is too slow to use but easy to understand: every accepted cost by cell, rational arithmetic,
// no concurrency.
type dumb struct {
	latest int64
	cells  map[int64]int64
}

func (d *dumb) allow(tMs, durationMs, limit, cost int64) (allowed bool, retryAfterMs int64) {
	asked := tMs
	seq := window.Sequence(tMs, durationMs)
	if seq < d.latest { // a closed cell stays closed
		seq, tMs = d.latest, d.latest*durationMs
	}
	d.latest = seq
	if d.fits(tMs, durationMs, limit, cost) {
		d.cells[seq] += cost
		return true, 0
	}
	if cost > limit {
		return false, 0
	}
	lo, hi := tMs, (seq+2)*durationMs // the retry time is exact, because a cost that fits once fits from then on
	for lo < hi {
		if mid := lo + (hi-lo)/2; d.fits(mid, durationMs, limit, cost) {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	return false, hi - asked
}

func (d *dumb) fits(tMs, durationMs, limit, cost int64) bool {
	seq := window.Sequence(tMs, durationMs)
	carried := big.NewRat((seq+1)*durationMs-tMs, durationMs)
	carried.Mul(carried, big.NewRat(d.cells[seq-1], 1))
	return new(big.Int).Quo(carried.Num(), carried.Denom()).Int64()+d.cells[seq]+cost <= limit
}

// setRight moves the cost that still counts to the current cell of a clock that was set back.
func (d *dumb) setRight(nowMs, durationMs int64) {
	counts := d.cells[d.latest] + d.cells[d.latest-1]
	d.latest = window.Sequence(nowMs, durationMs)
	d.cells = map[int64]int64{d.latest: counts}
}

// Any sequential history on one node agrees, step by step, with the dumb limiter: verdicts and retry times, over
// rollovers, pauses of many windows, sweeps, and a clock that steps back.
func TestSequentialHistoriesAgreeWithTheDumbLimiter(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(t)
		n := w.alone(func(c *dataplane.Config) { c.ClockSkewMax = 1000 * time.Hour })
		model := &dumb{cells: map[int64]int64{}}
		steps := rapid.IntRange(1, 80).Draw(rt, "steps")
		for range steps {
			step := rapid.OneOf(rapid.IntRange(0, 3_000), rapid.IntRange(-100_000, 200_000), rapid.IntRange(0, 60_000)).Draw(rt, "ms")
			w.clock.advance(time.Duration(step) * time.Millisecond)
			if rapid.IntRange(0, 9).Draw(rt, "sweep") == 0 {
				n.Sweep()
			}
			limit, cost := rapid.Int64Range(0, 20).Draw(rt, "limit"), rapid.Int64Range(0, 8).Draw(rt, "cost")
			now := w.clock.Now().UnixMilli()
			if n.Entries() == 0 { // swept: both cells had expired
				model.latest = window.Sequence(now, 60_000)
			}
			if cost > limit && n.Entries() == 0 {
				continue // answered without an entry
			}
			if model.latest*60_000 > now+200 { // the clock was set back
				model.setRight(now, 60_000)
			}
			allowed, retryAfterMs := model.allow(now, 60_000, limit, cost)
			d := n.take("k", cost, limit)
			if d.Allowed != allowed || d.RetryAfter.Milliseconds() != retryAfterMs {
				rt.Fatalf("at %v, cost %d of %d: %+v; the dumb limiter says %v, retry after %d ms", w.clock.Now(), cost, limit, d, allowed, retryAfterMs)
			}
		}
	})
}

// Invariant 1 under concurrency, across rollovers: a request is judged only by counts that are final.
func TestOneProcessIsExact(t *testing.T) {
	const limit = 200
	w := newWorld(t)
	n := w.alone()
	const windows = 30
	var accepted [windows + 1]atomic.Int64
	var left atomic.Int64
	const workers = 8
	left.Store(workers)
	go func() {
		// The clock moves while requests are decided, in steps of a few hundred ms.
		rnd := rand.New(rand.NewPCG(1, 2))
		for left.Load() > 0 && w.clock.Now().Before(epoch.Add(windows*time.Second)) {
			w.clock.advance(time.Duration(rnd.IntN(300)) * time.Millisecond)
			for range 2000 {
				n.Peek(t.Context(), dataplane.Request{Workspace: "w", Namespace: "n", Identifier: "other", Limit: 1, Duration: time.Second})
			}
		}
		w.clock.set(windows * time.Second)
	}()
	together(workers, func(int) {
		defer left.Add(-1)
		for w.clock.Now().Before(epoch.Add(windows * time.Second)) {
			r := dataplane.Request{Workspace: "w", Namespace: "n", Identifier: "k", Limit: limit, Duration: time.Second, Cost: 3}
			if d := n.Allow(t.Context(), r); d.Allowed {
				accepted[d.ResetAt.Sub(epoch)/time.Second-1].Add(3)
			}
		}
	})
	for i := range windows {
		if got := accepted[i].Load(); got > limit {
			t.Errorf("window %d: %d accepted of %d", i, got, limit)
		}
	}
	// At the start of a window the previous window has its full weight: two neighbours can never hold more than the
	// limit plus the cost whose weight has since been lost.
	var total int64
	for i := range accepted {
		total += accepted[i].Load()
	}
	if most := int64(limit * (windows + 1)); total > most || total == 0 {
		t.Errorf("%d accepted in %d windows of %d", total, windows, limit)
	}
}
