package dataplane_test

import (
	"math/big"

	"github.com/weirhq/weir/shared/window"
)

// dumbKey is all that one node can know about one key, as maps from sequence to
// cost that nothing ever leaves, and decided in rational numbers: the limiter that
// nobody would ship and everybody understands. It takes one request at a time, and
// learns what the origin and the other regions said by being told.
type dumbKey struct {
	durationMs int64
	latest     int64 // the cell that is open; earlier ones are closed for good

	own     map[int64]int64 // cost that this node has accepted
	sent    map[int64]int64 // of it, what the origin has confirmed
	others  map[int64]int64 // what the region's other nodes are known to have accepted
	foreign map[int64]int64 // what the other regions have reported
	lowest  map[int64]int64 // lowest limit that cost was accepted against
	stored  map[int64]int64 // the region's published count, as far as this node knows
	missed  map[int64]bool  // a flush came when the cell was over; it need not be published, should the clock step back
	reached map[int64]bool  // a request has reached its limit there, or was denied

	// By the steady clock, which starts late enough for 0 to be never.
	heardMs  int64 // when the origin last spoke of the open cell
	strictMs int64 // until when every decision asks the origin first
	restMs   int64 // until when the origin is not asked, after it has failed
}

func newDumbKey(durationMs, nowMs int64) *dumbKey {
	return &dumbKey{
		durationMs: durationMs, latest: window.Sequence(nowMs, durationMs),
		own: map[int64]int64{}, sent: map[int64]int64{}, others: map[int64]int64{}, foreign: map[int64]int64{},
		lowest: map[int64]int64{}, stored: map[int64]int64{}, missed: map[int64]bool{}, reached: map[int64]bool{},
	}
}

func (k *dumbKey) reach(nowMs int64) { k.latest = max(k.latest, window.Sequence(nowMs, k.durationMs)) }

func (k *dumbKey) regional(sequence int64) int64 { return k.own[sequence] + k.others[sequence] }
func (k *dumbKey) total(sequence int64) int64    { return k.regional(sequence) + k.foreign[sequence] }
func (k *dumbKey) unsent(sequence int64) int64   { return k.own[sequence] - k.sent[sequence] }

// hear takes in a total of the origin's: what is not this node's own is the others'.
func (k *dumbKey) hear(sequence, total int64) {
	k.others[sequence] = max(k.others[sequence], total-k.sent[sequence])
}

// read is what the region itself has published, by whichever node.
func (k *dumbKey) read(sequence, own, foreign int64) {
	k.others[sequence] = max(k.others[sequence], own-k.own[sequence])
	k.foreign[sequence] = max(k.foreign[sequence], foreign)
	k.stored[sequence] = max(k.stored[sequence], own)
}

// used is current + floor(previous*weight) at a time, with extra cost in the open cell.
func (k *dumbKey) used(atMs, extra int64) int64 {
	sequence := window.Sequence(atMs, k.durationMs)
	count := func(s int64) int64 {
		if s == k.latest {
			return k.total(s) + extra
		}
		return k.total(s)
	}
	carried := big.NewRat((sequence+1)*k.durationMs-atMs, k.durationMs)
	carried.Mul(carried, big.NewRat(count(sequence-1), 1))
	return new(big.Int).Quo(carried.Num(), carried.Denom()).Int64() + count(sequence)
}

func (k *dumbKey) fits(atMs, extra, cost, limit int64) bool {
	return k.used(atMs, extra)+cost <= limit
}

// opinion is a decision's worth of answers.
type opinion struct {
	allowed         bool
	refused         bool    // by the outage policy
	current         float64 // with before and cost
	remainingBefore int64   // without either
	remainingAfter  int64   // with both
	retryAfterMs    int64
	resetMs         int64
}

// judge answers a request at nowMs as if before had been counted in the open cell. A
// clock that has stepped back stands at the start of the open cell.
func (k *dumbKey) judge(nowMs, limit, before, cost int64) opinion {
	atMs := max(nowMs, k.latest*k.durationMs)
	o := opinion{
		allowed: k.fits(atMs, before, cost, limit), current: float64(k.used(atMs, before+cost)), resetMs: (k.latest + 1) * k.durationMs,
		remainingBefore: k.remaining(atMs, 0, limit), remainingAfter: k.remaining(atMs, before+cost, limit),
	}
	if !o.allowed && before+cost <= limit { // both have to pass together
		o.retryAfterMs = k.passesAt(atMs, before+cost, limit) - nowMs
	}
	return o
}

// remaining is limit - used, never negative.
func (k *dumbKey) remaining(atMs, extra, limit int64) int64 {
	return max(0, limit-k.used(atMs, extra))
}

// passesAt is the first millisecond at which cost fits: what fits goes on fitting, so
// halving finds it.
func (k *dumbKey) passesAt(fromMs, cost, limit int64) int64 {
	low, high := fromMs, (k.latest+2)*k.durationMs
	for low < high {
		if middle := low + (high-low)/2; k.fits(middle, 0, cost, limit) {
			high = middle
		} else {
			low = middle + 1
		}
	}
	return high
}

// wantsOrigin is true when a decision should ask the origin first: on a cold key, on
// one that has heard nothing for five seconds, and in strict mode.
func (k *dumbKey) wantsOrigin(steadyMs int64) bool {
	return steadyMs-k.heardMs >= 5000 || steadyMs < k.strictMs
}

func (k *dumbKey) accept(limit, cost int64) {
	if cost == 0 {
		return
	}
	if lowest, ok := k.lowest[k.latest]; !ok || limit < lowest {
		k.lowest[k.latest] = limit
	}
	k.own[k.latest] += cost
	k.reached[k.latest] = k.reached[k.latest] || k.total(k.latest) >= limit
}

// deny makes the key strict for one duration, unless the cost says nothing about it.
func (k *dumbKey) deny(steadyMs, limit, cost int64) {
	if cost <= limit {
		k.strictMs = max(k.strictMs, steadyMs+k.durationMs)
		k.reached[k.latest] = true
	}
}

// due is the count that a flush has to publish, if it has to: past a fifth of the
// limit, or once another region has published the cell, each time it has grown by a
// twentieth of the limit, and at its end by any growth at all.
func (k *dumbKey) due(sequence, nowMs int64) (count int64, due bool) {
	limit, counted := k.lowest[sequence]
	count = k.regional(sequence)
	grown := count - k.stored[sequence]
	if !counted || k.durationMs < 60_000 || grown <= 0 || k.over(sequence, nowMs) {
		return 0, false
	}
	if k.foreign[sequence] == 0 && 5*count < limit {
		return 0, false
	}
	step := max(1, (limit+19)/20)
	return count, grown >= step || count > limit-step
}

// over is true when a cell can influence no decision any more.
func (k *dumbKey) over(sequence, nowMs int64) bool { return (sequence+2)*k.durationMs <= nowMs }

// alive is the two cells that a decision can see.
func (k *dumbKey) alive() []int64 { return []int64{k.latest - 1, k.latest} }

// mayGo is true when the key may be forgotten: no strict deadline lies ahead (which
// means nothing to a node alone), nothing is unsent, and its cells are over, or nobody
// has reached a limit in them.
func (k *dumbKey) mayGo(seenFromMs, steadyMs int64, alone, origin bool) bool {
	if k.strictMs > steadyMs && !alone {
		return false
	}
	for _, s := range k.alive() {
		if origin && k.unsent(s) != 0 || k.reached[s] && !k.over(k.latest, seenFromMs) {
			return false
		}
	}
	return true
}
