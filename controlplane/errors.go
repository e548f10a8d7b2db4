package controlplane

import "errors"

var (
	// ErrInvalid is wrapped by every error about a caller's input. The message names the field and its bound.
	ErrInvalid = errors.New("invalid")

	// ErrUnavailable is wrapped by errors about a dependency that does not answer. The message names the dependency and
	// the remedy. Trying again later may help.
	ErrUnavailable = errors.New("unavailable")

	// ErrConflict is wrapped by errors about an action that the present state does not allow. The message describes the
	// state, and the actions that are possible.
	ErrConflict = errors.New("not now")

	// ErrChanged is wrapped by errors about a change of settings that differ from the state that the caller has seen. The
	// message has the difference.
	ErrChanged = errors.New("the settings have changed")

	// ErrClocksDiffer is wrapped by errors about a database's clock that cannot be trusted. The message has the
	// difference.
	ErrClocksDiffer = errors.New("the clocks of the database and of weir-control differ")

	// ErrNotFound is wrapped by errors about an object that does not exist.
	ErrNotFound = errors.New("not found")
)
