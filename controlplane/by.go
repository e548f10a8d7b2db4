package controlplane

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

const (
	// ActorBytesMax bounds By.Actor.
	ActorBytesMax = 191
	// ReasonBytesMax bounds By.Reason.
	ReasonBytesMax = 500
)

// By tells who makes a change, and why. Every change needs one, and leaves it in
// the audit table.
type By struct {
	Actor  string `json:"actor"`  // 1 to ActorBytesMax bytes of UTF-8
	Reason string `json:"reason"` // 1 to ReasonBytesMax bytes of UTF-8
}

// Validate reports the first field outside its bounds.
func (b By) Validate() error {
	if err := validateText("actor", b.Actor, ActorBytesMax); err != nil {
		return err
	}
	return validateText("reason", b.Reason, ReasonBytesMax)
}

// validateText refuses what a text column would: a value without a word in it, one
// that is too long, and bytes that are not UTF-8.
func validateText(field, value string, bytesMax int) error {
	switch {
	case strings.TrimSpace(value) == "":
		return fmt.Errorf("%w: %s is empty (1 to %d bytes)", ErrInvalid, field, bytesMax)
	case len(value) > bytesMax:
		return fmt.Errorf("%w: %s is %d bytes long (1 to %d)", ErrInvalid, field, len(value), bytesMax)
	case !utf8.ValidString(value):
		return fmt.Errorf("%w: %s is not valid UTF-8", ErrInvalid, field)
	}
	return nil
}
