package dataplane

import (
	"sync/atomic"

	"github.com/weirhq/weir/dataplane/internal/level"
)

// tierCounts are how many keys are in each tier, and how they got there.
type tierCounts struct {
	keys  [level.Tiers]atomic.Int64
	moves [level.Tiers][level.Tiers]atomic.Int64
}

func (c *tierCounts) move(from, to level.Tier) {
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

func (e *entry) tier() level.Tier { return level.Tier(e.flags.Load() >> tierShift) }

// moveTier returns where the key was. One that was evicted stays where it was counted.
func (e *entry) moveTier(to level.Tier) (from level.Tier) {
	for {
		flags := e.flags.Load()
		if flags&flagDead != 0 {
			return to
		}
		if e.flags.CompareAndSwap(flags, flags&^uint32(flagsOfTier)|uint32(to)<<tierShift) {
			return level.Tier(flags >> tierShift)
		}
	}
}
