package controlplane

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// ValidateText rejects values that a text column would reject: blank values, values that are too long, and bytes that
// are not UTF-8.
func ValidateText(field, value string, bytesMax int) error {
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

// ValidateLength rejects a value that is longer than bytesMax.
func ValidateLength(field, value string, bytesMax int) error {
	if len(value) > bytesMax {
		return fmt.Errorf("%w: %s is %d bytes long (at most %d)", ErrInvalid, field, len(value), bytesMax)
	}
	return nil
}

// ValidateCount rejects a number that is less than least or more than most.
func ValidateCount[N int | int32 | int64](field string, n, least, most N) error {
	if n < least || n > most {
		return fmt.Errorf("%w: %s is %d (%d to %d)", ErrInvalid, field, n, least, most)
	}
	return nil
}

// ValidateSpan rejects a time that is shorter than least or longer than most.
func ValidateSpan(field string, d, least, most time.Duration) error {
	if d < least || d > most {
		return fmt.Errorf("%w: %s is %v (%v to %v)", ErrInvalid, field, d, least, most)
	}
	return nil
}

// ValidateMs rejects a time in milliseconds that is shorter than least or longer than most.
func ValidateMs(field string, ms int64, least, most time.Duration) error {
	return ValidateCount(field, ms, least.Milliseconds(), most.Milliseconds())
}
