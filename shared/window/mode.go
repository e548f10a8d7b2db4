package window

import "fmt"

// Mode is how a namespace counts. It is part of a key: what one mode has counted, of
// accepted cost say, means nothing to another, which may count all that was asked for.
// A namespace that changes its mode starts from nothing, and from where it was if it
// changes back within its window.
type Mode uint8

const (
	// Exact decides by what is known to have been accepted, and asks the region's
	// origin where that may be too old.
	Exact Mode = iota
	// Estimate decides at once by what is known, however old, and never asks first.
	Estimate

	// Modes is how many there are.
	Modes
)

// String is the name used in settings, in Redis and in logs.
func (m Mode) String() string {
	switch m {
	case Exact:
		return "exact"
	case Estimate:
		return "estimate"
	}
	return fmt.Sprintf("mode %d", uint8(m))
}

// ParseMode is the inverse of String, and takes "" for Exact.
func ParseMode(name string) (Mode, error) {
	switch name {
	case "", "exact":
		return Exact, nil
	case "estimate":
		return Estimate, nil
	}
	return Exact, fmt.Errorf("%w: mode is %q (exact, estimate)", ErrInvalid, name)
}
