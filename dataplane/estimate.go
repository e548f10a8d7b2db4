package dataplane

import (
	"math"
	"math/bits"

	"github.com/weirhq/weir/shared/window"
)

// The arithmetic of the estimate mode: what a key's level is, whether a cost fits, and
// when it will. Pure functions of integers; what they are fed with is in gauge.go.
//
// A level is counted in two parts, because one of them shrinks as time passes:
//
//	level = fixed + draining/duration
//
//	drain: cells   fixed = the current cell    draining = 0
//	               and what the previous one carries over, in whole units
//	drain: leaky   fixed = all local cost      draining = max(0, known*duration - elapsed ms * limit)
//	               since the last sync         where known is the level at that sync
//
// The leaky level is exact: none of its fractions is rounded before it is compared. The level
// at a sync has fractions too.
type level struct {
	fixed    int64
	draining u128 // in cost * ms
}

// fits reports whether the level is within limit with cost added: at most limit, or
// below it where reaching it is too much.
func (v level) fits(cost, limit, durationMs int64, below bool) bool {
	room := limit - v.fixed - cost
	if room < 0 || below && room == 0 {
		return false
	}
	return v.draining == (u128{}) || v.drainsWithin(room, durationMs, below)
}

func (v level) drainsWithin(room, durationMs int64, below bool) bool {
	most := mul(room, durationMs)
	if below {
		return v.draining.less(most)
	}
	return !most.less(v.draining)
}

// float is the level for people and for pressure.
func (v level) float(durationMs int64) float64 {
	if v.draining == (u128{}) {
		return float64(v.fixed)
	}
	return float64(v.fixed) + v.draining.float()/float64(durationMs)
}

// whole is floor(level).
func (v level) whole(durationMs int64) int64 {
	switch {
	case v.draining == (u128{}):
		return v.fixed
	case v.draining.hi >= uint64(durationMs):
		return math.MaxInt64 / 2
	}
	q, _ := bits.Div64(v.draining.hi, v.draining.lo, uint64(durationMs))
	return v.fixed + int64(min(q, math.MaxInt64/4))
}

// remaining is the cost that would still pass, never negative.
func (v level) remaining(limit, durationMs int64, below bool) int64 {
	left := limit - v.whole(durationMs)
	if below {
		left-- // the limit itself must not be reached
	}
	return max(0, left)
}

// cellsLevel is the level by two cells: the sliding window of the exact mode.
func cellsLevel(current, previous, uncoveredMs, durationMs int64) level {
	return level{fixed: current + window.Carried(previous, uncoveredMs, durationMs)}
}

// leakyLevel is what is left of a level, known in cost * ms, that has drained by
// limit/duration for elapsedMs, under all local cost since.
func leakyLevel(known u128, elapsedMs, pending, limit int64) level {
	return level{pending, known.minus(mul(max(0, elapsedMs), limit))}
}

// leaksAway is how many ms pass until cost fits into a leaky level, to the millisecond:
// by one less it does not. Where the local cost alone leaves no room, and so no draining
// of the rest would help, it is taken to drain with the rest, as the next sync will make
// it. ok is false when the cost never fits.
func (v level) leaksAway(cost, limit, durationMs int64, below bool) (ms int64, ok bool) {
	if cost > limit || below && cost == limit {
		return 0, false
	}
	room, draining := limit-v.fixed-cost, v.draining
	if room < 0 || below && room == 0 {
		room, draining = limit-cost, draining.plus(mul(v.fixed, durationMs))
	}
	excess := draining.minus(mul(room, durationMs))
	if excess == (u128{}) && !(below && !draining.less(mul(room, durationMs))) {
		return 0, true
	}
	if limit == 0 {
		return 0, false // nothing drains
	}
	if !below {
		excess = excess.plus(u128{0, uint64(limit - 1)}) // rounds up
	}
	if excess.hi >= uint64(limit) {
		return retryMsMax, true
	}
	q, _ := bits.Div64(excess.hi, excess.lo, uint64(limit))
	if below {
		q++ // the first millisecond past the point where the limit is just reached
	}
	return int64(min(q, retryMsMax)), true
}

const retryMsMax = math.MaxInt64 / 1_000_000 // of a time.Duration

// cellsPassAt is window.PassesAt, also for a limit that must not be reached.
func cellsPassAt(current, previous, cost, limit, tMs, durationMs int64, below bool) (atMs int64, ok bool) {
	if below {
		limit-- // the levels by cells are integers
	}
	return window.PassesAt(current, previous, cost, limit, tMs, durationMs)
}

// u128 is an unsigned integer: counts below 2^62 times milliseconds below 2^62.
type u128 struct{ hi, lo uint64 }

// mul takes what is not negative.
func mul(a, b int64) u128 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	return u128{hi, lo}
}

func (x u128) less(y u128) bool { return x.hi < y.hi || x.hi == y.hi && x.lo < y.lo }

func (x u128) plus(y u128) u128 {
	lo, carry := bits.Add64(x.lo, y.lo, 0)
	hi, _ := bits.Add64(x.hi, y.hi, carry)
	return u128{hi, lo}
}

// minus is never below 0.
func (x u128) minus(y u128) u128 {
	if x.less(y) {
		return u128{}
	}
	lo, borrow := bits.Sub64(x.lo, y.lo, 0)
	hi, _ := bits.Sub64(x.hi, y.hi, borrow)
	return u128{hi, lo}
}

func (x u128) float() float64 { return float64(x.hi)*(1<<64) + float64(x.lo) }
