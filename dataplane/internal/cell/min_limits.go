package cell

import (
	"math"
	"math/bits"
	"sync/atomic"

	"github.com/weirhq/weir/shared/window"
)

// minLimits holds, for each slot, the lowest limit that cost was counted against in its cell, in 16 bits: ten for the
// leading bits of the limit and six for their place. Nodes send it to the others with the count. Limits below 1,024 are
// exact. Larger limits are rounded down, by less than 1/512 (for example, 100,000 to 99,968), so a count is sent a
// little early, never late.
type minLimits struct{ pair atomic.Uint32 }

const (
	noLimit      = 1<<16 - 1 // larger than the code of any limit
	mantissaBits = 10
)

func (l *minLimits) init() { l.pair.Store(noLimit<<16 | noLimit) }

// get returns the lowest limit, rounded down, or math.MaxInt64 if nothing was counted.
func (l *minLimits) get(slot int) int64 {
	code := l.pair.Load() >> (16 * slot & 31) & noLimit // with the masks, no shift needs a check of its width
	if code == noLimit {
		return math.MaxInt64
	}
	return int64(code&(1<<mantissaBits-1)) << (code >> mantissaBits & 63)
}

// lowest is get, but returns 0 if nothing was counted.
func (l *minLimits) lowest(slot int) int64 {
	if limit := l.get(slot); limit <= window.LimitMax {
		return limit
	}
	return 0
}

// most returns the highest limit that rounds down to the limit of get.
func (l *minLimits) most(slot int) int64 {
	code := l.pair.Load() >> (16 * slot) & noLimit
	if code == noLimit {
		return math.MaxInt64
	}
	return l.get(slot) + 1<<(code>>mantissaBits) - 1
}

// lower keeps limit if it is the lowest.
func (l *minLimits) lower(slot int, limit int64) {
	for limit < l.get(slot) {
		shift := max(0, bits.Len64(uint64(limit))-mantissaBits)
		if l.swap(slot, uint32(shift)<<mantissaBits|uint32(limit>>shift)) {
			return
		}
	}
}

func (l *minLimits) reset(slot int) {
	for !l.swap(slot, noLimit) {
	}
}

func (l *minLimits) swap(slot int, code uint32) bool {
	pair := l.pair.Load()
	return l.pair.CompareAndSwap(pair, pair&^(noLimit<<(16*slot))|code<<(16*slot))
}
