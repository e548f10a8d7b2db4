package window

// Generation numbers the resets of a key, from 1; it is part of a key, so that what was
// counted before a reset is another key's, and means nothing any more.
//
// Only the cell in which a key was reset, and those before it, carry a generation.
// Those after it hold nothing from before and have generation 0, as all cells of a key
// that was never reset: two windows after a reset nothing tells the key from any other.
type Generation uint16

const (
	// GenerationMax is the last one.
	GenerationMax Generation = 1<<15 - 1
)

// Reset is an operator's order to forget what was counted of an identifier, in all of
// its durations. The zero value is none.
type Reset struct {
	Generation Generation
	AtMs       int64 // Unix milliseconds by the clock of the count store
}

// GenerationOf is the generation of a key's cell: the reset's up to the cell that it
// was made in, 0 after it.
func (r Reset) GenerationOf(sequence, durationMs int64) Generation {
	if r.Generation == 0 || sequence > Sequence(r.AtMs, durationMs) {
		return 0
	}
	return r.Generation
}
