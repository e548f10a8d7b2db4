package controlplane

import "errors"

var (
	// ErrInvalid is wrapped by every error about what a caller gave; the message
	// names the field and its bound.
	ErrInvalid = errors.New("invalid")

	// ErrUnavailable is wrapped by errors about a dependency that does not answer;
	// the message says which one and what to do. Trying again later may help.
	ErrUnavailable = errors.New("unavailable")
)
