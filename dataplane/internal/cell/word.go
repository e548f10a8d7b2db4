package cell

import "github.com/weirhq/weir/shared/window"

// A cell's count lives in one 64-bit word, the only word that the request path changes, so that counting is a single
// compare-and-swap:
//
//	bit 63      sealed: no request may count here any more
//	bit 62      held: a batch is deciding, for some hundred nanoseconds; see hold.go
//	bits 55-61  the low bits of the cell's sequence
//	bits 0-54   the count: cost that the region has accepted, as far as this node has received it
//
// The tag makes a stale compare-and-swap fail although the slot has been reused
// and happens to hold the same count. (Only a goroutine that is suspended for
// exactly 128 windows, at least two minutes, would find its tag again.)
const (
	countBits = 55
	CountMax  = 1<<countBits - 1
	// where merges, and other additions without a limit, stop: a request, at most window.LimitMax, still fits on top
	mergedMax = 1 << 54
	creditMax = 1 << 53 // of a cell, see Reservation: bounds how far a word can exceed its value at the decision
	tagMask   = 0x7f
	sealed    = 1 << 63
	held      = 1 << 62
)

// plus adds n to the count in a word, up to most, and leaves the bits above it alone. Every writer that raises a count
// must use it: a count that overflowed would change the tag, and a request that waits for the cell's own tag would wait
// for ever.
func plus(word uint64, n, most int64) (sum uint64, added int64) {
	added = max(0, min(n, most-wordCount(word)))
	return word + uint64(added), added
}

func liveTag(sequence int64) uint64 { return uint64(sequence) & tagMask }

func liveWord(sequence, count int64) uint64 { return liveTag(sequence)<<countBits | uint64(count) }

func wordCount(w uint64) int64 { return int64(w & CountMax) }

func wordIsLive(w uint64, sequence int64) bool { return w>>countBits == liveTag(sequence) }

func slotOf(sequence int64) int { return int(sequence & 1) }

func previousSlot(slot int) int { return slot ^ 1 }

func expiredAt(sequence, durationMs, now int64) bool {
	return window.ExpiresAt(sequence, durationMs) <= now
}
