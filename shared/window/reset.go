package window

// Generation numbers the resets of a key, from 1. It is part of a key, so the cost that was counted before a reset
// belongs to another key, and does not count any more.
//
// Only the cell in which a key was reset, and the cells before it, have a generation. The cells after it hold nothing
// from before and have generation 0, as all cells of a key that was never reset. So two windows after a reset the key
// is the same as a key without a reset.
type Generation uint16

const (
	// GenerationMax is the last generation.
	GenerationMax Generation = 1<<15 - 1
)

// Reset is an operator's order to drop the counts of an identifier, in all of its durations. For example, it lets a
// customer back in at once. The zero value is none.
type Reset struct {
	Generation Generation
	AtMs       int64 // Unix milliseconds by the clock of the count store
}

// GenerationOf returns the generation of a key's cell: the reset's generation up to the cell in which it was made, 0
// after it.
func (r Reset) GenerationOf(sequence, durationMs int64) Generation {
	if r.Generation == 0 || sequence > Sequence(r.AtMs, durationMs) {
		return 0
	}
	return r.Generation
}
