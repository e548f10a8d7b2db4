package dataplane_test

import (
	"context"
	"errors"
	"math"
	"math/big"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/shared/window"
)

// dumbEstimate is the state of one node about one key in the estimate mode, in rational numbers and maps from which
// nothing is ever deleted.
type dumbEstimate struct {
	leaky, offered, below bool
	durationMs, outageMs  int64
	latest                int64 // the open cell

	own, sent, others map[int64]int64 // by sequence, as in dumbKey
	since             map[int64]int64 // own cost since the last sync
	carried           map[int64]int64 // from cells that had not begun when the clock was set back

	known   *big.Rat // the level at the last sync; nil: never synced
	knownMs int64    // by the steady clock
	downMs  int64    // since when a needed sync has failed, by the steady clock; 0: it has not
}

func (k *dumbEstimate) count(s int64) int64 { return k.own[s] + k.others[s] + k.carried[s] }

// cells returns the level by two cells.
func (k *dumbEstimate) cells(nowMs int64) *big.Rat {
	v := big.NewRat((k.latest+1)*k.durationMs-nowMs, k.durationMs)
	v.Mul(v, big.NewRat(k.count(k.latest-1), 1))
	return v.Add(v, big.NewRat(k.count(k.latest), 1))
}

func (k *dumbEstimate) level(nowMs, steadyMs, limit int64) *big.Rat {
	pending := k.since[k.latest] + k.since[k.latest-1]
	switch {
	case !k.leaky: // the carried cost counts in whole units
		v := k.cells(nowMs)
		return new(big.Rat).SetInt(new(big.Int).Quo(v.Num(), v.Denom()))
	case k.known == nil:
		return big.NewRat(pending, 1)
	}
	drained := big.NewRat(limit, k.durationMs)
	v := new(big.Rat).Sub(k.known, drained.Mul(drained, big.NewRat(steadyMs-k.knownMs, 1)))
	if v.Sign() < 0 {
		v.SetInt64(0)
	}
	if k.downMs != 0 && steadyMs-k.downMs >= k.outageMs {
		return v
	}
	return v.Add(v, big.NewRat(pending, 1))
}

// setRight moves the cost that still counts to the current cell of a clock that was set back.
func (k *dumbEstimate) setRight(nowMs int64) {
	if k.latest*k.durationMs <= nowMs+200 {
		return
	}
	to, counts, since := window.Sequence(nowMs, k.durationMs), k.count(k.latest)+k.count(k.latest-1), k.since[k.latest]+k.since[k.latest-1]
	own, others := map[int64]int64{}, map[int64]int64{}
	if to == k.latest-1 { // the origin has it
		own[to], others[to] = k.own[to], k.others[to]
	}
	k.own, k.sent, k.others = own, map[int64]int64{to: own[to]}, others
	k.carried, k.since = map[int64]int64{to: counts - own[to] - others[to]}, map[int64]int64{to: since}
	k.latest, k.downMs = to, 0
}

// take decides and counts.
func (k *dumbEstimate) take(nowMs, steadyMs, limit, cost int64) (allowed bool, current float64) {
	k.latest = max(k.latest, window.Sequence(nowMs, k.durationMs))
	atMs := max(nowMs, k.latest*k.durationMs)
	v := k.level(atMs, steadyMs, limit)
	unknown := k.known == nil && (k.leaky || k.count(k.latest)+k.count(k.latest-1) == 0)
	v.Add(v, big.NewRat(cost, 1))
	cmp := v.Cmp(big.NewRat(limit, 1))
	allowed = unknown && limit > 0 || cmp < 0 || cmp == 0 && !k.below
	if allowed || k.offered {
		k.own[k.latest] += cost
		k.since[k.latest] += cost
	}
	current, _ = v.Float64()
	return allowed, current
}

// sync applies a sync, or only a send. totals are the origin's totals.
func (k *dumbEstimate) sync(nowMs, steadyMs int64, full bool, totals map[window.Cell]int64, cell window.Cell) {
	for _, s := range [2]int64{k.latest - 1, k.latest} {
		wrote := k.own[s] > k.sent[s]
		k.sent[s] = k.own[s]
		if cell.Sequence = s; wrote || full {
			k.others[s] = max(k.others[s], totals[cell]-k.own[s])
		}
	}
	if full {
		atMs := max(nowMs, k.latest*k.durationMs)
		k.known, k.knownMs, k.downMs = k.cells(atMs), steadyMs, 0
		clear(k.since)
	}
}

