package window

import "fmt"

// Mode is how a namespace counts. It is part of a key, because counts of different modes mean different things: for
// example, one mode counts accepted cost, and another can count all requested cost. A namespace that changes its mode
// starts from nothing. If it changes back within its window, it goes on with its earlier counts.
type Mode uint8

const (
	// Exact decides by the accepted cost that the node has received, and reads the region's origin if that may be too old.
	// Use it for limits that must hold, for example quotas that customers pay for.
	Exact Mode = iota
	// Estimate decides at once by the node's counts, however old, and never reads the origin first. Use it if a decision
	// must not wait, for example to protect a service from overload.
	Estimate

	// Modes is how many there are.
	Modes
)

// String returns the name used in settings, in Redis and in logs.
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
