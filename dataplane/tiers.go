package dataplane

import (
	"math/bits"
	"sync/atomic"
)

// tier is how near a key is to its limit: what decides how often it talks to the origin.
type tier uint8

const (
	tierIdle   tier = iota // below a tenth of the limit
	tierLow                // below half
	tierNormal             // below four fifths
	tierHot
	tiers
)

func (t tier) String() string { return [...]string{"idle", "low", "normal", "hot"}[t] }

// tierOf is left-closed: half the limit is normal. It multiplies, which is quicker than
// to divide, and exact where the level is whole.
func tierOf(level float64, limit int64) tier {
	most := float64(limit)
	switch {
	case 10*level < most || limit == 0: // of 0, nothing that the origin could say matters
		return tierIdle
	case 2*level < most:
		return tierLow
	case 5*level < 4*most:
		return tierNormal
	}
	return tierHot
}

// intervalMs is how long ago a key of the tier must have been synced to be synced
// again. What is idle and below its floor is not synced at all.
func (t tier) intervalMs(baseMs int64) int64 {
	switch t {
	case tierHot:
		return baseMs / 2
	case tierNormal:
		return baseMs
	}
	return 4 * baseMs
}

// effectiveFloor is how much local cost an idle key gathers before it is worth a sync:
// the floor, but no more than a hundredth of the limit.
func effectiveFloor(floor, limit int64) int64 { return min(floor, max(limit/100, 1)) }

// overdue reports whether a key that was last synced at heardMs, 0 for never, may sync
// again.
func (t tier) overdue(nowMs, heardMs, baseMs int64) bool {
	return heardMs == 0 || nowMs-heardMs >= t.intervalMs(baseMs)
}

// costly is true of keys that only sync once their local cost has reached the floor.
func (t tier) costly(heardMs int64) bool { return heardMs == 0 || t == tierIdle }

// passesStep is true when a count that grows by cost passes a multiple of a step, which
// is the power of two from a hundredth to a fiftieth of the limit, or the floor where that
// is more: then what was counted is sent, whatever the tier. It bounds what n nodes
// can keep from each other to n steps, and needs to remember nothing.
func passesStep(count, cost, floor, limit int64) bool {
	flips := uint64(count ^ (count + cost))
	return flips > uint64(limit)/128 && flips >= stepOf(floor, limit) // the first is quick, and true of all that pass
}

func stepOf(floor, limit int64) uint64 {
	step := max(effectiveFloor(floor, limit), limit/50, 1)
	return 1 << (bits.Len64(uint64(step)) - 1)
}

// tierCounts are how many keys are in each tier, and how they got there.
type tierCounts struct {
	keys  [tiers]atomic.Int64
	moves [tiers][tiers]atomic.Int64
}

func (c *tierCounts) move(from, to tier) {
	c.keys[from].Add(-1)
	c.keys[to].Add(1)
	c.moves[from][to].Add(1)
}

// Flags of an entry in the estimate mode, above all others.
const (
	flagEstimate = 1 << 28 // it has a meter
	flagAsked    = 1 << 29 // it waits for a sync, or is in one
	tierShift    = 30      // two bits
	flagsOfTier  = 3 << tierShift
)

func (e *entry) tier() tier { return tier(e.flags.Load() >> tierShift) }

// moveTier returns where the key was. One that was evicted stays where it was counted.
func (e *entry) moveTier(to tier) (from tier) {
	for {
		flags := e.flags.Load()
		if flags&flagDead != 0 {
			return to
		}
		if e.flags.CompareAndSwap(flags, flags&^uint32(flagsOfTier)|uint32(to)<<tierShift) {
			return tier(flags >> tierShift)
		}
	}
}