// The limiter agrees with the dumb limiter on every decision and every level, over any history of requests, syncs,
// outages, other nodes' cost and steps of the clock.
func TestEstimatesAgreeWithTheDumbOne(t *testing.T) {
	for _, settings := range []string{"", posthog, `{"drain":"leaky"}`, `{"count":"offered"}`, `{"test":">="}`} {
		t.Run(settings, func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) { estimateHistory(t, rt, settings) })
		})
	}
}

func estimateHistory(t *testing.T, rt *rapid.T, settings string) {
	const durationMs = 60_000
	w := newWorld(t)
	w.estimates(settings)
	n := w.node("eu", "a", func(c *dataplane.Config) { c.Settings = w.counts })
	n.BreakersOff()
	n.KnowTime()
	origin := w.origin("eu")
	k := &dumbEstimate{
		leaky: settings == posthog || settings == `{"drain":"leaky"}`, offered: settings == posthog || settings == `{"count":"offered"}`, below: settings == posthog || settings == `{"test":">="}`,
		durationMs: durationMs, outageMs: durationMs, latest: math.MinInt32, // before the first request
		own: map[int64]int64{}, sent: map[int64]int64{}, others: map[int64]int64{}, since: map[int64]int64{},
	}
	limit := rapid.SampledFrom([]int64{0, 10, 1000}).Draw(rt, "limit")
	down, unanswered := false, false // unanswered: an increment has no answer, and is sent again in any case
	for range rapid.IntRange(1, 40).Draw(rt, "steps") {
		nowMs, steadyMs := n.NowMs(), 1+w.clock.elapsed().Milliseconds()
		switch rapid.IntRange(0, 9).Draw(rt, "step") {
		default:
			cost := rapid.Int64Range(0, max(2, limit/4)).Draw(rt, "cost")
			d := n.take("k", cost, limit)
			k.setRight(nowMs)
			allowed, current := k.take(nowMs, steadyMs, limit, cost)
			if d.Allowed != allowed || math.Abs(d.Current-current) > 1e-6 {
				rt.Fatalf("cost %d of %d: allowed %v at %v, want %v at %v", cost, limit, d.Allowed, d.Current, allowed, current)
			}
			if k.downMs == 0 && n.asked("k") {
				k.downMs = steadyMs
			}
		case 5: // another node of the region
			if !down {
				w.others(w.estimateCell("k", 0), rapid.Int64Range(1, max(2, limit/3)).Draw(rt, "others"))
			}
		case 6:
			w.clock.advance(time.Duration(rapid.Int64Range(0, 2*durationMs).Draw(rt, "ms")) * time.Millisecond)
		case 7:
			w.clock.advance(time.Duration(rapid.Int64Range(-5_000, 15_000).Draw(rt, "ms")) * time.Millisecond)
		case 8:
			down = !down
			origin.Faults.Fail(map[bool]error{true: errors.New("down")}[down])
		case 9:
			waits, full := n.waits("k"), n.asked("k")
			if waits && !(down && unanswered) { // a sync that gets beyond the last one moves the key on to the cell of its time
				k.latest = max(k.latest, window.Sequence(nowMs, durationMs))
			}
			sends := waits && k.unsent()
			if err := n.SyncOnce(context.Background()); (err != nil) != (down && (unanswered || sends || waits && full)) {
				rt.Fatalf("sync: %v, down %v, waits %v", err, down, waits)
			}
			unanswered = down && (unanswered || sends)
			n.AwaitCalls()
			if waits && !down {
				k.sync(nowMs, steadyMs, full, totals(origin), w.estimateCell("k", 0))
			}
		}
	}
}

func (k *dumbEstimate) unsent() bool {
	return k.own[k.latest] > k.sent[k.latest] || k.own[k.latest-1] > k.sent[k.latest-1]
}

func (n *node) waits(identifier string) bool { return n.Waits(n.w.estimateCell(identifier, 0).Key) }
