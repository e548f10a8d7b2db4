// Package level has the arithmetic of the estimate mode: the level of a key, whether a cost fits, and when it will. Its
// functions are pure.
package level

import (
	"math"
	"math/bits"

	"github.com/weirhq/weir/shared/window"
)

// Level is counted in two parts, because one of them shrinks as time passes:
//
//	level = fixed + draining/duration
//
//	drain: cells   fixed = the current cell    draining = 0
//	               plus the previous cell's carry, in whole units
//	drain: leaky   fixed = all local cost      draining = max(0, known*duration - elapsed ms * limit)
//	               since the last sync         where known is the level at that sync
//
// The leaky level is exact: none of its fractions is rounded before it is compared. The level at a sync has fractions
// too.
type Level struct {
	fixed    int64
	draining Product // in cost * ms
}

// Fits reports whether the level is within limit with cost added: at most limit, or below it if the limit must not be
// reached.
func (v Level) Fits(cost, limit, durationMs int64, below bool) bool {
	room := limit - v.fixed - cost
	if room < 0 || below && room == 0 {
		return false
	}
	return v.draining.zero() || v.drainsWithin(room, durationMs, below)
}

func (v Level) drainsWithin(room, durationMs int64, below bool) bool {
	most := Mul(room, durationMs)
	if below {
		return v.draining.less(most)
	}
	return !most.less(v.draining)
}

// Float returns the level as a float, for people and for pressure.
func (v Level) Float(durationMs int64) float64 {
	if v.draining.zero() {
		return float64(v.fixed)
	}
	return float64(v.fixed) + v.draining.float()/float64(durationMs)
}

// Whole returns floor(level).
func (v Level) Whole(durationMs int64) int64 {
	switch {
	case v.draining.zero():
		return v.fixed
	case v.draining.hi >= uint64(durationMs):
		return math.MaxInt64 / 2
	}
	q, _ := bits.Div64(v.draining.hi, v.draining.lo, uint64(durationMs))
	return v.fixed + int64(min(q, math.MaxInt64/4))
}

// Remaining returns the largest cost that would still pass, never negative.
func (v Level) Remaining(limit, durationMs int64, below bool) int64 {
	left := limit - v.Whole(durationMs)
	if below {
		left-- // the limit itself must not be reached
	}
	return max(0, left)
}

// Local returns a level that consists of local cost only.
func Local(cost int64) Level { return Level{fixed: cost} }

// OfCells returns the level by two cells: the sliding window of the exact mode.
func OfCells(current, previous, uncoveredMs, durationMs int64) Level {
	if previous == 0 {
		return Level{fixed: current}
	}
	return Level{fixed: current + window.Carried(previous, uncoveredMs, durationMs)}
}

// Leaky returns the rest of a level, known in cost * ms, after it has drained by limit/duration for elapsedMs, plus all
// local cost since.
func Leaky(known Product, elapsedMs, pending, limit int64) Level {
	return Level{pending, known.minus(Mul(max(0, elapsedMs), limit))}
}

// LeaksAway returns how many ms pass until cost fits into a leaky level, to the millisecond: one millisecond earlier it
// does not fit. If the local cost alone leaves no room, draining of the rest would not help. Then the local cost counts
// as draining with the rest, because the next sync will make it so. ok is false when the cost never fits.
func (v Level) LeaksAway(cost, limit, durationMs int64, below bool) (ms int64, ok bool) {
	if cost > limit || below && cost == limit {
		return 0, false
	}
	room, draining := limit-v.fixed-cost, v.draining
	if room < 0 || below && room == 0 {
		room, draining = limit-cost, draining.Plus(Mul(v.fixed, durationMs))
	}
	excess := draining.minus(Mul(room, durationMs))
	if excess.zero() && !(below && !draining.less(Mul(room, durationMs))) {
		return 0, true
	}
	if limit == 0 {
		return 0, false // nothing drains
	}
	if !below {
		excess = excess.Plus(Product{0, uint64(limit - 1)}) // rounds up
	}
	if excess.hi >= uint64(limit) {
		return RetryMsMax, true
	}
	q, _ := bits.Div64(excess.hi, excess.lo, uint64(limit))
	if below {
		q++ // the first millisecond past the point where the limit is just reached
	}
	return int64(min(q, RetryMsMax)), true
}

// RetryMsMax is the longest time until a cost passes.
const RetryMsMax = math.MaxInt64 / 1_000_000 // of a time.Duration

// Most returns the highest level by cells at which a request passes. Such levels are integers.
func Most(limit int64, below bool) int64 {
	if below {
		return limit - 1
	}
	return limit
}

// Product is an unsigned integer: counts below 2^62 times milliseconds below 2^62.
type Product struct{ hi, lo uint64 }

// zero compares the words directly, because == with a literal would load a literal from memory, even if both words are
// constants.
func (x Product) zero() bool { return x.hi|x.lo == 0 }

// Mul multiplies two numbers that must not be negative.
func Mul(a, b int64) Product {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	return Product{hi, lo}
}

func (x Product) less(y Product) bool { return x.hi < y.hi || x.hi == y.hi && x.lo < y.lo }

// Plus returns the sum.
func (x Product) Plus(y Product) Product {
	lo, carry := bits.Add64(x.lo, y.lo, 0)
	hi, _ := bits.Add64(x.hi, y.hi, carry)
	return Product{hi, lo}
}

// minus returns the difference, or 0 if it is negative.
func (x Product) minus(y Product) Product {
	if x.less(y) {
		return Product{}
	}
	lo, borrow := bits.Sub64(x.lo, y.lo, 0)
	hi, _ := bits.Sub64(x.hi, y.hi, borrow)
	return Product{hi, lo}
}

func (x Product) float() float64 { return float64(x.hi)*(1<<64) + float64(x.lo) }
