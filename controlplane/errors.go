package controlplane

import "errors"

var (
	// ErrInvalid is wrapped by every error about what a caller gave; the message
	// names the field and its bound.
	ErrInvalid = errors.New("invalid")

	// ErrUnavailable is wrapped by errors about a dependency that does not answer;
	// the message says which one and what to do. Trying again later may help.
	ErrUnavailable = errors.New("unavailable")

	// ErrConflict is wrapped by errors about something that cannot be done as things
	// stand: the message says how they stand, and what can be done.
	ErrConflict = errors.New("not now")

	// ErrClocksDiffer is wrapped by errors about a clock of the database that cannot be
	// trusted; the message says by how much.
	ErrClocksDiffer = errors.New("the clocks of the database and of weir-control differ")

	// ErrNotFound is wrapped by errors about something that is not there.
	ErrNotFound = errors.New("not found")
)
